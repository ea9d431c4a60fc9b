"""Parameter files of EVALB (Sekine and Collins 1997): what counts when trees are compared."""

import os
import re
from dataclasses import dataclass
from typing import Any

from transduce.config import RequestError
from transduce.text.lines import read_lines
from transduce.text.treebank import ROOTS


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What EVALB's parameters say; the defaults are those of an empty parameter file."""

    deleted: frozenset[str] = frozenset()
    """DELETE_LABEL: words with such a tag are left out, and of constituents the brackets."""
    deleted_for_length: frozenset[str] = frozenset()
    """DELETE_LABEL_FOR_LENGTH: tags of words that do not count in a sentence's length."""
    quotes: frozenset[str] = frozenset()
    """QUOTE_LABEL: tags that a quotation mark may have, so that only one tree's is deleted."""
    equal_labels: frozenset[tuple[str, str]] = frozenset()
    """EQ_LABEL: pairs that count as one label or tag, in either order; not transitive."""
    equal_words: frozenset[tuple[str, str]] = frozenset()
    """EQ_WORD: pairs that count as one word, in either order; not transitive."""
    cutoff_length: int = 40
    """CUTOFF_LEN: a second summary is of the sentences that are no longer than this."""
    max_error: int = 10
    """MAX_ERROR: so many sentences in error, and one more, are borne; the next ends it all."""
    labeled: bool = True
    """LABELED: whether constituents must agree in their labels too."""

    def same_label(self, one: str, other: str) -> bool:
        return _same(one, other, self.equal_labels)

    def same_word(self, one: str, other: str) -> bool:
        return _same(one, other, self.equal_words)


def _same(one: str, other: str, equal: frozenset[tuple[str, str]]) -> bool:
    return one == other or (one, other) in equal or (other, one) in equal


PENN_TREEBANK = Parameters(
    deleted=ROOTS | {"-NONE-", ",", ":", "``", "''", ".", "?", "!"},
    deleted_for_length=frozenset(["-NONE-"]),
    quotes=frozenset(["``", "''", "POS", "NN", "CD", "VBZ", ":"]),
    equal_labels=frozenset([("ADVP", "PRT")]),
)
"""The usual measure of English parsers: Collins (1997), made proof against other roots and tags.

Without the roots but TOP, the tags ? and !, and the quotes, it is the measure of Collins, and on
trees that have none of these it gives the same figures.
"""

LABELS = {
    "DELETE_LABEL": "deleted",
    "DELETE_LABEL_FOR_LENGTH": "deleted_for_length",
    "QUOTE_LABEL": "quotes",
}
PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
NUMBERS = {"CUTOFF_LEN": "cutoff_length", "MAX_ERROR": "max_error"}
SWITCHES = {"LABELED": "01", "DISC_ONLY": "01", "DEBUG": "012"}


def read_parameters(path: str | os.PathLike[str]) -> Parameters:
    """The parameters in a file of lines `KEY value`; a line that begins with # is a comment.

    Labels and pairs add up over lines; of a number or switch the last line holds. DEBUG is
    accepted and changes nothing. Raises `RequestError` with file and line when a key is unknown,
    a value is missing, too many or not of its kind, or DISC_ONLY is 1.
    """
    found: dict[str, Any] = {}
    for number, line in enumerate(read_lines(path), start=1):
        key, *values = re.findall(r"\S+", line, re.ASCII) or [""]
        if not key or line.startswith("#"):
            continue
        wrong = _wrong(key, values)
        if wrong:
            raise RequestError(f"{os.fspath(path)}, line {number}: {wrong}")
        if key in LABELS:
            found[LABELS[key]] = found.get(LABELS[key], frozenset()) | {values[0]}
        elif key in PAIRS:
            found[PAIRS[key]] = found.get(PAIRS[key], frozenset()) | {(values[0], values[1])}
        elif key in NUMBERS:
            found[NUMBERS[key]] = int(values[0])
        elif key == "LABELED":
            found["labeled"] = values[0] == "1"
    return Parameters(**found)


def _wrong(key: str, values: list[str]) -> str:
    """What is wrong with a line, or nothing."""
    known = [*LABELS, *PAIRS, *NUMBERS, *SWITCHES]
    if key not in known:
        return f"no parameter {key!r}; there are {', '.join(known)}"
    wanted = 2 if key in PAIRS else 1
    if len(values) != wanted:
        return f"{key} takes {wanted} value{'s' * (wanted > 1)}, not {len(values)}"
    if key in NUMBERS and not re.fullmatch("[0-9]+", values[0]):
        return f"{key} is a whole number, not {values[0]!r}"
    if key in SWITCHES and values[0] not in list(SWITCHES[key]):
        return f"{key} is {' or '.join(SWITCHES[key])}, not {values[0]!r}"
    if key == "DISC_ONLY" and values[0] == "1":
        return (
            "DISC_ONLY 1 counts constituents with gaps only, and bracketed trees have none; "
            "only DISC_ONLY 0 gives figures"
        )
    return ""
