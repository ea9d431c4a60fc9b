"""A long line in parts that are short enough."""

import re
from collections.abc import Callable
from itertools import pairwise

# What ends a sentence, and the quotes and brackets that close with it; in Chinese and Japanese no
# space follows. After an end every quote closes, whichever of the two it is in other languages.
_END = re.compile(r"""[.!?…]["'“”‘’«»‹›)\]]*(?=\s)|[。！？]+[”’」』）]*""")


def split(line: str, fits: Callable[[str], bool]) -> list[str]:
    """The sentences of a line, in order; one that does not fit in pieces that do.

    Those are cut at the space nearest to their middle, and where there is none inside a word, so
    that nothing is lost but white space at the cuts. What is a single character stays, fits or
    not.
    """
    cuts = [0, *(found.end() for found in _END.finditer(line)), len(line)]
    sentences = [line[start:end] for start, end in pairwise(cuts)]
    return [part for sentence in sentences for part in _halved(sentence, fits)]


def _halved(text: str, fits: Callable[[str], bool]) -> list[str]:
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    middle = len(text) // 2
    spaces = [found.start() for found in re.finditer(r"\s", text)]
    cut = min(spaces, key=lambda place: abs(place - middle), default=middle)
    return _halved(text[:cut], fits) + _halved(text[cut:], fits)
