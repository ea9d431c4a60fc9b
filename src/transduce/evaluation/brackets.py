"""The bracketing measure of EVALB (Sekine and Collins 1997), after its description.

A tree is a line, such as `(S (NP (DT This)) (VP (VBZ is) (NP (DT a) (NN test))))`. Two trees over
the same words are compared by their constituents: labels and spans, tags apart. Lines may be of any
length. What makes a sentence an error or lets it be skipped is as in EVALB, save that a line which
it cannot read, and at which it ends, is one more sentence in error; that MAX_ERROR is of sentences,
where EVALB counts messages; and that of neighbouring quotation marks which only one tree deletes
each is put back once, where EVALB may put one back twice.
"""

import enum
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from transduce.evaluation.bracket_parameters import Parameters


class Status(enum.IntEnum):
    """Whether a sentence counts in the totals; the numbers are those of EVALB's table."""

    VALID = 0
    ERROR = 1
    SKIP = 2


@dataclass(frozen=True, kw_only=True)
class SentenceScore:
    """One row of EVALB's table. Only a valid sentence has a part in totals."""

    length: int
    """Words of the gold tree, without those of DELETE_LABEL_FOR_LENGTH."""
    status: Status = Status.VALID
    error: str = ""
    """What is wrong with a sentence in error."""
    matched: int = 0
    gold: int = 0
    """Constituents of the gold tree that count, and of the test tree in the next."""
    test: int = 0
    crossing: int = 0
    """Constituents of the test tree that overlap one of the gold tree, neither in the other."""
    words: int = 0
    tags: int = 0
    """Words with the right tag."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts over sentences, and what EVALB's summary says of them; rates are in percent."""

    sentences: int
    errors: int
    skipped: int
    complete: int
    """Sentences with all constituents right and none too many."""
    matched: int
    gold: int
    test: int
    crossing: int
    no_crossing: int
    """Sentences without a crossing constituent, and with at most two in the next."""
    two_or_less: int
    words: int
    tags: int

    @property
    def valid(self) -> int:
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        return percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        return percent(self.matched, self.test)

    @property
    def f_measure(self) -> float:
        """NaN, as in EVALB, when not one constituent is right."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else math.nan


def percent(part: int, whole: int) -> float:
    """0 of nothing."""
    return 100 * part / whole if whole else 0.0


def total(scores: Iterable[SentenceScore]) -> Totals:
    """Sums over all sentences; those in error and skipped are counted, and nothing else."""
    scores = list(scores)
    valid = [score for score in scores if score.status is Status.VALID]
    return Totals(
        sentences=len(scores),
        errors=sum(score.status is Status.ERROR for score in scores),
        skipped=sum(score.status is Status.SKIP for score in scores),
        complete=sum(score.matched == score.gold == score.test for score in valid),
        matched=sum(score.matched for score in valid),
        gold=sum(score.gold for score in valid),
        test=sum(score.test for score in valid),
        crossing=sum(score.crossing for score in valid),
        no_crossing=sum(score.crossing == 0 for score in valid),
        two_or_less=sum(score.crossing <= 2 for score in valid),
        words=sum(score.words for score in valid),
        tags=sum(score.tags for score in valid),
    )


def score(gold: str, test: str, parameters: Parameters) -> SentenceScore:
    """Compares the trees of two lines.

    An error: a line that cannot be read, brackets that do not balance, words that differ. Skipped:
    a test line that can be read and has no words, as when a parser found no parse. Of brackets
    that do not balance the row shows what was read all the same, as EVALB's does.
    """
    first, second = _read(gold, parameters), _read(test, parameters)
    for name, tree in (("gold", first), ("test", second)):
        if tree.unreadable:
            error = f"Unreadable {name} tree at {tree.unreadable}"
            return SentenceScore(length=first.length, status=Status.ERROR, error=error)
    if not any(second.kept):
        return SentenceScore(length=first.length, status=Status.SKIP)
    error = first.imbalance("gold") or second.imbalance("test")
    if sum(first.kept) != sum(second.kept):
        _keep_quotes(first, second)
    words, others = first.words(), second.words()
    if len(words) != len(others):
        error = error or f"Length unmatch ({len(words)}|{len(others)})"
        return SentenceScore(length=first.length, status=Status.ERROR, error=error)
    for (word, _), (other, _) in zip(words, others, strict=True):
        if not parameters.same_word(word, other):
            error = error or f"Words unmatch ({word}|{other})"
            return SentenceScore(length=first.length, status=Status.ERROR, error=error)
    wanted, found = first.constituents(parameters), second.constituents(parameters)
    pairs = zip(words, others, strict=True)
    return SentenceScore(
        length=first.length,
        status=Status.ERROR if error else Status.VALID,
        error=error,
        matched=_matched(wanted, found, parameters),
        gold=len(wanted),
        test=len(found),
        crossing=sum(any(_cross(one, other) for other in wanted) for one in found),
        words=len(words),
        tags=sum(parameters.same_label(tag, other) for (_, tag), (_, other) in pairs),
    )


Constituent = tuple[str, int, int]
"""Label, and the words that it spans: from the first number, up to and without the second."""

OPEN = -1
"""The end of a constituent whose bracket was not closed."""


@dataclass
class _Tree:
    """What a line says; constituents are in the order in which their brackets open."""

    terminals: list[tuple[str, str]] = field(default_factory=list)
    """All words with their tags, deleted ones too."""
    kept: list[bool] = field(default_factory=list)
    """Of each terminal, whether it counts as a word."""
    quotes: list[int] = field(default_factory=list)
    """Which terminals are quotation marks with a tag of QUOTE_LABEL."""
    length: int = 0
    labels: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """How many terminals come before each constituent, and before its end in the next."""
    ends: list[int] = field(default_factory=list)
    not_closed: int = 0
    not_opened: int = 0
    unreadable: str = ""

    def imbalance(self, name: str) -> str:
        """What is wrong with the brackets of the tree `name`, or nothing."""
        if self.not_opened:
            return f"Bracketing unbalanced in {name} tree ({self.not_opened} not opened)"
        if self.not_closed:
            return f"Bracketing unbalanced in {name} tree ({self.not_closed} not closed)"
        return ""

    def words(self) -> list[tuple[str, str]]:
        return list(itertools.compress(self.terminals, self.kept))

    def words_before(self) -> list[int]:
        """How many words come before each terminal, and before the end."""
        return list(itertools.accumulate(self.kept, initial=0))

    def constituents(self, parameters: Parameters) -> list[Constituent]:
        """Those that count: with words, with no label to delete; labels without functions."""
        before = self.words_before()
        found = []
        for label, start, end in zip(self.labels, self.starts, self.ends, strict=True):
            first, last = before[start], OPEN if end == OPEN else before[end]
            label = re.split("[-=]", label, maxsplit=1)[0]
            deleted = any(parameters.same_label(label, other) for other in parameters.deleted)
            if first != last and not deleted:
                found.append((label, first, last))
        return found


TOKEN = re.compile(
    r"\s++|(?P<close>\))|\((?P<label>[^()\s]*+)(?P<terminal>\s++(?P<word>[^()\s]*+)\s*+\))?",
    re.ASCII,
)
"""A terminal is `(label word)`: white space between them, and maybe before the bracket."""


def _read(line: str, parameters: Parameters) -> _Tree:
    """Reads up to the line's end or to text where a bracket should be."""
    tree, opened, place = _Tree(), [], 0
    while place < len(line):
        token = TOKEN.match(line, place)
        if token is None:
            tree.unreadable = repr(line[place : place + 20])
            return tree
        place = token.end()
        label = token["label"]
        if token["close"]:
            if opened:
                tree.ends[opened.pop()] = len(tree.terminals)
            else:
                tree.not_opened += 1
        elif token["terminal"]:
            if label in parameters.quotes and token["word"] in ("'", '"', "/"):
                tree.quotes.append(len(tree.terminals))
            tree.length += label not in parameters.deleted_for_length
            tree.terminals.append((token["word"], label))
            tree.kept.append(label not in parameters.deleted)
        elif label is not None:
            opened.append(len(tree.labels))
            tree.labels.append(label)
            tree.starts.append(len(tree.terminals))
            tree.ends.append(OPEN)
    tree.not_closed = len(opened)
    return tree


def _keep_quotes(gold: _Tree, test: _Tree) -> None:
    """Keeps quotation marks that only one of the trees deletes, for their tags there.

    They are the ones with the same number of words before them in both trees.
    """
    for other in test.quotes:
        for one in gold.quotes:
            same_place = gold.words_before()[one] == test.words_before()[other]
            if same_place and gold.kept[one] != test.kept[other]:
                gold.kept[one] = test.kept[other] = True
                break


def _matched(gold: list[Constituent], test: list[Constituent], parameters: Parameters) -> int:
    """How many of the gold tree's have a partner; each takes the first one that is still free."""
    free: dict[tuple[int, int], list[str]] = {}
    for label, *span in test:
        free.setdefault((span[0], span[1]), []).append(label)
    matched = 0
    for label, start, end in gold:
        labels = free.get((start, end), [])
        for place, other in enumerate(labels):
            if not parameters.labeled or parameters.same_label(label, other):
                del labels[place]
                matched += 1
                break
    return matched


def _cross(one: Constituent, other: Constituent) -> bool:
    """Whether they share words and each has words that the other has not."""
    (_, start, end), (_, first, last) = one, other
    return first < start < last < end or start < first < end < last
