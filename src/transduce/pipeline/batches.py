"""Batches of packed sentence pairs (section 5.1), with Grain.

Training draws from a fixed number of readers (see `readers`); a global batch is the readers' rows
one after the other. So the batch of a step depends on the seed and the step alone: not on the
number of processes, each of which owns whole readers, nor on that of their workers.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import grain
import numpy as np
from absl import flags

from transduce.arrays import Batch, Tokens
from transduce.config import DataConfig, RequestError
from transduce.pipeline.readers import Corpus, Rows, Tokenize, examples, reader
from transduce.pipeline.selection import Pairs
from transduce.text.vocabulary import Vocabulary

type State = dict[str, str]
"""Of each reader, by its number: where it goes on."""


class TrainingBatches:
    """Endless batches of [rows, row_length], or a process' share of them; an iterator."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        vocabulary: Vocabulary,
        config: DataConfig,
        *,
        place: Callable[[Batch], Batch],
        state: State | None = None,
        process: tuple[int, int] = (0, 1),
    ):
        """`place` puts a batch of host arrays onto devices, ahead of the step that uses it.

        `state` is that of an earlier iterator, which this one goes on from. `process` is this
        one's index and their number: each has an equal, contiguous share of the readers.
        """
        index, count = process
        if config.readers % count:
            raise RequestError(
                f"data.readers ({config.readers}) does not divide over {count} processes"
            )
        share = config.readers // count
        self._numbers = range(index * share, (index + 1) * share)
        self._state = dict(state or {})
        pairs = examples(corpora, vocabulary, config)
        readers = [
            reader(pairs, config, number=number, state=self._state.get(str(number)))
            for number in self._numbers
        ]

        def whole(parts: tuple[tuple[Rows, str], ...]) -> tuple[Batch, tuple[str, ...]]:
            rows, states = zip(*parts, strict=True)
            names = rows[0].keys()
            return place(
                _batch({name: np.concatenate([part[name] for part in rows]) for name in names})
            ), states

        zipped = _zip_in_workers(readers, config.workers).map(whole)
        self._iterator = iter(
            grain.experimental.ThreadPrefetchIterDataset(
                zipped, prefetch_buffer_size=config.prefetch
            )
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch, states = next(self._iterator)
        self._state |= {str(n): state for n, state in zip(self._numbers, states, strict=True)}
        return batch

    def get_state(self) -> State:
        """What goes on after the batch that was given last."""
        return dict(self._state)

    def close(self) -> None:
        """Ends the thread and the worker processes that read ahead."""
        self._iterator.close()


def _zip_in_workers(readers: Sequence[grain.IterDataset], workers: int) -> grain.IterDataset:
    """The readers side by side, in their order, shared out to `workers` processes; 0: in none."""
    if not workers:
        return grain.experimental.ZipIterDataset(tuple(readers))
    if not flags.FLAGS.is_parsed():
        # Grain's workers hand absl's flags on, and ask that there be some.
        flags.FLAGS.mark_as_parsed()
    share = -(-len(readers) // workers)
    options = grain.MultiprocessingOptions(num_workers=1)
    groups = [
        grain.experimental.ZipIterDataset(tuple(readers[start : start + share])).mp_prefetch(
            options, worker_init_fn=_end_with_the_run
        )
        for start in range(0, len(readers), share)
    ]
    return grain.experimental.ZipIterDataset(tuple(groups)).map(_flatten)


def _end_with_the_run(*_: int) -> None:
    """A worker leaves Ctrl-C to the run, and ends with it however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = multiprocessing.parent_process()
    assert run is not None

    def watch() -> None:
        run.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _flatten(groups: tuple[tuple, ...]) -> tuple:
    return tuple(part for group in groups for part in group)


def _batch(rows: Rows) -> Batch:
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
    tokenize = Tokenize(vocabulary, 0.0, 0)
    generator = np.random.default_rng(0)  # asked for, and not used without sampling
    tokenized = [tokenize(pair, generator) for pair in pairs]
    longest = max(len(ids) for example in tokenized for ids in example.values())
    widening = -(-longest // config.row_length)
    width = widening * config.row_length
    rows = max(rows // multiple // widening, 1) * multiple
    packed = grain.experimental.FirstFitPackIterDataset(
        grain.MapDataset.source(tokenized).to_iter_dataset(grain.ReadOptions(num_threads=0)),
        length_struct={"source": width, "target": width},
        num_packing_bins=config.packing_bins,
        shuffle_bins=False,
    )
    for part in packed.batch(rows, drop_remainder=False):
        missing = rows - len(part["source"])
        yield _batch({name: np.pad(x, ((0, missing), (0, 0))) for name, x in part.items()})
