"""F1 of parses, with repairs counted."""

from pathlib import Path

import pytest

from transduce.config import RequestError
from transduce.evaluation.bracket_parameters import PENN_TREEBANK, Parameters
from transduce.evaluation.bracket_verb import brackets
from transduce.evaluation.brackets import score, total
from transduce.evaluation.parses import parse_quality, require_same_words, without_outer_s
from transduce.text.treebank import Tree, clean, parse_trees
from transduce.text.trees_as_text import linearize

GOLD = "(S1 (S (S (NP-SBJ (DT the) (NN cell)) (VP (VBZ grows)) (. .))))"
SENTENCE = "the cell grows ."


def tree_of(text: str) -> Tree:
    (tree,) = parse_trees([text], name="test")
    return clean(tree)


def test_figures_by_hand() -> None:
    """Four gold constituents, of which the NP is not found; and one wrong tag of four.

    Recall 3/4, precision 3/3; without the outer S 2/3 and 2/2.
    """
    found = parse_quality(["(S (S DT NN (VP NN )VP . )S )S"], [SENTENCE], [tree_of(GOLD)])
    assert (found.recall, found.precision) == (75.0, 100.0)
    assert found.f1 == pytest.approx(600 / 7)
    assert found.recall_without_outer_s == pytest.approx(200 / 3)
    assert found.precision_without_outer_s == 100.0
    assert found.f1_without_outer_s == pytest.approx(80.0)
    # EVALB does not count punctuation among the words.
    assert found.tagging_accuracy == pytest.approx(200 / 3)
    assert (found.sentences, found.errors, found.skipped, found.complete_match) == (1, 0, 0, 0.0)
    assert (found.repaired, found.repairs) == (0, {})
    assert str(found) == (
        "F1 85.71 (80.00 without the outer S), tags 66.67, 0 repaired, 0 in error"
    )


def test_repairs_are_counted_and_broken_outputs_are_sentences_like_others() -> None:
    """E3: the second output ends early, the third is nothing."""
    gold = tree_of(GOLD)
    right = " ".join(linearize(gold))
    found = parse_quality([right, "(S (S (NP DT NN", ""], [SENTENCE] * 3, [gold] * 3)
    assert (found.sentences, found.errors, found.skipped) == (3, 0, 0)
    assert found.repaired == 2
    assert found.repairs == {"added_tags": 2 + 4, "added_closings": 3, "added_roots": 1}
    # S, S, NP, VP of each gold tree; the second is S, S, NP with an NP over all words, of which
    # EVALB leaves out the full stop; the third has but TOP, which does not count.
    assert found.recall == pytest.approx(100 * 6 / 12)
    assert found.precision == pytest.approx(100 * 6 / 7)
    assert found.complete_match == pytest.approx(100 / 3)


def test_nothing_right_is_no_number_less() -> None:
    found = parse_quality(["NN"], ["cell"], [tree_of("(NP (NN cell))")])
    assert (found.f1, found.f1_without_outer_s) == (0.0, 0.0)


def test_punctuation_taken_for_a_word_is_an_error_that_counts_in_what_is_watched() -> None:
    """E3: EVALB deletes words by their tags, and finds another number of words in the two trees."""
    gold, output = tree_of("(S (NP (NN cell)) (. .))"), "(S (NP NN )NP NN )S"
    found = parse_quality(["(S (NP NN )NP . )S", output], ["cell ."] * 2, [gold] * 2)
    assert (found.f1, found.errors, found.over_all) == (100.0, 1, 50.0)


def test_a_sentence_without_words_is_skipped() -> None:
    found = parse_quality(["", "(NP NN )NP"], ["", "a"], [Tree("TOP"), tree_of("(NP (NN a))")])
    assert (found.sentences, found.skipped, found.f1) == (2, 1, 100.0)


def test_figures_are_those_of_brackets_on_the_file_as_it_is() -> None:
    """With its root and its function tags, which cleaned trees lack."""
    outputs = ["(S (NP DT NN )NP (VP VBZ )VP . )S", "(S (S (NP DT NN VBZ )NP . )S )S"]
    found = parse_quality(outputs, [SENTENCE] * 2, [tree_of(GOLD)] * 2)
    tests = [
        "(S (NP (DT the) (NN cell)) (VP (VBZ grows)) (. .))",
        "(S (S (NP (DT the) (NN cell) (VBZ grows)) (. .)))",
    ]
    totals = total(score(GOLD, test, PENN_TREEBANK) for test in tests)
    assert (found.f1, found.recall) == (totals.f_measure, totals.recall)


def test_parameters_are_obeyed() -> None:
    output, gold = ["(X NN )X"], [tree_of("(NP (NN cell))")]
    assert parse_quality(output, ["cell"], gold).f1 == 0.0
    alike = Parameters(equal_labels=frozenset([("X", "NP")]))
    assert parse_quality(output, ["cell"], gold, parameters=alike).f1 == 100.0


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("(S (S (NP (NN a))))", "(S (NP (NN a)))"),
        ("(S (S (S (NP (NN a)))))", "(S (S (NP (NN a))))"),
        ("(S (NP (NN a)))", "(NP (NN a))"),
        ("(S (NP (NN a)) (. .))", "(S (NP (NN a)) (. .))"),
        ("(S (NN a))", "(S (NN a))"),
        ("(SBAR (S (NP (NN a))))", "(SBAR (S (NP (NN a))))"),
    ],
)
def test_an_outer_s_is_one_around_one_constituent(tree: str, expected: str) -> None:
    assert str(without_outer_s(tree_of(tree))) == expected


def test_a_reference_over_other_words_is_named() -> None:
    gold = [tree_of(GOLD), tree_of("(NP (-LRB- -LRB-) (NN a))")]
    require_same_words(gold, [SENTENCE, "(  a"], name="dev.trees")
    with pytest.raises(RequestError, match=r"dev.trees, tree 2: is over the words '-LRB- a', not"):
        require_same_words(gold, [SENTENCE, "( b"], name="dev.trees")


def test_brackets_without_the_outer_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of gold and test alike; a line that is no tree is in error as before."""
    gold, test = tmp_path / "gold", tmp_path / "test"
    gold.write_text(f"{GOLD}\n{GOLD}\n{GOLD}\n")
    test.write_text(
        "(S (S (DT the) (NN cell) (VP (VBZ grows)) (. .)))\n"
        "(S (DT the) (NN cell) (VP (VBZ grows)) (. .))\n"
        "(S (NP (DT the)\n"
    )
    brackets(str(gold), str(test), outer_s=False)
    out, err = capsys.readouterr()
    totals = out.split("=" * 76)[2].splitlines()[1].split()
    # Recall, precision; matched, gold and test brackets.
    assert totals[:5] == ["66.67", "100.00", "4", "6", "4"]
    assert "Number of Error sentence  =      1" in out
    assert "3 : " in err
