"""Who may see whom in attention."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Bool, Int, Tokens


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Visible:
    """A position sees those of its own sequence, or of its partner; padding is seen by none.

    Kept as segments, from which a kernel can make what it needs of the mask, and no more.
    """

    queries: Int[Array, "B T"]
    """Segments of the positions that look."""
    keys: Int[Array, "B S"]
    """Segments of the positions that are looked at."""
    causal: bool = field(default=False, metadata={"static": True})
    """A position sees no later one of its row (section 3.2.3)."""

    def mask(self, *, row: Array | int = 0, column: Array | int = 0) -> Bool[Array, "B T S"]:
        """Whether position t sees position s.

        Of parts of rows, their first positions are numbers `row` and `column`.
        """
        seen = (self.queries[:, :, None] == self.keys[:, None, :]) & (self.keys != 0)[:, None, :]
        if self.causal:
            rows = row + jnp.arange(self.queries.shape[1])
            columns = column + jnp.arange(self.keys.shape[1])
            seen &= (rows[:, None] >= columns[None, :])[None]
        return seen


def among(tokens: Tokens, *, causal: bool = False) -> Visible:
    """Of self-attention."""
    return Visible(queries=tokens.segments, keys=tokens.segments, causal=causal)
