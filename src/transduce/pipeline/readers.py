"""The readers of training text: each shuffles, tokenises and packs a stream of its own.

A reader's elements carry the state from which the reader goes on after them. So the state of a
run is one small entry a reader, the same whatever process or worker the reader is in.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grain
import numpy as np

from transduce.config import DataConfig
from transduce.text.vocabulary import Vocabulary

type Rows = dict[str, np.ndarray]
"""Packed rows: for source and target, name, name_segment_ids and name_positions, each [B, T]."""


class Source(Protocol):
    """The pairs of a corpus, as texts or, with data.pretokenized, as ids."""

    def __getitem__(self, index: int, /) -> tuple[str, str] | Rows: ...


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What is drawn of a corpus in training."""

    source: Source
    kept: np.ndarray
    """Indices of the pairs that are drawn."""
    weight: float = 1.0
    """How often one of its pairs is drawn, compared with one of a corpus of weight 1."""


@dataclass(frozen=True)
class _Pick:
    """The kept pairs of a corpus, as a Grain source."""

    source: Source
    kept: np.ndarray
    number: int
    """Of the corpus."""

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: Any) -> tuple[str, str] | Rows:
        return self.source[int(self.kept[index])]


@dataclass(frozen=True)
class _NamedPick(_Pick):
    """The same, with what is needed to find a pair again: its corpus, and its place there."""

    def __getitem__(self, index: Any) -> Any:
        name = np.array([self.number, self.kept[index]], np.int64)
        return super().__getitem__(index), name


@dataclass(frozen=True)
class Tokenize:
    """A pair of texts to their ids; `sampling` as data.subword_sampling."""

    vocabulary: Vocabulary
    sampling: float
    row_length: int

    def __call__(self, pair: tuple[str, str], rng: np.random.Generator) -> Rows:
        source, target = pair
        source_ids = self._sampled(source, rng) or self.vocabulary.encode(source)
        # Symbols of trees are whole always.
        sampled = [] if self.vocabulary.symbols else self._sampled(target, rng)
        target_ids = sampled or self.vocabulary.encode_target(target)
        return {"source": np.array(source_ids, np.int32), "target": np.array(target_ids, np.int32)}

    def _sampled(self, text: str, rng: np.random.Generator) -> list[int]:
        """Nothing when nothing is to be sampled, and when what was does not fit a row."""
        if not self.sampling:
            return []
        ids = self.vocabulary.sample(text, rng, self.sampling)
        # A sampled segmentation is longer; the pair was chosen because the plain one fits.
        return ids if len(ids) <= self.row_length else []


@dataclass(frozen=True)
class _Name:
    """Puts the name of a pair beside its ids."""

    tokenize: Tokenize | None

    def __call__(self, named: Any, rng: np.random.Generator) -> Rows:
        found, name = named
        return {**(self.tokenize(found, rng) if self.tokenize else found), "pair": name}


def examples(
    corpora: Sequence[Corpus], vocabulary: Vocabulary, config: DataConfig, *, named: bool = False
) -> grain.MapDataset:
    """Endless tokenised pairs, each corpus shuffled anew every time it has been gone through.

    `named` ones also have "pair": the number of the corpus, and the place in its split.
    """
    pick = _NamedPick if named else _Pick
    shuffled = [
        grain.MapDataset.source(pick(corpus.source, corpus.kept, number))
        .seed(config.seed + number)
        .shuffle()
        .repeat()
        for number, corpus in enumerate(corpora)
    ]
    drawn = shuffled[0]
    if len(corpora) > 1:
        sizes = [corpus.weight * len(corpus.kept) for corpus in corpora]
        drawn = grain.MapDataset.mix(shuffled, [size / sum(sizes) for size in sizes])
    tokenize: Any = None
    if not config.pretokenized:
        tokenize = Tokenize(vocabulary, config.subword_sampling, config.row_length)
    if named:
        name: Any = _Name(tokenize)
        return drawn.seed(config.seed).random_map(name)
    return drawn.seed(config.seed).random_map(tokenize) if tokenize else drawn


def reader(
    pairs: grain.MapDataset,
    config: DataConfig,
    *,
    number: int,
    state: str | None,
    named: bool = False,
) -> grain.IterDataset:
    """Reader `number` of config.readers, from `state` on: (its rows of a batch, state after them).

    It takes every pair whose place leaves the remainder `number`.
    """
    # There is room for the names of as many pairs as have a token each.
    names = {"pair": 2 * config.row_length} if named else {}
    stream = pairs[number :: config.readers].to_iter_dataset(grain.ReadOptions(num_threads=0))
    packed = grain.experimental.FirstFitPackIterDataset(
        stream,
        length_struct={"source": config.row_length, "target": config.row_length, **names},
        num_packing_bins=config.packing_bins,
        seed=config.seed + number,
    )
    return _WithState(packed.batch(config.rows // config.readers), state)


class _WithState(grain.IterDataset):
    def __init__(self, parent: grain.IterDataset, state: str | None):
        super().__init__(parent)
        self._start = state

    def __iter__(self) -> grain.DatasetIterator:
        iterator = iter(self._parent)
        if self._start is not None:
            iterator.set_state(json.loads(self._start))
        return _WithStateIterator(iterator)


class _WithStateIterator(grain.DatasetIterator):
    def __next__(self) -> tuple[Rows, str]:
        rows = next(self._parent)
        return rows, json.dumps(self._parent.get_state())

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)
