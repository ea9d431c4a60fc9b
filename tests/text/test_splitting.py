"""A long line in parts."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.splitting import split


def at_most(length: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= length


def sentences(line: str) -> list[str]:
    return split(line, at_most(1000))


def test_a_sentence_ends_before_white_space() -> None:
    line = "It is 1.5 m. Is it?  Yes!\tWell… so be it."
    assert sentences(line) == ["It is 1.5 m.", "Is it?", "Yes!", "Well…", "so be it."]


def test_quotes_and_brackets_close_with_their_sentence() -> None:
    assert sentences('He said "no." Then (so.) we left.') == [
        *('He said "no."', "Then (so.)", "we left.")
    ]
    assert sentences("„Ja.“ «Non.» »Nein.« ‘Yes.’ [No.]") == [
        *("„Ja.“", "«Non.»", "»Nein.«", "‘Yes.’", "[No.]")
    ]
    assert sentences('("Wait!") He stopped.') == ['("Wait!")', "He stopped."]


def test_no_space_follows_a_sentence_in_chinese_and_japanese() -> None:
    assert sentences("我来了。你呢？好！") == ["我来了。", "你呢？", "好！"]
    assert sentences("彼は「はい。」と言った。（そう。）次。") == [
        *("彼は「はい。」", "と言った。", "（そう。）", "次。")
    ]
    assert sentences("本当？！ はい。。") == ["本当？！", "はい。。"]


def test_a_line_without_an_end_is_one_sentence() -> None:
    assert sentences("  no end here ") == ["no end here"]
    assert sentences("...") == ["..."]
    assert sentences(" \t\u2003") == []
    assert sentences("") == []


def test_a_sentence_that_is_too_long_is_cut_at_the_space_nearest_to_its_middle() -> None:
    """Of 17 characters the middle is 8; spaces are at 3, 7 and 13."""
    assert split("aaa bbb ccccc ddd", at_most(9)) == ["aaa bbb", "ccccc ddd"]
    assert split("aaa bbb ccccc ddd", at_most(7)) == ["aaa bbb", "ccccc", "ddd"]
    assert split("One. Two three four.", at_most(9)) == ["One.", "Two three", "four."]


def test_without_a_space_a_word_is_cut_at_its_middle() -> None:
    assert split("abcdefghij", at_most(3)) == ["ab", "cde", "fg", "hij"]
    assert split("我来了你呢", at_most(3)) == ["我来", "了你呢"]


def test_a_single_character_stays_though_it_does_not_fit() -> None:
    assert split("ab c", lambda text: False) == ["a", "b", "c"]


@pytest.mark.parametrize("word", ["a", "a ", "a. ", "。"])
def test_a_very_long_line_is_split(word: str) -> None:
    parts = split(word * 20_000, at_most(10))
    assert "".join("".join(parts).split()) == word.strip() * 20_000
    assert max(map(len, parts)) <= 10


LINES = st.text(st.sampled_from(list('ab.!?…。！「」”)’" \t\u2028\u00a0\r\x1c')) | st.characters())


@given(LINES, st.integers(1, 12))
def test_nothing_is_lost_but_white_space(line: str, length: int) -> None:
    """Parts stand in the line in their order with white space alone between them, and each fits."""
    rest = line
    for part in split(line, at_most(length)):
        assert part == part.strip() != ""
        assert len(part) <= length
        rest = rest.lstrip()
        assert rest.startswith(part)
        rest = rest.removeprefix(part)
    assert rest.strip() == ""
