"""The optimiser and the schedule of section 5.3, as an Optax chain."""

import jax
import jax.numpy as jnp
import optax

from transduce.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, *, d_model: int) -> optax.Schedule:
    """Rises linearly over `warmup_steps` updates to its peak, then falls as step^-0.5.

    Equation 3: d_model^-0.5 min(step^-0.5, step warmup^-1.5), whose peak
    d_model^-0.5 warmup^-0.5 may be given outright. The first update is step 1; Optax counts
    from 0.
    """
    warmup = config.warmup_steps
    peak = config.peak_learning_rate or (d_model * warmup) ** -0.5

    def schedule(count: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(count, jnp.float32) + 1
        return peak * jnp.minimum(step / warmup, jnp.sqrt(warmup / step))

    return schedule


def make_optimizer(config: OptimizerConfig, *, d_model: int) -> optax.GradientTransformation:
    """Clipping if asked, then Adam, then the schedule."""
    clip = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
    adam = optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon)
    rate = optax.scale_by_learning_rate(learning_rate(config, d_model=d_model))
    return optax.chain(*clip, adam, rate)
