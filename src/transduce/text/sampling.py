"""Random segmentations (subword regularisation), drawn from a generator that is given.

SentencePiece can sample too, but mixes the seed that it is given with a number that every process
draws for itself: what it samples cannot be repeated after a restart. At rate 0 (BPE), and as
alpha grows (unigram), these segmentations are SentencePiece's own.
"""

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

type Pieces = Mapping[str, float]
"""Text of every piece that spells something, with its score; bytes and symbols are not in it."""


def sample_bpe(text: str, pieces: Pieces, rng: np.random.Generator, rate: float) -> list[str]:
    """BPE-dropout (Provilkov et al. 2020): characters, merged pair by pair.

    The pair whose merger has the best score is next, the leftmost of equals; with probability
    `rate` it is left out instead, until a neighbour's merger makes another pair of it.
    Characters that are no piece stay alone.
    """
    symbols = list(text)
    before, after = list(range(-1, len(text) - 1)), [*range(1, len(text)), -1]
    agenda: list[tuple[float, int, int, str]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            merger = symbols[left] + symbols[right]
            if merger in pieces:
                heapq.heappush(agenda, (-pieces[merger], left, right, merger))

    for left in range(len(text) - 1):
        consider(left, left + 1)
    draw = _draws(rng)
    while agenda:
        _, left, right, merger = heapq.heappop(agenda)
        # Either may have become part of another symbol since.
        gone = after[left] != right or symbols[left] + symbols[right] != merger
        if gone or not symbols[left] or draw() < rate:
            continue
        symbols[left], symbols[right] = merger, ""
        after[left] = after[right]
        if after[left] >= 0:
            before[after[left]] = left
        consider(before[left], left)
        consider(left, after[left])
    return [symbol for symbol in symbols if symbol]


@dataclass(frozen=True)
class UnigramSampler:
    """Subword regularisation (Kudo 2018)."""

    pieces: Pieces
    longest: int
    """Characters of the longest piece."""
    unknown: float
    """Score of a character that is no piece."""

    def sample(self, text: str, rng: np.random.Generator, alpha: float) -> list[str]:
        """A segmentation in proportion to its probability to the power of `alpha`.

        Drawn exactly, piece by piece from the end, in proportion to the weight of all the
        segmentations of what comes before it.
        """
        total = [0.0] + [-math.inf] * len(text)
        ways: list[list[tuple[float, int]]] = [[]]
        for end in range(1, len(text) + 1):
            found = []
            for start in range(max(0, end - self.longest), end):
                score = self.pieces.get(text[start:end])
                if score is None and start == end - 1:
                    score = self.unknown
                if score is not None:
                    found.append((total[start] + alpha * score, start))
            best = max(weight for weight, _ in found)
            total[end] = best + math.log(sum(math.exp(weight - best) for weight, _ in found))
            ways.append(found)
        draw, end, reversed_pieces = _draws(rng), len(text), []
        while end:
            start = _drawn(ways[end], total[end], draw())
            reversed_pieces.append(text[start:end])
            end = start
        return reversed_pieces[::-1]


def _drawn(ways: list[tuple[float, int]], total: float, draw: float) -> int:
    """Where the last piece starts: each start has probability exp(weight - total)."""
    for weight, start in ways:
        draw -= math.exp(weight - total)
        if draw < 0:
            return start
    return ways[-1][1]  # the probabilities may add up to a little less than 1


def _draws(rng: np.random.Generator) -> Callable[[], float]:
    """Numbers from 0 to 1, faster than one by one."""
    ready: list[float] = []

    def draw() -> float:
        if not ready:
            ready.extend(rng.random(64).tolist())
        return ready.pop()

    return draw
