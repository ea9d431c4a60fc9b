"""What array shapes and ids mean, everywhere.

Shapes are written with these letters, in docstrings and in jaxtyping annotations:

    B batch (rows)      S source positions    T target positions    L layers
    D model width       F feed-forward width  N attention heads     H width of a head
    V vocabulary        K beams
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

__all__ = ["BOS", "EOS", "PAD", "UNK", "Array", "Batch", "Bool", "Float", "Int", "Tokens"]

Array = jax.Array

PAD = 0
"""Fills rows; never predicted, never attended to."""
BOS = 1
"""What the decoder reads before the first target piece."""
EOS = 2
"""Ends every source and every target sequence."""
UNK = 3
"""Stands for a character that the vocabulary cannot spell."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Rows of one or more sequences packed end to end."""

    ids: Int[Array, "B T"]
    segments: Int[Array, "B T"]
    """1, 2, ... for the sequences of a row, 0 where there is none."""
    positions: Int[Array, "B T"]
    """Counted from 0 within each sequence."""
    words: Int[Array, "B T"] | None = None
    """Where source and target are known to be aligned: the number, within its sequence and from 1,
    of the aligned word that a piece is of, 0 where it is of none. Equal numbers belong together."""

    @classmethod
    def single(cls, ids: Int[Array, "B T"]) -> "Tokens":
        """Rows that hold one sequence each, followed by PAD."""
        return cls(
            ids=ids,
            segments=(ids != PAD).astype(jnp.int32),
            positions=jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape),
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Batch:
    """Packed sentence pairs; equal segments of a row's source and target belong together.

    Every sequence ends with EOS. The target's ids are what is to be predicted.
    """

    source: Tokens
    target: Tokens

    def decoder_inputs(self) -> Tokens:
        """The target shifted right by one within each sequence, BOS first (section 3.1).

        `words` stay those of the pieces that are to be predicted.
        """
        target = self.target
        shifted = jnp.pad(target.ids[:, :-1], ((0, 0), (1, 0)))
        ids = jnp.where(target.positions == 0, BOS, shifted)
        return Tokens(
            ids=jnp.where(target.segments == 0, PAD, ids),
            segments=target.segments,
            positions=target.positions,
            words=target.words,
        )
