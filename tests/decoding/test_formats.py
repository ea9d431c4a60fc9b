import json
from dataclasses import replace
from typing import Any

import pytest

from transduce.decoding.formats import as_json, as_text
from transduce.decoding.translator import Hypothesis, Translation

# Every end of a line that str.splitlines knows, a NUL, half of a surrogate pair, and characters
# that JSON escapes or need not escape.
STRANGE = 'a\nb\rc\vd\fe\x1cf\x1dg\x1eh\x85i\u2028j\u2029k\0l\ud800m"n\\o\tp\x7fq é 日 😀'


def hypothesis(text: str, **fields: Any) -> Hypothesis:
    """Of two tokens."""
    made = Hypothesis(
        text=text,
        tokens=("▁" + text, "</s>"),
        ids=(7, 2),
        log_probability=-0.75,
        penalized_score=-0.5,
        token_log_probabilities=(-0.5, -0.25),
        alignment=None,
    )
    return replace(made, **fields)


def translation(*hypotheses: Hypothesis, **fields: Any) -> Translation:
    made = Translation(hypotheses=hypotheses, source_tokens=("▁x", "y", "</s>"))
    return replace(made, **fields)


BLANK = translation(
    Hypothesis(
        text="",
        tokens=(),
        ids=(),
        log_probability=0.0,
        penalized_score=0.0,
        token_log_probabilities=(),
        alignment=None,
    ),
    source_tokens=(),
)


def test_the_text_is_the_line() -> None:
    item = translation(hypothesis("a ||| b\tc"), hypothesis("worse"))
    assert as_text(1, item, n_best=1, scores=False) == ["a ||| b\tc"]
    assert as_text(1, BLANK, n_best=1, scores=False) == [""]


def test_a_score_stands_before_the_text_and_a_tab() -> None:
    item = translation(hypothesis("the man", log_probability=-1.23456789))
    assert as_text(1, item, n_best=1, scores=True) == ["-1.234568\tthe man"]
    assert as_text(1, BLANK, n_best=1, scores=True) == ["0.000000\t"]


@pytest.mark.parametrize("scores", [False, True])
def test_n_best_lines_are_those_of_moses(scores: bool) -> None:
    """D12: numbered from 0, a line for each hypothesis that there is."""
    item = translation(
        hypothesis("one", log_probability=-1.0, penalized_score=-0.25),
        hypothesis("two", log_probability=-1.5, penalized_score=-0.3333333),
        hypothesis("three"),
    )
    both = ["4 ||| one ||| -1.000000 ||| -0.250000", "4 ||| two ||| -1.500000 ||| -0.333333"]
    third = "4 ||| three ||| -0.750000 ||| -0.500000"
    assert as_text(5, item, n_best=2, scores=scores) == both
    assert as_text(5, item, n_best=9, scores=scores) == [*both, third]
    assert as_text(1, BLANK, n_best=4, scores=scores) == ["0 |||  ||| 0.000000 ||| 0.000000"]


def test_zero_has_no_sign() -> None:
    item = translation(hypothesis("a", log_probability=-1e-9, penalized_score=-0.0))
    assert as_text(1, item, n_best=2, scores=False) == ["0 ||| a ||| 0.000000 ||| 0.000000"]
    assert as_text(1, item, n_best=1, scores=True) == ["0.000000\ta"]
    (line,) = as_json(1, item, n_best=1)
    assert '"score": 0.0, "penalized_score": 0.0,' in line


def test_a_record_has_all_that_is_known_of_the_line() -> None:
    item = translation(
        hypothesis("man", log_probability=-0.1234567, token_log_probabilities=(-0.1, -0.0234567)),
        hypothesis("worse"),
        notes=("source cut",),
    )
    (line,) = as_json(3, item, n_best=1)
    assert json.loads(line) == {
        "line": 3,
        "text": "man",
        "tokens": ["▁man", "</s>"],
        "score": -0.123457,
        "penalized_score": -0.5,
        "length": 2,
        "token_log_probabilities": [-0.1, -0.023457],
        "notes": ["source cut"],
    }


def test_a_blank_line_has_a_record() -> None:
    """T2."""
    (line,) = as_json(2, BLANK, n_best=1)
    assert json.loads(line) == {
        "line": 2,
        "text": "",
        "tokens": [],
        "score": 0.0,
        "penalized_score": 0.0,
        "length": 0,
        "token_log_probabilities": [],
        "notes": [],
    }


def test_an_alignment_comes_with_the_tokens_of_the_source() -> None:
    rows = ((0.5, 0.25, 0.25), (1 / 3, 1 / 3, 1 / 3))
    item = translation(hypothesis("man", alignment=rows), hypothesis("worse", alignment=rows))
    (line,) = as_json(1, item, n_best=2)
    record = json.loads(line)
    assert record["source_tokens"] == ["▁x", "y", "</s>"]
    assert record["alignment"] == [[0.5, 0.25, 0.25], [0.333333, 0.333333, 0.333333]]
    assert record["alternatives"][0]["alignment"] == record["alignment"]
    assert "source_tokens" not in record["alternatives"][0]


def test_alternatives_are_the_hypotheses_after_the_best() -> None:
    item = translation(hypothesis("one"), hypothesis("two"), hypothesis("three"))
    for n_best, texts in ((2, ["two"]), (3, ["two", "three"]), (9, ["two", "three"])):
        (line,) = as_json(1, item, n_best=n_best)
        record = json.loads(line)
        assert record["text"] == "one"
        assert [other["text"] for other in record["alternatives"]] == texts
    assert record["alternatives"][0] == {
        "text": "two",
        "tokens": ["▁two", "</s>"],
        "score": -0.75,
        "penalized_score": -0.5,
        "length": 2,
        "token_log_probabilities": [-0.5, -0.25],
    }
    (line,) = as_json(1, BLANK, n_best=2)
    assert json.loads(line)["alternatives"] == []


def test_a_record_is_one_line_for_every_reader() -> None:
    """T1: also for those that end lines at U+2028; the text comes back as it was."""
    item = translation(
        hypothesis(STRANGE), hypothesis(STRANGE), notes=(STRANGE,), source_tokens=(STRANGE,)
    )
    (line,) = as_json(1, item, n_best=2)
    assert line.splitlines() == [line]
    assert line.encode().decode() == line
    record = json.loads(line)
    assert record["text"] == STRANGE
    assert record["tokens"] == ["▁" + STRANGE, "</s>"]
    assert record["notes"] == [STRANGE]
    assert record["alternatives"][0]["text"] == STRANGE


def test_text_is_not_escaped_without_need() -> None:
    (line,) = as_json(1, translation(hypothesis("é 日 😀")), n_best=1)
    assert '"text": "é 日 😀"' in line


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_record_holds_finite_numbers_alone(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(1, translation(hypothesis("a", log_probability=value)), n_best=1)
