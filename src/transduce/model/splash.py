"""Attention on TPUs by JAX's splash kernel, whose scores never leave the chip's fast memory.

It is written in Pallas, so XLA cannot divide it: under a mesh it runs inside `jax.shard_map`.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    BlockSizes,
    CausalMask,
    FullMask,
    MultiHeadMask,
    QKVLayout,
    SegmentIds,
    make_splash_mha,
)

from transduce.arrays import Array, Float
from transduce.model.visibility import Visible

BLOCKS = (512, 384, 256)
"""How many queries, or keys, the kernel takes at a time from rows that are longer than these."""

LANES = 128
"""To a multiple of which a TPU fills the last dimension in memory: where heads are narrower, the
positions are last, of which there are always so many."""

NOBODY = -1
"""A segment that no query is of."""


def attend_by_splash(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Visible,
    *,
    interpret: bool = False,
) -> Float[Array, "B T N J"]:
    """Equation 1, its softmax in float32; what a query gets that sees nothing is finite.

    `interpret` runs the kernel without a TPU, slowly.
    """
    length, heads, width = queries.shape[1:]
    rows, columns = _block(length), _block(keys.shape[1])
    queries = _padded(queries * width**-0.5, rows)
    keys, values = _padded(keys, columns), _padded(values, columns)
    segments = SegmentIds(
        q=_padded(visible.queries, rows),
        kv=_padded(jnp.where(visible.keys == 0, NOBODY, visible.keys), columns, fill=NOBODY),
    )
    mask = (CausalMask if visible.causal else FullMask)((queries.shape[1], keys.shape[1]))
    # Of its two backward passes the fused one is faster, but keeps a gradient of the queries for
    # each block of keys.
    fused = keys.shape[1] == columns
    apart = {} if fused else {"block_q_dq": rows, "block_kv_dq": columns}
    layout = QKVLayout.SEQ_MINOR if width % LANES else QKVLayout.HEAD_DIM_MINOR
    kernel = make_splash_mha(
        mask=MultiHeadMask([mask] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=BlockSizes(
            block_q=rows,
            block_kv=columns,
            block_q_dkv=rows,
            block_kv_dkv=columns,
            use_fused_bwd_kernel=fused,
            q_layout=layout,
            k_layout=layout,
            v_layout=layout,
            **apart,
        ),
        interpret=interpret,
    )
    queries, keys, values = (x.swapaxes(1, 2) for x in (queries, keys, values))
    # A tuple only where the softmax's sums are asked for.
    mixed: Array = jax.vmap(kernel)(queries, keys, values, segments)  # pyright: ignore[reportAssignmentType]
    return mixed.swapaxes(1, 2)[:, :length]


def _block(length: int) -> int:
    """A multiple of 128 such that little is filled."""
    if length <= max(BLOCKS):
        return 128 * math.ceil(length / 128)
    return min(BLOCKS, key=lambda block: (-length % block, -block))


def _padded(x: Array, block: int, *, fill: int = 0) -> Array:
    padding = [(0, 0)] * x.ndim
    padding[1] = (0, -x.shape[1] % block)
    return jnp.pad(x, padding, constant_values=fill)
