"""Draws, against the exact distribution."""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from transduce.arrays import EOS, Array
from transduce.decoding.constraints import MinimumLength, Pieces
from transduce.decoding.sampling import Sampling, narrowed, sample
from transduce.decoding.search import Hypotheses, Rules, begin
from transduce.decoding.top import IMPOSSIBLE

from .toys import QUICKLY, TABLE, Ids, Prefix, Toy, place, written

ROOM = 5


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What became of rows that were drawn until all were done."""

    hypotheses: Hypotheses
    steps: np.ndarray
    """After which each row was done."""


@functools.partial(jax.jit, static_argnames=("sampling", "beams"), compiler_options=QUICKLY)
def _draw(logits, seeds, limits, minimums, lines, *, sampling: Sampling, beams: int):
    def step(ids, positions, state):
        number = state.number * 31 + ids.astype(jnp.uint32)
        return logits[number % TABLE], None, Prefix(number)

    rows = len(seeds)
    rules = Rules(
        limits=limits,
        constraints=(Pieces(vocabulary=6), MinimumLength(minimum=minimums)),
        source=jnp.zeros((rows, 0), bool),
    )

    def onward(parts):
        search, state = parts
        return sample(step, state, search, rules, lines=lines, sampling=sampling)

    start = Prefix(jnp.broadcast_to(seeds[:, None], (rows, beams)))
    first = begin(rows, beams=beams, length=ROOM)
    search, _ = jax.lax.while_loop(lambda parts: ~jnp.all(parts[0].done), onward, (first, start))
    return search.finished, search.lengths


def draw(
    toy: Toy,
    lines: Sequence[int],
    *,
    sampling: Sampling,
    beams: int = 1,
    limit: int = 4,
    minimum: int = 0,
    seeds: Sequence[int] | None = None,
) -> Drawn:
    """Of the model with seed 0, or of each row's own."""
    alike = np.ones(len(lines), np.int32)
    found, steps = _draw(
        toy.logits.astype(np.float32),
        np.asarray(seeds or [0] * len(lines), np.uint32),
        limit * alike,
        minimum * alike,
        np.asarray(lines, np.int32),
        sampling=sampling,
        beams=beams,
    )
    return Drawn(hypotheses=jax.tree.map(np.asarray, found), steps=np.asarray(steps))


def kept(probabilities: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The distribution of the next piece, given the model's own over what is permitted."""
    powers = probabilities ** (1 / sampling.temperature)
    order = np.argsort(-powers, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    some = powers[order] / powers[order].sum()
    before = np.cumsum(some) - some
    order, some = order[before < sampling.top_p], some[before < sampling.top_p]
    result = np.zeros_like(probabilities)
    result[order] = some / some.sum()
    return result


def distribution(
    toy: Toy, sampling: Sampling, *, limit: int, minimum: int, prefix: Ids = ()
) -> dict[Ids, float]:
    """The probability with which each hypothesis is drawn."""
    probabilities = np.exp(toy.log_probabilities(0, prefix))
    pieces = [EOS, 3, 4, 5] if len(prefix) >= minimum else [3, 4, 5]
    if len(prefix) == limit:
        pieces = [EOS]
    probabilities[[piece for piece in range(8) if piece not in pieces]] = 0
    found = {}
    for piece, probability in enumerate(kept(probabilities, sampling)):
        ids = (*prefix, piece)
        if probability and piece == EOS:
            found[ids] = probability
        elif probability:
            below = distribution(toy, sampling, limit=limit, minimum=minimum, prefix=ids)
            found |= {longer: probability * each for longer, each in below.items()}
    return found


def skewed() -> Toy:
    """Nothing is certain, and EOS is as probable as anything else."""
    toy = Toy.random(seed=3)
    toy.logits[:] = np.random.default_rng(3).normal(0, 1, toy.logits.shape)
    return toy


SKEWED = skewed()


@pytest.mark.parametrize(
    ("sampling", "minimum", "outcomes"),
    [
        (Sampling(temperature=1.0), 0, 13),
        (Sampling(temperature=1.0, seed=2), 2, 9),
        (Sampling(temperature=0.5), 0, 13),
        (Sampling(temperature=3.0, top_k=2), 0, None),
        (Sampling(temperature=1.0, top_p=0.7), 0, None),
        (Sampling(temperature=2.0, top_k=3, top_p=0.6), 1, None),
    ],
)
def test_hypotheses_are_drawn_as_often_as_is_probable(
    sampling: Sampling, minimum: int, outcomes: int | None
) -> None:
    """8000 draws, of at most 2 pieces: 1 + 3 + 9 outcomes. By chance one seed in 1000 would fail.

    What the rules forbid is drawn never, and its probability goes to the rest.
    """
    expected = distribution(SKEWED, sampling, limit=2, minimum=minimum)
    assert sum(expected.values()) == pytest.approx(1)
    assert outcomes is None or len(expected) == outcomes
    drawn = draw(SKEWED, range(2000), sampling=sampling, beams=4, limit=2, minimum=minimum)
    found = Counter(
        written(drawn.hypotheses, row, beam)[0] for row in range(2000) for beam in range(4)
    )
    assert found.keys() <= expected.keys()
    frequencies = [found[ids] for ids in expected]
    assert chisquare(frequencies, [8000 * each for each in expected.values()]).pvalue > 1e-3


def test_log_probabilities_are_the_models_own() -> None:
    """Whatever was drawn from; totals and scores are their sums."""
    toy = Toy.random(seed=1)
    seeds = list(range(64))
    sampling = Sampling(temperature=0.7, top_k=2, top_p=0.9)
    drawn = draw(toy, seeds, sampling=sampling, beams=2, seeds=seeds)
    for seed in seeds:
        for beam in range(2):
            ids, total, score = written(drawn.hypotheses, seed, beam)
            steps = [toy.log_probabilities(seed, ids[:at])[ids[at]] for at in range(len(ids))]
            found = drawn.hypotheses.log_probabilities[seed, beam, : len(ids)]
            np.testing.assert_allclose(found, steps, rtol=1e-5, atol=1e-5)
            assert total == score == pytest.approx(sum(steps), rel=1e-5, abs=1e-5)


def ids_of(drawn: Drawn) -> list[list[list[int]]]:
    return drawn.hypotheses.ids.tolist()


def test_the_draw_of_a_line_depends_on_the_line_alone() -> None:
    """Not on its row, its company, or how many hypotheses are drawn."""
    sampling = Sampling(temperature=1.0)
    lines = [*range(1, 33)]
    whole = draw(SKEWED, lines, sampling=sampling, beams=4)
    order = np.random.default_rng(0).permutation(32)
    shuffled = draw(SKEWED, [lines[row] for row in order], sampling=sampling, beams=4)
    assert ids_of(shuffled) == [ids_of(whole)[row] for row in order]
    some = draw(SKEWED, lines[5:8], sampling=sampling, beams=4)
    assert ids_of(some) == ids_of(whole)[5:8]
    two = draw(SKEWED, lines, sampling=sampling, beams=2)
    assert ids_of(two) == [row[:2] for row in ids_of(whole)]
    np.testing.assert_allclose(
        two.hypotheses.totals, whole.hypotheses.totals[:, :2], rtol=1e-6, atol=1e-6
    )


def test_lines_seeds_and_hypotheses_differ_in_what_they_draw() -> None:
    """Two draws of up to 4 pieces are alike by chance, but not many of 32."""
    lines, sampling = list(range(32)), Sampling(temperature=3.0)
    first = ids_of(draw(SKEWED, lines, sampling=sampling, beams=2))
    assert first == ids_of(draw(SKEWED, lines, sampling=sampling, beams=2))
    second = ids_of(draw(SKEWED, lines, sampling=replace(sampling, seed=2), beams=2))
    assert sum(one == two for one, two in zip(first, second, strict=True)) < 8
    assert sum(one == two for one, two in first) < 16
    assert len({str(row) for row in first}) > 24


def test_a_row_is_done_when_all_its_hypotheses_have_ended() -> None:
    """They end at different times, and what is drawn later changes none that has ended."""
    drawn = draw(SKEWED, range(64), sampling=Sampling(temperature=1.0), beams=4)
    lengths = drawn.hypotheses.lengths
    np.testing.assert_array_equal(drawn.steps, lengths.max(axis=1))
    assert np.sum(lengths.min(axis=1) < lengths.max(axis=1)) > 32
    for row in range(64):
        for beam in range(4):
            written(drawn.hypotheses, row, beam)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_give_no_hypothesis(bad: float) -> None:
    """Not even where they are finite again later; the others draw what they drew."""
    toy, sampling, seeds = skewed(), Sampling(temperature=1.0), list(range(32))
    whole = draw(toy, seeds, sampling=sampling, beams=4, seeds=seeds, minimum=2)
    poisoned = {place(0, ()), *(place(seed, (3,)) for seed in seeds)}
    toy.logits[list(poisoned)] = bad
    drawn = draw(toy, seeds, sampling=sampling, beams=4, seeds=seeds, minimum=2)
    failed = 0
    for row, beam in np.ndindex(32, 4):
        ids, _, _ = written(whole.hypotheses, row, beam)
        if poisoned.isdisjoint(place(row, ids[:at]) for at in range(len(ids))):
            assert written(drawn.hypotheses, row, beam)[0] == ids
        else:
            assert drawn.hypotheses.lengths[row, beam] == 0
            assert drawn.hypotheses.scores[row, beam] == -np.inf
            failed += row > 0
    assert 20 < failed < 100


def drawn_from(given: Sequence[float], **options: Any) -> list[float]:
    """What is drawn from, if the model's probabilities are these."""
    logits = jnp.log(jnp.asarray(given, float))[None, None]
    logits = jnp.where(jnp.isfinite(logits), logits, IMPOSSIBLE)
    sampling = Sampling(**{"temperature": 1.0, **options})
    found: Array = jax.nn.softmax(narrowed(logits, sampling), axis=-1)
    return found[0, 0].tolist()


def about(expected: Sequence[float]) -> Any:
    return pytest.approx(expected, abs=1e-6)


def test_a_temperature_raises_probabilities_to_its_inverse() -> None:
    """At 1/2 they are squared: 0.25, 0.09 and 0.04 of 0.38."""
    assert drawn_from([0.5, 0.3, 0.2]) == about([0.5, 0.3, 0.2])
    assert drawn_from([0.5, 0.3, 0.2], temperature=0.5) == about([25 / 38, 9 / 38, 4 / 38])
    assert drawn_from([0.64, 0.36], temperature=2.0) == about([0.8 / 1.4, 0.6 / 1.4])


def test_top_k_keeps_the_most_probable() -> None:
    """Wherever they stand; those that are equal to the last one too."""
    given = [0.1, 0.4, 0.2, 0.3]
    assert drawn_from(given, top_k=1) == about([0, 1, 0, 0])
    assert drawn_from(given, top_k=2) == about([0, 4 / 7, 0, 3 / 7])
    assert drawn_from(given, top_k=4) == about(given)
    assert drawn_from(given, top_k=9) == about(given)
    assert drawn_from([0.4, 0.2, 0.2, 0.2], top_k=2) == about([0.4, 0.2, 0.2, 0.2])


def test_top_p_keeps_the_one_that_reaches_it() -> None:
    """0.4 + 0.3 = 0.7 is less than 0.75; with 0.2 it is more. One piece always stays."""
    given = [0.1, 0.4, 0.2, 0.3]
    assert drawn_from(given, top_p=0.75) == about([0, 4 / 9, 2 / 9, 3 / 9])
    assert drawn_from(given, top_p=0.65) == about([0, 4 / 7, 0, 3 / 7])
    assert drawn_from(given, top_p=0.35) == about([0, 1, 0, 0])
    assert drawn_from(given, top_p=1e-9) == about([0, 1, 0, 0])
    assert drawn_from(given, top_p=1.0) == about(given)


def test_top_p_counts_what_top_k_and_the_temperature_leave() -> None:
    """Of 0.4 and 0.3 the first has 4/7 = 0.571; squared, of all, 0.16 / 0.3 = 0.533."""
    given = [0.1, 0.4, 0.2, 0.3]
    assert drawn_from(given, top_k=2, top_p=0.56) == about([0, 1, 0, 0])
    assert drawn_from(given, top_k=2, top_p=0.58) == about([0, 4 / 7, 0, 3 / 7])
    assert drawn_from(given, temperature=0.5, top_p=0.52) == about([0, 1, 0, 0])


def test_what_is_forbidden_is_not_drawn_even_where_little_is_left() -> None:
    assert drawn_from([0.0, 0.6, 0.0, 0.4], top_k=3) == about([0, 0.6, 0, 0.4])
    assert drawn_from([0.0, 0.6, 0.0, 0.4], top_p=0.99) == about([0, 0.6, 0, 0.4])
    assert drawn_from([0.0, 0.0, 1.0, 0.0], temperature=100.0) == about([0, 0, 1, 0])
