"""Ring attention (Liu et al. 2023): attention where positions are divided over devices.

Every device of the mesh axis `context` keeps its own queries. Keys and values go round from
neighbour to neighbour, each device's with the number of each position and its segment, until all
have been at every device. On the way a query adds up what it gets from each chunk of them (see
`blockwise`). So a device holds, besides its own keys, those that are there and those that are
coming, and scores for no more than a chunk.

Going backward the keys go round again, their gradients after them. What a causal mask hides is
computed all the same: while one device has nothing to look at, another has.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array, Float, Int
from transduce.model.blockwise import Mixing, block_gradients, block_scores, mean_slope
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
    # JAX takes what does not change from layer to layer out of the loop over them, here the masks:
    # of all positions, before the first layer. So they come to depend on what does.
    queries, looking, looked_at = lax.optimization_barrier((queries, visible.queries, visible.keys))
    return _ring(queries, keys, values, looking, looked_at, visible.causal)


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

    keys: Float[Array, "B N S H"]
    values: Float[Array, "B N S J"]
    segments: Int[Array, "B S"]
    first: Int[Array, ""]
    """The number of the first position in its row, counted over all devices."""

    @classmethod
    def of(cls, keys: Array, values: Array, segments: Array) -> "_Chunks":
        """Cuts them equally; those that are added at the end for that are padding."""
        length = segments.shape[1]
        count = -(-length // CHUNK)
        size = -(-length // count)

        def cut(x: Array, axis: int) -> Array:
            padding = [(0, 0)] * x.ndim
            padding[axis] = (0, count * size - length)
            x = jnp.pad(x, padding)
            x = x.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])
            return jnp.moveaxis(x, axis, 0)

        first = _first(length) + size * jnp.arange(count)
        return cls(keys=cut(keys, 2), values=cut(values, 2), segments=cut(segments, 1), first=first)


def _first(length: int) -> Int[Array, ""]:
    """The number in its row of the first of the `length` positions of this device."""
    return lax.axis_index(RING) * length


def _joined(x: Float[Array, "C B N S H"], length: int) -> Float[Array, "B N S H"]:
    """What goes with chunks as one array, without padding."""
    x = jnp.moveaxis(x, 0, 2)
    return x.reshape(*x.shape[:2], -1, x.shape[-1])[:, :, :length]


def _scores(
    causal: bool,
    queries: Float[Array, "B N T H"],
    looking: Int[Array, "B T"],
    chunk: _Chunks,
) -> Float[Array, "B N T S"]:
    """Of the scaled queries and a chunk of keys."""
    visible = Visible(queries=looking, keys=chunk.segments, causal=causal)
    seen = visible.mask(row=_first(looking.shape[1]), column=chunk.first)
    return block_scores(queries, chunk.keys, seen)


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
    queries, keys, values = (x.swapaxes(1, 2) for x in (queries, keys, values))
    queries = queries * queries.shape[-1] ** -0.5

    def look(state: Mixing, chunk: _Chunks) -> tuple[Mixing, None]:
        return state.add(_scores(causal, queries, looking, chunk), chunk.values), None

    start = Mixing.start(queries, width=values.shape[-1])
    state, _ = _round(look, start, _Chunks.of(keys, values, looked_at), None)
    mixed, log_totals = state.result()
    return mixed.swapaxes(1, 2).astype(values.dtype), log_totals


def _differentiate(
    causal: bool,
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    looking: Int[Array, "B T"],
    looked_at: Int[Array, "B S"],
    mixed: Float[Array, "B T N J"],
    log_totals: Float[Array, "B N T"],
    slopes: Float[Array, "B T N J"],
) -> tuple[Array, Array, Array]:
    """The gradients of queries, keys and values; `slopes` are those of the mixed values."""
    inputs = queries, keys, values, mixed, slopes
    queries, keys, values, mixed, slopes = (x.swapaxes(1, 2) for x in inputs)
    scale = queries.shape[-1] ** -0.5
    scaled, means = queries * scale, mean_slope(slopes, mixed)
    wide = log_totals.dtype

    def look(of_queries: Array, chunk: _Chunks) -> tuple[Array, tuple[Array, Array]]:
        scores = _scores(causal, scaled, looking, chunk)
        more, of_keys, of_values = block_gradients(
            scores,
            log_totals,
            slopes,
            means,
            queries=scaled,
            keys=chunk.keys,
            values=chunk.values,
        )
        return of_queries + more, (of_keys, of_values)

    chunks = _Chunks.of(keys, values, looked_at)
    zeros = jnp.zeros_like(chunks.keys, wide), jnp.zeros_like(chunks.values, wide)
    of_queries, sums = _round(look, jnp.zeros_like(queries, wide), chunks, zeros)
    of_keys, of_values = (_joined(x, keys.shape[2]) for x in sums)
    gradients = scale * of_queries, of_keys, of_values
    of_queries, of_keys, of_values = (x.swapaxes(1, 2) for x in gradients)
    return (
        of_queries.astype(queries.dtype),
        of_keys.astype(keys.dtype),
        of_values.astype(values.dtype),
    )
