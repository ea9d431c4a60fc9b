"""The best next pieces of all hypotheses of a row, in few passes over the vocabulary."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Bool, Float, Int

IMPOSSIBLE = -1e9
"""The log-probability of what is no hypothesis; finite, so that sums of it stay finite."""

_BLOCK = 128


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Best:
    """C candidates a row, best first, earlier hypotheses and pieces first where they are equal."""

    totals: Float[Array, "B C"]
    """Log-probability of the hypothesis with the piece."""
    log_probabilities: Float[Array, "B C"]
    """Of the piece."""
    parents: Int[Array, "B C"]
    """The hypothesis that it goes on from."""
    pieces: Int[Array, "B C"]


def best_pieces(
    logits: Float[Array, "B K V"],
    totals: Float[Array, "B K"],
    permitted: Bool[Array, "#B #K V"],
    *,
    count: int,
) -> Best:
    """The `count` best of all hypotheses of a row with each permitted piece after them.

    Fewer when there are not so many. Exact: the vocabulary is cut into blocks, and the best
    `count` pieces lie in the `count` blocks with the greatest maxima.
    """
    rows, beams, width = logits.shape
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    log_z = jax.nn.logsumexp(logits, axis=-1)
    offered = jnp.where(permitted, logits, IMPOSSIBLE)
    block = max(size for size in range(1, _BLOCK + 1) if width % size == 0)
    blocks = offered.reshape(rows, beams, width // block, block)
    maxima = totals[..., None] + (jnp.max(blocks, axis=-1) - log_z[..., None])
    maxima = maxima.reshape(rows, -1)
    _, index = lax.top_k(maxima, min(count, maxima.shape[1]))
    index = jnp.sort(index)  # as they stand, for ties
    parents = index // (width // block)
    found = jnp.take_along_axis(blocks.reshape(rows, -1, block), index[..., None], axis=1)
    gains = found - jnp.take_along_axis(log_z, parents, axis=1)[..., None]
    sums = jnp.take_along_axis(totals, parents, axis=1)[..., None] + gains
    sums = sums.reshape(rows, -1)
    top, places = lax.top_k(sums, min(count, sums.shape[1]))
    chosen = jnp.take_along_axis(index, places // block, axis=1)
    return Best(
        totals=top,
        log_probabilities=jnp.take_along_axis(gains.reshape(rows, -1), places, axis=1),
        parents=chosen // (width // block),
        pieces=chosen % (width // block) * block + places % block,
    )
