"""The decoder one piece at a time, for search."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Bool, Float, Int, Tokens
from transduce.model.cached import Written
from transduce.model.layers import RECENT, DecoderLayer, LayerCache, LayerMemory
from transduce.model.transformer import Transformer


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Memory:
    """All that decoding needs of B sources."""

    layers: tuple[LayerMemory, ...]
    visible: Bool[Array, "B S"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class DecoderCache:
    """What the decoder keeps between steps, for K hypotheses of each of B sentences."""

    layers: tuple[LayerCache, ...]
    memory: Memory
    written: Int[Array, "B"]
    """Pieces whose keys and values there are."""

    def reorder(self, beams: Int[Array, "B K"]) -> "DecoderCache":
        """Hypothesis k of a sentence becomes what hypothesis beams[k] was.

        Copies only those that move. One that others become must stay what it is: beams[k] is k
        or a place whose own entry names itself.
        """
        hypotheses = beams.shape[1]
        moves = beams != jnp.arange(hypotheses)[None]
        # Moves first, and among them those of rows that have old pieces to be copied.
        old = moves & (self.written > _window(self.layers))[:, None]
        order = jnp.argsort(-(moves.astype(jnp.int32) + old).reshape(-1), stable=True)

        def copy(number: Array, parts: list[Written]) -> list[Written]:
            row, to = jnp.divmod(order[number], hypotheses)

            def copied(x: Array) -> Array:
                part = lax.dynamic_slice(x, (row, beams[row, to], 0, 0, 0), (1, 1, *x.shape[2:]))
                return lax.dynamic_update_slice(x, part, (row, to, 0, 0, 0))

            return jax.tree.map(copied, parts)

        recent = [layer.recent for layer in self.layers]
        recent = lax.fori_loop(0, jnp.sum(moves), copy, recent)
        olds = [layer.old for layer in self.layers]
        olds = lax.fori_loop(0, jnp.sum(old), copy, olds)
        return replace(self, layers=_layers(olds, recent))

    def with_room(self) -> "DecoderCache":
        """Recent pieces of rows where they are all written are added to the old ones."""
        window = _window(self.layers)
        full = (self.written > 0) & (self.written % window == 0)
        order = jnp.argsort(~full, stable=True)

        def move(number: Array, layers: tuple[LayerCache, ...]) -> tuple[LayerCache, ...]:
            row = order[number]
            first = (self.written[row] - window).astype(row.dtype)

            def moved(old: Array, recent: Array) -> Array:
                part = lax.dynamic_slice(recent, (row, 0, 0, 0, 0), (1, *recent.shape[1:]))
                return lax.dynamic_update_slice(old, part, (row, 0, 0, first, 0))

            return tuple(
                replace(layer, old=jax.tree.map(moved, layer.old, layer.recent)) for layer in layers
            )

        if not self.layers[0].old.keys.size:
            return self
        # The recent pieces go through the loop too: used beside it, they would be copied.
        return replace(self, layers=lax.fori_loop(0, jnp.sum(full), move, self.layers))


def _window(layers: tuple[LayerCache, ...]) -> int:
    return layers[0].recent.keys.shape[3]


def _layers(olds: list[Written], recent: list[Written]) -> tuple[LayerCache, ...]:
    pairs = zip(olds, recent, strict=True)
    return tuple(LayerCache(old=old, recent=new) for old, new in pairs)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Stepper:
    """A model laid out for steps.

    The decoder's layers are apart: of a stack, each step would copy them out.
    """

    model: Transformer
    """Without its decoder's stack."""
    layers: tuple[DecoderLayer, ...]

    @classmethod
    def of(cls, model: Transformer) -> "Stepper":
        layers = tuple(
            jax.tree.map(lambda leaf, index=index: leaf[index], model.decoder)
            for index in range(model.config.decoder_layers)
        )
        # A copy of the modules, not of their arrays.
        model = jax.tree.map(lambda leaf: leaf, model)
        del model.decoder
        return cls(model=model, layers=layers)

    def read(self, source: Tokens) -> Memory:
        """Encodes `source`."""
        memory = self.model.encode(source)
        layers = [layer.memory(memory, positions=source.positions) for layer in self.layers]
        return Memory(layers=tuple(layers), visible=source.segments != 0)

    def start(self, memory: Memory, *, beams: int, length: int) -> DecoderCache:
        """Room for `length` pieces of `beams` hypotheses a source."""
        config, rows = self.model.config, memory.visible.shape[0]

        window = min(RECENT, length)

        def empty(room: int) -> Written:
            shape = (rows, beams, config.heads, room)
            dtype = self.model.dtype
            return Written(
                keys=jnp.zeros((*shape, config.d_k), dtype),
                values=jnp.zeros((*shape, config.d_v), dtype),
            )

        old = (-(-length // window) - 1) * window
        layers = [LayerCache(old=empty(old), recent=empty(window)) for _ in self.layers]
        written = jnp.zeros(rows, jnp.int32)
        return DecoderCache(layers=tuple(layers), memory=memory, written=written)

    def step(
        self, ids: Int[Array, "B K"], positions: Int[Array, "B"], cache: DecoderCache
    ) -> tuple[Float[Array, "B K V"], Float[Array, "B K S"], DecoderCache]:
        """Logits of the piece after `ids`, which are the hypotheses' pieces at `positions`.

        Equal to teacher forcing over the same pieces. Also gives the attention to the source that
        decided: that of the last layer but one, its heads averaged, which has been found to align
        best (Garg et al. 2019).
        """
        # A row that begins anew has nothing written.
        cache = replace(cache, written=positions.astype(cache.written.dtype)).with_room()
        x = self.model.embed(ids, jnp.broadcast_to(positions[:, None], ids.shape))
        updated, attention = [], []
        for layer, layer_cache, memory in zip(
            self.layers, cache.layers, cache.memory.layers, strict=True
        ):
            x, layer_cache, weights = layer.step(
                x,
                layer_cache,
                memory,
                positions=positions,
                memory_visible=cache.memory.visible,
            )
            updated.append(layer_cache)
            attention.append(weights)
        if self.model.config.norm == "pre":
            x = self.model.decoder_norm(x)
        logits = self.model.logits(x)
        cache = replace(cache, layers=tuple(updated), written=cache.written + 1)
        return logits, attention[-2:][0], cache
