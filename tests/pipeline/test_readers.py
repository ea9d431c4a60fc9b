"""Workers, processes and several corpora."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from transduce.arrays import Batch
from transduce.config import DataConfig, RequestError
from transduce.pipeline.batches import TrainingBatches
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


def stream(state=None, process=(0, 1), corpora=None, **changes) -> TrainingBatches:
    corpora = corpora or [Corpus(source=PAIRS, kept=np.arange(53))]
    config = replace(CONFIG, **changes)
    return TrainingBatches(
        corpora, known_words(), config, place=as_it_is, state=state, process=process
    )


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


@pytest.mark.parametrize("count", [2, 4])
def test_the_shares_of_processes_make_up_the_global_batch(count: int) -> None:
    """R9: and their states together are that of one process."""
    whole = stream()
    shares = [stream(process=(index, count)) for index in range(count)]
    for _ in range(4):
        parts = [rows(next(share)) for share in shares]
        np.testing.assert_array_equal(np.concatenate(parts), rows(next(whole)))
    together = {key: value for share in shares for key, value in share.get_state().items()}
    assert together == whole.get_state()
    following = rows(next(whole))
    resumed = [stream(process=(index, count), state=together) for index in range(count)]
    np.testing.assert_array_equal(np.concatenate([rows(next(r)) for r in resumed]), following)
    for iterator in (whole, *shares, *resumed):
        iterator.close()


def test_readers_that_do_not_divide_over_the_processes_are_refused() -> None:
    with pytest.raises(RequestError, match=r"data\.readers \(4\).* 3 processes"):
        stream(process=(0, 3))


def test_corpora_are_drawn_by_size_and_weight() -> None:
    # 40 and 10 pairs, the second with weight 2: 40 to 20, two in three to one in three.
    first = [(f"a{number}", "x") for number in range(40)]
    second = [(f"b{number}", "y") for number in range(10)]
    corpora = [
        Corpus(source=first, kept=np.arange(40)),
        Corpus(source=second, kept=np.arange(10), weight=2.0),
    ]
    vocabulary = Words()
    batches = TrainingBatches(corpora, vocabulary, replace(CONFIG, row_length=2), place=as_it_is)
    ids = np.concatenate([np.asarray(batch.source.ids)[:, 0] for batch in islice(batches, 30)])
    batches.close()
    words = {index: word for word, index in vocabulary.ids.items()}
    drawn = Counter(words[index] for index in ids.tolist())
    assert sum(drawn.values()) == 240
    of_second = sum(count for word, count in drawn.items() if word.startswith("b"))
    assert of_second == pytest.approx(80, abs=4)
    # 160 of 40 and 80 of 10: each pair 4 and 8 times, up to what the readers have read ahead.
    assert {word for word in drawn if word.startswith("b")} == {f"b{n}" for n in range(10)}
    assert {word for word in drawn if word.startswith("a")} == {f"a{n}" for n in range(40)}
