"""How attention is computed, given queries, keys, values and who may see whom."""

import jax.numpy as jnp

from transduce.arrays import Array, Bool, Float

MASKED = -1e9
"""The score of what may not be seen. Finite, so that a row that sees nothing stays finite."""


def attend(
    queries: Float[Array, "B T N H"],
    keys: Float[Array, "B S N H"],
    values: Float[Array, "B S N J"],
    visible: Bool[Array, "B T S"],
) -> Float[Array, "B T N J"]:
    """softmax(Q K^T / sqrt(d_k)) V for each head (equation 1), the softmax in float32 or wider."""
    weights = attention_weights(queries, keys, visible)
    return jnp.einsum("bnts,bsnj->btnj", weights.astype(values.dtype), values)


def attention_weights(
    queries: Float[Array, "B T N H"], keys: Float[Array, "B S N H"], visible: Bool[Array, "B T S"]
) -> Float[Array, "B N T S"]:
    """The softmax of equation 1: over S it sums to 1, and is 0 where nothing may be seen."""
    # The scale is applied to the queries, the smaller of the operands it could be applied to.
    queries = queries * queries.shape[-1] ** -0.5
    scores = jnp.einsum("btnh,bsnh->bnts", queries, keys)
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    scores = jnp.where(visible[:, None], scores, MASKED)
    scores = scores - jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores)
    return weights / jnp.sum(weights, axis=-1, keepdims=True)
