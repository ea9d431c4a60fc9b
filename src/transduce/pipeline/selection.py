"""Which pairs of the corpora are trained on, decided once and counted."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Protocol

import numpy as np
import regex

from transduce.config import FilterConfig, RequestError
from transduce.text.vocabulary import Vocabulary


class Pairs(Protocol):
    """Source and target text, by random access and one after the other."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[str, str]: ...
    def __iter__(self) -> Iterator[tuple[str, str]]: ...


_PAIRS_AT_A_TIME = 8192

REASONS = (
    "with a blank side",
    "too long for a row",
    "of too unequal lengths",
    "with equal sides",
    "in another script",
    "that came before",
)
"""Why pairs are left out. A pair counts under the first that holds."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The pairs of a corpus that are trained on, and the count of those that are not."""

    kept: np.ndarray
    """Indices into the corpus, ascending."""
    pairs: int
    left_out: Mapping[str, int]
    """Pairs by reason, of those reasons that were looked for."""
    source_tokens: int
    """Of the kept pairs, EOS included."""
    target_tokens: int

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        return (
            f"{len(self.kept):,} of {self.pairs:,} pairs (left out: {reasons}); "
            f"{self.source_tokens:,} source and {self.target_tokens:,} target tokens"
        )


def select(
    corpora: Mapping[str, Pairs],
    vocabulary: Vocabulary,
    *,
    row_length: int,
    filters: FilterConfig,
) -> dict[str, Selection]:
    """The pairs of each corpus, by name, that have text on both sides, fit a row, pass `filters`.

    A row has `row_length` tokens, EOS included. Raises `RequestError` when a corpus has none left.
    """
    rules = _Rules(vocabulary, row_length, filters)
    judged = [rules.judge(pairs) for pairs in corpora.values()]
    if filters.duplicates:
        _drop_repeated(judged)
    asked = {
        *REASONS[:2],
        *([REASONS[2]] if filters.length_ratio else []),
        *([REASONS[3]] if filters.identical else []),
        *([REASONS[4]] if filters.source_script or filters.target_script else []),
        *([REASONS[5]] if filters.duplicates else []),
    }
    selections = {}
    for name, (verdicts, lengths, _) in zip(corpora, judged, strict=True):
        kept = np.flatnonzero(verdicts == _KEPT)
        counts = {
            reason: int((verdicts == code).sum())
            for code, reason in enumerate(REASONS)
            if reason in asked
        }
        source_tokens, target_tokens = (int(total) for total in lengths[kept].sum(axis=0))
        selection = Selection(
            kept=kept,
            pairs=len(verdicts),
            left_out=counts,
            source_tokens=source_tokens,
            target_tokens=target_tokens,
        )
        if not len(kept):
            raise RequestError(
                f"no training pair of corpus {name} is left: {selection}; data.row_length is "
                f"{row_length}"
            )
        selections[name] = selection
    return selections


_KEPT = -1

type _Judged = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For each pair: an index into REASONS or _KEPT; its two lengths; a hash of its text."""


@dataclass(frozen=True)
class _Rules:
    vocabulary: Vocabulary
    row_length: int
    filters: FilterConfig

    def judge(self, pairs: Pairs) -> _Judged:
        parts = [self._judge_block(block) for block in batched(pairs, _PAIRS_AT_A_TIME)]
        if not parts:
            return np.zeros(0, np.int8), np.zeros((0, 2), np.int64), np.zeros(0, np.uint64)
        verdicts, lengths, hashes = (np.concatenate(part) for part in zip(*parts, strict=True))
        return verdicts, lengths, hashes

    def _judge_block(self, block: tuple[tuple[str, str], ...]) -> _Judged:
        filters = self.filters
        sources, targets = zip(*block, strict=True)
        encoded = self.vocabulary.encode_many(sources), self.vocabulary.encode_targets(targets)
        lengths = np.array([[len(ids) for ids in side] for side in encoded]).T
        longest, shortest = lengths.max(axis=1), lengths.min(axis=1)
        never = np.zeros(len(block), bool)
        failures = [
            # Of a side that is not blank, a normalising vocabulary may leave nothing but EOS.
            np.array([not (s.strip() and t.strip()) for s, t in block]) | (shortest == 1),
            longest > self.row_length,
            longest - 1 > filters.length_ratio * (shortest - 1) if filters.length_ratio else never,
            np.array([s == t for s, t in block]) if filters.identical else never,
            ~(
                _in_script(sources, filters.source_script)
                & _in_script(targets, filters.target_script)
            ),
        ]
        verdicts = np.full(len(block), _KEPT, np.int8)
        for code in reversed(range(len(failures))):
            verdicts[failures[code]] = code
        digests = [_hash(pair) for pair in block] if filters.duplicates else [0] * len(block)
        return verdicts, lengths, np.array(digests, np.uint64)


def _hash(pair: tuple[str, str]) -> int:
    digest = hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _in_script(texts: Sequence[str], script: str) -> np.ndarray:
    """Whether most letters of each text are of a Unicode script; all are, of a text without any."""
    if not script:
        return np.ones(len(texts), bool)
    inside = regex.compile(rf"[\p{{L}}&&\p{{Script={script}}}]", regex.V1)
    letter = regex.compile(r"\p{L}")
    return np.array([2 * len(inside.findall(text)) >= len(letter.findall(text)) for text in texts])


def _drop_repeated(judged: Sequence[_Judged]) -> None:
    """Marks, of the pairs kept so far over all corpora, all but the first of equal ones."""
    verdicts = np.concatenate([verdict for verdict, _, _ in judged])
    hashes = np.concatenate([digests for _, _, digests in judged])
    kept = np.flatnonzero(verdicts == _KEPT)
    _, first = np.unique(hashes[kept], return_index=True)
    repeated = np.ones(len(kept), bool)
    repeated[first] = False
    verdicts[kept[repeated]] = len(REASONS) - 1
    start = 0
    for verdict, _, _ in judged:
        verdict[:] = verdicts[start : start + len(verdict)]
        start += len(verdict)
