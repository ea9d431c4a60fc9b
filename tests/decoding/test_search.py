"""Search on models that are tables, against enumeration and against a search in plain Python."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import BOS, EOS, PAD, UNK, Array
from transduce.decoding.search import Hypotheses, beam_search

ALPHAS = [-1.0, 0.0, 0.6, 1.0]
TABLE = 4093
"""Rows of a toy model's table; a prefix' logits are those of the row that its number hashes to."""

type Ids = tuple[int, ...]
type Found = list[tuple[Ids, float, float]]
"""Ids, log-probability and score of each hypothesis, best first."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefix:
    """A number for every prefix; one that is not reordered with its hypothesis is found out."""

    number: Array

    def reorder(self, beams: Array) -> "Prefix":
        return Prefix(jnp.take_along_axis(self.number, beams, axis=1))


@functools.partial(jax.jit, static_argnames=("beams", "length", "vocabulary"))
def run(table, seeds, limits, alpha, *, beams: int, length: int, vocabulary: int) -> Hypotheses:
    def step(ids, position, state):
        number = state.number * 31 + ids.astype(jnp.uint32)
        return table[number % TABLE], Prefix(number)

    start = Prefix(jnp.broadcast_to(seeds[:, None], (len(seeds), beams)))
    return beam_search(
        step,
        start,
        limits=limits,
        beams=beams,
        length=length,
        vocabulary=vocabulary,
        alpha=alpha,
    )


class Toy:
    """A model whose next piece depends on the whole prefix; a seed makes it another model."""

    def __init__(self, table: np.ndarray):
        self.table = table.astype(np.float32)
        self.vocabulary = table.shape[1]

    @classmethod
    def random(cls, vocabulary: int, *, seed: int) -> "Toy":
        rng = np.random.default_rng(seed)
        sharpness = rng.choice([0.5, 2.0, 10.0], (TABLE, 1))
        return cls(sharpness * rng.standard_normal((TABLE, vocabulary)))

    @classmethod
    def of(cls, probabilities: Mapping[Ids, Mapping[int, float]]) -> "Toy":
        """Ids 3, 4 and 5, with the probabilities given for seed 0; elsewhere they are alike."""
        toy = cls(np.zeros((TABLE, 6)))
        for prefix, given in probabilities.items():
            rest = (1 - sum(given.values())) / (6 - len(given))
            values = [given.get(piece, rest) for piece in range(6)]
            toy.table[_number(0, prefix) % TABLE] = np.log(np.maximum(values, 1e-30))
        return toy

    def log_probabilities(self, seed: int, prefix: Ids) -> np.ndarray:
        logits = self.table[_number(seed, prefix) % TABLE].astype(np.float64)
        return logits - np.log(np.sum(np.exp(logits)))

    def search(
        self,
        limits: Sequence[int],
        *,
        alpha: float = 0.0,
        beams: int,
        length: int = 5,
        seeds: Sequence[int] | None = None,
        vocabulary: int | None = None,
    ) -> Hypotheses:
        found = run(
            self.table,
            np.asarray(range(len(limits)) if seeds is None else seeds, np.uint32),
            np.asarray(limits, np.int32),
            np.float32(alpha),
            beams=beams,
            length=length,
            vocabulary=vocabulary or self.vocabulary,
        )
        return jax.tree.map(np.asarray, found)


def _number(seed: int, prefix: Ids) -> int:
    for piece in (BOS, *prefix):
        seed = (seed * 31 + piece) % 2**32
    return seed


def score(log_probability: float, ids: Ids, alpha: float) -> float:
    return log_probability / ((5 + len(ids)) / 6) ** alpha


def listed(found: Hypotheses, row: int) -> Found:
    """A row's hypotheses; that their form is as documented is checked on the way."""
    lengths = [int(length) for length in found.lengths[row]]
    count = sum(length > 0 for length in lengths)
    assert all(lengths[:count])
    assert not any(lengths[count:])
    assert np.all(found.scores[row, count:] == -np.inf)
    assert np.all(found.ids[row, count:] == PAD)
    made = []
    for beam in range(count):
        ids = [int(piece) for piece in found.ids[row, beam]]
        assert ids.index(EOS) == lengths[beam] - 1
        assert set(ids[lengths[beam] :]) <= {PAD}
        assert not {PAD, BOS} & set(ids[: lengths[beam]])
        written = tuple(ids[: lengths[beam]])
        made.append(
            (written, float(found.log_probabilities[row, beam]), float(found.scores[row, beam]))
        )
    scores = [item[2] for item in made]
    assert scores == sorted(scores, reverse=True)
    assert len({item[0] for item in made}) == count
    return made


def values(found: Hypotheses, row: int) -> list[list]:
    """All that was found for a row, to be compared to the bit."""
    return [leaf[row].tolist() for leaf in jax.tree.leaves(found)]


def enumerate_all(toy: Toy, seed: int, limit: int, vocabulary: int) -> dict[Ids, float]:
    """Log-probability of every hypothesis."""

    def below(prefix: Ids, total: float) -> Iterator[tuple[Ids, float]]:
        following = toy.log_probabilities(seed, prefix)
        yield (*prefix, EOS), total + following[EOS]
        if len(prefix) < limit:
            for piece in range(UNK, vocabulary):
                yield from below((*prefix, piece), total + following[piece])

    return dict(below((), 0.0))


def plain_beam_search(toy: Toy, seed: int, limit: int, *, alpha: float, beams: int) -> Found:
    """Of the 2K best candidates those that end are kept apart, K that do not end go on.

    There is no rule for stopping: it goes on to the limit.
    """
    live: list[tuple[Ids, float]] = [((), 0.0)]
    ended: Found = []
    for length in range(limit + 1):
        candidates = []
        for prefix, total in live:
            following = toy.log_probabilities(seed, prefix)
            pieces = [EOS] if length == limit else [EOS, *range(UNK, toy.vocabulary)]
            candidates += [((*prefix, piece), total + following[piece]) for piece in pieces]
        candidates.sort(key=lambda item: -item[1])
        best = candidates[: 2 * beams]
        ended += [(ids, p, score(p, ids, alpha)) for ids, p in best if ids[-1] == EOS]
        live = [(ids, p) for ids, p in best if ids[-1] != EOS][:beams]
    return sorted(ended, key=lambda item: -item[2])[:beams]


def assert_same(found: Found, expected: Found) -> None:
    assert [item[0] for item in found] == [item[0] for item in expected]
    for item, wanted in zip(found, expected, strict=True):
        assert item[1:] == pytest.approx(wanted[1:], abs=1e-4)


def assert_all_found(found: Found, toy: Toy, seed: int, limit: int, alpha: float, size: int):
    """The hypotheses are all that there are, each with its own values, best first."""
    true = enumerate_all(toy, seed, limit, size)
    assert {item[0] for item in found} == true.keys()
    for ids, log_probability, value in found:
        assert log_probability == pytest.approx(true[ids], abs=1e-4)
        assert value == pytest.approx(score(true[ids], ids, alpha), abs=2e-4, rel=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("vocabulary", "space"), [(5, 31), (6, 121), (7, 341)])
def test_a_beam_as_wide_as_the_space_finds_all(vocabulary: int, space: int, alpha: float) -> None:
    """D4, D6: every hypothesis once, best first, each judged at its own length.

    The limits are 1 to 4 pieces; 31 is 1 + 2 + 4 + 8 + 16.
    """
    toy = Toy.random(vocabulary, seed=vocabulary)
    limits = [4, 1, 3, 4, 2, 4, 3, 4, 1, 2, 4, 4]
    found = toy.search(limits, alpha=alpha, beams=space)
    for seed, limit in enumerate(limits):
        assert_all_found(listed(found, seed), toy, seed, limit, alpha, vocabulary)


def test_a_very_strong_penalty_loses_no_hypothesis() -> None:
    """Scores lie far below the value that marks what is no hypothesis: (10/6)^45 is 1e10."""
    toy = Toy.random(5, seed=1)
    found = toy.search([4] * 12, alpha=-45.0, beams=31)
    for seed in range(12):
        assert len(listed(found, seed)) == 31


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beams", [2, 3, 5])
def test_a_narrow_beam_equals_a_search_that_does_not_stop_early(beams: int, alpha: float) -> None:
    """D5, D6: the rule for stopping loses nothing that going on to the limit would find."""
    toy = Toy.random(7, seed=beams)
    limits = [8, 7, 8, 3, 5, 8, 1, 8, 6, 8, 4, 8]
    found = toy.search(limits, alpha=alpha, beams=beams, length=9)
    for seed, limit in enumerate(limits):
        expected = plain_beam_search(toy, seed, limit, alpha=alpha, beams=beams)
        assert len(expected) == beams
        assert_same(listed(found, seed), expected)


def test_a_beam_wider_than_the_vocabulary_works() -> None:
    """D8: 64 hypotheses, 20 pieces."""
    toy = Toy.random(20, seed=8)
    found = toy.search([4, 3, 2, 1], alpha=0.6, beams=64)
    for seed, limit in enumerate([4, 3, 2, 1]):
        expected = plain_beam_search(toy, seed, limit, alpha=0.6, beams=64)
        assert len(expected) == {1: 18}.get(limit, 64)
        assert_same(listed(found, seed), expected)


def test_one_beam_is_greedy_search() -> None:
    """The most probable piece at each step, until that is EOS; then nothing else is looked for."""
    toy = Toy.random(6, seed=2)
    limits = [8, 5, 3, 8] * 12
    found = toy.search(limits, alpha=1.0, beams=1, length=9)
    lengths = set()
    for seed, limit in enumerate(limits):
        ids, total = (), 0.0
        while not ids or ids[-1] != EOS:
            following = toy.log_probabilities(seed, ids)
            pieces = [EOS] if len(ids) == limit else [EOS, 3, 4, 5]
            best = max(pieces, key=following.__getitem__)
            ids, total = (*ids, best), total + following[best]
        assert_same(listed(found, seed), [(ids, total, score(total, ids, 1.0))])
        lengths.add(len(ids))
    assert len(lengths) > 5


def test_each_hypothesis_is_judged_at_its_own_length() -> None:
    """D4: at alpha 0.6 the longer one wins, although the shorter is more probable."""
    toy = Toy.of(
        {
            (): {4: 0.4, 5: 0.3},
            (4,): {EOS: 0.9},
            (5,): {5: 1.0},
            (5, 5): {5: 1.0},
            (5, 5, 5): {5: 1.0},
            (5, 5, 5, 5): {EOS: 1.0},
        }
    )
    short, long = (4, EOS), (5, 5, 5, 5, EOS)

    def best(alpha: float) -> tuple[Ids, float, float]:
        return listed(toy.search([4], alpha=alpha, beams=4), 0)[0]

    # ln 0.36 = -1.021651, ln 0.3 = -1.203973; (10/6)^0.6 = 1.358655
    assert best(0.0) == (short, pytest.approx(-1.021651, 1e-5), pytest.approx(-1.021651, 1e-5))
    assert best(0.6) == (long, pytest.approx(-1.203973, 1e-5), pytest.approx(-0.886150, 1e-5))
    assert best(1.0) == (long, pytest.approx(-1.203973, 1e-5), pytest.approx(-0.722384, 1e-5))
    assert best(-1.0) == (short, pytest.approx(-1.021651, 1e-5), pytest.approx(-1.191926, 1e-5))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_best_hypothesis_is_found_when_it_finishes_last(alpha: float) -> None:
    """D5: by then enough others have finished to fill the beam."""
    toy = Toy.of({(4,) * length: {4: 0.9, EOS: 0.1} for length in range(4)} | {(4,) * 4: {EOS: 1}})
    best = listed(toy.search([4], alpha=alpha, beams=2), 0)[0]
    expected = 4 * math.log(0.9)
    assert_same([best], [((4, 4, 4, 4, EOS), expected, score(expected, (4,) * 5, alpha))])


@pytest.mark.parametrize(("alpha", "steps"), [(0.0, 2), (1.0, 5)])
def test_search_goes_on_just_as_long_as_something_can_win(alpha: float, steps: int) -> None:
    """After two steps 0.9 and 0.09 x 0.5 = 0.045 have finished and 0.09 x 0.2 = 0.018 is live.

    Without a penalty it is beaten. With alpha 1 it can still score ln 0.018 / (10/6) = -2.410 at
    the limit, which is better than ln 0.045 / (7/6) = -2.658, though ln 0.018 / (8/6) = -3.013
    at the next length would not be.
    """
    toy = Toy.of(
        {
            (): {EOS: 0.9, 4: 0.09},
            (4,): {EOS: 0.5, 5: 0.2},
            (4, 5): {5: 1.0},
            (4, 5, 5): {5: 1.0},
            (4, 5, 5, 5): {EOS: 1.0},
        }
    )
    taken = []

    def step(ids, position, state):
        jax.debug.callback(lambda position: taken.append(int(position)), position)
        number = state.number * 31 + ids.astype(jnp.uint32)
        return jnp.asarray(toy.table)[number % TABLE], Prefix(number)

    start = Prefix(jnp.zeros((1, 2), jnp.uint32))
    limits = jnp.asarray([4])
    found = beam_search(step, start, limits=limits, beams=2, length=5, vocabulary=6, alpha=alpha)
    jax.effects_barrier()
    assert sorted(taken) == list(range(steps))
    second = (4, EOS) if alpha == 0 else (4, 5, 5, 5, EOS)
    assert [ids for ids, _, _ in listed(found, 0)] == [(EOS,), second]


def test_the_empty_hypothesis_may_win() -> None:
    """D7: it is judged as any other."""
    toy = Toy.of({(): {EOS: 0.6, 4: 0.4}})
    found = listed(toy.search([4], alpha=0.6, beams=4), 0)
    assert found[0] == ((EOS,), pytest.approx(math.log(0.6)), pytest.approx(math.log(0.6)))


def test_no_limit_is_passed_and_a_limit_of_none_leaves_eos() -> None:
    """Each row has its own limit; at it, EOS follows whatever its probability."""
    toy = Toy.of({(4,) * length: {4: 1 - 1e-6} for length in range(5)})
    found = toy.search([0, 1, 2, 3], beams=4, seeds=[0] * 4)
    for row in range(4):
        made = listed(found, row)
        assert max(len(ids) for ids, _, _ in made) == row + 1
    assert [ids for ids, _, _ in listed(found, 0)] == [(EOS,)]
    assert found.log_probabilities[0, 0] == pytest.approx(math.log(1e-6 / 5), abs=1e-4)


def test_ids_beyond_the_vocabulary_are_never_written() -> None:
    """The table of embeddings may have rows that name no piece; they keep their probability."""
    toy = Toy.random(7, seed=3)
    found = toy.search([4] * 12, alpha=0.6, beams=31, vocabulary=5)
    for seed in range(12):
        assert_all_found(listed(found, seed), toy, seed, 4, 0.6, 5)


def test_a_row_does_not_depend_on_other_rows() -> None:
    """D1, D2: to the bit, wherever it stands, and however long its neighbours go on."""
    toy = Toy.random(7, seed=4)
    limits = np.asarray([8, 7, 8, 3, 5, 8, 1, 8, 6, 8, 4, 8])
    seeds = np.arange(12)

    def search(limits: np.ndarray, seeds: np.ndarray) -> Hypotheses:
        return toy.search(list(limits), alpha=0.6, beams=3, length=9, seeds=list(seeds))

    together = search(limits, seeds)
    order = np.random.default_rng(0).permutation(12)
    shuffled = search(limits[order], seeds[order])
    for row, place in enumerate(order):
        assert values(shuffled, row) == values(together, place)
    for row in range(12):
        # The others end at once; before, this row was stepped on after it was done.
        alone = search(np.where(seeds == row, limits, 0), np.where(seeds == row, row, 99))
        assert values(alone, row) == values(together, row)


def test_logits_that_are_not_finite_end_a_row_without_hypotheses() -> None:
    toy = Toy.random(6, seed=5)
    whole = toy.search([4, 4], beams=2)
    toy.table[_number(0, ()) % TABLE] = np.nan
    found = toy.search([4, 4], beams=2)
    assert listed(found, 0) == []
    assert listed(found, 1) == listed(whole, 1)
