"""What may be written next: masks over the next piece, all of one protocol.

A constraint only forbids: it takes no probability from a piece and gives it to another. At its
limit a hypothesis ends whatever constraints say, and one for which nothing is permitted ends too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp

from transduce.arrays import BOS, EOS, PAD, Array, Bool, Int


class Constraint(Protocol):
    """A pytree whose arrays have a row of their own for each row of the search, as first axis."""

    def narrow(
        self, permitted: Bool[Array, "#B #K V"], ids: Int[Array, "B K T"], lengths: Int[Array, "B"]
    ) -> Bool[Array, "#B #K V"]:
        """What of `permitted` may follow the first `lengths` of `ids`, which are no EOS."""
        ...


def permitted_pieces(
    constraints: Sequence[Constraint],
    ids: Int[Array, "B K T"],
    lengths: Int[Array, "B"],
    *,
    width: int,
    ended: Bool[Array, "B"],
) -> Bool[Array, "#B #K V"]:
    """What `constraints`, one after the other, leave of `width` pieces.

    EOS alone where that is nothing, and where a row has ended.
    """
    permitted = jnp.ones((1, 1, width), bool)
    for constraint in constraints:
        permitted = constraint.narrow(permitted, ids, lengths)
    end = (jnp.arange(width) == EOS)[None, None]
    permitted = permitted | (end & ~jnp.any(permitted, axis=-1, keepdims=True))
    return jnp.where(ended[:, None, None], end, permitted)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Only pieces that the vocabulary has, without PAD, BOS and the banned ones."""

    vocabulary: int = field(metadata={"static": True})
    """Ids from here on name rows of the table, but no piece."""
    banned: tuple[int, ...] = field(default=(), metadata={"static": True})

    def narrow(self, permitted: Array, ids: Array, lengths: Array) -> Array:
        pieces = jnp.arange(permitted.shape[-1])[None, None]
        permitted = permitted & (pieces < self.vocabulary)
        for piece in (PAD, BOS, *self.banned):
            permitted &= pieces != piece
        return permitted


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MinimumLength:
    """No EOS before so many pieces."""

    minimum: Int[Array, "B"]

    def narrow(self, permitted: Array, ids: Array, lengths: Array) -> Array:
        early = (lengths < self.minimum)[:, None, None]
        return permitted & (~early | (jnp.arange(permitted.shape[-1]) != EOS)[None, None])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class ForcedPrefix:
    """The first pieces are given, whatever the constraints before this one say of them."""

    prefix: Int[Array, "B P"]
    length: Int[Array, "B"]

    def narrow(self, permitted: Array, ids: Array, lengths: Array) -> Array:
        place = jnp.minimum(lengths, self.prefix.shape[1] - 1)[:, None]
        given = jnp.take_along_axis(self.prefix, place, axis=1)[:, None]
        free = (lengths >= self.length)[:, None, None]
        return jnp.where(free, permitted, jnp.arange(permitted.shape[-1])[None, None] == given)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class NoRepeatedNgram:
    """No n pieces, one after the other, twice in a hypothesis."""

    n: int = field(metadata={"static": True})

    def narrow(self, permitted: Array, ids: Array, lengths: Array) -> Array:
        rows, beams, room = ids.shape
        width, before = permitted.shape[-1], self.n - 1
        if room <= before:
            return permitted
        # The last n - 1 pieces against those before each place that is written.
        latest = lengths[:, None, None] - before + jnp.arange(before)[None, None]
        latest = jnp.take_along_axis(ids, jnp.maximum(latest, 0), axis=2)  # [B, K, n - 1]
        places = jnp.arange(before, room)
        windows = places[:, None] - before + jnp.arange(before)[None]  # [places, n - 1]
        same = jnp.all(ids[:, :, windows] == latest[:, :, None], axis=-1)
        same &= (places[None] < lengths[:, None])[:, None]
        # Unwritten places point beyond the vocabulary, where nothing is marked.
        follows = jnp.where(same, ids[:, :, before:], width)
        row, beam = jnp.meshgrid(jnp.arange(rows), jnp.arange(beams), indexing="ij")
        blocked = jnp.zeros((rows, beams, width), bool)
        blocked = blocked.at[row[..., None], beam[..., None], follows].set(True, mode="drop")
        return permitted & ~blocked
