"""Trees as sequences of symbols, to be learnt like a language (section 6.3; Vinyals et al. 2015).

`(S (NP (DT The) (NN cell)) (VP (VBZ grows)) (. .))` is the source `The cell grows .` and the
target

    (S (NP DT NN )NP (VP VBZ )VP . )S

Symbols are divided by single spaces. `(NP` opens a constituent, `)NP` closes it, and anything
else is the tag of the next word; words themselves come back from the source. A sequence is well
formed over n words when it has n tags, its brackets match in label and order, every constituent
holds a tag, and the first bracket is closed by the last symbol. Over no words only the empty
sequence is. `linearize` and `delinearize` are each other's inverse there.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import chain

from transduce.text.treebank import ROOTS, Tree, words_of

_SYMBOL = re.compile(r"[()]?[^\s()]+", re.ASCII)

# EVALB leaves out punctuation by its tag, and gives up a sentence in which the parser's tags and
# the treebank's do not name the same words as such. So a guess at a tag matters here only.
_PUNCTUATION = {
    **dict.fromkeys((".", "?", "!"), "."),
    **dict.fromkeys((",",), ","),
    **dict.fromkeys((":", ";", "--", "...", "—"), ":"),
    **dict.fromkeys(("``", "“", "‘"), "``"),
    **dict.fromkeys(("''", "”", "’", '"'), "''"),
    **dict.fromkeys(("-LRB-", "-LSB-", "-LCB-", "(", "[", "{"), "-LRB-"),
    **dict.fromkeys(("-RRB-", "-RSB-", "-RCB-", ")", "]", "}"), "-RRB-"),
}
# Treebanks also have them as symbols (SYM), apostrophes (POS) or decoration (NFP).
_UNSURE = frozenset({":", "--", "...", "—", "‘", "’"})
_OTHER = "XX"

WORD, STOP, COMMA, COLON, QUOTE, LEFT, RIGHT = range(1, 8)
"""Kinds of tags and of words, which go with each other: what is no punctuation, and what is."""
ANY = 0
"""The kind of a word that may be either, such as a hyphen or an apostrophe."""

_TAGS = {
    **{".": STOP, ",": COMMA, ":": COLON, "``": QUOTE, "''": QUOTE},
    **{"-LRB-": LEFT, "-RRB-": RIGHT},
}

_SLACK = 16
"""Tags and words that `_words_of_tags` takes to be dropped or added beside those that must be."""
_MOST = 4_000_000
"""Pairs of a tag and a word that it looks at: some seconds."""


@dataclass(kw_only=True)
class Repairs:
    """How much of an output was changed to make it well formed; false when nothing was."""

    unknown_symbols: int = 0
    """Not of the three forms or not among the known: brackets left out, others given a new tag."""
    dropped_tags: int = 0
    """For which there was no word left."""
    added_tags: int = 0
    """For words that had none."""
    dropped_closings: int = 0
    """Of constituents that were not open."""
    added_closings: int = 0
    """Of constituents that were still open when one around them, or the output, ended."""
    dropped_constituents: int = 0
    """That held no word."""
    misplaced_roots: int = 0
    """Brackets of a root's label that do not open or close the whole output."""
    added_roots: int = 0
    """TOP around an output that was not one constituent."""

    def __bool__(self) -> bool:
        return any(astuple(self))

    def __str__(self) -> str:
        counts = {name.replace("_", " "): count for name, count in vars(self).items() if count}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing"

    def __add__(self, other: "Repairs") -> "Repairs":
        return Repairs(**{name: count + getattr(other, name) for name, count in vars(self).items()})


def linearize(tree: Tree) -> list[str]:
    """The symbols of a cleaned tree."""
    symbols: list[str] = []
    todo: list[Tree | str] = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            symbols.append(item)
        elif item.word is not None:
            symbols.append(item.label)
        elif item.children:
            symbols.append(f"({item.label}")
            todo.append(f"){item.label}")
            todo.extend(reversed(item.children))
    return symbols


def delinearize(symbols: Iterable[str], words: Iterable[str]) -> Tree:
    """The tree over `words` that a well-formed sequence stands for.

    Raises `ValueError` for any other sequence; `repair` makes a well-formed one of it.
    """
    built: list[list[Tree]] = [[]]
    labels: list[str] = []
    left = iter(words)
    for symbol in symbols:
        if symbol.startswith("("):
            labels.append(symbol[1:])
            built.append([])
        elif symbol.startswith(")"):
            children = built.pop()
            if not labels or labels.pop() != symbol[1:] or not children:
                raise ValueError(f"{symbol} closes no constituent or an empty one")
            built[-1].append(Tree(symbol[1:], children))
        elif (word := next(left, None)) is not None:
            built[-1].append(Tree(symbol, word=word))
        else:
            raise ValueError(f"there is no word for the tag {symbol}")
    if labels or next(left, None) is not None:
        raise ValueError("a constituent is not closed, or a word has no tag")
    match built[0]:
        case []:
            return Tree("TOP")
        case [tree] if tree.word is None:
            return tree
    raise ValueError("the symbols are not one constituent")


def symbols(sequences: Iterable[Iterable[str]]) -> list[str]:
    """Every symbol once: opening brackets, closing brackets, tags, each of them sorted.

    These are for the vocabulary, in which each is to be one piece.
    """
    found = set(chain.from_iterable(sequences))
    return sorted(found, key=lambda symbol: (not _opens(symbol), not _closes(symbol), symbol))


def kind_of_tag(tag: str) -> int:
    """Whether a tag is one of punctuation, and of which."""
    return _TAGS.get(tag, WORD)


def kind_of_word(word: str) -> int:
    """Which tags a word may have, without the sentence; letters and digits make it no punctuation.

    Of the 411,000 words of the GENIA treebank one has a tag of another kind, of CRAFT's 561,000
    words 113.
    """
    if word in _PUNCTUATION:
        return ANY if word in _UNSURE else kind_of_tag(_PUNCTUATION[word])
    return WORD if any(map(str.isalnum, word)) else ANY


def is_tag(symbol: str) -> bool:
    """Whether a symbol stands for a word, rather than for a bracket."""
    return not _opens(symbol) and not _closes(symbol)


def repair(
    symbols: Iterable[str], words: Sequence[str], *, known: Container[str] | None = None
) -> tuple[list[str], Repairs]:
    """A well-formed sequence over `words` that differs little from `symbols`, and what differs.

    A well-formed sequence of known symbols comes back as it is. Otherwise, from left to right:

    - Brackets that are unknown or not of the form above are left out. Any other such symbol
      stands for a tag, and the tag is guessed from the word.
    - A root's bracket (TOP, S1, ROOT) stays only where it opens or closes the whole output.
    - A closing bracket first closes what is open inside its constituent. When no constituent of
      its label is open, it is left out.
    - With more tags than words, or fewer, tags go with words of their kind (`kind_of_word`), as
      many as can; what is over or missing lies as late as that allows.
    - A tag for which there is no word is left out. A word for which there is no tag gets a guessed
      one before the tag of the next that has one. Behind the last it stands in the innermost
      constituent that is open where the output ends, or, when all are closed and one is around the
      whole output, at that one's end.
    - What is open at the end is closed, and constituents without words are left out.
    - When the result is not one constituent, `TOP` goes around it.

    The guess is the Penn Treebank's tag for punctuation, XX for all other words. `known` holds the
    symbols that a treebank has; without it any label will do.
    """
    symbols = list(symbols)
    places = iter(_words_of_tags([symbol for symbol in symbols if is_tag(symbol)], words))
    repairs = Repairs()
    output: list[str] = []
    labels: list[str] = []
    tagged = 0

    def close(*, added: bool) -> None:
        label = labels.pop()
        if _opens(output[-1]):
            output.pop()
            repairs.dropped_constituents += 1
        else:
            output.append(f"){label}")
            repairs.added_closings += added

    for place, symbol in enumerate(symbols, start=1):
        usable = _SYMBOL.fullmatch(symbol) and (known is None or symbol in known)
        if not usable:
            repairs.unknown_symbols += 1
            if _opens(symbol) or _closes(symbol):
                continue
        outermost = place == len(symbols) if _closes(symbol) else not output
        if symbol[:1] in ("(", ")") and symbol[1:] in ROOTS and not outermost:
            repairs.misplaced_roots += 1
        elif _opens(symbol):
            labels.append(symbol[1:])
            output.append(symbol)
        elif _closes(symbol):
            if symbol[1:] not in labels:
                repairs.dropped_closings += 1
                continue
            while labels[-1] != symbol[1:]:
                close(added=True)
            close(added=False)
        elif (word := next(places)) is not None:
            guesses = [_guess(each) for each in words[tagged:word]]
            repairs.added_tags += len(guesses)
            output += [*guesses, symbol if usable else _guess(words[word])]
            tagged = word + 1
        else:
            repairs.dropped_tags += 1

    guesses = [_guess(word) for word in words[tagged:]]
    repairs.added_tags += len(guesses)
    end = len(output) - (not labels and _is_one_constituent(output))
    output[end:end] = guesses
    while labels:
        close(added=True)
    if output and not _is_one_constituent(output):
        output = ["(TOP", *output, ")TOP"]
        repairs.added_roots = 1
    return output, repairs


def _words_of_tags(tags: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """For each tag the place of its word, in order; None for tags that are to be left out.

    The fewest tags are left out and words passed over with which no tag of punctuation meets a
    word that is none, nor the other way round: an edit distance, within a band. Sentences of
    thousands of words, for which that takes minutes, keep their first tags.
    """
    over = len(words) - len(tags)
    width = abs(over) + 2 * _SLACK + 1
    if not over or len(tags) * width > _MOST:
        return [place if place < len(words) else None for place in range(len(tags))]
    kinds = list(map(kind_of_tag, tags))
    wanted = list(map(kind_of_word, words))
    # Column k of row i stands for the first i tags and the first i + low + k words.
    low = min(0, over) - _SLACK
    never = len(tags) + len(words) + 1
    costs: list[list[int]] = []
    for i in range(len(tags) + 1):
        above = [*costs[-1], never] if costs else []
        row: list[int] = []
        for k in range(width):
            j = i + low + k
            best = 0 if i == j == 0 else never
            if 0 <= j <= len(words):
                if i:
                    best = min(best, above[k + 1] + 1)
                if j and k:
                    best = min(best, row[k - 1] + 1)
                if i and j and wanted[j - 1] in (ANY, kinds[i - 1]):
                    best = min(best, above[k])
            row.append(best)
        costs.append(row)
    found: list[int | None] = []
    i, k = len(tags), over - low
    while i:
        j, cost = i + low + k, costs[i][k]
        if k + 1 < width and costs[i - 1][k + 1] + 1 == cost:
            found.append(None)
            i, k = i - 1, k + 1
        elif j and k and costs[i][k - 1] + 1 == cost:
            k -= 1
        else:
            found.append(j - 1)
            i -= 1
    return found[::-1]


def restore(
    output: str, sentence: str, *, known: Container[str] | None = None
) -> tuple[Tree, Repairs]:
    """The tree that the symbols in `output` stand for over the words of `sentence`.

    They are repaired as by `repair`.
    """
    words = words_of(sentence)
    sequence, repairs = repair(words_of(output), words, known=known)
    return delinearize(sequence, words), repairs


def _opens(symbol: str) -> bool:
    return symbol.startswith("(")


def _closes(symbol: str) -> bool:
    return symbol.startswith(")")


def _guess(word: str) -> str:
    return _PUNCTUATION.get(word, _OTHER)


def _is_one_constituent(symbols: Sequence[str]) -> bool:
    """Whether the bracket that comes first is closed by the last symbol, in balanced `symbols`."""
    depth = 0
    for place, symbol in enumerate(symbols, start=1):
        depth += _opens(symbol) - _closes(symbol)
        if depth == 0:
            return _closes(symbol) and place == len(symbols)
    return False
