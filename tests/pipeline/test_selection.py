from itertools import repeat

import numpy as np
import pytest

from transduce.arrays import EOS
from transduce.config import RequestError
from transduce.pipeline import selection as module
from transduce.pipeline.selection import select

from .examples import Words

PAIRS = [
    ("a b", "c d e"),  # 3 and 4 tokens
    ("a b c d", "e"),  # 5 and 2: the source does not fit 4
    ("a", "b c d e"),  # 2 and 5: the target does not fit 4
    ("a b c", "d e f"),  # 4 and 4: both fit exactly
    ("", "a"),
    ("a", " \t"),
    ("\u00a0", ""),
    ("a b c d e f", "\u3000"),  # blank, and too long: counted once
    ("a", "b"),  # 2 and 2
]


def test_pairs_are_kept_that_fit_and_each_other_one_is_counted_once() -> None:
    selection = select(PAIRS, Words(), row_length=4)
    assert selection.kept.tolist() == [0, 3, 8]
    assert (selection.pairs, selection.empty, selection.too_long) == (9, 4, 2)
    assert (selection.source_tokens, selection.target_tokens) == (3 + 4 + 2, 4 + 4 + 2)
    assert str(selection) == (
        "3 of 9 pairs (4 left out with a blank side, 2 too long for a row); "
        "9 source and 10 target tokens"
    )


def test_where_the_corpus_is_cut_into_blocks_changes_nothing(monkeypatch) -> None:
    whole = select(PAIRS, Words(), row_length=4)
    for size in (1, 2, 4, 9):
        monkeypatch.setattr(module, "_PAIRS_AT_A_TIME", size)
        parts = select(PAIRS, Words(), row_length=4)
        np.testing.assert_array_equal(parts.kept, whole.kept)
        assert str(parts) == str(whole)


def test_a_side_of_which_the_vocabulary_leaves_nothing_is_blank() -> None:
    class Normalizing(Words):
        def encode_many(self, texts):
            return [[EOS] if text == "\u200b" else self.encode(text) for text in texts]

    selection = select([("a", "b"), ("\u200b", "b")], Normalizing(), row_length=4)
    assert (selection.kept.tolist(), selection.empty) == ([0], 1)


@pytest.mark.parametrize("pairs", [[], [*repeat(("a b c d", "e"), 3)], [("", "")]])
def test_a_corpus_of_which_no_pair_is_left_is_refused(pairs) -> None:
    with pytest.raises(RequestError, match=r"no training pair is left.*data\.row_length is 4"):
        select(pairs, Words(), row_length=4)
