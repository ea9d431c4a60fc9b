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
from transduce.model.cached import Written, attend_to_memory, attend_to_written
from transduce.model.guided import attention_missed
from transduce.model.kernels import current_platform
from transduce.model.products import product
from transduce.model.visibility import Visible
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
    width = x.shape[-1]
    # Asked for bytes, JAX makes a word for each. D is never divided, so four may share one.
    shape, layout = (*x.shape[:-1], -(-width // 4)), out_sharding("batch", "positions", None)
    words = jax.random.bits(key, shape, jnp.uint32, out_sharding=layout)
    # Compared before they are joined: what is joined is kept, a bit each and not a word.
    stays = jnp.concatenate([(words >> shift & 255) < kept for shift in (0, 8, 16, 24)], axis=-1)
    return jnp.where(stays[..., :width], x * (256 / kept), 0).astype(x.dtype)


@jax.custom_vjp
def relu(x: Array) -> Array:
    """max(0, x); the backward pass keeps the result, which the next product keeps anyway."""
    return jnp.maximum(x, 0)


def _relu_forward(x: Array) -> tuple[Array, Array]:
    y = jnp.maximum(x, 0)
    return y, y


def _relu_backward(y: Array, slope: Array) -> tuple[Array]:
    # Else XLA has the product before write a mask beside its result, which takes twice as long.
    y = lax.optimization_barrier(y)
    return (jnp.where(y > 0, slope, 0),)


relu.defvjp(_relu_forward, _relu_backward)


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
        inner = product("btd,df->btf", x, gathered(self.into, self.dtype))
        inner = relu(inner + self.into_bias[...].astype(self.dtype)[None, None])
        layout = out_sharding("batch", "positions", None)
        out = product("btf,fd->btd", inner, gathered(self.out, self.dtype), layout)
        return out + self.out_bias[...].astype(self.dtype)[None, None]


class Residual(nnx.Module):
    """A sub-layer's surroundings: LayerNorm(x + Dropout(Sublayer(x))), or pre-norm."""

    def __init__(self, *, config: ModelConfig, param_dtype: Any, rngs: nnx.Rngs):
        self.rate, self.pre_norm = config.dropout, config.norm == "pre"
        self.norm = layer_norm(config=config, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: Array, sublayer: Callable[[Array], Array], key: Key) -> Array:
        # Of it the backward pass keeps the input alone, not also three arrays in float32. A TPU
        # does so by itself, and without the barriers it moves less.
        norm = jax.checkpoint(self.norm, prevent_cse=current_platform() == "cpu")
        if self.pre_norm:
            return x + dropout(sublayer(norm(x)), self.rate, key)
        return norm(x + dropout(sublayer(x), self.rate, key))


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
        kernel=config.attention,
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
        visible: Visible,
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
class LayerMemory:
    """Of the encoder's output, what a decoder layer attends to: computed once for all steps."""

    keys: Float[Array, "B N S H"]
    values: Float[Array, "B N S J"]


RECENT = 32
"""Pieces, at most, that are written before they become old ones, and read at every step."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerCache:
    """Of the pieces written so far, what a decoder layer attends to, each hypothesis its own.

    Most sentences are short, so most of the room is never written: what is written goes to the
    recent pieces, and joins the old ones when they are full. Old ones are read only when there
    are any.
    """

    old: Written
    """A multiple of RECENT; empty when there is no room for more than the recent ones."""
    recent: Written


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
        visible: Visible,
        memory_visible: Visible,
        positions: Int[Array, "B T"],
        key: Key,
        words: tuple[Int[Array, "B T"], Int[Array, "B S"]] | None = None,
    ) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """Also gives `attention_missed` of the first head, if there are `words` of both sides."""
        keys = _split(key, 3)
        missed = jnp.zeros(())

        def to_memory(y: Array) -> Array:
            nonlocal missed
            if words is not None:
                queries, memory_keys = self.cross_attention.first_head(y, memory)
                missed = attention_missed(
                    queries,
                    memory_keys,
                    memory_visible,
                    target_words=words[0],
                    source_words=words[1],
                )
            return self.cross_attention(y, memory, memory_visible, positions=positions)

        x = self.around_attention(
            x, lambda y: self.attention(y, y, visible, positions=positions), keys[0]
        )
        x = self.around_cross_attention(x, to_memory, keys[1])
        return self.around_feed_forward(x, self.feed_forward, keys[2]), missed

    def memory(self, memory: Float[Array, "B S D"], *, positions: Int[Array, "B S"]) -> LayerMemory:
        """What `step` needs of the encoder's output."""
        keys, values = self.cross_attention.keys_values(memory, positions=positions)
        return LayerMemory(keys=keys.swapaxes(1, 2), values=values.swapaxes(1, 2))

    def step(
        self,
        x: Float[Array, "B K D"],
        cache: LayerCache,
        memory: LayerMemory,
        *,
        positions: Int[Array, "B"],
        memory_visible: Bool[Array, "B S"],
    ) -> tuple[Float[Array, "B K D"], LayerCache, Float[Array, "B K S"]]:
        """One more piece for each of K hypotheses of B sentences, those of each at its position.

        Also gives the attention to the encoder's output, its heads averaged.
        """
        window = cache.recent.keys.shape[3]
        place = positions % window
        seen_old = jnp.arange(cache.old.keys.shape[3])[None] < (positions - place)[:, None]
        seen_recent = jnp.arange(window)[None] <= place[:, None]
        at = jnp.broadcast_to(positions[:, None], x.shape[:2])
        updated, weights = cache, jnp.zeros(())

        def to_written(y: Array) -> Array:
            nonlocal updated
            queries = self.attention.queries(y, positions=at)
            keys, values = self.attention.keys_values(y, positions=at)
            recent = Written(
                keys=_write(cache.recent.keys, keys, place),
                values=_write(cache.recent.values, values, place),
            )
            updated = replace(cache, recent=recent)
            mixed = attend_to_written(
                queries, cache.old, recent, seen_old=seen_old, seen_new=seen_recent
            )
            return self.attention.mix(mixed)

        def to_memory(y: Array) -> Array:
            nonlocal weights
            queries = self.cross_attention.queries(y, positions=at)
            mixed, weights = attend_to_memory(queries, memory.keys, memory.values, memory_visible)
            return self.cross_attention.mix(mixed)

        x = self.around_attention(x, to_written, None)
        x = self.around_cross_attention(x, to_memory, None)
        x = self.around_feed_forward(x, self.feed_forward, None)
        return x, updated, jnp.mean(weights, axis=2)


def _write(cache: Array, new: Array, positions: Array) -> Array:
    """`new` [B, K, N, H] into `cache` [B, K, N, T, H], each sentence's at its position."""

    def row(cache: Array, new: Array, position: Array) -> Array:
        return lax.dynamic_update_slice_in_dim(cache, new[:, :, None], position, axis=2)

    return jax.vmap(row)(cache, new, positions)


def _split(key: Key, count: int) -> list[Key]:
    return [None] * count if key is None else list(jax.random.split(key, count))
