import gzip
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.treebank import Tree, clean, parse_trees
from transduce.text.trees_as_text import Repairs, delinearize, linearize, repair, symbols

from .tree_examples import TREES, WORDS, deep_and_wide

TREE = "(S (NP (DT The) (NN cell)) (VP (VBZ grows) (ADVP (RB fast))) (. .))"
TARGET = "(S (NP DT NN )NP (VP VBZ (ADVP RB )ADVP )VP . )S"
WORDS_OF_TREE = ["The", "cell", "grows", "fast", "."]


def tree_of(text: str) -> Tree:
    (tree,) = parse_trees([text], name="test")
    return tree


def is_well_formed(sequence: list[str], words: int) -> bool:
    """By reduction: a constituent over tags becomes a tag until nothing changes."""
    if not words:
        return not sequence
    tags = sum(not symbol.startswith(("(", ")")) for symbol in sequence)
    text, before = " ".join(sequence), ""
    while text != before:
        before = text
        # \1 is the label; "<>" stands for a constituent, which is no symbol of these tests.
        text = re.sub(r"(?<![^ ])\(([^ ()]+)(?: [^ ()]+)+ \)\1(?![^ ])", "<>", text)
    return tags == words and text == "<>"


def test_a_tree_becomes_brackets_and_tags() -> None:
    """As in Figure 2 of Vinyals et al. 2015, but for the tags, which they replaced by XX."""
    tree = tree_of("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    assert " ".join(linearize(tree)) == "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"
    assert " ".join(linearize(tree_of(TREE))) == TARGET


def test_words_come_back_from_the_source() -> None:
    """E3: -LRB- is a word with a tag of its own name."""
    tree = tree_of("(NP (NN TNF) (PRN (-LRB- -LRB-) (NP (NN x)) (-RRB- -RRB-)))")
    assert " ".join(linearize(tree)) == "(NP NN (PRN -LRB- (NP NN )NP -RRB- )PRN )NP"
    assert delinearize(linearize(tree), ["TNF", "-LRB-", "x", "-RRB-"]) == tree
    raw = delinearize(linearize(tree), ["TNF", "(", "x", ")"])
    assert raw.words() == ["TNF", "(", "x", ")"]
    assert str(raw) == str(tree)


def test_a_sentence_without_words_is_an_empty_sequence() -> None:
    assert linearize(Tree("TOP")) == []
    assert delinearize([], []) == Tree("TOP")
    assert repair([], []) == ([], Repairs())


@given(TREES)
def test_tree_to_sequence_to_tree_is_the_identity(tree: Tree) -> None:
    sequence = linearize(tree)
    assert is_well_formed(sequence, len(tree.words()))
    assert delinearize(sequence, tree.words()) == tree
    assert delinearize(" ".join(sequence).split(" "), tree.words()) == tree


@given(TREES)
def test_an_output_that_needs_no_repair_comes_back_as_it_is(tree: Tree) -> None:
    sequence = linearize(tree)
    assert repair(sequence, tree.words()) == (sequence, Repairs())
    assert repair(iter(sequence), tree.words(), known=set(sequence)) == (sequence, Repairs())


@pytest.mark.parametrize(
    "sequence",
    [
        *("", "NN NN NN", "(S NN NN", "(S NN )S", "(S NN NN NN )S", "(S NN NN )NP", ")S NN NN (S"),
        *("(S NN )S (S NN )S", "(S NN )S NN", "NN (S NN )S", "(S NN (NP NN )S )NP", "NN NN"),
        *("(S NN NN (NP )NP )S", "(S NN NN )S )S"),
    ],
)
def test_no_other_sequence_is_a_tree(sequence: str) -> None:
    assert not is_well_formed(sequence.split(), 2)
    with pytest.raises(ValueError, match=r"."):
        delinearize(sequence.split(), ["a", "b"])


# Of symbols that a model may put out, with the words a, b, c and so on: "." is a full stop.
REPAIRED = [
    # Too few tags: the rest is open where the output ends.
    ("", "ab.", "(TOP XX XX . )TOP", {"added_tags": 3, "added_roots": 1}),
    ("", "a", "(TOP XX )TOP", {"added_tags": 1, "added_roots": 1}),
    # With too few or too many, punctuation and brackets say which.
    ("(S (NP DT )NP (VP VBZ )VP . )S", "abc.", "(S (NP DT )NP (VP VBZ )VP XX . )S",
     {"added_tags": 1}),
    ("(S NN . )S", "a,b.", "(S NN , XX . )S", {"added_tags": 2}),
    ("(S NN (PRN -LRB- -RRB- )PRN . )S", "a(b).", "(S NN (PRN -LRB- XX -RRB- )PRN . )S",
     {"added_tags": 1}),
    ("(S NN VBZ JJ . )S", "ab.", "(S NN VBZ . )S", {"dropped_tags": 1}),
    ("(S NN . NN , JJ . )S", "a,b.", "(S NN , JJ . )S", {"dropped_tags": 2}),
    ("(S , NN NN )S", "ab", "(S NN NN )S", {"dropped_tags": 1}),
    ("(S NN NN )S", "a.", "(S NN NN )S", {}),
    ("(S (NP DT NN )NP (VP VBZ )VP )S", "abc.", "(S (NP DT NN )NP (VP VBZ )VP . )S",
     {"added_tags": 1}),
    ("(S (NP DT )NP (VP VBZ", "abc.", "(S (NP DT )NP (VP VBZ XX . )VP )S",
     {"added_tags": 2, "added_closings": 2}),
    ("(S NN )S (S NN )S", "ab.", "(TOP (S NN )S (S NN )S . )TOP",
     {"added_tags": 1, "added_roots": 1}),
    ("(S (NP (VP", "ab", "(S (NP (VP XX XX )VP )NP )S", {"added_tags": 2, "added_closings": 3}),
    ("DT", "ab", "(TOP DT XX )TOP", {"added_tags": 1, "added_roots": 1}),
    # Too many tags.
    ("(S DT NN VBZ (NP NN )NP . )S", "ab", "(S DT NN )S",
     {"dropped_tags": 3, "dropped_constituents": 1}),
    ("DT NN NN", "", "", {"dropped_tags": 3}),
    # Brackets that do not match.
    ("(S (NP DT NN (VP VBZ )VP )S", "abc", "(S (NP DT NN (VP VBZ )VP )NP )S",
     {"added_closings": 1}),
    ("(S (NP DT NN )VP VBZ )NP )S )S", "abc", "(S (NP DT NN VBZ )NP )S", {"dropped_closings": 2}),
    (")S DT", "a", "(TOP DT )TOP", {"dropped_closings": 1, "added_roots": 1}),
    ("(A (B (A NN )B NN )A NN", "abc", "(TOP (A (B (A NN )A )B NN )A NN )TOP",
     {"added_closings": 1, "added_roots": 1}),
    # Not one constituent.
    ("(NP NN )NP (VP VBZ )VP", "ab", "(TOP (NP NN )NP (VP VBZ )VP )TOP", {"added_roots": 1}),
    ("NN (NP NN )NP", "ab", "(TOP NN (NP NN )NP )TOP", {"added_roots": 1}),
    # Constituents without words.
    ("(S (NP )NP (VP (X )X NN )VP )S", "a", "(S (VP NN )VP )S", {"dropped_constituents": 2}),
    ("(S (NP )NP )S", "", "", {"dropped_constituents": 2}),
    ("(S NN (NP (X", "a", "(S NN )S", {"added_closings": 1, "dropped_constituents": 2}),
    ("(S )S", "ab", "(TOP XX XX )TOP",
     {"added_tags": 2, "dropped_constituents": 1, "added_roots": 1}),
    # Roots inside or beside a tree.
    ("NN (TOP", "ab", "(TOP NN XX )TOP",
     {"added_tags": 1, "added_roots": 1, "misplaced_roots": 1}),
    ("(TOP NN )TOP (TOP NN )TOP", "ab", "(TOP NN NN )TOP", {"misplaced_roots": 2}),
    # No symbols of the three forms.
    ("(S ( NN )) a(b ) )S", "ab", "(S NN XX )S", {"unknown_symbols": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("output", "letters", "repaired", "counts"), REPAIRED)
def test_repair_changes_little_and_counts_it(
    output: str, letters: str, repaired: str, counts: dict[str, int]
) -> None:
    """E3: broken trees are counted, never skipped in silence."""
    answer, repairs = repair(output.split(), list(letters))
    assert " ".join(answer) == repaired
    assert repairs == Repairs(**counts)
    assert is_well_formed(answer, len(letters))
    assert repair(answer, list(letters)) == (answer, Repairs())


def test_unknown_symbols_are_replaced_or_left_out() -> None:
    known = set(TARGET.split())
    output = "(S (NP DT ⁇ )NP (QP VBZ )QP ▁the NNP )S"
    answer, repairs = repair(output.split(), ["The", "cell", "grows", "fast", "."], known=known)
    assert " ".join(answer) == "(S (NP DT XX )NP VBZ XX . )S"
    assert repairs == Repairs(unknown_symbols=5)


def test_the_guessed_tag_of_punctuation_is_the_treebanks() -> None:
    words = [".", "?", "!", ",", ":", ";", "--", "...", "``", "''", '"', "“", "”", "‘", "’", "—"]
    tags = [".", ".", ".", ",", ":", ":", ":", ":", "``", "''", "''", "``", "''", "``", "''", ":"]
    answer, _ = repair([], [*words, "-LRB-", "(", "]", "-", ".5", "word"])
    brackets = ["-LRB-", "-LRB-", "-RRB-"]
    assert answer == ["(TOP", *tags, *brackets, "XX", "XX", "XX", ")TOP"]


GUESSES = ["XX", *".,:", "``", "''", "-LRB-", "-RRB-"]
KINDS = {"a": "", "b": "", ".": ".", ",": ",", "(": "-LRB-", "-": None}
"""What a word's tag must be, "" any but punctuation's, None any at all."""


def most_pairs(tags: Sequence[str], words: Sequence[str]) -> int:
    """Tags and words, in order, that go together, by trying all; tags of punctuation with it."""
    if not tags or not words:
        return 0
    found = max(most_pairs(tags[1:], words), most_pairs(tags, words[1:]))
    if KINDS[words[0]] in (None, tags[0] if tags[0] != "NN" else ""):
        found = max(found, 1 + most_pairs(tags[1:], words[1:]))
    return found


@given(
    st.lists(st.sampled_from(["NN", "NN", ".", ",", "-LRB-"]), max_size=6),
    st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=6),
)
def test_as_many_tags_as_can_be_go_with_words(tags: list[str], words: list[str]) -> None:
    answer, repairs = repair(["(S", *tags, ")S"], words)
    if len(tags) == len(words):
        assert answer == ["(S", *tags, ")S"]
        return
    pairs = most_pairs(tags, words)
    assert (repairs.dropped_tags, repairs.added_tags) == (len(tags) - pairs, len(words) - pairs)


ANY_SYMBOL = st.one_of(
    st.sampled_from(["(S", ")S", "(NP", ")NP", "(VP", ")VP", "NN", ".", "(TOP", ")TOP"]),
    st.sampled_from(["", "(", ")", " ", "a b", "((", "(NP)", "\n", "<unk>", "⁇", "\u2028"]),
    st.text(max_size=3),
)


@given(st.lists(ANY_SYMBOL, max_size=30), st.lists(WORDS, max_size=8))
def test_repair_of_any_symbols_gives_a_tree_over_the_right_words(
    output: list[str], words: list[str]
) -> None:
    """E3: and it says so, does the same each time, and has nothing more to do afterwards."""
    answer, repairs = repair(output, words)
    assert bool(repairs) == (answer != output)
    assert delinearize(answer, words).words() == words
    assert repair(output, words) == (answer, repairs)
    assert repair(answer, words) == (answer, Repairs())
    (again,) = parse_trees([str(delinearize(answer, words))], name="written")
    assert again.words() == words


@given(
    st.lists(st.sampled_from(["(S", ")S", "(NP", ")NP", "(VP", ")VP", "NN", "."]), max_size=20),
    st.lists(WORDS, max_size=6),
    st.sets(st.sampled_from(["(S", ")S", "(NP", ")NP", "NN"])),
)
def test_the_repaired_sequence_is_well_formed(
    output: list[str], words: list[str], known: set[str]
) -> None:
    answer, repairs = repair(output, words, known=known)
    assert is_well_formed(answer, len(words))
    # A bracket that is known to open is closed, too.
    closing = {f"){symbol[1:]}" for symbol in known if symbol.startswith("(")}
    assert set(answer) <= known | closing | {"(TOP", ")TOP", *GUESSES}
    assert bool(repairs) == (answer != output)
    assert repairs.unknown_symbols == sum(symbol not in known for symbol in output)


@pytest.mark.parametrize("depth", [300, 20_000])
def test_depth_has_no_limit(depth: int) -> None:
    tree, _ = deep_and_wide(depth)
    sequence = linearize(tree)
    assert delinearize(sequence, tree.words()) == tree
    openings = sequence[: 2 * depth]
    answer, repairs = repair(openings, tree.words())
    assert answer[: 2 * depth] == openings
    assert repairs == Repairs(added_tags=depth + 1, added_closings=depth)
    assert delinearize(answer, tree.words()).words() == tree.words()


def test_width_has_no_limit() -> None:
    sequence = ["(S", *["(NP", "NN", ")NP"] * 20_000, ")S"]
    words = [str(number) for number in range(20_000)]
    assert repair(sequence, words) == (sequence, Repairs())
    assert delinearize(sequence, words).words() == words
    answer, repairs = repair(sequence[1:], words)
    assert answer == ["(TOP", *sequence[1:-1], ")TOP"]
    assert repairs == Repairs(dropped_closings=1, added_roots=1)


def test_repairs_can_be_summed() -> None:
    total = sum([Repairs(added_tags=1), Repairs(added_tags=2, added_roots=1)], start=Repairs())
    assert total == Repairs(added_tags=3, added_roots=1)
    assert total
    assert not Repairs()


def test_symbols_come_once_in_a_fixed_order() -> None:
    trees = [tree_of(TREE), tree_of("(S (X (X b)) (-LRB- -LRB-))")]
    expected = "(ADVP (NP (S (VP (X )ADVP )NP )S )VP )X -LRB- . DT NN RB VBZ X"
    sequences = [linearize(tree) for tree in trees]
    assert symbols(sequences) == symbols(reversed(sequences)) == expected.split()
    assert symbols([]) == []


LEAF = re.compile(r"\([^ ()]+ ([^()]+)\)")


@pytest.mark.parametrize(
    ("name", "count", "spaces"),
    [
        ("genia-treebank/train.trees.gz", 14_326, 0),
        ("genia-treebank/dev.trees.gz", 1_361, 0),
        ("craft-treebank/train.clean.trees.gz", 18_951, 5),
        ("craft-treebank/dev.clean.trees.gz", 2_780, 0),
    ],
)
def test_the_treebanks_at_hand_go_there_and_back(
    name: str, count: int, spaces: int, caplog: pytest.LogCaptureFixture
) -> None:
    """E3: a tree a line, as many as the treebanks' own descriptions say; nothing to repair."""
    path = Path(os.environ.get("TRANSDUCE_DATA", "../shared/data")) / name
    if not path.exists():
        pytest.skip(f"{path} is not there; $TRANSDUCE_DATA names the folder of corpora")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line.removesuffix("\n") for line in file]
    assert len(lines) == count
    seen = 0
    for line, tree in zip(lines, parse_trees(lines, name=name), strict=True):
        words = [word.replace(" ", "\u00a0") for word in LEAF.findall(line)]
        seen += sum(word.count("\u00a0") for word in words)
        assert str(tree).replace("\u00a0", " ") == line
        cleaned = clean(tree)
        assert f"{line[: line.index(' ')]} {cleaned})".replace("\u00a0", " ") == line
        sequence = linearize(cleaned)
        assert repair(sequence, words) == (sequence, Repairs())
        assert delinearize(sequence, words) == cleaned
    assert seen == spaces
    assert len(caplog.messages) == (spaces > 0)
