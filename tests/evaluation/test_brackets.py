import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from transduce.evaluation.bracket_parameters import PENN_TREEBANK, Parameters
from transduce.evaluation.brackets import SentenceScore, Status, score, total

DOG = "(TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBD ran) (ADVP=2 (RB home))) (. .)))"
"""By hand: S 0-4, NP 0-2, VP 2-4 and ADVP 3-4 count; the fifth word, the full stop, is deleted."""


def error(gold: str, test: str, parameters: Parameters = PENN_TREEBANK) -> str:
    """The message of a sentence that has to be in error."""
    found = score(gold, test, parameters)
    assert found.status is Status.ERROR
    return found.error


def test_a_sentence_worked_by_hand() -> None:
    """Full stop, root and functions go; "in the park" at the noun adds one NP and misses none.

    Words: The dog saw a cat in the park. Gold: S 0-8, NP 0-2, VP 2-8, NP 3-5, PP 5-8, NP 6-8.
    Test: the same, and NP 3-8. One tag is wrong. The length counts the point.
    """
    gold = (
        "(TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat)) "
        "(PP-LOC (IN in) (NP (DT the) (NN park)))) (. .)))"
    )
    test = (
        "(S1 (S (NP (DT The) (NN dog)) (VP (VBP saw) (NP (NP (DT a) (NN cat)) "
        "(PP (IN in) (NP (DT the) (NN park))))) (. .)))"
    )
    assert score(gold, test, PENN_TREEBANK) == SentenceScore(
        length=9, matched=6, gold=6, test=7, crossing=0, words=8, tags=7
    )


def test_each_test_constituent_crosses_once() -> None:
    """b c d crosses both (a b) and (a b c), which is 1; the other way round both cross it."""
    gold = "(S (X (Y (A a) (A b)) (A c)) (A d))"
    test = "(S (A a) (X (A b) (A c) (A d)))"
    found = score(gold, test, Parameters())
    assert (found.matched, found.gold, found.test, found.crossing) == (1, 3, 2, 1)
    assert score(test, gold, Parameters()).crossing == 2


def test_brackets_are_words_and_the_root_may_be_missing() -> None:
    """E3: -LRB- is a tag like others, not deleted; trees without TOP, with one and with no root."""
    tree = "(S (NP (NN it)) (PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-)))"
    expected = SentenceScore(length=4, matched=3, gold=3, test=3, words=4, tags=4)
    assert score(tree, tree, PENN_TREEBANK) == expected
    assert score(f"(TOP {tree})", tree, PENN_TREEBANK) == expected
    bare = "(NP (NN it)) (PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-))"
    assert score(tree, bare, PENN_TREEBANK) == replace(expected, matched=2, test=2)
    assert score(tree, f"( {tree})", PENN_TREEBANK) == expected
    # To EVALB the empty label is one to count: no DELETE_LABEL of a file can name it.
    of_a_file = replace(PENN_TREEBANK, deleted=PENN_TREEBANK.deleted - {""})
    empty = replace(expected, test=4)
    assert score(tree, f"( {tree})", of_a_file) == empty
    assert score(tree, f"({tree} )", of_a_file) == empty


@pytest.mark.parametrize(("gold", "test"), [(1, 1), (1, 3), (3, 1), (2, 5)])
def test_unary_chains_match_one_to_one(gold: int, test: int) -> None:
    """E3: of n and m constituents with one label and span, the smaller number is right."""

    def chain(length: int) -> str:
        return "(NP " * length + "(DT the) (NN man)" + ")" * length

    found = score(chain(gold), chain(test), PENN_TREEBANK)
    assert (found.matched, found.gold, found.test) == (min(gold, test), gold, test)


def test_constituents_over_traces_alone_go() -> None:
    """S 0-2, NP 0-1, VP 1-2 are left; neither length nor words have the traces."""
    gold = (
        "(S (NP (PRP She)) (VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) "
        "(-NONE- *) (. .))"
    )
    test = "(S (NP (PRP She)) (VP (VBD reported)) (. .))"
    expected = SentenceScore(length=3, matched=3, gold=3, test=3, words=2, tags=2)
    assert score(gold, test, PENN_TREEBANK) == expected


def test_a_deleted_constituent_leaves_its_words() -> None:
    """Tags are deleted by their whole name, labels without function and with their equals."""
    parameters = Parameters(deleted=frozenset(["NP", "B-X"]), equal_labels=frozenset([("NP", "N")]))
    found = score("(S (NP-SBJ (A a)) (N (B-X b) (B c)))", "(S (A a) (B c))", parameters)
    assert found == SentenceScore(length=3, matched=1, gold=1, test=1, words=2, tags=2)


def test_equal_labels_and_words_are_obeyed() -> None:
    """PRT for ADVP is right, as a label and as a tag, and ma'am for madam."""
    parameters = replace(PENN_TREEBANK, equal_words=frozenset([("madam", "ma'am")]))
    gold = "(S (ADVP (PRT up)) (NP (NN madam)))"
    test = "(S (PRT (ADVP up)) (NP (NN ma'am)))"
    expected = SentenceScore(length=2, matched=3, gold=3, test=3, words=2, tags=2)
    assert score(gold, test, parameters) == expected
    assert score(test, gold, parameters) == expected
    assert error(gold, test) == "Words unmatch (madam|ma'am)"


def test_each_gold_constituent_takes_the_first_partner_that_is_free() -> None:
    """B of gold takes A, the outer of the two that equal it; gold's A has none left but C."""
    parameters = Parameters(equal_labels=frozenset([("A", "B"), ("B", "C")]))
    found = score("(B (A (X x)))", "(A (C (X x)))", parameters)
    assert (found.matched, found.gold, found.test) == (1, 2, 2)
    assert score("(A (B (X x)))", "(A (C (X x)))", parameters).matched == 2


def test_unlabeled_brackets_match_by_span() -> None:
    """Spans 0-2 and 1-2 agree, 0-1 is missing; tags are compared all the same."""
    found = score(
        "(S (NP (A a)) (VP (B b)))", "(X (A a) (Y (C b)))", replace(PENN_TREEBANK, labeled=False)
    )
    assert found == SentenceScore(length=2, matched=2, gold=3, test=2, words=2, tags=1)


@pytest.mark.parametrize("empty", ["", "   ", "()", "(TOP (. .))", "(S"])
def test_a_test_tree_without_words_is_skipped(empty: str) -> None:
    """E3: it counts among the sentences, and its length is that of the gold tree."""
    assert score(DOG, empty, PENN_TREEBANK) == SentenceScore(length=5, status=Status.SKIP)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("(S (NP (DT The) (NN dog)) (VP (VBD ran)))", "Length unmatch (4|3)"),
        ("(S (DT The) (NN dog) (VBD ran) (RB home) (NP ))", "Length unmatch (4|5)"),
        ("(S (DT The) (NN dog) (VBD ran) (RB away))", "Words unmatch (home|away)"),
        ("(S (DT the) (NN dog) (VBD ran) (RB home))", "Words unmatch (The|the)"),
    ],
)
def test_other_words_are_an_error(test: str, message: str) -> None:
    """E3: the row has no figures; case counts, and so does the empty word of `(NP )`."""
    found = score(DOG, test, PENN_TREEBANK)
    assert found == SentenceScore(length=5, status=Status.ERROR, error=message)


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ("The dog ran home.", "The dog ran home."),
        ("(S (NP The dog) (VP (VBD ran) (RB home)))", "The dog) (VP (VBD ra"),
        ("(S (DT The) (NN dog) ran (RB home))", "ran (RB home))"),
        ("(S (NP The (NN dog)) (VBD ran) (RB home))", "The (NN dog)) (VBD r"),
        ("(S (DT The) (NN dog) (VBD ran) (RB home)).", "."),
    ],
)
def test_text_in_place_of_a_bracket_is_an_error(broken: str, place: str) -> None:
    """E3: in either file the sentence is counted, and those after it are scored."""
    assert error(DOG, broken) == f"Unreadable test tree at {place!r}"
    assert error(broken, DOG) == f"Unreadable gold tree at {place!r}"
    assert error(broken, "") == f"Unreadable gold tree at {place!r}"


def test_unbalanced_brackets_are_an_error() -> None:
    """E3: the row has figures, but no part in the totals.

    Without its last bracket the test tree has no end of S; NP, VP and ADVP are right. With one
    bracket too many it has all four.
    """
    short = "(S (NP (DT The) (NN dog)) (VP (VBD ran) (ADVP (RB home)))"
    found = score(DOG, short, PENN_TREEBANK)
    assert found == SentenceScore(
        length=5,
        status=Status.ERROR,
        error="Bracketing unbalanced in test tree (1 not closed)",
        matched=3,
        gold=4,
        test=4,
        words=4,
        tags=4,
    )
    long = score(DOG, f"{short}))", PENN_TREEBANK)
    assert long == replace(
        found, matched=4, error="Bracketing unbalanced in test tree (1 not opened)"
    )
    assert error(f"(TOP {DOG}", DOG) == "Bracketing unbalanced in gold tree (1 not closed)"
    assert error(f"(TOP {DOG}", "(A a)") == "Bracketing unbalanced in gold tree (1 not closed)"
    totals = total([found, long, score(DOG, DOG, PENN_TREEBANK)])
    assert (totals.sentences, totals.errors, totals.valid) == (3, 2, 1)
    assert (totals.matched, totals.gold, totals.test, totals.words) == (4, 4, 4, 4)


def test_a_quote_that_one_tree_deletes_is_kept() -> None:
    """Tagged NN in the test tree, '' and `` in gold: they count as words, with wrong tags.

    Words: He said " no ". Gold: S 0-5, NP 0-1, VP 1-5, X 2-5, INTJ 3-4; of test, X is 3-4.
    """
    gold = "(S (NP (PRP He)) (VP (VBD said) (X (`` \") (INTJ (UH no)) ('' \"))) (. .))"
    test = '(S (NP (PRP He)) (VP (VBD said) (NN ") (X (INTJ (UH no))) (NN ")) (. .))'
    expected = SentenceScore(length=6, matched=4, gold=5, test=5, words=5, tags=3)
    assert score(gold, test, PENN_TREEBANK) == expected
    assert score(test, gold, PENN_TREEBANK) == expected
    no_quotes = replace(PENN_TREEBANK, quotes=frozenset())
    assert error(gold, test, no_quotes) == "Length unmatch (3|5)"
    assert error(gold, test.replace('(NN ")', '(XX ")')) == "Length unmatch (3|5)"
    # A word more is an error still.
    assert error(gold, test.replace("(UH no)", '(UH no) (NN ")')) == "Length unmatch (5|6)"


def test_quotes_that_both_trees_delete_stay_deleted() -> None:
    """Three words, one of them ' for its tag POS in the test tree; the two " are in neither."""
    gold = "(S (`` \") (NP (NN dogs) ('' ')) ('' \") (NN bowl))"
    test = "(S (`` \") (NP (NN dogs) (POS ')) ('' \") (NN bowl))"
    expected = SentenceScore(length=5, matched=2, gold=2, test=2, words=3, tags=2)
    assert score(gold, test, PENN_TREEBANK) == expected


def test_white_space_between_tokens_has_no_meaning() -> None:
    """It may be of any length, of C's kinds, absent beside brackets, and before a closing one."""
    spread = " " + DOG.replace(" ", " \t\r").replace(")", " )\f")
    assert score(DOG, spread, PENN_TREEBANK) == score(DOG, DOG, PENN_TREEBANK)
    assert score(DOG, DOG.replace(") (", ")("), PENN_TREEBANK).matched == 4
    # A no-break space is a character of a word.
    assert score("(A a\u00a0b)", "(A a\u00a0b)", PENN_TREEBANK).tags == 1


def test_a_deep_tree_is_no_hardship() -> None:
    tree = "(S " * 2000 + "(NN deep)" + ")" * 2000
    assert score(tree, tree, PENN_TREEBANK).matched == 2000
    assert score("(S (NN a))" * 300, "(S (NN a))" * 300, PENN_TREEBANK).matched == 300


def test_totals_are_sums_over_valid_sentences() -> None:
    """By hand: 3 + 1 of 4 + 4 and 3 + 2 right; one complete, one with three crossing."""
    scores = [
        SentenceScore(length=4, matched=3, gold=3, test=3, words=4, tags=4),
        SentenceScore(length=5, matched=1, gold=5, test=2, crossing=3, words=4, tags=2),
        SentenceScore(length=5, status=Status.ERROR, error="x", matched=9, gold=9, test=9),
        SentenceScore(length=6, status=Status.SKIP),
    ]
    found = total(scores)
    assert (found.sentences, found.errors, found.skipped, found.valid) == (4, 1, 1, 2)
    assert (found.recall, found.precision) == (50, 80)
    assert found.f_measure == pytest.approx(2 * 50 * 80 / 130)
    assert (found.complete, found.crossing, found.no_crossing, found.two_or_less) == (1, 3, 1, 1)
    assert (found.words, found.tags) == (8, 6)


def test_nothing_right_gives_no_f_measure() -> None:
    assert math.isnan(total([]).f_measure)
    nothing = total([SentenceScore(length=2, gold=2, test=1, words=2)])
    assert (nothing.recall, nothing.precision) == (0, 0)
    assert math.isnan(nothing.f_measure)


Node = tuple[str, "str | list[Node]"]


def grow(words: list[Node], generator: random.Random) -> Node:
    """A random tree over the terminals, with unary chains and functions."""
    label = generator.choice(["S", "NP", "NP-SBJ", "VP", "TOP", "X=1"])
    if len(words) == 1 or generator.random() < 0.15:
        return (label, words)
    cuts = sorted(
        generator.sample(range(1, len(words)), generator.randint(0, min(2, len(words) - 1)))
    )
    spans = zip([0, *cuts], [*cuts, len(words)], strict=True)
    parts = [words[start:end] for start, end in spans]
    if len(parts) == 1 and generator.random() < 0.5:
        return (label, words)
    return (label, [grow(part, generator) if len(part) > 1 else part[0] for part in parts])


def line_of(node: Node) -> str:
    label, inside = node
    below = inside if isinstance(inside, str) else " ".join(map(line_of, inside))
    return f"({label} {below})"


def constituents_of(node: Node, deleted: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Labels and sets of words; the words are all different."""
    label, inside = node
    if isinstance(inside, str):
        return []
    below = [one for child in inside for one in constituents_of(child, deleted)]
    plain = label.split("-")[0].split("=")[0]
    words = frozenset(word for word, tag in terminals_of(node) if tag not in deleted)
    return [(plain, words), *below] if words and plain not in deleted else below


def terminals_of(node: Node) -> list[tuple[str, str]]:
    label, inside = node
    if isinstance(inside, str):
        return [(inside, label)]
    return [one for child in inside for one in terminals_of(child)]


@pytest.mark.parametrize("seed", range(200))
def test_figures_are_those_of_sets_and_multisets(seed: int) -> None:
    """Two random trees over the same words, counted as multisets of labels and sets of words."""
    generator = random.Random(seed)
    deleted = PENN_TREEBANK.deleted
    tags = [generator.choice(["NN", "VB", ",", "-NONE-", "."]) for _ in range(9)] + ["NN"]
    gold = grow([(tag, f"w{place}") for place, tag in enumerate(tags)], generator)
    others = ["JJ" if tag == "NN" and generator.random() < 0.3 else tag for tag in tags]
    test = grow([(tag, f"w{place}") for place, tag in enumerate(others)], generator)
    wanted, found = constituents_of(gold, deleted), constituents_of(test, deleted)
    kept = [place for place, tag in enumerate(tags) if tag not in deleted]
    assert score(line_of(gold), line_of(test), PENN_TREEBANK) == SentenceScore(
        length=sum(tag != "-NONE-" for tag in tags),
        matched=(Counter(wanted) & Counter(found)).total(),
        gold=len(wanted),
        test=len(found),
        crossing=sum(
            any(one & other and one - other and other - one for _, other in wanted)
            for _, one in found
        ),
        words=len(kept),
        tags=sum(tags[place] == others[place] for place in kept),
    )
