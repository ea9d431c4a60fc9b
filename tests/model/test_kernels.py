import jax.numpy as jnp
import numpy as np
import pytest

from transduce.model.kernels import attend, attention_weights

# One row, two queries, three keys, one head of width 4 (so the scale is 1/2), values of width 2.
QUERIES = jnp.asarray([[[[2.0, 0, 0, 0]], [[0, 2.0, 0, 0]]]])
KEYS = jnp.log(jnp.asarray([[[[1.0, 1, 1, 1]], [[3.0, 1, 1, 1]], [[4.0, 9, 1, 1]]]]))
VALUES = jnp.asarray([[[[1.0, 0]], [[0, 1.0]], [[8.0, 8.0]]]])


def test_attention_by_hand() -> None:
    """Equation 1: scores are half the products, log 1, log 3, log 4 and log 1, log 1, log 9."""
    everything = jnp.ones((1, 2, 3), bool)
    weights = attention_weights(QUERIES, KEYS, everything)
    expected = [[1 / 8, 3 / 8, 4 / 8], [1 / 11, 1 / 11, 9 / 11]]
    np.testing.assert_allclose(weights[0, 0], expected, rtol=1e-6)
    mixed = attend(QUERIES, KEYS, VALUES, everything)
    expected = [[1 / 8 + 4, 3 / 8 + 4], [73 / 11, 73 / 11]]
    np.testing.assert_allclose(mixed[0, :, 0], expected, rtol=1e-6)


def test_what_may_not_be_seen_has_weight_zero_whatever_it_is() -> None:
    visible = jnp.asarray([[[True, True, False], [False, True, False]]])
    weights = attention_weights(QUERIES, KEYS.at[0, 2].set(1e6), visible)
    np.testing.assert_allclose(weights[0, 0], [[1 / 4, 3 / 4, 0], [0, 1, 0]], rtol=1e-6)
    assert not weights[0, 0, :, 2].any()


def test_a_query_that_sees_nothing_stays_finite() -> None:
    """R14 in part."""
    mixed = attend(QUERIES, KEYS, VALUES, jnp.zeros((1, 2, 3), bool))
    assert np.isfinite(mixed).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_softmax_of_narrow_activations_is_float32(dtype: str) -> None:
    visible = jnp.ones((1, 2, 3), bool)
    weights = attention_weights(QUERIES.astype(dtype), KEYS.astype(dtype), visible)
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    mixed = attend(QUERIES.astype(dtype), KEYS.astype(dtype), VALUES.astype(dtype), visible)
    assert mixed.dtype == jnp.dtype(dtype)
