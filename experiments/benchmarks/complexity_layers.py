"""The layers of the paper's Table 1: what it says of them, and how they are made."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from transduce.arrays import Array, Float
from transduce.model.attention import MultiHeadAttention
from transduce.model.kernels import attend
from transduce.model.visibility import Visible

HEADS = 8
KERNEL = 3
"""k of the convolution."""
REACH = 32
"""A position of restricted attention sees so many on either side: r is twice that, and itself."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row of the table: what the paper says of it, and how it is made."""

    exponent: int
    """Of n in its operations."""
    complexity: str
    sequential: str
    path: str
    make: Callable[[int, Any], nnx.Module]
    """From d and the dtype of activations; parameters are float32 at first."""
    operations: Callable[[int, int], int]
    """Multiplications and additions of its products, from n and d."""


class SelfAttention(nnx.Module):
    """Of the whole sub-layer, projections included; with `reach`, restricted."""

    def __init__(self, d: int, dtype: Any, *, reach: int = 0):
        self.reach = reach
        self.attention = MultiHeadAttention(
            d_model=d,
            heads=HEADS,
            d_k=d // HEADS,
            d_v=d // HEADS,
            rotary=False,
            kernel="plain",
            dtype=dtype,
            param_dtype=jnp.float32,
            rngs=nnx.Rngs(0),
        )

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        positions = jnp.broadcast_to(jnp.arange(x.shape[1]), x.shape[:2])
        queries = self.attention.queries(x, positions=positions)
        keys, values = self.attention.keys_values(x, positions=positions)
        return self.attention.mix(weighted(queries, keys, values, self.reach))


class AttentionAlone(nnx.Module):
    """softmax(Q K^T / sqrt(d_k)) V of given Q, K and V: what Table 1 counts."""

    def __init__(self, *, reach: int = 0):
        self.reach = reach

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        heads = x.reshape(*x.shape[:2], HEADS, -1)
        return weighted(heads, heads, heads, self.reach).reshape(x.shape)


def weighted(queries: Array, keys: Array, values: Array, reach: int) -> Float[Array, "B T N H"]:
    if reach:
        return banded(queries, keys, values, reach)
    ones = jnp.ones(queries.shape[:2], jnp.int32)
    return attend(queries, keys, values, Visible(queries=ones, keys=ones), kernel="plain")


def banded(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B T N H"],
    values: Float[Array, "B T N H"],
    reach: int,
) -> Float[Array, "B T N H"]:
    """Attention in which position i sees those from i - reach to i + reach.

    T is a multiple of `reach`: blocks of so many queries see their own block of keys and the two
    beside it, so that operations and memory grow as T.
    """
    B, T, N, H = queries.shape
    blocks = T // reach
    q = queries.reshape(B, blocks, reach, N, H)

    def with_neighbours(x: Array) -> Array:
        padded = jnp.pad(x, ((0, 0), (reach, reach), (0, 0), (0, 0)))
        parts = padded.reshape(B, blocks + 2, reach, N, H)
        return jnp.concatenate([parts[:, :-2], parts[:, 1:-1], parts[:, 2:]], axis=2)

    scores = jnp.einsum("bgqnh,bgknh->bgnqk", q, with_neighbours(keys)) / math.sqrt(H)
    query = jnp.arange(T).reshape(blocks, reach, 1)
    key = jnp.arange(blocks)[:, None, None] * reach + jnp.arange(-reach, 2 * reach)[None, None]
    seen = (abs(key - query) <= reach) & (key >= 0) & (key < T)
    scores = jnp.where(seen[None, :, None], scores.astype(jnp.float32), -1e9)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
    return jnp.einsum("bgnqk,bgknh->bgqnh", weights, with_neighbours(values)).reshape(B, T, N, H)


class Recurrent(nnx.Module):
    """Flax's own, from a state of zeros."""

    def __init__(self, cell: nnx.LSTMCell | nnx.GRUCell):
        self.layer = nnx.RNN(cell, rngs=False)

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        zeros = jnp.zeros((x.shape[0], x.shape[2]), x.dtype)
        is_lstm = isinstance(self.layer.cell, nnx.LSTMCell)
        found: Any = self.layer(x, initial_carry=(zeros, zeros) if is_lstm else zeros)
        return found


def _recurrent(cell: type[nnx.LSTMCell | nnx.GRUCell]) -> Callable[[int, Any], nnx.Module]:
    def make(d: int, dtype: Any) -> nnx.Module:
        return Recurrent(cell(d, d, dtype=dtype, param_dtype=jnp.float32, rngs=nnx.Rngs(0)))

    return make


def _convolution(d: int, dtype: Any) -> nnx.Module:
    return nnx.Conv(d, d, (KERNEL,), dtype=dtype, param_dtype=jnp.float32, rngs=nnx.Rngs(0))


def _attended(n: int, d: int) -> int:
    return 4 * n * n * d


def _attended_nearby(n: int, d: int) -> int:
    return 4 * n * 3 * REACH * d


def _projected(n: int, d: int) -> int:
    return 8 * n * d * d


KINDS = {
    "self-attention": Kind(
        exponent=2,
        complexity="n^2 d",
        sequential="1",
        path="1",
        make=SelfAttention,
        operations=lambda n, d: _attended(n, d) + _projected(n, d),
    ),
    "self-attention, no projections": Kind(
        exponent=2,
        complexity="n^2 d",
        sequential="1",
        path="1",
        make=lambda d, dtype: AttentionAlone(),
        operations=_attended,
    ),
    "recurrent, LSTM": Kind(
        exponent=1,
        complexity="n d^2",
        sequential="n",
        path="n",
        make=_recurrent(nnx.LSTMCell),
        operations=lambda n, d: 16 * n * d * d,
    ),
    "recurrent, GRU": Kind(
        exponent=1,
        complexity="n d^2",
        sequential="n",
        path="n",
        make=_recurrent(nnx.GRUCell),
        operations=lambda n, d: 12 * n * d * d,
    ),
    f"convolutional, k = {KERNEL}": Kind(
        exponent=1,
        complexity="k n d^2",
        sequential="1",
        path="log_k(n)",
        make=_convolution,
        operations=lambda n, d: 2 * KERNEL * n * d * d,
    ),
    f"restricted, r = {2 * REACH}": Kind(
        exponent=1,
        complexity="r n d",
        sequential="1",
        path="n/r",
        make=lambda d, dtype: SelfAttention(d, dtype, reach=REACH),
        operations=lambda n, d: _attended_nearby(n, d) + _projected(n, d),
    ),
    "restricted, no projections": Kind(
        exponent=1,
        complexity="r n d",
        sequential="1",
        path="n/r",
        make=lambda d, dtype: AttentionAlone(reach=REACH),
        operations=_attended_nearby,
    ),
}
