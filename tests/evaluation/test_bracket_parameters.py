from pathlib import Path

import pytest

from transduce.config import RequestError
from transduce.evaluation.bracket_parameters import PENN_TREEBANK, Parameters, read_parameters
from transduce.evaluation.brackets import score


def test_every_parameter_is_read(tmp_path: Path) -> None:
    """Labels and pairs add up, of a number the last holds; DEBUG changes nothing."""
    path = tmp_path / "all.prm"
    path.write_text(
        "# DELETE_LABEL VP\n\nDEBUG 2\nMAX_ERROR 3\nMAX_ERROR 7   \nCUTOFF_LEN\t25\nLABELED 0\n"
        "DISC_ONLY 0\nDELETE_LABEL TOP\nDELETE_LABEL #\nDELETE_LABEL_FOR_LENGTH -NONE-\n"
        "QUOTE_LABEL ``\nQUOTE_LABEL POS\nEQ_LABEL ADVP PRT\nEQ_LABEL A B\nEQ_WORD ma'am madam\r\n"
    )
    assert read_parameters(path) == Parameters(
        deleted=frozenset(["TOP", "#"]),
        deleted_for_length=frozenset(["-NONE-"]),
        quotes=frozenset(["``", "POS"]),
        equal_labels=frozenset([("ADVP", "PRT"), ("A", "B")]),
        equal_words=frozenset([("ma'am", "madam")]),
        cutoff_length=25,
        max_error=7,
        labeled=False,
    )


def test_an_empty_file_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "none.prm"
    path.write_text("")
    read = read_parameters(path)
    assert read == Parameters()
    assert (read.deleted, read.cutoff_length, read.max_error) == (frozenset(), 40, 10)
    assert read.labeled


@pytest.mark.parametrize("root", ["", "TOP", "S1", "ROOT"])
def test_a_root_changes_no_figure(root: str) -> None:
    bare = "(S (NP (DT The) (NN cell)) (VP (VBZ grows)) (. .))"
    found = score(f"({root} {bare})", bare, PENN_TREEBANK)
    assert (found.matched, found.gold, found.test) == (3, 3, 3)


def test_equal_labels_have_no_direction_and_no_chain() -> None:
    parameters = Parameters(equal_labels=frozenset([("A", "B"), ("B", "C")]))
    assert parameters.same_label("A", "B")
    assert parameters.same_label("B", "A")
    assert parameters.same_label("D", "D")
    assert not parameters.same_label("A", "C")
    assert not parameters.same_word("A", "B")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("DELETE_LABELS TOP", "no parameter 'DELETE_LABELS'; there are DELETE_LABEL, "),
        ("DELETE_LABEL", "DELETE_LABEL takes 1 value, not 0"),
        ("DELETE_LABEL TOP # the root", "DELETE_LABEL takes 1 value, not 4"),
        ("EQ_LABEL ADVP", "EQ_LABEL takes 2 values, not 1"),
        ("EQ_WORD a b c", "EQ_WORD takes 2 values, not 3"),
        ("MAX_ERROR ten", "MAX_ERROR is a whole number, not 'ten'"),
        ("CUTOFF_LEN -1", "CUTOFF_LEN is a whole number, not '-1'"),
        ("LABELED yes", "LABELED is 0 or 1, not 'yes'"),
        ("DEBUG 3", "DEBUG is 0 or 1 or 2, not '3'"),
        ("DISC_ONLY 1", "DISC_ONLY 1 counts constituents with gaps only"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "wrong.prm"
    path.write_text(f"# a comment\nLABELED 1\n{line}\n")
    with pytest.raises(RequestError) as caught:
        read_parameters(path)
    assert str(caught.value).startswith(f"{path}, line 3: {message}")
