"""Which sentence pairs a batch was made of."""

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from transduce.arrays import Batch
from transduce.config import DataConfig
from transduce.pipeline.batches import TrainingBatches
from transduce.pipeline.readers import Corpus

from .examples import Words, sentences

CONFIG = DataConfig(readers=3, rows=6, row_length=12, packing_bins=4)
FIRST, SECOND = sentences(53, seed=1), sentences(20, seed=2)


def sources_of(batch: Batch) -> list[tuple[int, ...]]:
    """The ids of every source in a batch, sorted."""
    found = []
    for ids, segments in zip(batch.source.ids, batch.source.segments, strict=True):
        numbers = range(1, int(np.max(segments)) + 1)
        found += [tuple(np.asarray(ids)[np.asarray(segments) == number]) for number in numbers]
    return sorted(found)


@pytest.mark.parametrize("changes", [{}, {"subword_sampling": 0.5}, {"workers": 1}])
def test_the_pairs_of_the_last_batches_are_known(changes: dict[str, Any]) -> None:
    """R19: by corpus and place, also after the run went on from a state."""
    vocabulary = Words()
    # Of the second corpus every other pair is drawn, from the last one to the first.
    kept = [np.arange(53), np.arange(20)[::-2]]
    corpora: list[Any] = [
        Corpus(source=FIRST, kept=kept[0]),
        Corpus(source=[(f"x {a}", f"x {b}") for a, b in SECOND], kept=kept[1], weight=2.0),
    ]
    config = replace(CONFIG, **changes)
    state = None
    # A worker has a copy of the vocabulary, and would number words of its own.
    vocabulary.encode_many(text for corpus in corpora for text, _ in corpus.source)
    for _ in range(2):
        batches = TrainingBatches(
            corpora, vocabulary, config, place=lambda batch: batch, state=state, history=3
        )
        last: deque[Batch] = deque(maxlen=3)
        for _ in range(5):
            last.append(next(batches))
        for ago in range(3):
            pairs = batches.pairs(ago)
            assert {*pairs} <= {0, 1}
            texts = [corpora[number].source[place] for number in pairs for place in pairs[number]]
            assert set(pairs.get(1, [])) <= {*kept[1].tolist()}
            given = sources_of(last[-1 - ago])
            if config.subword_sampling:
                # A piece a letter where that fits a row.
                letters = [len(text.replace(" ", "")) + 1 for text, _ in texts]
                words = [len(text.split()) + 1 for text, _ in texts]
                lengths = [a if a <= 12 else b for a, b in zip(letters, words, strict=True)]
                assert sorted(lengths) == sorted(map(len, given))
            else:
                assert sorted(tuple(vocabulary.encode(text)) for text, _ in texts) == given
        with pytest.raises(IndexError):
            batches.pairs(3)
        state = batches.get_state()
        batches.close()
