"""The model once more, for its attention weights."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Batch, Float, Int
from transduce.model.attention import MultiHeadAttention
from transduce.model.kernels import attention_weights
from transduce.model.transformer import Transformer
from transduce.model.visibility import Visible, among


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """The softmax of equation 1 in every head of every layer; a row says where a position looks.

    Rows of positions with a piece sum to 1 and are 0 at padding; the others mean nothing.
    """

    encoder: Float[Array, "L B N S S"]
    decoder: Float[Array, "L B N T T"]
    """Over what the decoder reads: BOS, then all pieces but the last."""
    cross: Float[Array, "L B N T S"]


def observe(model: Transformer, batch: Batch) -> AttentionWeights:
    """The attention with which the model reads the sources and chooses each target piece.

    Teacher forcing, without dropout; plain attention whatever the model's kernel.
    """
    source, inputs = batch.source, batch.decoder_inputs()
    visible, target_visible = among(source), among(inputs, causal=True)
    source_visible = Visible(queries=inputs.segments, keys=source.segments)

    def encode(x: Array, layer: Any) -> tuple[Array, Array]:
        look = _Look(layer.attention, visible, source.positions)
        x = layer.around_attention(x, lambda y: look(y, y), None)
        return layer.around_feed_forward(x, layer.feed_forward, None), look.weights

    x = model.embed(source.ids, source.positions)
    memory, encoder = lax.scan(encode, x, model.encoder)
    if model.config.norm == "pre":
        memory = model.encoder_norm(memory)

    def decode(x: Array, layer: Any) -> tuple[Array, tuple[Array, Array]]:
        back = _Look(layer.attention, target_visible, inputs.positions)
        across = _Look(layer.cross_attention, source_visible, inputs.positions)
        x = layer.around_attention(x, lambda y: back(y, y), None)
        x = layer.around_cross_attention(x, lambda y: across(y, memory), None)
        x = layer.around_feed_forward(x, layer.feed_forward, None)
        return x, (back.weights, across.weights)

    x = model.embed(inputs.ids, inputs.positions)
    _, (decoder, cross) = lax.scan(decode, x, model.decoder)
    return AttentionWeights(encoder=encoder, decoder=decoder, cross=cross)


class _Look:
    """Attention that remembers its weights."""

    def __init__(
        self, attention: MultiHeadAttention, visible: Visible, positions: Int[Array, "B T"]
    ) -> None:
        self.weights: Float[Array, "B N T S"] = jnp.zeros(())
        self._attention, self._visible, self._positions = attention, visible, positions

    def __call__(self, x: Float[Array, "B T D"], memory: Float[Array, "B S D"]) -> Array:
        attention = self._attention
        queries = attention.queries(x, positions=self._positions)
        keys, values = attention.keys_values(memory, positions=self._positions)
        self.weights = attention_weights(queries, keys, self._visible)
        narrow = self.weights.astype(values.dtype)
        return attention.mix(jnp.einsum("bnts,bsnj->btnj", narrow, values))
