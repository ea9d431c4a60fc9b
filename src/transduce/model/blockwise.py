"""Attention to keys that come a block at a time: what blocks give, and how it adds up.

What a query gets is summed relative to the largest score so far (Milakov and Gimelshein 2018).
Going backward the weights of a block are made anew from the logarithm of their sum over all blocks
(Dao et al. 2022). Queries are scaled already; sums are float32 or wider.
"""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Bool, Float


def block_scores(
    queries: Float[Array, "B N T H"], keys: Float[Array, "B N S H"], seen: Bool[Array, "B T S"]
) -> Float[Array, "B N T S"]:
    """Minus infinity where nothing may be seen."""
    return jnp.where(seen[:, None], _product("bnth,bnsh->bnts", queries, keys), -jnp.inf)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Mixing:
    """What queries have got from the blocks so far."""

    mixed: Float[Array, "B N T J"]
    """Values weighted by exp(score - largest)."""
    total: Float[Array, "B N T"]
    """Of those weights."""
    largest: Float[Array, "B N T"]

    @classmethod
    def start(cls, queries: Float[Array, "B N T H"], *, width: int) -> Self:
        """Before the first block of values, which are `width` wide."""
        wide = jnp.promote_types(queries.dtype, jnp.float32)
        shape = queries.shape[:3]
        return cls(
            mixed=jnp.zeros((*shape, width), wide),
            total=jnp.zeros(shape, wide),
            # Finite, so that nothing minus it is NaN.
            largest=jnp.full(shape, jnp.finfo(wide).min, wide),
        )

    def add(self, scores: Float[Array, "B N T S"], values: Float[Array, "B N S J"]) -> Self:
        """And from one more."""
        largest = jnp.maximum(self.largest, jnp.max(scores, axis=-1))
        weights = jnp.exp(scores - largest[..., None])
        kept = jnp.exp(self.largest - largest)
        new = _product("bnts,bnsj->bntj", weights.astype(values.dtype), values)
        return type(self)(
            mixed=kept[..., None] * self.mixed + new,
            total=kept * self.total + jnp.sum(weights, axis=-1),
            largest=largest,
        )

    def result(self) -> tuple[Float[Array, "B N T J"], Float[Array, "B N T"]]:
        """The mixed values, and the logarithm of the sum that each query's softmax divides by.

        A query that saw nothing gets zeros.
        """
        total = jnp.where(self.total > 0, self.total, 1)
        return self.mixed / total[..., None], self.largest + jnp.log(total)


def mean_slope(
    slopes: Float[Array, "B N T J"], mixed: Float[Array, "B N T J"]
) -> Float[Array, "B N T"]:
    """What the softmax takes from the gradient of each of a query's weights.

    `slopes` are the gradients of the `mixed` values.
    """
    wide = jnp.promote_types(mixed.dtype, jnp.float32)
    return jnp.sum(slopes.astype(wide) * mixed.astype(wide), axis=-1)


def block_gradients(
    scores: Float[Array, "B N T S"],
    log_totals: Float[Array, "B N T"],
    slopes: Float[Array, "B N T J"],
    means: Float[Array, "B N T"],
    *,
    queries: Float[Array, "B N T H"],
    keys: Float[Array, "B N S H"],
    values: Float[Array, "B N S J"],
) -> tuple[Float[Array, "B N T H"], Float[Array, "B N S H"], Float[Array, "B N S J"]]:
    """Of queries, keys and values: what goes through the scores of this block.

    `log_totals` are those of `Mixing.result`, `means` those of `mean_slope`.
    """
    weights = jnp.exp(scores - log_totals[..., None])
    of_values = _product("bnts,bntj->bnsj", weights.astype(slopes.dtype), slopes)
    of_weights = _product("bntj,bnsj->bnts", slopes, values)
    of_scores = (weights * (of_weights - means[..., None])).astype(queries.dtype)
    of_keys = _product("bnts,bnth->bnsh", of_scores, queries)
    of_queries = _product("bnts,bnsh->bnth", of_scores, keys)
    return of_queries, of_keys, of_values


def _product(letters: str, left: Array, right: Array) -> Array:
    wide = jnp.promote_types(left.dtype, jnp.float32)
    return jnp.einsum(letters, left, right, preferred_element_type=wide)
