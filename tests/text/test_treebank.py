import gzip
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from transduce.config import RequestError
from transduce.text.treebank import (
    WSJ_SECTIONS,
    Tree,
    clean,
    parse_trees,
    plain_label,
    read_sections,
    read_trees,
    words_of,
)

from .tree_examples import TREES, deep_and_wide

PENN = """
( (S
    (NP-SBJ-1 (DT The) (JJ Dutch) (NN group) )
    (VP (VBZ seems)
      (S
        (NP-SBJ (-NONE- *-1) )
        (VP (TO to)
          (VP (VB pay)
            (NP (CD 3\\/4) )
            (PRN (-LRB- -LRB-)
              (ADVP=2 (RB net) )
              (-RRB- -RRB-) )
            (SBAR (-NONE- 0)
              (S (-NONE- *T*-2) ))))))
    (. .) ))
"""
PENN_CLEANED = (
    "(S (NP (DT The) (JJ Dutch) (NN group)) (VP (VBZ seems) (S (VP (TO to) (VP (VB pay) "
    "(NP (CD 3\\/4)) (PRN (-LRB- -LRB-) (ADVP (RB net)) (-RRB- -RRB-)))))) (. .))"
)


def read(text: str) -> list[Tree]:
    return list(parse_trees(text.split("\n"), name="a.mrg"))


def test_a_tree_has_labels_children_and_words() -> None:
    (tree,) = read("(S (NP (NN cell)) (. .))")
    assert tree == Tree("S", [Tree("NP", [Tree("NN", word="cell")]), Tree(".", word=".")])
    assert (tree.label, tree.word, len(tree.children)) == ("S", None, 2)
    assert tree.words() == ["cell", "."]
    assert [leaf.label for leaf in tree.leaves()] == ["NN", "."]
    assert repr(tree) == "<Tree (S (NP (NN cell)) (. .))>"


@pytest.mark.parametrize(
    "other", ["(S (NP (NN cell)))", "(X (NP (NN cell)) (. .))", "(S (NP (NN Cell)) (. .))", "(S)"]
)
def test_trees_with_any_difference_are_different(other: str) -> None:
    (tree,) = read("(S (NP (NN cell)) (. .))")
    different = Tree("S") if other == "(S)" else read(other)[0]
    assert tree != different
    assert len({tree, different, *read(str(tree))}) == 2
    assert tree != str(tree)


def test_a_tree_of_the_penn_treebank_is_stripped_the_standard_way() -> None:
    """E3: root, traces, what they leave empty, function tags and indices go; -LRB- stays."""
    (tree,) = map(clean, read(PENN))
    assert str(tree) == PENN_CLEANED
    assert " ".join(tree.words()) == "The Dutch group seems to pay 3\\/4 -LRB- net -RRB- ."


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("(S (NN a) (. .))", "(S (NN a) (. .))"),
        ("( (S (NN a) (. .)) )", "(S (NN a) (. .))"),
        ("(TOP (S (NN a) (. .)))", "(S (NN a) (. .))"),
        ("(S1 (S (S (NN a)) (. .)))", "(S (S (NN a)) (. .))"),
        ("(ROOT (FRAG (NN a)))", "(FRAG (NN a))"),
        ("( (TOP (S (NN a))))", "(S (NN a))"),
        ("(S1 (S (NN a)) (. .))", "(TOP (S (NN a)) (. .))"),
        ("( (NN a))", "(TOP (NN a))"),
        ("(NN a)", "(TOP (NN a))"),
        ("(S (X (X (X (NN a)))))", "(S (X (X (X (NN a)))))"),
        ("(S (NP (-NONE- *)) (NP (NP (-NONE- *)) (NN a)))", "(S (NP (NN a)))"),
        ("( (S (NP (-NONE- *))))", "(TOP)"),
        ("(-NONE- *)", "(TOP)"),
        ("()", "(TOP)"),
        ("(())", "(TOP)"),
        ("(S1 )", "(TOP)"),
        ("(TOP (NP-1 (NN-HL a)) (-LRB- -LRB-) (: --))", "(TOP (NP (NN a)) (-LRB- -LRB-) (: --))"),
        (
            "(S ( (NP (DT a))) (VP (TOP (VB b)) (NP (NN c))))",
            "(S (NP (DT a)) (VP (VB b) (NP (NN c))))",
        ),
        ("(S (ROOT (NP (-NONE- *))) (VP (VB b)))", "(S (VP (VB b)))"),
    ],
)
def test_every_tree_becomes_one_constituent(text: str, cleaned: str) -> None:
    """E3: no TOP, other roots, unary chains, roots over words, roots inside, nothing but traces."""
    (tree,) = map(clean, read(text))
    assert str(tree) == cleaned
    assert clean(tree) == tree


@pytest.mark.parametrize(
    ("label", "plain"),
    [
        *(("NP", "NP"), ("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("PP-LOC=3-4", "PP"), ("NP=2-X", "NP")),
        *(
            ("-LRB-", "-LRB-"),
            ("-NONE-", "-NONE-"),
            ("=", "="),
            ("-", "-"),
            ("PRP$", "PRP$"),
            ("", ""),
        ),
        *(("ADVP|PRT", "ADVP|PRT"), (",", ","), ("``", "``")),
    ],
)
def test_labels_lose_function_tags_and_indices(label: str, plain: str) -> None:
    assert plain_label(label) == plain


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (DT a) (NN b)) (. .))",
        "(S(NP(DT a)(NN b))(. .))",
        "  ( S ( NP ( DT a ) ( NN b ) ) ( . . ) )  \n\n",
        "\n(S\n(NP\n(DT a)\n(NN b)\n)\n(. .)\n)\n",
        "( S\n( NP\n( DT\na\n)\n(NN\nb)\n)\n(.\n.\n)\n)",
        "(S (NP (DT a)\r\n\t(NN\tb))\x0b\x0c(. .))\r\n",
    ],
)
def test_any_white_space_divides_brackets(text: str) -> None:
    """E3"""
    assert [str(tree) for tree in read(text)] == ["(S (NP (DT a) (NN b)) (. .))"]


def test_a_file_may_have_several_trees_on_a_line() -> None:
    text = "(S (NN a))(S (NN b)) (S\n(NN c)) (S (NN d))\n(NN e)"
    assert [tree.words() for tree in read(text)] == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_only_ascii_white_space_divides_words() -> None:
    """T1"""
    (tree,) = read("(S (NN a\u00a0b) (NN c\u2028d) (NN e\x85))")
    assert tree.words() == ["a\u00a0b", "c\u2028d", "e\x85"] == words_of(" ".join(tree.words()))
    assert words_of(" \ta\r\u3000b\x0bc  (\x1f \n") == ["a", "\u3000b", "c", "(\x1f"]
    assert words_of("") == words_of(" \t") == []


def test_brackets_in_words_are_written_as_tokens() -> None:
    """E3: whatever the words of a source line are, what is written can be read."""
    tree = Tree("S", [Tree("-LRB-", word="("), Tree("NN", word="f(x)")])
    assert str(tree) == "(S (-LRB- -LRB-) (NN f-LRB-x-RRB-))"
    assert tree.words() == ["(", "f(x)"]
    (again,) = read(str(tree))
    assert again.words() == ["-LRB-", "f-LRB-x-RRB-"]
    assert str(again) == str(tree)


@given(TREES)
def test_a_tree_that_is_written_can_be_read(tree: Tree) -> None:
    assert read(str(tree)) == [tree]
    spread = str(tree).replace(" ", "\n \n").replace("(", "\n( ").replace(")", "\n)")
    assert read(spread) == [tree]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a))\n(S (NN b)))\n(S (NN c))", "line 2: a closing bracket has no opening one"),
        ("(S (NN a))\n\n(S (NN b)\n(S (NN c))", "line 3: the tree that begins here is not closed"),
        ("( (S (NN a))\n( (S (NN b)))", r"line 2: \( begins a tree inside .* begins in line 1: "),
        ("(TOP (S (NN a))\n\n(TOP (S (NN b)))", r"line 3: \(TOP begins a tree inside .* line 1: "),
        ("(S1 (S\n(NN a))\n(S1 (S (NN b))))", r"line 3: \(S1 begins a tree inside .* line 1: "),
        ("(S (NN a))\n(S (NP) (NN a))", r"line 2: \(NP\) must hold a word or brackets"),
        ("\n(S)", r"line 2: \(S\) must hold a word or brackets"),
        ("(S (NN a))\ncat", "line 2: 'cat' stands outside brackets: trees look like"),
        ("(S (NN a) cat)", "line 1: 'cat' must be in a bracket of its own, after its tag"),
        ("(S\n(NP the (NN cat)))", "line 2: 'the' must be in a bracket of its own, after its tag"),
        ("(NN\na\n(NN b))", "line 3: 'a' must be in a bracket of its own, after its tag"),
        ("(\nNN b)", "line 2: 'NN' must be in a bracket of its own, after its tag"),
        ("(NN a) <s>", "line 1: '<s>' stands outside brackets"),
    ],
)
def test_errors_name_the_file_and_the_line(text: str, message: str) -> None:
    """E3: broken trees are never skipped."""
    with pytest.raises(RequestError, match=rf"^a\.mrg, {message}"):
        read(text)


def test_words_with_spaces_stay_one_word(caplog: pytest.LogCaptureFixture) -> None:
    text = "(S (NN a))\n(S (FW de facto) (NN\na b  c))"
    assert [tree.words() for tree in read(text)] == [["a"], ["de\u00a0facto", "a\u00a0b\u00a0c"]]
    assert caplog.messages == [
        "a.mrg: spaces in words became no-break spaces, 3 in all, the first in line 2"
    ]


def test_a_tree_is_there_when_its_last_line_is() -> None:
    def lines() -> Iterator[str]:
        yield "(S"
        yield "(NN a))"
        raise AssertionError

    assert str(next(parse_trees(lines(), name="a"))) == "(S (NN a))"


@pytest.mark.parametrize("depth", [300, 20_000])
def test_depth_has_no_limit(depth: int) -> None:
    tree, written = deep_and_wide(depth)
    assert str(tree) == written
    (again,) = read(written)
    assert again == tree
    assert hash(again) == hash(tree)
    assert clean(again) == tree
    assert tree.words() == [str(number) for number in range(2 * depth + 1)]
    other, _ = deep_and_wide(depth - 1)
    assert other != tree


def test_width_has_no_limit() -> None:
    tree = Tree("S", [Tree("NP", [Tree("NN", word=str(number))]) for number in range(20_000)])
    assert read(str(tree)) == [clean(tree)] == [tree]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def first_words(trees: Iterator[Tree]) -> str:
    return " ".join(tree.words()[0] for tree in trees)


def test_files_are_plain_or_gzip(tmp_path: Path) -> None:
    for name in ("a.mrg", "a.gz", "any name"):
        assert [str(tree) for tree in read_trees(write(tmp_path / name, PENN))] == [PENN_CLEANED]


def test_a_folder_is_read_in_the_order_of_its_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "b.trees", "(S (NN two))\n(S (NN three))\n")
    write(tmp_path / "a" / "z.MRG.gz", "( (S (NN one)))")
    write(tmp_path / "c.d.ptb", "(TOP (S (NN four)))")
    write(tmp_path / "LICENSE.txt", "not a tree")
    write(tmp_path / "x.mrg.bak", "not a tree")
    (tmp_path / "folder.mrg").mkdir()
    with caplog.at_level(logging.INFO):
        assert first_words(read_trees(tmp_path)) == "one two three four"
    assert caplog.messages == [f"{tmp_path}: 3 tree files, 2 other files left out"]


def test_a_folder_or_file_without_trees_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "README", "(S (NN a))")
    with pytest.raises(RequestError, match=r"has no file that ends in \.mrg, \.tree, "):
        read_trees(tmp_path)
    empty = write(tmp_path / "a.trees", "\n\n")
    with pytest.raises(RequestError, match=rf"^{empty}: has no tree; trees look like "):
        list(read_trees(empty))
    write(tmp_path / "b.trees", "(S (NN a))\n(S")
    with pytest.raises(RequestError, match=rf"^{tmp_path / 'b.trees'}, line 2: the tree that"):
        list(read_trees(tmp_path))
    with pytest.raises(RequestError, match="missing: cannot read: No such file"):
        list(read_trees(tmp_path / "missing"))


@pytest.mark.parametrize("below", ["", "wsj", "parsed/mrg/wsj"])
def test_sections_of_the_penn_treebank_are_read_in_order(tmp_path: Path, below: str) -> None:
    for section in range(25):
        folder = tmp_path / below / f"{section:02}"
        write(folder / f"wsj_{section:02}01.mrg", f"\n( (S (NN {section}b) (. .)) )\n")
        write(folder / f"wsj_{section:02}00.MRG.gz", f"( (S (NN {section}a) (. .)) )\n")
        write(folder / "readme.txt", "not a tree")
    write(tmp_path / below / "MERGE.LOG", "not a tree")
    expected = " ".join(f"{section}a {section}b" for section in range(2, 22))
    assert first_words(read_sections(tmp_path, WSJ_SECTIONS["train"])) == expected
    assert first_words(read_sections(tmp_path, WSJ_SECTIONS["dev"])) == "22a 22b"
    assert first_words(read_sections(tmp_path, WSJ_SECTIONS["test"])) == "23a 23b"
    (tmp_path / below / "23" / "wsj_2300.MRG.gz").unlink()
    (tmp_path / below / "23" / "wsj_2301.mrg").unlink()
    with pytest.raises(RequestError, match=r"23: has no file that ends in \.mrg or \.mrg\.gz"):
        read_sections(tmp_path, WSJ_SECTIONS["test"])


def test_a_section_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "02" / "wsj_0201.mrg", "( (S (NN a)) )")
    with pytest.raises(RequestError, match=r"has no section 03: none of the folders .*/wsj/03, "):
        read_sections(tmp_path, WSJ_SECTIONS["train"])
