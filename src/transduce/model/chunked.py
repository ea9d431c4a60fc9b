"""Exact attention in blocks of queries and of keys: no array has both T and S among its dimensions.

The softmax of a block of queries is summed over blocks of keys as they come, relative to the
largest score so far (Milakov and Gimelshein 2018; Rabe and Staats 2021). The backward pass makes
the scores of a block anew from the logarithm of that sum (Dao et al. 2022). So memory grows with
T + S and with the square of a block.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Bool, Float, Int
from transduce.model.visibility import Visible

LOWEST = -1e9
"""Where the largest score so far begins: finite, so that nothing minus it is NaN."""


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


def block_mask(
    looking: Int[Array, "B R"],
    looked_at: Int[Array, "B C"],
    *,
    row: Array | int,
    column: Array | int,
    causal: bool,
) -> Bool[Array, "B R C"]:
    """`Visible.mask` for queries from position `row` on and keys from position `column` on."""
    seen = Visible(queries=looking, keys=looked_at).mask()
    if causal:
        rows = row + jnp.arange(looking.shape[1])
        columns = column + jnp.arange(looked_at.shape[1])
        seen &= (rows[:, None] >= columns[None, :])[None]
    return seen


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
    wide = jnp.promote_types(queries.dtype, jnp.float32)
    rows, columns = queries.shape[3], keys.shape[3]

    def block_of_queries(_: None, part: tuple[Array, Array, Array]) -> tuple[None, tuple]:
        query, segments, i = part

        def add(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            mixed, total, largest = state
            seen = block_mask(
                segments, looked_at[j], row=i * rows, column=j * columns, causal=causal
            )
            scores = _scores(query, keys[j], seen)
            before, largest = largest, jnp.maximum(largest, jnp.max(scores, axis=-1))
            weights = jnp.exp(scores - largest[..., None])
            fade = jnp.exp(before - largest)
            mixed = mixed * fade[..., None] + _product(
                "bnrc,bncj->bnrj", weights.astype(values.dtype), values[j]
            )
            return mixed, total * fade + jnp.sum(weights, axis=-1), largest

        shape = query.shape[:3]
        start = (
            jnp.zeros((*shape, values.shape[-1]), wide),
            jnp.zeros(shape, wide),
            jnp.full(shape, LOWEST, wide),
        )
        # Blocks of keys that all come later than these queries are left out.
        stop = jnp.minimum(-(-(i + 1) * rows // columns), len(keys)) if causal else len(keys)
        mixed, total, largest = lax.fori_loop(0, stop, add, start)
        total = jnp.where(total == 0, 1, total)
        mixed = (mixed / total[..., None]).astype(values.dtype)
        return None, (mixed, largest + jnp.log(total))

    parts = (queries, looking, jnp.arange(len(queries)))
    _, (mixed, log_total) = lax.scan(block_of_queries, None, parts)
    return mixed, (queries, keys, values, looking, looked_at, mixed, log_total)


def _backward(causal: bool, kept: tuple[Array, ...], slopes: Array) -> tuple[Array | None, ...]:
    queries, keys, values, looking, looked_at, mixed, log_total = kept
    wide = log_total.dtype
    rows, columns = queries.shape[3], keys.shape[3]
    # What the gradient of a row of scores has subtracted from it, for their weights sum to 1.
    mean = jnp.sum(slopes.astype(wide) * mixed.astype(wide), axis=-1)

    def block_of_keys(d_queries: Array, part: tuple[Array, ...]) -> tuple[Array, tuple]:
        key, value, segments, j = part

        def add(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            d_queries, d_key, d_value = state
            query, slope = queries[i], slopes[i]
            seen = block_mask(looking[i], segments, row=i * rows, column=j * columns, causal=causal)
            weights = jnp.exp(_scores(query, key, seen) - log_total[i][..., None])
            d_value += _product("bnrc,bnrj->bncj", weights.astype(slope.dtype), slope)
            d_weights = _product("bnrj,bncj->bnrc", slope, value)
            d_scores = (weights * (d_weights - mean[i][..., None])).astype(query.dtype)
            d_key += _product("bnrc,bnrh->bnch", d_scores, query)
            d_queries = d_queries.at[i].add(_product("bnrc,bnch->bnrh", d_scores, key))
            return d_queries, d_key, d_value

        start = (d_queries, jnp.zeros(key.shape, wide), jnp.zeros(value.shape, wide))
        first = j * columns // rows if causal else 0
        d_queries, d_key, d_value = lax.fori_loop(first, len(queries), add, start)
        return d_queries, (d_key.astype(key.dtype), d_value.astype(value.dtype))

    parts = (keys, values, looked_at, jnp.arange(len(keys)))
    d_queries, (d_keys, d_values) = lax.scan(block_of_keys, jnp.zeros(queries.shape, wide), parts)
    return d_queries.astype(queries.dtype), d_keys, d_values, None, None


_attend.defvjp(_forward, _backward)


def _scores(
    query: Float[Array, "B N R H"], key: Float[Array, "B N C H"], seen: Bool[Array, "B R C"]
) -> Float[Array, "B N R C"]:
    return jnp.where(seen[:, None], _product("bnrh,bnch->bnrc", query, key), -jnp.inf)


def _product(letters: str, left: Array, right: Array) -> Array:
    """In float32 or wider."""
    wide = jnp.promote_types(left.dtype, jnp.float32)
    return jnp.einsum(letters, left, right, preferred_element_type=wide)
