from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import Array
from transduce.model.chunked import attend_in_chunks
from transduce.model.kernels import Kernel, attend
from transduce.model.visibility import Visible

from .attention_examples import (
    EXAMPLES,
    Rows,
    assert_agrees,
    packed,
    random_slopes,
    value_and_gradients,
)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("block", [5, 512])
@pytest.mark.parametrize("rows", EXAMPLES.values(), ids=EXAMPLES)
def test_values_and_gradients_are_attentions(rows: Rows, block: int) -> None:
    """R14 in part: rows that are all padding, too."""
    assert_agrees(partial(attend_in_chunks, block=block), rows, dtype=np.float64, tolerance=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rows", EXAMPLES.values(), ids=EXAMPLES)
def test_it_is_plain_attention(rows: Rows) -> None:
    slopes = random_slopes(rows)
    chunked = value_and_gradients(partial(attend_in_chunks, block=4), rows, slopes, np.float64)
    plain = value_and_gradients(attend, rows, slopes, np.float64)
    np.testing.assert_allclose(chunked[0] * rows.seeing(), plain[0] * rows.seeing(), atol=1e-9)
    for ours, theirs in zip(chunked[1], plain[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient() -> None:
    """R14: a row that is all padding, whatever the gradient that comes to it."""
    rows = Rows([packed(padding=6)], [packed(padding=6)])
    attention = partial(attend_in_chunks, block=4)
    mixed, gradients = value_and_gradients(attention, rows, np.full((1, 6, 2, 3), 9.0), np.float32)
    assert not mixed.any()
    assert not any(gradient.any() for gradient in gradients)


def test_what_may_not_be_seen_changes_no_bit() -> None:
    rows = Rows([packed(5, 4, padding=2)], [packed(5, 4, padding=2)])
    queries, keys, values = (jnp.asarray(x, jnp.float32) for x in rows.arrays())
    attention = jax.jit(partial(attend_in_chunks, block=4))
    before = attention(queries, keys, values, rows.visible())
    keys, values = keys.at[:, 5:].set(1e4), values.at[:, 5:].set(-1e4)
    after = attention(queries, keys, values, rows.visible())
    np.testing.assert_array_equal(after[:, :5], before[:, :5])


def test_scores_that_are_large_do_not_overflow() -> None:
    """Of two scores 1000 apart the larger takes all, in whichever block it is."""
    visible = Visible(queries=jnp.ones((1, 1), int), keys=jnp.ones((1, 2), int))
    values = jnp.asarray([[[[3.0]], [[5.0]]]])
    for first, second, expected in ((2000.0, 1000.0, 3), (-2000.0, -1000.0, 5)):
        keys = jnp.asarray([[[[first]], [[second]]]])
        mixed = attend_in_chunks(jnp.ones((1, 1, 1, 1)), keys, values, visible, block=1)
        assert mixed.item() == expected


def test_the_softmax_of_narrow_activations_is_float32() -> None:
    """As exact as plain attention from the same bfloat16 numbers."""
    rows = EXAMPLES["packed, causal"]
    queries, keys, values = (jnp.asarray(x, jnp.bfloat16) for x in rows.arrays())
    mixed = attend_in_chunks(queries, keys, values, rows.visible(), block=4)
    assert mixed.dtype == jnp.bfloat16
    exact = rows.mixed(*(np.asarray(x, np.float64) for x in (queries, keys, values)))
    np.testing.assert_allclose(
        np.asarray(mixed, np.float64) * rows.seeing(), exact, rtol=0, atol=2**-7
    )


def temporary_bytes(kernel: Kernel, length: int) -> int:
    """Of values and gradients of causal attention, one row of four heads of width 32."""

    def loss(queries: Array, keys: Array, values: Array, segments: Array) -> Array:
        visible = Visible(queries=segments, keys=segments, causal=True)
        return jnp.sum(attend(queries, keys, values, visible, kernel=kernel) ** 2)

    heads = jax.ShapeDtypeStruct((1, length, 4, 32), jnp.float32)
    segments = jax.ShapeDtypeStruct((1, length), jnp.int32)
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    memory = gradients.lower(heads, heads, heads, segments).compile().memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


def test_long_rows_need_a_tenth_of_plain_attentions_memory() -> None:
    """Compiled only, as in experiments/benchmarks/attention_memory.py, which has longer ones."""
    chunked = temporary_bytes("chunked", 4096)
    assert chunked < temporary_bytes("plain", 4096) / 10
    # It grows as the length does.
    assert chunked < 2.1 * temporary_bytes("chunked", 2048)
