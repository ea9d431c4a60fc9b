"""Workers, processes and several corpora."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from transduce.arrays import Batch
from transduce.config import DataConfig
from transduce.pipeline import batches
from transduce.pipeline.batches import TrainingBatches, own_rows
from transduce.pipeline.readers import Corpus

from .examples import Words, sentences

CONFIG = DataConfig(readers=4, rows=8, row_length=12, packing_bins=4)
PAIRS = sentences(53, seed=1)


def known_words() -> Words:
    """Ids that every process agrees on, whatever it reads first."""
    vocabulary = Words()
    vocabulary.encode_many([text for pair in PAIRS for text in pair])
    return vocabulary


def as_it_is(batch: Batch) -> Batch:
    return batch


def stream(state=None, own=None, corpora=None, **changes) -> TrainingBatches:
    corpora = corpora or [Corpus(source=PAIRS, kept=np.arange(53))]
    config = replace(CONFIG, **changes)
    return TrainingBatches(corpora, known_words(), config, place=as_it_is, state=state, own=own)


def rows(batch: Batch) -> np.ndarray:
    """[B, 6, T] of everything in a batch."""
    sides = (batch.source, batch.target)
    return np.stack([x for side in sides for x in (side.ids, side.segments, side.positions)], 1)


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_batches_and_states_are_the_same_for_any_number_of_workers(workers: int) -> None:
    """R8: also when another number of workers goes on."""
    plain = stream()
    expected = [rows(next(plain)) for _ in range(3)]
    state = json.loads(json.dumps(plain.get_state()))
    then = [rows(next(plain)) for _ in range(3)]
    end = plain.get_state()
    plain.close()

    working = stream(workers=workers)
    np.testing.assert_array_equal([rows(next(working)) for _ in range(3)], expected)
    assert working.get_state() == state
    working.close()
    restored = stream(workers=workers, state=state)
    np.testing.assert_array_equal([rows(next(restored)) for _ in range(3)], then)
    assert restored.get_state() == end
    restored.close()


@pytest.mark.parametrize(
    "shares",
    [
        # Whole readers, of two rows each.
        *([range(4), range(4, 8)], [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 1, 4, 5], [2, 3, 6, 7]]),
        # Parts of readers, as where there are more processes than readers.
        *([[row] for row in range(8)], [[0, 3, 4], [1, 2, 7], [5, 6]]),
    ],
)
def test_the_shares_of_processes_make_up_the_global_batch(shares: list[Sequence[int]]) -> None:
    """R9: and their states together are that of one process."""
    whole = stream()
    iterators = [stream(own=own) for own in shares]

    def together() -> np.ndarray:
        parts = [rows(next(iterator)) for iterator in iterators]
        assert [len(part) for part in parts] == [len(own) for own in shares]
        return np.concatenate(parts)[np.argsort(np.concatenate(shares))]

    for _ in range(4):
        np.testing.assert_array_equal(together(), rows(next(whole)))
    states = [iterator.get_state() for iterator in iterators]
    assert [sorted(map(int, s)) for s in states] == [sorted({r // 2 for r in s}) for s in shares]
    merged = {number: state for share in states for number, state in share.items()}
    assert merged == whole.get_state()
    for iterator in iterators:
        iterator.close()
    iterators = [stream(own=own, state=merged) for own in shares]
    np.testing.assert_array_equal(together(), rows(next(whole)))
    for iterator in (whole, *iterators):
        iterator.close()


def on_devices(*places: slice) -> Any:
    """The batch's sharding, as a process sees it whose devices have these rows."""
    indices = {device: (place, slice(None)) for device, place in enumerate(places)}
    return lambda mesh: SimpleNamespace(addressable_devices_indices_map=lambda shape: indices)


@pytest.mark.parametrize(
    ("places", "own"),
    [
        ([slice(None)], [0, 1, 2, 3, 4, 5, 6, 7]),
        ([slice(4, 6), slice(6, 8)], [4, 5, 6, 7]),
        # As on a slice of TPUs, where a host's chips are a square of the torus.
        ([slice(6, 8), slice(2, 4)], [2, 3, 6, 7]),
        # Where devices divide tensors, several have the same rows.
        ([slice(0, 4), slice(0, 4)], [0, 1, 2, 3]),
        ([slice(0, 1), slice(4, 5)], [0, 4]),
    ],
)
def test_a_process_has_the_rows_on_its_devices(
    places: list[slice], own: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R7: also where hosts hold less than a reader's rows."""
    monkeypatch.setattr(batches, "batch_sharding", on_devices(*places))
    mesh: Any = None
    assert own_rows(mesh, CONFIG) == own


def test_corpora_are_drawn_by_size_and_weight() -> None:
    # 40 and 10 pairs, the second with weight 2: 40 to 20, two in three to one in three.
    first = [(f"a{number}", "x") for number in range(40)]
    second = [(f"b{number}", "y") for number in range(10)]
    corpora = [
        Corpus(source=first, kept=np.arange(40)),
        Corpus(source=second, kept=np.arange(10), weight=2.0),
    ]
    vocabulary = Words()
    drawing = TrainingBatches(corpora, vocabulary, replace(CONFIG, row_length=2), place=as_it_is)
    ids = np.concatenate([np.asarray(batch.source.ids)[:, 0] for batch in islice(drawing, 30)])
    drawing.close()
    words = {index: word for word, index in vocabulary.ids.items()}
    drawn = Counter(words[index] for index in ids.tolist())
    assert sum(drawn.values()) == 240
    of_second = sum(count for word, count in drawn.items() if word.startswith("b"))
    assert of_second == pytest.approx(80, abs=4)
    # 160 of 40 and 80 of 10: each pair 4 and 8 times, up to what the readers have read ahead.
    assert {word for word in drawn if word.startswith("b")} == {f"b{n}" for n in range(10)}
    assert {word for word in drawn if word.startswith("a")} == {f"a{n}" for n in range(40)}
