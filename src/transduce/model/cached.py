"""Attention of one query a hypothesis, over keys and values that are kept from step to step."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import Array, Bool, Float
from transduce.model.kernels import masked_softmax, scaled


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Written:
    """Keys and values of pieces that hypotheses have written, each its own."""

    keys: Float[Array, "B K N T H"]
    values: Float[Array, "B K N T J"]


def attend_to_written(
    queries: Float[Array, "B K N H"],
    old: Written,
    new: Written,
    *,
    seen_old: Bool[Array, "B T"],
    seen_new: Bool[Array, "B W"],
) -> Float[Array, "B K N J"]:
    """Equation 1 for one query of each of K hypotheses, over keys of its own.

    The old ones are not read when no row sees one. What that leaves out is exactly zero, so no
    row's values depend on whether another sees old ones.
    """
    queries = scaled(queries)
    any_old = jnp.any(seen_old)

    def scores(part: Written) -> Array:
        return jnp.einsum("bknh,bknth->bknt", queries, part.keys)

    def mixed(part: Written, weights: Array) -> Array:
        return jnp.einsum("bknt,bkntj->bknj", weights.astype(part.values.dtype), part.values)

    shape = (*queries.shape[:3], seen_old.shape[1])
    zeros = jnp.zeros(shape, queries.dtype)
    old_scores = lax.cond(any_old, scores, lambda _: zeros, old)
    seen = jnp.concatenate([seen_old, seen_new], axis=1)[:, None, None]
    weights = masked_softmax(jnp.concatenate([old_scores, scores(new)], axis=-1), seen)
    old_weights, new_weights = jnp.split(weights, [seen_old.shape[1]], axis=-1)
    from_new = mixed(new, new_weights)
    from_old = lax.cond(
        any_old, lambda part: mixed(part, old_weights), lambda _: jnp.zeros_like(from_new), old
    )
    return from_old + from_new


def attend_to_memory(
    queries: Float[Array, "B K N H"],
    keys: Float[Array, "B N S H"],
    values: Float[Array, "B N S J"],
    visible: Bool[Array, "B S"],
) -> tuple[Float[Array, "B K N J"], Float[Array, "B K N S"]]:
    """Equation 1 for one query of each of K hypotheses, over keys that they share; and its softmax.

    No key is copied for a hypothesis. One product of matrices for all K, so thin and so many, is
    half as fast on a CPU as K products with vectors.
    """
    queries = scaled(queries)
    beams = range(queries.shape[1])
    scores = [jnp.einsum("bnh,bnsh->bns", queries[:, beam], keys) for beam in beams]
    weights = masked_softmax(jnp.stack(scores, axis=1), visible[:, None, None])
    narrow = weights.astype(values.dtype)
    mixed = [jnp.einsum("bns,bnsj->bnj", narrow[:, beam], values) for beam in beams]
    return jnp.stack(mixed, axis=1), weights
