"""Exact attention in blocks of queries and of keys: no array has both T and S among its dimensions.

Rabe and Staats 2021. Memory grows with T + S and with the square of a block.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Float, Int
from transduce.model.blockwise import Mixing, block_gradients, block_scores, mean_slope
from transduce.model.visibility import Visible


def attend_in_chunks(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Visible,
    *,
    block: int,
) -> Float[Array, "B T N J"]:
    """Equation 1, its softmax in float32 or wider; a query that sees nothing gets zeros.

    At most `block` queries, and as many keys, are in a block: few fit a CPU's cache, many keep an
    accelerator busy.
    """
    length, scale = queries.shape[1], queries.shape[-1] ** -0.5
    mixed = _attend(
        _blocks(queries * scale, block).swapaxes(2, 3),
        _blocks(keys, block).swapaxes(2, 3),
        _blocks(values, block).swapaxes(2, 3),
        _blocks(visible.queries, block),
        _blocks(visible.keys, block),
        visible.causal,
    )
    mixed = jnp.moveaxis(mixed.swapaxes(2, 3), 0, 1)
    return mixed.reshape(mixed.shape[0], -1, *mixed.shape[3:])[:, :length]


def _blocks(x: Array, block: int) -> Array:
    """[B, T, ...] as [I, B, R, ...]: I blocks as long as each other, the last filled with zeros."""
    count = math.ceil(x.shape[1] / block)
    size = math.ceil(x.shape[1] / count)
    # Segment 0: a key that fills is seen by no query.
    padding = [(0, 0)] * x.ndim
    padding[1] = (0, count * size - x.shape[1])
    x = jnp.pad(x, padding)
    return jnp.moveaxis(x.reshape(x.shape[0], count, size, *x.shape[2:]), 1, 0)


# From here on there are I blocks of R queries and M blocks of C keys.


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attend(
    queries: Float[Array, "I B N R H"],
    keys: Float[Array, "M B N C H"],
    values: Float[Array, "M B N C J"],
    looking: Int[Array, "I B R"],
    looked_at: Int[Array, "M B C"],
    causal: bool,
) -> Float[Array, "I B N R J"]:
    return _forward(queries, keys, values, looking, looked_at, causal)[0]


def _forward(
    queries: Array, keys: Array, values: Array, looking: Array, looked_at: Array, causal: bool
) -> tuple[Array, tuple[Array, ...]]:
    rows, columns = queries.shape[3], keys.shape[3]

    def block_of_queries(_: None, part: tuple[Array, Array, Array]) -> tuple[None, tuple]:
        query, segments, i = part

        def add(j: Array, state: Mixing) -> Mixing:
            visible = Visible(queries=segments, keys=looked_at[j], causal=causal)
            seen = visible.mask(row=i * rows, column=j * columns)
            return state.add(block_scores(query, keys[j], seen), values[j])

        # Blocks of keys that all come later than these queries are left out.
        stop = jnp.minimum(-(-(i + 1) * rows // columns), len(keys)) if causal else len(keys)
        start = Mixing.start(query, width=values.shape[-1])
        mixed, log_total = lax.fori_loop(0, stop, add, start).result()
        return None, (mixed.astype(values.dtype), log_total)

    parts = (queries, looking, jnp.arange(len(queries)))
    _, (mixed, log_totals) = lax.scan(block_of_queries, None, parts)
    return mixed, (queries, keys, values, looking, looked_at, mixed, log_totals)


def _backward(causal: bool, kept: tuple[Array, ...], slopes: Array) -> tuple[Array | None, ...]:
    # Else XLA makes scores anew long before there are slopes, and keeps them.
    kept, slopes = lax.optimization_barrier((kept, slopes))
    queries, keys, values, looking, looked_at, mixed, log_totals = kept
    wide = log_totals.dtype
    rows, columns = queries.shape[3], keys.shape[3]
    means = mean_slope(slopes, mixed)

    def block_of_keys(of_queries: Array, part: tuple[Array, ...]) -> tuple[Array, tuple]:
        key, value, segments, j = part

        def add(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            of_queries, of_key, of_value = state
            visible = Visible(queries=looking[i], keys=segments, causal=causal)
            seen = visible.mask(row=i * rows, column=j * columns)
            scores = block_scores(queries[i], key, seen)
            gradients = block_gradients(
                scores,
                log_totals[i],
                slopes[i],
                means[i],
                queries=queries[i],
                keys=key,
                values=value,
            )
            return (
                of_queries.at[i].add(gradients[0]),
                of_key + gradients[1],
                of_value + gradients[2],
            )

        start = (of_queries, jnp.zeros(key.shape, wide), jnp.zeros(value.shape, wide))
        first = j * columns // rows if causal else 0
        of_queries, of_key, of_value = lax.fori_loop(first, len(queries), add, start)
        return of_queries, (of_key.astype(key.dtype), of_value.astype(value.dtype))

    parts = (keys, values, looked_at, jnp.arange(len(keys)))
    of_queries, (of_keys, of_values) = lax.scan(
        block_of_keys, jnp.zeros(queries.shape, wide), parts
    )
    return of_queries.astype(queries.dtype), of_keys, of_values, None, None


_attend.defvjp(_forward, _backward)
