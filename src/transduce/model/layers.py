"""The encoder's and the decoder's layers (section 3.1).

Initialisation, which the paper leaves open, is this everywhere: matrices Glorot uniform over the
whole projection (all heads together), biases zero, normalisation gains one, embeddings normal
with variance 1/D, so that they have variance 1 once multiplied by the square root of D.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from transduce.arrays import Array, Bool, Float, Int
from transduce.config import ModelConfig
from transduce.model.attention import MultiHeadAttention
from transduce.model.kernels import attend
from transduce.parallel.mesh import gathered, out_sharding

type Key = Array | None
"""A dropout key; None in evaluation and decoding, when nothing is dropped."""


def dropout(x: Float[Array, "B T D"], rate: float, key: Key) -> Float[Array, "B T D"]:
    """Zeroes each value with probability `rate` and scales the others to keep the mean.

    One random byte decides, so the rate is rounded to 1/256; the scale is that of the rounded
    rate. The mask depends on the key and the shape alone, not on how the array is laid out.
    """
    kept = round((1 - rate) * 256)
    if key is None or kept == 256:
        return x
    layout = out_sharding("batch", None, None)
    mask = jax.random.bits(key, x.shape, jnp.uint8, out_sharding=layout) < kept
    return jnp.where(mask, x * (256 / kept), 0).astype(x.dtype)


class FeedForward(nnx.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""

    def __init__(self, *, d_model: int, d_ff: int, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.dtype = dtype
        glorot = nnx.initializers.glorot_uniform()
        into = glorot(rngs.params(), (d_model, d_ff), param_dtype)
        out = glorot(rngs.params(), (d_ff, d_model), param_dtype)
        self.into = nnx.Param(into, axes=("embed", "feed_forward"))
        self.into_bias = nnx.Param(jnp.zeros(d_ff, param_dtype), axes=("feed_forward",))
        self.out = nnx.Param(out, axes=("feed_forward", "embed"))
        self.out_bias = nnx.Param(jnp.zeros(d_model, param_dtype), axes=(None,))

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        inner = jnp.einsum("btd,df->btf", x, gathered(self.into, self.dtype))
        inner = jax.nn.relu(inner + self.into_bias[...].astype(self.dtype)[None, None])
        layout = out_sharding("batch", None, None)
        out = jnp.einsum("btf,fd->btd", inner, gathered(self.out, self.dtype), out_sharding=layout)
        return out + self.out_bias[...].astype(self.dtype)[None, None]


class Residual(nnx.Module):
    """A sub-layer's surroundings: LayerNorm(x + Dropout(Sublayer(x))), or pre-norm."""

    def __init__(self, *, config: ModelConfig, param_dtype: Any, rngs: nnx.Rngs):
        self.rate, self.pre_norm = config.dropout, config.norm == "pre"
        self.norm = layer_norm(config=config, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: Array, sublayer: Callable[[Array], Array], key: Key) -> Array:
        if self.pre_norm:
            return x + dropout(sublayer(self.norm(x)), self.rate, key)
        return self.norm(x + dropout(sublayer(x), self.rate, key))


def layer_norm(*, config: ModelConfig, param_dtype: Any, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Layer normalisation with gain and bias; its statistics are float32 or wider."""
    return nnx.LayerNorm(
        config.d_model,
        epsilon=1e-6,
        dtype=jnp.dtype(config.dtype),
        param_dtype=param_dtype,
        use_fast_variance=False,
        rngs=rngs,
    )


def _attention(
    config: ModelConfig, *, rotary: bool, param_dtype: Any, rngs: nnx.Rngs
) -> MultiHeadAttention:
    return MultiHeadAttention(
        d_model=config.d_model,
        heads=config.heads,
        d_k=config.d_k,
        d_v=config.d_v,
        rotary=rotary,
        dtype=jnp.dtype(config.dtype),
        param_dtype=param_dtype,
        rngs=rngs,
    )


def _feed_forward(config: ModelConfig, *, param_dtype: Any, rngs: nnx.Rngs) -> FeedForward:
    return FeedForward(
        d_model=config.d_model,
        d_ff=config.d_ff,
        dtype=jnp.dtype(config.dtype),
        param_dtype=param_dtype,
        rngs=rngs,
    )


class EncoderLayer(nnx.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelConfig, *, param_dtype: Any, rngs: nnx.Rngs):
        rotary = config.positions == "rotary"
        self.attention = _attention(config, rotary=rotary, param_dtype=param_dtype, rngs=rngs)
        self.feed_forward = _feed_forward(config, param_dtype=param_dtype, rngs=rngs)
        self.around_attention = Residual(config=config, param_dtype=param_dtype, rngs=rngs)
        self.around_feed_forward = Residual(config=config, param_dtype=param_dtype, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "B S D"],
        *,
        visible: Bool[Array, "B S S"],
        positions: Int[Array, "B S"],
        key: Key,
    ) -> Float[Array, "B S D"]:
        keys = _split(key, 2)
        x = self.around_attention(
            x, lambda y: self.attention(y, y, visible, positions=positions), keys[0]
        )
        return self.around_feed_forward(x, self.feed_forward, keys[1])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """What a decoder layer keeps between steps; every field gets an L in front when stacked."""

    keys: Float[Array, "B K T N H"]
    """Of the pieces written so far, each hypothesis its own."""
    values: Float[Array, "B K T N J"]
    memory_keys: Float[Array, "B S N H"]
    """Of the encoder's output, computed once and shared by a sentence's hypotheses."""
    memory_values: Float[Array, "B S N J"]


class DecoderLayer(nnx.Module):
    """Masked self-attention, attention to the encoder's output, and feed-forward."""

    def __init__(self, config: ModelConfig, *, param_dtype: Any, rngs: nnx.Rngs):
        rotary = config.positions == "rotary"
        self.attention = _attention(config, rotary=rotary, param_dtype=param_dtype, rngs=rngs)
        self.cross_attention = _attention(config, rotary=False, param_dtype=param_dtype, rngs=rngs)
        self.feed_forward = _feed_forward(config, param_dtype=param_dtype, rngs=rngs)
        self.around_attention = Residual(config=config, param_dtype=param_dtype, rngs=rngs)
        self.around_cross_attention = Residual(config=config, param_dtype=param_dtype, rngs=rngs)
        self.around_feed_forward = Residual(config=config, param_dtype=param_dtype, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        memory: Float[Array, "B S D"],
        *,
        visible: Bool[Array, "B T T"],
        memory_visible: Bool[Array, "B T S"],
        positions: Int[Array, "B T"],
        key: Key,
    ) -> Float[Array, "B T D"]:
        keys = _split(key, 3)
        x = self.around_attention(
            x, lambda y: self.attention(y, y, visible, positions=positions), keys[0]
        )
        x = self.around_cross_attention(
            x,
            lambda y: self.cross_attention(y, memory, memory_visible, positions=positions),
            keys[1],
        )
        return self.around_feed_forward(x, self.feed_forward, keys[2])

    def step(
        self,
        x: Float[Array, "B K D"],
        cache: LayerCache,
        *,
        position: Int[Array, ""],
        memory_visible: Bool[Array, "B K S"],
    ) -> tuple[Float[Array, "B K D"], LayerCache]:
        """One more piece for each of K hypotheses of B sentences, at `position`."""
        batch, beams, width = x.shape
        length = cache.keys.shape[2]
        rows = batch * beams
        positions = jnp.broadcast_to(position, (rows, 1))
        written = jnp.broadcast_to(jnp.arange(length) <= position, (rows, 1, length))
        updated = cache

        def attend_to_written(y: Array) -> Array:
            nonlocal updated
            y = y.reshape(rows, 1, width)
            queries = self.attention.queries(y, positions=positions)
            keys, values = self.attention.keys_values(y, positions=positions)
            updated = replace(
                cache,
                keys=_write(cache.keys, keys, position),
                values=_write(cache.values, values, position),
            )
            # The rows of a hypothesis' cache, as rows of an ordinary attention with T = 1.
            flat = [z.reshape(rows, *z.shape[2:]) for z in (updated.keys, updated.values)]
            mixed = self.attention.mix(attend(queries, flat[0], flat[1], written))
            return mixed.reshape(batch, beams, width)

        def attend_to_memory(y: Array) -> Array:
            # A sentence's hypotheses are the T of this attention: its keys are never copied.
            queries = self.cross_attention.queries(y, positions=positions)
            keys, values = cache.memory_keys, cache.memory_values
            return self.cross_attention.mix(attend(queries, keys, values, memory_visible))

        x = self.around_attention(x, attend_to_written, None)
        x = self.around_cross_attention(x, attend_to_memory, None)
        return self.around_feed_forward(x, self.feed_forward, None), updated


def _write(cache: Array, new: Array, position: Array) -> Array:
    """`new` [B*K, 1, N, H] into `cache` [B, K, T, N, H] at `position`."""
    new = new.reshape(*cache.shape[:2], 1, *cache.shape[3:])
    return lax.dynamic_update_slice_in_dim(cache, new, position, axis=2)


def _split(key: Key, count: int) -> list[Key]:
    return [None] * count if key is None else list(jax.random.split(key, count))
