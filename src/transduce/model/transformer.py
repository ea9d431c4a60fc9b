"""The Transformer of section 3."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from transduce.arrays import Array, Batch, Bool, Float, Int, Tokens
from transduce.config import ModelConfig, RequestError
from transduce.model.attention import causal, same_segment
from transduce.model.layers import DecoderLayer, EncoderLayer, Key, LayerCache, dropout, layer_norm
from transduce.model.positions import sinusoids
from transduce.parallel.mesh import gathered, out_sharding

# Modules are plain pytrees here: jax's own transformations apply to them directly.
nnx.set_graph_mode(False)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class DecoderCache:
    """What the decoder keeps between steps, for K hypotheses of each of B sentences."""

    layers: LayerCache
    """Stacked: each field with L in front."""
    source_visible: Bool[Array, "B S"]

    def reorder(self, beams: Int[Array, "B K"]) -> "DecoderCache":
        """Hypothesis k of a sentence becomes what hypothesis beams[k] was."""
        index = beams[None, :, :, None, None, None]
        keys = jnp.take_along_axis(self.layers.keys, index, axis=2)
        values = jnp.take_along_axis(self.layers.values, index, axis=2)
        return replace(self, layers=replace(self.layers, keys=keys, values=values))


class Transformer(nnx.Module):
    """Encoder and decoder stacks over one table of embeddings.

    Source embeddings, target embeddings and the final linear layer share the table
    (section 3.4); layers of a stack are kept stacked, each parameter with L in front.
    """

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.dtype = jnp.dtype(config.dtype)
        if self.dtype == jnp.float64 and not jax.config.read("jax_enable_x64"):
            raise RequestError("model.dtype float64 needs JAX_ENABLE_X64=1 in the environment")
        param_dtype = jnp.promote_types(self.dtype, jnp.float32)
        shape = (config.vocabulary_size, config.d_model)
        normal = nnx.initializers.normal(config.d_model**-0.5)
        self.table = nnx.Param(
            normal(rngs.params(), shape, param_dtype), axes=("vocabulary", "embed")
        )
        if config.positions == "learned":
            shape = (config.learned_positions, config.d_model)
            self.position_table = nnx.Param(
                normal(rngs.params(), shape, param_dtype), axes=(None, "embed")
            )
        self.encoder = _stack(EncoderLayer, config, config.encoder_layers, param_dtype, rngs)
        self.decoder = _stack(DecoderLayer, config, config.decoder_layers, param_dtype, rngs)
        if config.norm == "pre":
            # The last sum of a pre-norm stack has no normalisation after it but this one.
            self.encoder_norm = layer_norm(config=config, param_dtype=param_dtype, rngs=rngs)
            self.decoder_norm = layer_norm(config=config, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, batch: Batch, *, key: Key = None) -> Float[Array, "B T V"]:
        """Logits of every target piece given those before it (teacher forcing)."""
        return self.logits(self.hidden(batch, key=key))

    def hidden(self, batch: Batch, *, key: Key = None) -> Float[Array, "B T D"]:
        """The decoder's output, from which `logits` predicts each target piece."""
        keys = (None, None) if key is None else jax.random.split(key)
        memory = self.encode(batch.source, key=keys[0])
        return self.decode(
            batch.decoder_inputs(), memory, source=batch.source.segments, key=keys[1]
        )

    def encode(self, source: Tokens, *, key: Key = None) -> Float[Array, "B S D"]:
        """The encoder stack over embedded source pieces."""
        visible = same_segment(source.segments, source.segments)
        keys = _keys(key, self.config.encoder_layers)
        x = self._embed(source.ids, source.positions, keys[1])

        def layer(x: Array, parts: Any) -> tuple[Array, None]:
            module, key = parts
            return module(x, visible=visible, positions=source.positions, key=key), None

        x, _ = self._scan(layer, x, (self.encoder, keys[0]))
        return self.encoder_norm(x) if self.config.norm == "pre" else x

    def decode(
        self,
        target: Tokens,
        memory: Float[Array, "B S D"],
        *,
        source: Int[Array, "B S"],
        key: Key = None,
    ) -> Float[Array, "B T D"]:
        """The decoder stack over its inputs (BOS first); `source` are the source's segments."""
        visible = causal(target)
        memory_visible = same_segment(target.segments, source)
        keys = _keys(key, self.config.decoder_layers)
        x = self._embed(target.ids, target.positions, keys[1])

        def layer(x: Array, parts: Any) -> tuple[Array, None]:
            module, key = parts
            x = module(
                x,
                memory,
                visible=visible,
                memory_visible=memory_visible,
                positions=target.positions,
                key=key,
            )
            return x, None

        x, _ = self._scan(layer, x, (self.decoder, keys[0]))
        return self.decoder_norm(x) if self.config.norm == "pre" else x

    def logits(self, hidden: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """The final linear layer, whose matrix is the table; float32 or wider."""
        wide = jnp.promote_types(self.dtype, jnp.float32)
        return jnp.einsum(
            "btd,vd->btv", hidden, gathered(self.table, self.dtype), preferred_element_type=wide
        )

    def start(self, source: Tokens, *, beams: int, length: int) -> DecoderCache:
        """Encodes `source` and makes room for `length` pieces of `beams` hypotheses a row."""
        memory = self.encode(source)
        rows = memory.shape[0]
        config = self.config

        def layer(_: None, module: DecoderLayer) -> tuple[None, LayerCache]:
            keys, values = module.cross_attention.keys_values(memory, positions=source.positions)
            empty = (rows, beams, length, config.heads)
            cache = LayerCache(
                keys=jnp.zeros((*empty, config.d_k), self.dtype),
                values=jnp.zeros((*empty, config.d_v), self.dtype),
                memory_keys=keys,
                memory_values=values,
            )
            return None, cache

        _, layers = lax.scan(layer, None, self.decoder)
        return DecoderCache(layers=layers, source_visible=source.segments != 0)

    def step(
        self, ids: Int[Array, "B K"], position: Int[Array, ""], cache: DecoderCache
    ) -> tuple[Float[Array, "B K V"], DecoderCache]:
        """Logits of the piece after `ids`, which are each hypothesis' piece at `position`.

        Equal to teacher forcing over the same pieces.
        """
        x = self._embed(ids, jnp.broadcast_to(position, ids.shape), None)
        visible = jnp.broadcast_to(
            cache.source_visible[:, None], (*ids.shape, cache.source_visible.shape[1])
        )

        def layer(x: Array, parts: Any) -> tuple[Array, LayerCache]:
            module, layer_cache = parts
            return module.step(x, layer_cache, position=position, memory_visible=visible)

        x, layers = self._scan(layer, x, (self.decoder, cache.layers))
        if self.config.norm == "pre":
            x = self.decoder_norm(x)
        return self.logits(x), replace(cache, layers=layers)

    def _embed(self, ids: Array, positions: Array, key: Key) -> Array:
        """Embeddings times sqrt(D), plus positions, then dropout (sections 3.4, 3.5, 5.4)."""
        layout = out_sharding("batch", None, None)
        config = self.config
        table = gathered(self.table, self.dtype)
        x = table.at[ids].get(out_sharding=layout) * jnp.asarray(config.d_model**0.5, self.dtype)
        if config.positions == "sinusoidal":
            wide = jnp.promote_types(self.dtype, jnp.float32)
            x = x + sinusoids(positions, config.d_model, wide).astype(self.dtype)
        elif config.positions == "learned":
            rows = gathered(self.position_table, self.dtype)
            x = x + rows.at[positions].get(out_sharding=layout)
        return dropout(x, config.dropout, key)

    def _scan(self, layer: Any, x: Array, parts: Any) -> Any:
        return lax.scan(layer, x, parts, unroll=self.config.unroll or True)


def _stack(kind: type, config: ModelConfig, layers: int, param_dtype: Any, rngs: nnx.Rngs) -> Any:
    def make(key: Array) -> Any:
        return kind(config, param_dtype=param_dtype, rngs=nnx.Rngs(key))

    # A loop, not vmap, which takes far longer to compile.
    return lax.map(make, jax.random.split(rngs.params(), layers))


def _keys(key: Key, layers: int) -> tuple[Array | None, Key]:
    """Keys of the layers, stacked, and of the embeddings."""
    if key is None:
        return None, None
    layer_key, embedding_key = jax.random.split(key)
    return jax.random.split(layer_key, layers), embedding_key


def parameter_count(config: ModelConfig) -> int:
    """Trainable parameters of the model that `config` describes."""
    model = jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    return sum(leaf.size for leaf in jax.tree.leaves(model))
