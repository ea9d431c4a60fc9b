"""Batches of packed sentence pairs (section 5.1), with Grain.

Training draws from a fixed number of readers (see `readers`); a global batch is the readers' rows
one after the other. So the batch of a step depends on the seed and the step alone: not on the
number of processes, each of which runs the readers of its rows, nor on that of their workers.
"""

import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import grain
import numpy as np
from absl import flags
from jax.sharding import Mesh

from transduce.arrays import Batch, Tokens
from transduce.config import DataConfig
from transduce.parallel import hosts
from transduce.parallel.mesh import batch_sharding
from transduce.pipeline.readers import Corpus, Rows, Tokenize, examples, reader
from transduce.pipeline.selection import Pairs
from transduce.pipeline.words import WordNumbers
from transduce.text.vocabulary import Vocabulary

type State = dict[str, str]
"""Of each reader, by its number: where it goes on."""


def own_rows(mesh: Mesh, config: DataConfig) -> list[int]:
    """The rows of a batch that lie on devices of this process, ascending.

    Which they are is up to the mesh: they need not be adjacent, and devices of several processes
    may hold the same rows.
    """
    shape = config.rows, config.row_length
    places = batch_sharding(mesh).addressable_devices_indices_map(shape).values()
    return sorted({row for place in places if place for row in range(config.rows)[place[0]]})


class TrainingBatches:
    """Endless batches of [rows, row_length], or a process' share of their rows; an iterator."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        vocabulary: Vocabulary,
        config: DataConfig,
        *,
        place: Callable[[Batch], Batch],
        state: State | None = None,
        own: Sequence[int] | None = None,
        history: int = 1,
    ):
        """`place` puts a batch of host arrays onto devices, ahead of the step that uses it.

        `state` is that of earlier iterators, which this one goes on from. `own` are the rows that
        are given, ascending; None: all. Of a reader that has other rows too, those are made and
        left out: with a multiple of mesh.data x mesh.fsdp readers there are none. `history` is how
        many of the last batches `pairs` knows.
        """
        self._made_of = corpora, vocabulary, config
        share = config.rows // config.readers
        wanted = range(config.rows) if own is None else own
        self._numbers = sorted({row // share for row in wanted})
        made_rows = [n * share + row for n in self._numbers for row in range(share)]
        kept = np.isin(made_rows, wanted)
        known = state or {}
        self._state = {str(n): known[str(n)] for n in self._numbers if str(n) in known}
        self._before: deque[State] = deque(maxlen=history)
        pairs = examples(corpora, vocabulary, config)
        made = _Batches(vocabulary)
        readers = [
            reader(pairs, config, number=number, state=self._state.get(str(number)))
            for number in self._numbers
        ]

        def whole(parts: tuple[tuple[Rows, str], ...]) -> tuple[Batch, tuple[str, ...]]:
            rows, states = zip(*parts, strict=True)
            names = rows[0].keys()
            arrays = {name: np.concatenate([part[name] for part in rows])[kept] for name in names}
            return place(made(arrays)), states

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
        self._before.append(self._state)
        self._state = self._state | {
            str(n): state for n, state in zip(self._numbers, states, strict=True)
        }
        return batch

    def get_state(self) -> State:
        """What goes on after the batch that was given last, of the readers of all processes.

        All processes must ask, and the first gets the answer; the others get nothing.
        """
        parts = hosts.gather_bytes(json.dumps(self._state).encode()) or []
        return {number: state for part in parts for number, state in json.loads(part).items()}

    def pairs(self, ago: int) -> dict[int, list[int]]:
        """What the batch is made of that was given `ago` batches before the last one.

        The places of the pairs in their splits, by the numbers of the corpora, of this process's
        readers. Its rows are made once more for that, from the state before it.
        """
        corpora, vocabulary, config = self._made_of
        state = self._before[-1 - ago]
        named = examples(corpora, vocabulary, config, named=True)
        found: dict[int, list[int]] = {}
        for number in self._numbers:
            start = state.get(str(number))
            rows, _ = next(iter(reader(named, config, number=number, state=start, named=True)))
            names = rows["pair"][rows["pair_segment_ids"] > 0].reshape(-1, 2)
            for corpus, place in names.tolist():
                found.setdefault(corpus, []).append(place)
        return found

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


class _Batches:
    """Makes batches of packed rows, those of a parser with the numbers of words."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._numbers = WordNumbers(vocabulary) if vocabulary.symbols else None

    def __call__(self, rows: Rows) -> Batch:
        # In numpy until they are placed.
        arrays: Any = {**rows, **(self._numbers(rows) if self._numbers else {})}

        def side(name: str) -> Tokens:
            return Tokens(
                ids=arrays[name],
                segments=arrays[f"{name}_segment_ids"],
                positions=arrays[f"{name}_positions"],
                words=arrays.get(f"{name}_words"),
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
    made = _Batches(vocabulary)
    for part in packed.batch(rows, drop_remainder=False):
        missing = rows - len(part["source"])
        yield made({name: np.pad(x, ((0, missing), (0, 0))) for name, x in part.items()})
