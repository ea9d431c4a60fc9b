"""The best next pieces, against sorting all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp

from transduce.decoding.top import IMPOSSIBLE, Best, best_pieces

ROWS, BEAMS = 40, 4
GREATEST = 64.0
"""A logit beside whose exp that of the others, which are far below, is lost: so the logarithm of
the sum is 64 exactly, and all that is added is a small whole number, exact in any order."""

find = jax.jit(best_pieces, static_argnames="count")


def expected(
    logits: np.ndarray, totals: np.ndarray, permitted: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Totals, hypotheses and pieces of a row by a stable sort, the impossible ones left out."""
    gains = logits - np.log(np.sum(np.exp(logits - GREATEST), axis=-1, keepdims=True)) - GREATEST
    sums = totals[:, None] + np.where(permitted, gains, -np.inf)
    order = np.argsort(-sums.reshape(-1), kind="stable")[:count]
    order = order[sums.reshape(-1)[order] > IMPOSSIBLE / 2]
    return sums.reshape(-1)[order], *np.divmod(order, logits.shape[-1])


def assert_is_best(
    best: Best, logits: np.ndarray, totals: np.ndarray, permitted: np.ndarray, count: int
) -> None:
    best = jax.tree.map(np.asarray, best)
    permitted = np.broadcast_to(permitted, logits.shape)
    for row in range(len(logits)):
        wide = logits[row].astype(np.float64)
        sums, parents, pieces = expected(wide, totals[row], permitted[row], count)
        found = slice(0, len(sums))
        np.testing.assert_array_equal(best.totals[row, found], sums)
        np.testing.assert_array_equal(best.parents[row, found], parents)
        np.testing.assert_array_equal(best.pieces[row, found], pieces)
        gains = wide[parents, pieces] - GREATEST
        np.testing.assert_array_equal(best.log_probabilities[row, found], gains)
        assert np.all(best.totals[row, len(sums) :] < IMPOSSIBLE / 2)


def whole_numbers(rng: np.random.Generator, width: int, distinct: int) -> np.ndarray:
    """Logits of few values, so that most are equal to others; piece 0 has the greatest."""
    logits = rng.integers(-distinct, 1, (ROWS, BEAMS, width)).astype(np.float32)
    logits[..., 0] = GREATEST
    return logits


@pytest.mark.parametrize("width", [5, 127, 250, 251, 1000, 8000])
@pytest.mark.parametrize("distinct", [2, 40])
def test_pieces_are_those_of_a_stable_sort(width: int, distinct: int) -> None:
    """Primes too; each hypothesis has a mask of its own, and some are none."""
    rng = np.random.default_rng(width)
    logits = whole_numbers(rng, width, distinct)
    totals = rng.integers(-3, 1, (ROWS, BEAMS)).astype(np.float32)
    totals[rng.random((ROWS, BEAMS)) < 0.3] = IMPOSSIBLE
    # Of some rows nearly nothing is permitted.
    share = rng.choice([0.01, 0.5, 1.0], (ROWS, 1, 1))
    permitted = rng.random((ROWS, BEAMS, width)) < share
    permitted[..., 0] = False
    assert_is_best(find(logits, totals, permitted, count=8), logits, totals, permitted, 8)


@pytest.mark.parametrize("shape", [(1, 1), (ROWS, 1), (1, BEAMS)])
def test_a_mask_may_be_that_of_all(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    logits = whole_numbers(rng, 250, 9)
    totals = np.zeros((ROWS, BEAMS), np.float32)
    permitted = rng.random((*shape, 250)) < 0.3
    permitted[..., 0] = False
    assert_is_best(find(logits, totals, permitted, count=8), logits, totals, permitted, 8)


@pytest.mark.parametrize("count", [1, 2, 60, 1000])
def test_there_are_as_many_as_asked_for_or_as_there_are(count: int) -> None:
    """Of 4 hypotheses with 251 pieces, 4 x 250 are permitted."""
    rng = np.random.default_rng(count)
    logits = whole_numbers(rng, 251, 99)
    totals = np.zeros((ROWS, BEAMS), np.float32)
    permitted = np.arange(251)[None, None] > 0
    best = find(logits, totals, permitted, count=count)
    assert best.totals.shape == (ROWS, count)
    assert_is_best(best, logits, totals, permitted, count)


SMALL = 2, 3, 6


@settings(deadline=None)
@given(
    stnp.arrays(np.float32, SMALL, elements=st.floats(-50, 50, width=32)),
    stnp.arrays(np.float32, SMALL[:2], elements=st.floats(-50, 0, width=32)),
    stnp.arrays(bool, SMALL),
)
def test_probabilities_are_those_of_the_whole_softmax(
    logits: np.ndarray, totals: np.ndarray, permitted: np.ndarray
) -> None:
    """Of any logits; what is forbidden keeps its share."""
    best = jax.tree.map(np.asarray, find(logits, totals, permitted, count=20))
    wide = logits.astype(np.float64)
    gains = wide - np.log(np.sum(np.exp(wide), axis=-1, keepdims=True))
    for row in range(SMALL[0]):
        sums = np.sort((totals[row, :, None] + gains[row])[permitted[row]])[::-1]
        count = len(sums)
        np.testing.assert_allclose(best.totals[row, :count], sums, rtol=1e-5, atol=1e-4)
        assert best.totals.shape == (2, 18)
        places = list(zip(best.parents[row, :count], best.pieces[row, :count], strict=True))
        assert len(set(places)) == count
        for number, (parent, piece) in enumerate(places):
            assert permitted[row, parent, piece]
            found = best.log_probabilities[row, number]
            np.testing.assert_allclose(found, gains[row, parent, piece], rtol=1e-5, atol=1e-4)


def test_half_precision_is_widened() -> None:
    """64 probabilities of 1/64 each; bfloat16 has no steps that small near 1."""
    logits = jnp.full((1, 1, 64), 300.0, jnp.bfloat16)
    best = best_pieces(logits, jnp.zeros((1, 1)), jnp.ones((1, 1, 64), bool), count=1)
    assert best.totals.dtype == jnp.float32
    assert float(best.totals[0, 0]) == pytest.approx(-np.log(64), abs=1e-4)
