"""EVALB's tables: one worked by hand, and the published ones where they are at hand."""

import gzip
import os
import re
from pathlib import Path

import pytest

from transduce.config import RequestError
from transduce.evaluation.bracket_verb import brackets

GOLD = """\
(TOP (S (NP (DT The) (NN dog)) (VP (VBD ran) (RB home)) (. .)))
(TOP (S (NP (PRP It)) (VP (VBD ran))))
(TOP (S (NP (PRP It)) (VP (VBD ran))))
(TOP (NP (NN Rain)))
"""
TEST = """\
(TOP (S (NP (DT The)) (VP (NN dog) (VBD ran) (RB home)) (. .)))
(S1 (S (NP (PRP It)) (VP (VBN ran))))
(TOP (S (NP (PRP It)) (VP (VBD rains))))

"""
TABLE = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
============================================================================
   1    5    0   33.33  33.33     1      3    3      1      4     4   100.00
   2    2    0  100.00 100.00     3      3    3      0      2     1    50.00
   3    2    1    0.00   0.00     0      0    0      0      0     0     0.00
   4    1    2    0.00   0.00     0      0    0      0      0     0     0.00
============================================================================
                 66.67  66.67      4     6     6      1      6     5    83.33
=== Summary ===

-- All --
Number of sentence        =      4
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      2
Bracketing Recall         =  66.67
Bracketing Precision      =  66.67
Bracketing FMeasure       =  66.67
Complete match            =  50.00
Average crossing          =   0.50
No crossing               =  50.00
2 or less crossing        = 100.00
Tagging accuracy          =  83.33

-- len<=40 --
Number of sentence        =      4
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      2
Bracketing Recall         =  66.67
Bracketing Precision      =  66.67
Bracketing FMeasure       =  66.67
Complete match            =  50.00
Average crossing          =   0.50
No crossing               =  50.00
2 or less crossing        = 100.00
Tagging accuracy          =  83.33
"""


def write(folder: Path, gold: str, test: str, parameters: str = "") -> list[str]:
    """The names of the files: the parameters' only if there are any."""
    texts = {"gold.txt": gold, "test.txt": test, "file.prm": parameters}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [str(folder / name) for name, text in texts.items() if name != "file.prm" or text]


def test_the_table_of_four_sentences_worked_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E3: the error and the empty line are counted and shown, and stay out of all figures."""
    brackets(*write(tmp_path, GOLD, TEST))
    captured = capsys.readouterr()
    assert captured.out == TABLE
    assert captured.err == "3 : Words unmatch (ran|rains)\n"


def test_files_may_be_gzipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, test = write(tmp_path, GOLD, TEST)
    Path(gold).write_bytes(gzip.compress(GOLD.encode()))
    brackets(gold, test)
    assert capsys.readouterr().out == TABLE


def test_the_cutoff_and_the_labels_are_those_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TOP, S1 and the point count when no label is deleted; sentence 1 is longer than 2 words."""
    brackets(*write(tmp_path, GOLD, TEST, "CUTOFF_LEN 2\n"))
    table, _, short = capsys.readouterr().out.partition("-- len<=2 --\n")
    assert table.splitlines()[3:5] == [
        "   1    5    0   50.00  50.00     2      4    4      1      5     5   100.00",
        "   2    2    0   75.00  75.00     3      4    4      0      2     1    50.00",
    ]
    assert short.splitlines()[0].split() == ["Number", "of", "sentence", "=", "3"]
    assert "Bracketing Recall         =  75.00" in short


def test_no_valid_sentence_leaves_the_total_row_without_brackets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    brackets(*write(tmp_path, "(S (A a))\n", "\n"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[5] == "      0     0     0.00"
    assert lines.count("Bracketing FMeasure       =    nan") == 2


def test_too_many_errors_end_it_without_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By EVALB's count MAX_ERROR 1 bears two errors; skipped sentences are none."""
    tests = ["(S (A b))", "(S (A a))", "", "(S (A a) (A a))", "", "(S (A a", "(S (A a))"]
    gold = "(S (A a))\n" * len(tests)
    test = "".join(f"{line}\n" for line in tests)
    with pytest.raises(RequestError) as caught:
        brackets(*write(tmp_path, gold, test, "MAX_ERROR 1\n"))
    assert str(caught.value) == (
        f"{tmp_path}/test.txt, line 6: Unreadable test tree at 'a'; with 3 sentences in error "
        "there are no totals: MAX_ERROR 1 lets 2 pass"
    )
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3 + 5
    assert captured.err == "1 : Words unmatch (a|b)\n4 : Length unmatch (1|2)\n"
    brackets(*write(tmp_path, gold, test, "MAX_ERROR 2\n"))
    assert "Number of Error sentence  =      3" in capsys.readouterr().out


def test_files_of_different_length_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RequestError, match=r"test\.txt has 3 lines and .*gold\.txt has 4"):
        brackets(*write(tmp_path, GOLD, TEST.removesuffix("\n")))
    with pytest.raises(RequestError, match=r"gold\.txt is empty"):
        brackets(*write(tmp_path, "", ""))
    assert capsys.readouterr().out == ""


def evalb() -> Path:
    folder = Path(os.environ.get("TRANSDUCE_DATA", "../shared/data")) / "evalb"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there; $TRANSDUCE_DATA names the folder of corpora")
    return folder


@pytest.mark.parametrize("parameters", ["COLLINS", "nk"])
@pytest.mark.parametrize("name", ["a_light", "b_heavy"])
def test_damaged_trees_have_the_table_of_the_c_program(
    name: str, parameters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """E3: to the byte."""
    stem = evalb() / "perturbed" / name
    prm = evalb() / f"{parameters}.prm"
    brackets(f"{stem}.gld", f"{stem}.tst", str(prm))
    expected = Path(f"{stem}.{parameters}.rsl").read_text(encoding="utf-8")
    assert capsys.readouterr().out == expected


def figures(table: str) -> tuple[list[list[str]], list[str], list[tuple[str, str]]]:
    """Rows of sentences, the row of totals, and names and values of the summary."""
    top, _, bottom = table.partition("=== Summary ===")
    rules = re.split("={70,}\n", top)
    rows = [line.split() for line in rules[1].splitlines()]
    summary = [(name.strip(), value.strip()) for name, value in re.findall("(.*)=(.*)", bottom)]
    return rows, rules[2].split(), summary


def test_the_sample_has_the_published_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """E3: EVALB's own cases. The table is that of its first version, which in two columns told
    other things: in errors the words of the gold tree, four in each, where later versions give 0;
    and among the totals under "Cross" the sentences without one, 16, where later versions give
    the sum of the column, 1. It had no F-measure.
    """
    folder = evalb() / "sample"
    brackets(*(f"{folder}/sample.{ending}" for ending in ("gld", "tst", "prm")))
    captured = capsys.readouterr()
    rows, totals, summary = figures(captured.out)
    expected = figures((folder / "sample.rsl").read_text(encoding="utf-8"))
    words = 9
    for row in expected[0]:
        if row[2] != "0":
            assert row[words] == "4"
            row[words] = "0"
    assert rows == expected[0]
    assert (totals.pop(5), expected[1].pop(5)) == ("1", "16")
    assert totals == expected[1]
    measures = [value for name, value in summary if name == "Bracketing FMeasure"]
    assert measures == ["89.12", "83.20"]
    assert [one for one in summary if one[0] != "Bracketing FMeasure"] == expected[2]
    assert captured.err == (
        "12 : Words unmatch (is|was)\n13 : Length unmatch (4|5)\n16 : Length unmatch (4|5)\n"
        "17 : Length unmatch (4|6)\n20 : Words unmatch (this|That)\n"
    )


def test_misquoted_trees_have_the_published_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """E3: with QUOTE_LABEL. Under "Cross" the published totals have the sentences without one."""
    folder = evalb()
    brackets(f"{folder}/bug/bug.gld", f"{folder}/bug/bug.tst", f"{folder}/new.prm")
    rows, totals, summary = figures(capsys.readouterr().out)
    expected = figures((folder / "bug" / "bug.rsl-new").read_text(encoding="utf-8"))
    assert rows == expected[0]
    assert (totals.pop(5), expected[1].pop(5)) == ("36", "0")
    assert totals == expected[1]
    assert summary == expected[2]


def test_misquoted_trees_are_errors_without_quote_labels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """E3: the published messages, rows and summary are of parameters that keep the full stop."""
    folder = evalb()
    brackets(f"{folder}/bug/bug.gld", f"{folder}/bug/bug.tst", f"{folder}/sample/sample.prm")
    captured = capsys.readouterr()
    published = (folder / "bug" / "bug.rsl-old").read_text(encoding="utf-8")
    messages = re.findall("^.*unmatch.*\n", published, re.MULTILINE)
    assert captured.err == "".join(messages)
    assert len(messages) == 5
    assert figures(captured.out) == figures(re.sub("^.*unmatch.*\n", "", published, flags=re.M))
