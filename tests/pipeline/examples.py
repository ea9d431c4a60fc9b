"""A corpus and a vocabulary of whole words that the tests of the pipeline share."""

import random
from collections.abc import Iterable

import numpy as np

from transduce.arrays import EOS
from transduce.text.vocabulary import Vocabulary

type Pair = tuple[str, str]

FIRST_PIECE = 4


class Words(Vocabulary):
    """One piece a word; sampled, one piece a letter, each in one of two ways."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.symbols = {}

    def encode(self, text: str) -> list[int]:
        return [*(self._id(word) for word in text.split()), EOS]

    def encode_many(self, texts: Iterable[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def sample(self, text: str, rng: np.random.Generator, rate: float) -> list[int]:
        letters = text.replace(" ", "")
        return [*(self._id(letter + str(rng.integers(2))) for letter in letters), EOS]

    def _id(self, word: str) -> int:
        return self.ids.setdefault(word, FIRST_PIECE + len(self.ids))


def sentences(count: int, *, seed: int, longest: int = 9) -> list[Pair]:
    """Pairs of which no two are the same, of 1 to `longest` words a side."""
    generator = random.Random(seed)

    def text(number: int) -> str:
        words = generator.choices(["ab", "cd", "ef", "gh", "ij"], k=generator.randrange(longest))
        return " ".join([f"n{number}", *words])

    return [(text(number), text(number)) for number in range(count)]
