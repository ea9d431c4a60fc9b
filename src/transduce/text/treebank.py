"""Treebanks in Penn-style bracket files.

A file, plain or gzip, holds trees such as `(S1 (S (NP (PRP We)) (VP (VBD left)) (. .)))`, one a
line or spread over lines. White space is ASCII's: a no-break space belongs to a word. Words stay
as the file spells them, so that "(" is the token -LRB-, whose tag may be called -LRB- too.
"""

import functools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from transduce.config import RequestError
from transduce.text.lines import read_lines

_log = logging.getLogger(__name__)

ROOTS = frozenset({"", "TOP", "S1", "ROOT"})
"""Labels of the bracket that some treebanks put around each tree; it says nothing."""

WSJ_SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}
"""The division of the Wall Street Journal part of the Penn Treebank that papers report on."""

_WORD = re.compile(r"\S+", re.ASCII)
# (tag word), a closing bracket, a word apart from its tag, an opening bracket with its label.
_TOKEN = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|(\))|([^\s()]+)|\(\s*([^\s()]*)", re.ASCII)
_TREE_FILE = re.compile(r"\.(mrg|trees?|ptb)(\.gz)?\Z", re.IGNORECASE)
_SECTION_FILE = re.compile(r"\.mrg(\.gz)?\Z", re.IGNORECASE)


class Tree:
    """A tagged word or a constituent; not to be changed.

    `label` is the part-of-speech tag of a word or the category of a constituent. A word has a
    `word` and no `children`, a constituent the reverse. Of the trees that are read here, only
    those of sentences without words have a constituent without children: `Tree("TOP")`.

    Depth is limited by memory alone: nothing here recurses.
    """

    __slots__ = ("children", "label", "word")

    def __init__(
        self, label: str, children: Sequence["Tree"] = (), *, word: str | None = None
    ) -> None:
        self.label = label
        self.children = tuple(children)
        self.word = word

    def leaves(self) -> list["Tree"]:
        """The tagged words, in order."""
        found: list[Tree] = []
        todo: list[Tree] = [self]
        while todo:
            tree = todo.pop()
            if tree.word is not None:
                found.append(tree)
            todo.extend(reversed(tree.children))
        return found

    def words(self) -> list[str]:
        """As the treebank spells them; joined by spaces, they are the sentence to parse."""
        return [leaf.word for leaf in self.leaves() if leaf.word is not None]

    def __str__(self) -> str:
        """The tree in brackets, on one line; brackets in words become -LRB- and -RRB-."""
        parts: list[str] = []
        todo: list[Tree | str] = [self]
        while todo:
            item = todo.pop()
            if isinstance(item, str):
                parts.append(item)
            elif item.word is not None:
                parts.append(f" ({item.label} {_escaped(item.word)})")
            else:
                parts.append(f" ({item.label}")
                todo.append(")")
                todo.extend(reversed(item.children))
        return "".join(parts)[1:]

    def __repr__(self) -> str:
        return f"<Tree {self}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        todo: list[tuple[Tree, Tree]] = [(self, other)]
        while todo:
            one, two = todo.pop()
            if one.label != two.label or one.word != two.word:
                return False
            if len(one.children) != len(two.children):
                return False
            todo.extend(zip(one.children, two.children, strict=True))
        return True

    def __hash__(self) -> int:
        return hash(str(self))


def words_of(line: str) -> list[str]:
    """The words of a sentence as bracket files divide them: at ASCII's white space only."""
    return _WORD.findall(line)


def same_words(tree: Tree, sentence: str) -> bool:
    """Whether a tree is over a sentence's words, in which "(" is as good as a treebank's -LRB-."""
    return [*map(_escaped, tree.words())] == [*map(_escaped, words_of(sentence))]


def _escaped(word: str) -> str:
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def parse_trees(lines: Iterable[str], *, name: str) -> Iterator[Tree]:
    """The trees in `lines` as they stand there, with root, traces and function tags.

    Each is there as soon as its last line is read. Raises `RequestError`, in which `name` stands
    for the file, that names the line where brackets do not match, a bracket holds neither a word
    nor brackets (only a root may), or a word stands beside brackets or outside. Some treebanks
    have words with spaces inside, as in (NN de facto); these become no-break spaces, and the log
    says how many.
    """
    number = begin = 0
    joined: list[int] = []  # lines
    # Of each open bracket the label, what it holds, and its word when that came apart from its tag.
    stack: list[tuple[str, list[Tree], str]] = []

    def error(message: str) -> RequestError:
        return RequestError(f"{name}, line {number}: {message}")

    for number, line in enumerate(lines, start=1):
        for tag, word, closing, bare, label in _TOKEN.findall(line):
            if word:
                tree = Tree(tag, word=word)
            elif closing:
                if not stack:
                    raise error("a closing bracket has no opening one")
                label, children, word = stack.pop()
                if not (children or word or label in ROOTS):
                    raise error(f"({label}) must hold a word or brackets")
                tree = Tree(label, word=word) if word else Tree(label, children)
            elif bare:
                if not stack:
                    raise error(f"{bare!r} stands outside brackets: trees look like (S (NN word))")
                label, children, word = stack.pop()
                if children or not label:
                    raise error(f"{bare!r} must be in a bracket of its own, after its tag")
                if word:
                    joined.append(number)
                    bare = f"{word}\u00a0{bare}"
                stack.append((label, children, bare))
                continue
            else:
                if not stack:
                    begin = number
                elif label in ROOTS and stack[-1][1]:
                    raise error(
                        f"({label} begins a tree inside the one that begins in line {begin}: "
                        "a closing bracket is missing"
                    )
                stack.append((label, [], ""))
                continue
            if not stack:
                yield tree
            elif stack[-1][2]:
                raise error(f"{stack[-1][2]!r} must be in a bracket of its own, after its tag")
            else:
                stack[-1][1].append(tree)
    if stack:
        raise RequestError(f"{name}, line {begin}: the tree that begins here is not closed")
    if joined:
        _log.warning(
            "%s: spaces in words became no-break spaces, %d in all, the first in line %d",
            *(name, len(joined), joined[0]),
        )


@functools.cache
def plain_label(label: str) -> str:
    """The label up to its function tags and indices: NP of NP-SBJ-1 and NP=2, but -LRB- whole."""
    if label.startswith("-"):
        return label
    # A label such as "=" is no function tag.
    return label[:1] + label[1:].partition("-")[0].partition("=")[0]


def clean(tree: Tree) -> Tree:
    """The tree as parsers learn and are judged by it: one constituent over the words.

    Traces (tagged -NONE-) go, and with them constituents that hold nothing else; labels lose
    their function tags and indices; the root goes where it holds just one constituent, and
    wherever it is not outermost. Where it holds something else, and around a single tagged word, it
    is called TOP.
    """
    built: list[list[Tree]] = [[]]
    todo: list[Tree | str] = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            children = built.pop()
            if item in ROOTS and todo:
                built[-1] += children
            elif children:
                built[-1].append(Tree(item, children))
        elif item.word is None:
            built.append([])
            todo.append(plain_label(item.label))
            todo.extend(reversed(item.children))
        elif item.label != "-NONE-":
            label = plain_label(item.label)
            built[-1].append(item if label == item.label else Tree(label, word=item.word))
    if not built[0]:
        return Tree("TOP")
    (tree,) = built[0]
    while tree.label in ROOTS and len(tree.children) == 1 and tree.children[0].word is None:
        tree = tree.children[0]
    if tree.word is not None:
        return Tree("TOP", [tree])
    return Tree("TOP", tree.children) if tree.label in ROOTS else tree


def read_trees(path: str | os.PathLike[str]) -> Iterator[Tree]:
    """The cleaned trees of a file ("-" is standard input), or of all tree files in a folder.

    Tree files in a folder, at any depth and in the order of their paths, are those that end in
    .mrg, .tree, .trees or .ptb, or in one of these and .gz; the log says how many others there
    are. A tree without words is still one tree. Raises `RequestError` when a folder has no tree
    file, and, while the trees are read, when there is none and as `parse_trees` and `read_lines`
    do.
    """
    files = tree_files(path) if os.path.isdir(path) else [path]
    return trees_of(files, origin=os.fspath(path))


def read_sections(directory: str | os.PathLike[str], sections: Iterable[int]) -> Iterator[Tree]:
    """The cleaned trees of some of the Penn Treebank's sections, in order.

    Raises `RequestError` as `section_files` does, and, while the trees are read, as `read_trees`
    does.
    """
    return trees_of(section_files(directory, sections), origin=os.fspath(directory))


def section_files(directory: str | os.PathLike[str], sections: Iterable[int]) -> list[Path]:
    """The files of some of the Penn Treebank's sections, in order.

    `directory` has a folder for each section (02 has wsj_0201.mrg and so on), or has them in wsj
    or in parsed/mrg/wsj, as the LDC's Treebank-3 does. Raises `RequestError` when a section is
    not there or has no .mrg file.
    """
    places = [Path(directory, below) for below in ("", "wsj", "parsed/mrg/wsj")]
    files: list[Path] = []
    for section in sections:
        folders = [place / f"{section:02}" for place in places]
        folder = next(filter(Path.is_dir, folders), None)
        if folder is None:
            raise RequestError(
                f"{directory}: has no section {section:02}: none of the folders "
                f"{', '.join(map(str, folders))} is there"
            )
        found = _matching(folder.iterdir(), _SECTION_FILE)
        if not found:
            raise RequestError(f"{folder}: has no file that ends in .mrg or .mrg.gz")
        files += found
    return files


def trees_of(files: Iterable[str | os.PathLike[str]], *, origin: str) -> Iterator[Tree]:
    """The cleaned trees of some files, which are those of `origin`; raises as `read_trees` does."""
    empty = True
    for file in files:
        for tree in parse_trees(read_lines(file), name=os.fspath(file)):
            empty = False
            yield clean(tree)
    if empty:
        raise RequestError(f"{origin}: has no tree; trees look like (S (NP (NN word)))")


def tree_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The tree files in a folder, as `read_trees` finds them."""
    everything = [path for path in Path(folder).rglob("*") if path.is_file()]
    files = _matching(everything, _TREE_FILE)
    if not files:
        raise RequestError(
            f"{folder}: has no file that ends in .mrg, .tree, .trees or .ptb (or one of them "
            "and .gz)"
        )
    _log.info(
        "%s: %d tree files, %d other files left out",
        *(folder, len(files), len(everything) - len(files)),
    )
    return files


def _matching(paths: Iterable[Path], ending: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in paths if ending.search(path.name) and path.is_file())
