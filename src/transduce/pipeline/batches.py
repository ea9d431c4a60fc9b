"""Batches of packed sentence pairs (section 5.1), with Grain.

Training draws from a fixed number of readers. Each takes every n-th example of the shuffled
corpus, tokenises and packs on its own; a global batch is the readers' rows one after the other.
So the batch of a step depends on the seed and the step alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grain
import numpy as np

from transduce.arrays import Batch, Tokens
from transduce.config import DataConfig
from transduce.pipeline.selection import Pairs
from transduce.text.vocabulary import Vocabulary

type Row = dict[str, np.ndarray]


@dataclass(frozen=True)
class _Pick:
    """The kept pairs of a corpus, as a Grain source."""

    pairs: Pairs
    kept: np.ndarray

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: Any) -> tuple[str, str]:
        return self.pairs[int(self.kept[index])]


@dataclass(frozen=True)
class _Tokenize:
    vocabulary: Vocabulary
    sampling: float
    row_length: int

    def __call__(self, pair: tuple[str, str], rng: np.random.Generator) -> Row:
        source, target = (self._ids(text, rng) for text in pair)
        return {"source": source, "target": target}

    def _ids(self, text: str, rng: np.random.Generator) -> np.ndarray:
        if self.sampling:
            ids = self.vocabulary.sample(text, rng, self.sampling)
            # A sampled segmentation is longer; the pair was chosen because the plain one fits.
            if len(ids) <= self.row_length:
                return np.array(ids, np.int32)
        return np.array(self.vocabulary.encode(text), np.int32)


def training_batches(
    pairs: Pairs,
    kept: np.ndarray,
    vocabulary: Vocabulary,
    config: DataConfig,
    *,
    place: Callable[[Batch], Batch],
) -> grain.IterDataset:
    """Endless batches of [rows, row_length]; its iterator's state is a JSON-like tree.

    `place` puts a batch of host arrays onto devices, ahead of the step that uses it.
    """
    examples = (
        grain.MapDataset.source(_Pick(pairs, kept))
        .seed(config.seed)
        .shuffle()
        .repeat()
        .random_map(_Tokenize(vocabulary, config.subword_sampling, config.row_length))
    )
    lengths = {"source": config.row_length, "target": config.row_length}
    readers = []
    for reader in range(config.readers):
        stream = examples[reader :: config.readers].to_iter_dataset(
            grain.ReadOptions(num_threads=0)
        )
        packed = grain.experimental.FirstFitPackIterDataset(
            stream,
            length_struct=lengths,
            num_packing_bins=config.packing_bins,
            seed=config.seed + reader,
        )
        readers.append(packed.batch(config.rows // config.readers))
    whole = grain.experimental.ZipIterDataset(readers).map(_concatenate).map(place)
    return grain.experimental.ThreadPrefetchIterDataset(whole, prefetch_buffer_size=config.prefetch)


def _concatenate(parts: tuple[Row, ...]) -> Batch:
    return _batch({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _batch(rows: Row) -> Batch:
    def side(name: str) -> Tokens:
        return Tokens(
            ids=rows[name],  # pyright: ignore[reportArgumentType] numpy until it is placed
            segments=rows[f"{name}_segment_ids"],  # pyright: ignore[reportArgumentType]
            positions=rows[f"{name}_positions"],  # pyright: ignore[reportArgumentType]
        )

    return Batch(source=side("source"), target=side("target"))


def evaluation_batches(
    pairs: Pairs, vocabulary: Vocabulary, config: DataConfig, *, rows: int, multiple: int = 1
) -> Iterator[Batch]:
    """Every pair exactly once, packed, in batches of equal shape, the last filled up with PAD.

    They are [rows, config.row_length]. When a side is longer than that, so that no pair is left
    out, rows are a multiple of it wide, and fewer, so that a batch has as many tokens; their
    number is a multiple of `multiple`, of which `rows` is one.
    """
    tokenize = _Tokenize(vocabulary, 0.0, 0)
    generator = np.random.default_rng(0)  # asked for, and not used without sampling
    examples = [tokenize(pair, generator) for pair in pairs]
    longest = max(len(ids) for example in examples for ids in example.values())
    widening = -(-longest // config.row_length)
    width = widening * config.row_length
    rows = max(rows // multiple // widening, 1) * multiple
    packed = grain.experimental.FirstFitPackIterDataset(
        grain.MapDataset.source(examples).to_iter_dataset(grain.ReadOptions(num_threads=0)),
        length_struct={"source": width, "target": width},
        num_packing_bins=config.packing_bins,
        shuffle_bins=False,
    )
    for part in packed.batch(rows, drop_remainder=False):
        missing = rows - len(part["source"])
        yield _batch({name: np.pad(x, ((0, missing), (0, 0))) for name, x in part.items()})
