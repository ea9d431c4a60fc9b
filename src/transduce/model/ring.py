"""Ring attention (Liu et al. 2023): attention where positions are divided over devices.

Every device of the mesh axis `context` keeps its own queries. Keys and values go round from
neighbour to neighbour, each device's with the number of each position and its segment, until all
have been at every device. A query's softmax is gathered on the way, from what it was so far and a
chunk of keys (Milakov and Gimelshein 2018). So a device holds, besides its own keys, those that
are there and those that are coming, and scores for no more than a chunk.

Going backward the keys go round again, their gradients after them, and the weights are made anew
from the logarithm of their sum (Dao et al. 2022). What a causal mask hides is computed all the
same: while one device has nothing to look at, another has.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array, Bool, Float, Int
from transduce.model.visibility import Visible
from transduce.parallel.mesh import spec

RING = "context"

CHUNK = 512
"""Keys that are looked at at a time, at most: there are [B, N, T, CHUNK] scores on a device."""


def ring_attend(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Visible,
) -> Float[Array, "B T N J"]:
    """softmax(Q K^T / sqrt(d_k)) V for each head (equation 1), on the mesh in force.

    T and S are divided over `context`, each in equal parts; the batch and the heads are divided
    as ever. Sums are float32 or wider. A query that sees nothing gets zeros.
    """
    return _ring(queries, keys, values, visible.queries, visible.keys, visible.causal)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _ring(
    queries: Array, keys: Array, values: Array, looking: Array, looked_at: Array, causal: bool
) -> Array:
    return _forward(queries, keys, values, looking, looked_at, causal)[0]


def _forward(
    queries: Array, keys: Array, values: Array, looking: Array, looked_at: Array, causal: bool
) -> tuple[Array, tuple[Array, ...]]:
    heads, segments, totals = _specs()
    inputs = queries, keys, values, looking, looked_at
    mixed, log_totals = _on_each_device(
        functools.partial(_mix, causal),
        inputs,
        (heads, heads, heads, segments, segments),
        (heads, totals),
    )
    return mixed, (*inputs, mixed, log_totals)


def _backward(causal: bool, kept: tuple[Array, ...], of_mixed: Array) -> tuple[Any, ...]:
    heads, segments, totals = _specs()
    gradients = _on_each_device(
        functools.partial(_differentiate, causal),
        (*kept, of_mixed),
        (heads, heads, heads, segments, segments, heads, totals, heads),
        (heads, heads, heads),
    )
    return *gradients, None, None


_ring.defvjp(_forward, _backward)


def _specs() -> tuple[P, P, P]:
    """Of what there is for each position and head, of segments, and of the softmax's sums."""
    return (
        spec("batch", "positions", "heads", None),
        spec("batch", "positions"),
        spec("batch", "heads", "positions"),
    )


def _on_each_device(
    function: Callable[..., Any], arguments: tuple[Array, ...], inputs: Any, outputs: Any
) -> Any:
    # Nothing is differentiated through this, and so nothing depends on what JAX would check.
    mapped = jax.shard_map(function, in_specs=inputs, out_specs=outputs, check_vma=False)
    return mapped(*jax.reshard(arguments, inputs))


# ---- On a device: the shapes are those of its part ---------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class _Chunks:
    """The keys of a device. Each array has the number of chunks in front of this shape."""

    keys: Float[Array, "B S N H"]
    values: Float[Array, "B S N J"]
    segments: Int[Array, "B S"]
    numbers: Int[Array, "S"]
    """Of the positions in their row, counted over all devices."""

    @classmethod
    def of(cls, keys: Array, values: Array, segments: Array) -> "_Chunks":
        """Cuts them equally; those that are added at the end for that are padding."""
        count = -(-segments.shape[1] // CHUNK)

        def cut(x: Array) -> Array:
            missing = -x.shape[1] % count
            x = jnp.pad(x, [(0, missing if axis == 1 else 0) for axis in range(x.ndim)])
            return jnp.moveaxis(x.reshape(x.shape[0], count, -1, *x.shape[2:]), 1, 0)

        numbers = cut(_numbers(segments.shape[1])[None])[:, 0]
        return cls(keys=cut(keys), values=cut(values), segments=cut(segments), numbers=numbers)


def _numbers(length: int) -> Int[Array, "T"]:
    """Of a device's positions, counted over all devices."""
    return lax.axis_index(RING) * length + jnp.arange(length)


def _joined(x: Float[Array, "C B S N H"], length: int) -> Float[Array, "B S N H"]:
    """What goes with chunks as one array, without padding."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])[:, :length]


def _scores(
    causal: bool,
    queries: Float[Array, "B T N H"],
    looking: Int[Array, "B T"],
    chunk: _Chunks,
) -> Float[Array, "B N T S"]:
    """Of the scaled queries and a chunk of keys; minus infinity where nothing may be seen."""
    wide = jnp.promote_types(queries.dtype, jnp.float32)
    scores = jnp.einsum("btnh,bsnh->bnts", queries, chunk.keys, preferred_element_type=wide)
    seen: Bool[Array, "B T S"] = Visible(queries=looking, keys=chunk.segments).mask()
    if causal:
        seen &= (chunk.numbers[None] <= _numbers(looking.shape[1])[:, None])[None]
    return jnp.where(seen[:, None], scores, -jnp.inf)


def _round(look: Callable[..., Any], state: Any, chunks: _Chunks, sums: Any) -> Any:
    """Scans with `look` over the chunks of every device, this one's first.

    What `look` gives of a chunk is added to that chunk's part of `sums`, which goes round too.
    Returns the last state, and the sums of this device's own chunks.
    """
    devices = lax.axis_size(RING)
    onward = [(device, (device + 1) % devices) for device in range(devices)]

    def visit(carry: Any, _: None) -> tuple[Any, None]:
        state, chunks, sums = carry
        # The sums come while the chunks that they belong to, here already, are looked at, and the
        # next chunks come too: nothing waits for a neighbour.
        state, new = lax.scan(look, state, chunks)
        chunks, sums = lax.ppermute((chunks, sums), RING, onward)
        return (state, chunks, jax.tree.map(jnp.add, sums, new)), None

    (state, _, sums), _ = lax.scan(visit, (state, chunks, sums), length=devices)
    return state, lax.ppermute(sums, RING, onward)


def _mix(
    causal: bool,
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    looking: Int[Array, "B T"],
    looked_at: Int[Array, "B S"],
) -> tuple[Float[Array, "B T N J"], Float[Array, "B N T"]]:
    """The mixed values, and the logarithm of the sum that each query's softmax divides by."""
    queries = queries * queries.shape[-1] ** -0.5
    wide = jnp.promote_types(queries.dtype, jnp.float32)
    rows, length, heads, _ = queries.shape

    def look(state: tuple[Array, Array, Array], chunk: _Chunks) -> tuple[Any, None]:
        mixed, total, largest = state
        scores = _scores(causal, queries, looking, chunk)
        before, largest = largest, jnp.maximum(largest, jnp.max(scores, axis=-1))
        weights = jnp.exp(scores - largest[..., None])
        kept = jnp.exp(before - largest)
        new = jnp.einsum(
            "bnts,bsnj->bntj",
            weights.astype(values.dtype),
            chunk.values,
            preferred_element_type=wide,
        )
        total = kept * total + jnp.sum(weights, axis=-1)
        return (kept[..., None] * mixed + new, total, largest), None

    state = (
        jnp.zeros((rows, heads, length, values.shape[-1]), wide),
        jnp.zeros((rows, heads, length), wide),
        # Finite, so that minus infinity stays below it.
        jnp.full((rows, heads, length), jnp.finfo(wide).min),
    )
    chunks = _Chunks.of(keys, values, looked_at)
    (mixed, total, largest), _ = _round(look, state, chunks, None)
    # Of a query that sees nothing it is 0.
    total = jnp.where(total > 0, total, 1)
    mixed = jnp.swapaxes(mixed / total[..., None], 1, 2)
    return mixed.astype(values.dtype), largest + jnp.log(total)


def _differentiate(
    causal: bool,
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    looking: Int[Array, "B T"],
    looked_at: Int[Array, "B S"],
    mixed: Float[Array, "B T N J"],
    log_totals: Float[Array, "B N T"],
    of_mixed: Float[Array, "B T N J"],
) -> tuple[Array, Array, Array]:
    """The gradients of queries, keys and values, given that of the mixed values."""
    scale = queries.shape[-1] ** -0.5
    scaled = queries * scale
    wide = log_totals.dtype
    einsum = functools.partial(jnp.einsum, preferred_element_type=wide)
    # What the softmax takes from the gradient of each of a query's weights.
    mean = einsum("btnj,btnj->bnt", of_mixed.astype(wide), mixed.astype(wide))

    def look(of_queries: Array, chunk: _Chunks) -> tuple[Array, tuple[Array, Array]]:
        scores = _scores(causal, scaled, looking, chunk)
        weights = jnp.exp(scores - log_totals[..., None])
        of_values = einsum("bnts,btnj->bsnj", weights.astype(values.dtype), of_mixed)
        of_weights = einsum("btnj,bsnj->bnts", of_mixed, chunk.values)
        of_scores = (weights * (of_weights - mean[..., None])).astype(queries.dtype)
        of_keys = einsum("bnts,btnh->bsnh", of_scores, scaled)
        of_queries += einsum("bnts,bsnh->btnh", of_scores, chunk.keys)
        return of_queries, (of_keys, of_values)

    chunks = _Chunks.of(keys, values, looked_at)
    zeros = jnp.zeros_like(chunks.keys, wide), jnp.zeros_like(chunks.values, wide)
    of_queries, sums = _round(look, jnp.zeros_like(queries, wide), chunks, zeros)
    of_keys, of_values = (_joined(x, keys.shape[1]) for x in sums)
    return (
        (scale * of_queries).astype(queries.dtype),
        of_keys.astype(keys.dtype),
        of_values.astype(values.dtype),
    )
