"""Attention heads by name, and the model without some of them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import Array
from transduce.config import ModelConfig, RequestError
from transduce.model.transformer import Transformer

KINDS = {
    "encoder": ("encoder", "attention"),
    "decoder": ("decoder", "attention"),
    "cross": ("decoder", "cross_attention"),
}
"""The three uses of attention (section 3.2.3), and in which stack and sub-layer each is."""

_NAME = re.compile(r"(\w+)\.([0-9]+)(?:\.([0-9]+))?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Head:
    """One head of one layer; layers and heads are counted from 0."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"


def layers_of(kind: str, config: ModelConfig) -> int:
    """Layers that have attention of this kind."""
    return config.encoder_layers if kind == "encoder" else config.decoder_layers


def parse_heads(text: str, config: ModelConfig) -> list[Head]:
    """The head called `text`, as in "encoder.5.3", or for "encoder.5" all of that layer's.

    Raises `RequestError` when it has neither form or the model has no such head, and says which
    it has.
    """
    match = _NAME.fullmatch(text)
    if match is None or match[1] not in KINDS:
        raise RequestError(
            f"{text!r} names no head: write KIND.LAYER.HEAD, such as cross.0.1, or KIND.LAYER for "
            f"a layer; KIND is one of {', '.join(KINDS)}"
        )
    kind, layer = match[1], int(match[2])
    layers, heads = layers_of(kind, config), config.heads
    if layer >= layers:
        raise RequestError(f"{text}: {kind} has layers 0 to {layers - 1}, and no layer {layer}")
    if match[3] is None:
        return [Head(kind=kind, layer=layer, head=head) for head in range(heads)]
    head = int(match[3])
    if head >= heads:
        raise RequestError(f"{text}: a layer has heads 0 to {heads - 1}, and no head {head}")
    return [Head(kind=kind, layer=layer, head=head)]


def every_head(config: ModelConfig) -> list[Head]:
    """All heads: of the encoder, then of the decoder, then of cross-attention."""
    return [
        Head(kind=kind, layer=layer, head=head)
        for kind in KINDS
        for layer in range(layers_of(kind, config))
        for head in range(config.heads)
    ]


def without_heads(model: Transformer, heads: Iterable[Head]) -> Transformer:
    """A model to whose sums these heads add nothing: their rows of W^O are zero (section 3.2.2).

    They still attend, and nothing else is changed.
    """
    masked: dict[str, np.ndarray] = {}
    for head in heads:
        stack, sublayer = KINDS[head.kind]
        name = f"{stack}.{sublayer}.out"
        shape = (layers_of(head.kind, model.config), model.config.heads)
        masked.setdefault(name, np.zeros(shape, bool))[head.layer, head.head] = True

    def mask(path: tuple, leaf: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
        if name not in masked:
            return leaf
        return jnp.where(masked[name][:, :, None, None], jnp.zeros((), leaf.dtype), leaf)

    return jax.tree_util.tree_map_with_path(mask, model)
