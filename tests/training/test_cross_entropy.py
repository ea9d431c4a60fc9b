"""The loss by hand; the gradient of the whole objective is in tests/model/test_transformer.py."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from transduce.training.cross_entropy import cross_entropy

# Softmaxes 1/2, 1/4, 1/8, 1/8 and 1/4 four times, not normalised; then rubbish.
LOGITS = jnp.asarray(
    [[[3.0, 3.0, 3.0, 3.0], [5.0, 5.0, 5.0, 5.0], [90.0, -70.0, 3.0, 1.0]]]
) + jnp.asarray([[[0, -1, -2, -2], [0, 0, 0, 0], [0, 0, 0, 0]]]) * math.log(2)
LABELS = jnp.asarray([[1, 2, 3]])
WEIGHTS = jnp.asarray([[1.0, 1.0, 0.0]])
TABLE = jnp.eye(4)  # so that the hidden states are the logits


def losses(logits: jax.Array, *, smoothing: float, chunks: int) -> list[float]:
    found = cross_entropy(logits, TABLE, LABELS, WEIGHTS, smoothing, chunks)
    return [float(loss) for loss in found]


@pytest.mark.parametrize("chunks", [1, 3, 6, 4])
def test_smoothed_loss_by_hand(chunks: int) -> None:
    """R3: -(0.8 + 0.05) log 1/4 - 0.05 (log 1/2 + 2 log 1/8), and log 4 where all are equal."""
    loss, log_loss = losses(LOGITS, smoothing=0.2, chunks=chunks)
    assert loss == pytest.approx((0.85 * 2 + 0.05 * 7 + 2) * math.log(2), rel=1e-6)
    assert log_loss == pytest.approx(4 * math.log(2), rel=1e-6)


def test_without_smoothing_it_is_the_cross_entropy() -> None:
    expected = pytest.approx([4 * math.log(2)] * 2, rel=1e-6)
    assert losses(LOGITS, smoothing=0.0, chunks=3) == expected


def test_large_logits_lose_nothing() -> None:
    loss, _ = losses(LOGITS + 1e4, smoothing=0.2, chunks=3)
    # float32 spaces numbers near 10,000 by 0.001.
    assert loss == pytest.approx(4.05 * math.log(2), abs=4e-3)


def test_gradient_by_hand() -> None:
    """softmax - (1 - e) one_hot - e / V, times 3; nothing where there is no weight."""

    def tripled(logits: jax.Array) -> jax.Array:
        return 3 * cross_entropy(logits, TABLE, LABELS, WEIGHTS, 0.2, 3)[0]

    expected = [
        [1 / 2 - 0.05, 1 / 4 - 0.85, 1 / 8 - 0.05, 1 / 8 - 0.05],
        [1 / 4 - 0.05, 1 / 4 - 0.05, 1 / 4 - 0.85, 1 / 4 - 0.05],
        [0, 0, 0, 0],
    ]
    found = jax.grad(tripled)(LOGITS)[0]
    np.testing.assert_allclose(found, 3 * np.array(expected), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("platform", ["cpu", "default"])
@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_the_plain_formula(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of a CPU and in that of all else, which runs here too."""
    monkeypatch.setattr(
        lax, "platform_dependent", lambda *inputs, **branches: branches[platform](*inputs)
    )
    generator = np.random.default_rng(0)
    hidden, table = generator.normal(size=(2, 6, 5)), generator.normal(size=(7, 5))
    labels = generator.integers(7, size=(2, 6))
    weights = generator.integers(2, size=(2, 6)).astype(float)

    def plain(hidden: jax.Array, table: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(jnp.einsum("btd,vd->btv", hidden, table))
        target = 0.9 * jax.nn.one_hot(labels, 7) + 0.1 / 7
        return -jnp.sum(jnp.sum(log_p * target, axis=-1) * weights)

    def ours(hidden: jax.Array, table: jax.Array) -> jax.Array:
        return cross_entropy(hidden, table, jnp.asarray(labels), jnp.asarray(weights), 0.1, 3)[0]

    arrays = jnp.asarray(hidden), jnp.asarray(table)
    expected, found = (jax.value_and_grad(f, argnums=(0, 1))(*arrays) for f in (plain, ours))
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-12)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
