"""Which pairs of a corpus are trained on, decided once and counted."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import batched
from typing import Protocol

import numpy as np

from transduce.config import RequestError
from transduce.text.vocabulary import Vocabulary


class Pairs(Protocol):
    """Source and target text, by random access and one after the other."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[str, str]: ...
    def __iter__(self) -> Iterator[tuple[str, str]]: ...


_PAIRS_AT_A_TIME = 8192


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The pairs that fit, and the count of those that do not."""

    kept: np.ndarray
    """Indices into the corpus, ascending."""
    pairs: int
    empty: int
    """Pairs left out because a side is blank."""
    too_long: int
    """Pairs left out because a side, EOS included, is longer than a row."""
    source_tokens: int
    """Of the kept pairs, EOS included."""
    target_tokens: int

    def __str__(self) -> str:
        return (
            f"{len(self.kept):,} of {self.pairs:,} pairs "
            f"({self.empty:,} left out with a blank side, {self.too_long:,} too long for a row); "
            f"{self.source_tokens:,} source and {self.target_tokens:,} target tokens"
        )


def select(pairs: Pairs, vocabulary: Vocabulary, *, row_length: int) -> Selection:
    """The pairs with two sides that are not blank and fit a row of `row_length` tokens.

    Raises `RequestError` when none is left.
    """
    kept, start, empty, too_long, source_tokens, target_tokens = [], 0, 0, 0, 0, 0
    for block in batched(pairs, _PAIRS_AT_A_TIME):
        sources, targets = zip(*block, strict=True)
        lengths = [
            np.array([len(ids) for ids in vocabulary.encode_many(side)])
            for side in (sources, targets)
        ]
        # Of a side that is not blank, a normalising vocabulary may leave nothing but EOS.
        blank = np.minimum(*lengths) == 1
        blank |= [not (s.strip() and t.strip()) for s, t in zip(sources, targets, strict=True)]
        longest = np.maximum(*lengths)
        fits = ~blank & (longest <= row_length)
        empty += int(blank.sum())
        too_long += int((~blank & (longest > row_length)).sum())
        source_tokens += int(lengths[0][fits].sum())
        target_tokens += int(lengths[1][fits].sum())
        kept.append(start + np.flatnonzero(fits))
        start += len(block)
    selection = Selection(
        kept=np.concatenate(kept) if kept else np.zeros(0, np.int64),
        pairs=len(pairs),
        empty=empty,
        too_long=too_long,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
    )
    if not len(selection.kept):
        raise RequestError(
            f"no training pair is left: {selection}; data.row_length is {row_length}"
        )
    return selection
