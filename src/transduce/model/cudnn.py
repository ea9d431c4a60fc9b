"""Attention on NVIDIA GPUs by cuDNN, in bfloat16.

As JAX offers it, cuDNN learns of segments only from a mask [B, 1, T, S]. Here one is made for some
of the queries at a time, and anew in the backward pass, so that none is kept.
"""

from typing import Any

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Float
from transduce.model.visibility import Visible

ROWS = 2048
"""Queries for which a mask is made at a time."""

WIDEST = 128
"""The widest heads that it takes on every GPU."""

MULTIPLE = 8
"""Lengths and widths are filled up to a multiple of it: it refuses odd ones."""


def attend_by_cudnn(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Visible,
) -> Float[Array, "B T N J"]:
    """Equation 1, its softmax in float32; what a query gets that sees nothing is finite."""
    length, width = queries.shape[1], queries.shape[-1]
    value_width = values.shape[-1]
    # It wants one width for all: zeros beside queries and keys change no score.
    widest = max(width, value_width)
    queries, keys, values = (
        _filled(_filled(x, axis=1), axis=-1, least=widest) for x in (queries, keys, values)
    )
    looking, looked_at = _filled(visible.queries, axis=1), _filled(visible.keys, axis=1)

    def rows(start: int) -> Array:
        some = slice(start, start + ROWS)
        # None of these queries sees a key that comes after all of them.
        seen = slice(0, start + ROWS if visible.causal else None)
        mask = Visible(
            queries=looking[:, some], keys=looked_at[:, seen], causal=visible.causal
        ).mask(row=start)
        return jax.nn.dot_product_attention(
            queries[:, some],
            keys[:, seen],
            values[:, seen],
            mask=mask[:, None],
            scale=width**-0.5,
            # The mask says it too, but not before the scores are made.
            is_causal=visible.causal and mask.shape[1] == mask.shape[2],
            implementation="cudnn",
        )

    rows = jax.checkpoint(rows, static_argnums=0, policy=_made_by_cudnn)
    mixed = [rows(start) for start in range(0, queries.shape[1], ROWS)]
    return jnp.concatenate(mixed, axis=1)[:, :length, :, :value_width]


def _made_by_cudnn(primitive: Any, *_: Any, **__: Any) -> bool:
    """What is kept for the backward pass; the rest, masks and what is filled, is made anew."""
    return primitive.name.startswith("dot_product_attention_fwd")


def _filled(x: Array, *, axis: int, least: int = 0) -> Array:
    """Zeros after `x` up to `least`, and to a multiple of 8."""
    size = max(x.shape[axis], least)
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, size + -size % MULTIPLE - x.shape[axis])
    return jnp.pad(x, padding)
