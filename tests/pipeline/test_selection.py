from itertools import repeat

import numpy as np
import pytest

from transduce.arrays import EOS
from transduce.config import FilterConfig, RequestError
from transduce.pipeline import selection as module
from transduce.pipeline.selection import Pairs, Selection, select
from transduce.text.vocabulary import Vocabulary

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


def chosen(pairs: Pairs, vocabulary: Vocabulary | None = None, **filters) -> Selection:
    """The selection from one corpus with rows of 4 tokens."""
    vocabulary = Words() if vocabulary is None else vocabulary
    filtered = FilterConfig(**filters)
    return select({"one": pairs}, vocabulary, row_length=4, filters=filtered)["one"]


def test_pairs_are_kept_that_fit_and_each_other_one_is_counted_once() -> None:
    selection = chosen(PAIRS)
    assert selection.kept.tolist() == [0, 3, 8]
    assert selection.pairs == 9
    assert selection.left_out == {"with a blank side": 4, "too long for a row": 2}
    assert (selection.source_tokens, selection.target_tokens) == (3 + 4 + 2, 4 + 4 + 2)
    assert str(selection) == (
        "3 of 9 pairs (left out: 4 with a blank side, 2 too long for a row); "
        "9 source and 10 target tokens"
    )


def test_where_the_corpus_is_cut_into_blocks_changes_nothing(monkeypatch) -> None:
    filters = {"duplicates": True, "length_ratio": 1.0}
    whole = chosen(PAIRS * 2, **filters)
    for size in (1, 2, 4, 9):
        monkeypatch.setattr(module, "_PAIRS_AT_A_TIME", size)
        parts = chosen(PAIRS * 2, **filters)
        np.testing.assert_array_equal(parts.kept, whole.kept)
        assert str(parts) == str(whole)


def test_a_side_of_which_the_vocabulary_leaves_nothing_is_blank() -> None:
    class Normalizing(Words):
        def encode_many(self, texts):
            return [[EOS] if text == "\u200b" else self.encode(text) for text in texts]

    selection = chosen([("a", "b"), ("\u200b", "b")], Normalizing())
    assert selection.kept.tolist() == [0]
    assert selection.left_out["with a blank side"] == 1


@pytest.mark.parametrize("pairs", [[], [*repeat(("a b c d", "e"), 3)], [("", "")]])
def test_a_corpus_of_which_no_pair_is_left_is_refused(pairs) -> None:
    with pytest.raises(
        RequestError, match=r"no training pair of corpus one is left.*data\.row_length is 4"
    ):
        chosen(pairs)


def test_sides_of_too_unequal_lengths_are_left_out() -> None:
    pairs = [("a", "b"), ("a", "b c"), ("a", "b c d"), ("a b c", "d"), ("a b", "c d e")]
    # Pieces without EOS: ratios 1, 2, 3, 3 and 1.5.
    selection = chosen(pairs, length_ratio=2.0)
    assert selection.kept.tolist() == [0, 1, 4]
    assert selection.left_out["of too unequal lengths"] == 2
    assert chosen(pairs, length_ratio=1.5).kept.tolist() == [0, 4]


def test_pairs_with_equal_sides_are_left_out_when_asked() -> None:
    pairs = [("a", "a"), ("a", "A"), ("a", "a ")]
    assert chosen(pairs, identical=True).kept.tolist() == [1, 2]
    assert chosen(pairs).kept.tolist() == [0, 1, 2]


def test_most_letters_must_be_of_the_script_asked_for() -> None:
    pairs = [
        ("word", "\u0441\u043b\u043e\u0432\u043e"),  # Latin, Cyrillic
        ("\u0441\u043b\u043e\u0432\u043e", "word"),
        ("ab\u0441\u043b", "\u0441"),  # half of the letters are Latin
        ("a\u0441\u043b", "\u0441"),  # a third
        ("12 !", "34"),  # no letter at all
    ]
    selection = chosen(pairs, source_script="Latin", target_script="Cyrillic")
    assert selection.kept.tolist() == [0, 2, 4]
    assert selection.left_out["in another script"] == 2


def test_of_equal_pairs_the_first_is_kept_over_all_corpora() -> None:
    first = [("a", "b"), ("c", "d"), ("a", "b"), ("a", "c")]
    second = [("c", "d"), ("e", "f"), ("", ""), ("", "")]
    filters = FilterConfig(duplicates=True)
    made = select({"a": first, "b": second}, Words(), row_length=4, filters=filters)
    assert made["a"].kept.tolist() == [0, 1, 3]
    assert made["b"].kept.tolist() == [1]
    assert made["a"].left_out["that came before"] == 1
    assert made["b"].left_out["that came before"] == 1
    assert made["b"].left_out["with a blank side"] == 2


def test_a_pair_counts_under_the_first_reason_alone() -> None:
    pairs = [("a a a a", "a a a a"), ("x", "x"), ("x", "x"), ("a", "b")]
    selection = chosen(pairs, identical=True, duplicates=True)
    assert selection.kept.tolist() == [3]
    assert list(selection.left_out.values()) == [0, 1, 2, 0]
