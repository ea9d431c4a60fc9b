"""Several models as one: the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Float, Int
from transduce.model.stepping import DecoderCache, Stepper


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Caches:
    """One for each model."""

    caches: tuple[DecoderCache, ...]

    def reorder(self, beams: Int[Array, "B K"]) -> "Caches":
        return Caches(caches=tuple(cache.reorder(beams) for cache in self.caches))


def step_all(
    steppers: Sequence[Stepper],
    ids: Int[Array, "B K"],
    positions: Int[Array, "B"],
    state: Caches,
) -> tuple[Float[Array, "B K V"], Float[Array, "B K S"], Caches]:
    """Logits of the mean probabilities, and the mean attention to the source."""
    logits, attention, caches = zip(
        *(
            stepper.step(ids, positions, cache)
            for stepper, cache in zip(steppers, state.caches, strict=True)
        ),
        strict=True,
    )
    mean_attention = jnp.mean(jnp.stack(attention), axis=0)
    return mean_logits(logits), mean_attention, Caches(caches=caches)


def mean_logits(logits: Sequence[Float[Array, "*B V"]]) -> Float[Array, "*B V"]:
    """log((p_1 + ... + p_M) / M), p_m the softmax of logits m; one model's logits as they are."""
    if len(logits) == 1:
        return logits[0]
    each = jnp.stack([jax.nn.log_softmax(one, axis=-1) for one in logits])
    return jax.nn.logsumexp(each, axis=0) - jnp.log(float(len(logits)))
