"""The objective by hand; the model's own logits and gradients are in test_transformer.py."""

import math

import jax.numpy as jnp
import pytest

from transduce.arrays import Batch, Tokens
from transduce.training.objective import cross_entropy


def row(ids: list[int], segments: list[int]) -> Tokens:
    ids_, segments_ = jnp.asarray([ids]), jnp.asarray([segments])
    return Tokens(ids=ids_, segments=segments_, positions=jnp.arange(len(ids))[None])


# Softmaxes 1/2, 1/4, 1/8, 1/8 and 1/4 four times, not normalised; then rubbish.
LOGITS = jnp.asarray(
    [[[3.0, 3.0, 3.0, 3.0], [5.0, 5.0, 5.0, 5.0], [90.0, -70.0, 3.0, 1.0]]]
) + jnp.asarray([[[0, -1, -2, -2], [0, 0, 0, 0], [0, 0, 0, 0]]]) * math.log(2)
BATCH = Batch(source=row([3, 2, 0, 0], [1, 1, 0, 0]), target=row([1, 2, 3], [1, 1, 0]))


def test_smoothed_loss_by_hand() -> None:
    """R3: -(0.8 + 0.05) log 1/4 - 0.05 (log 1/2 + 2 log 1/8), and log 4 where all are equal."""
    sums = cross_entropy(LOGITS, BATCH, smoothing=0.2)
    assert float(sums.loss) == pytest.approx((0.85 * 2 + 0.05 * 7 + 2) * math.log(2), rel=1e-6)
    assert float(sums.log_loss) == pytest.approx(4 * math.log(2), rel=1e-6)
    assert (float(sums.tokens), float(sums.source_tokens)) == (2, 2)


def test_without_smoothing_it_is_the_cross_entropy() -> None:
    sums = cross_entropy(LOGITS, BATCH, smoothing=0.0)
    assert float(sums.loss) == pytest.approx(4 * math.log(2), rel=1e-6)
    assert float(sums.log_loss) == pytest.approx(4 * math.log(2), rel=1e-6)


def test_large_logits_lose_nothing() -> None:
    sums = cross_entropy(LOGITS + 1e4, BATCH, smoothing=0.2)
    # float32 spaces numbers near 10,000 by 0.001.
    assert float(sums.loss) == pytest.approx(4.05 * math.log(2), abs=4e-3)
