"""The training objective (section 5.4): cross-entropy with label smoothing, summed over tokens."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Batch, Float
from transduce.model.layers import Key
from transduce.model.transformer import Transformer


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Sums:
    """Totals over the real target tokens of a batch; those of two batches add up."""

    loss: Float[Array, ""]
    """Smoothed cross-entropy, in nats."""
    log_loss: Float[Array, ""]
    """Cross-entropy without smoothing; exp of its mean is the perplexity (section 6.1)."""
    tokens: Float[Array, ""]
    source_tokens: Float[Array, ""]
    pairs: Float[Array, ""]
    """Sentence pairs."""


def objective(model: Transformer, batch: Batch, *, smoothing: float, key: Key) -> Sums:
    """Totals for a batch; dropout is on when there is a `key`.

    Sums, not means: micro-batches and devices then weigh by their target tokens.
    """
    logits = model(batch, key=key)
    return cross_entropy(logits, batch, smoothing=smoothing)


def cross_entropy(logits: Float[Array, "B T V"], batch: Batch, *, smoothing: float) -> Sums:
    """Cross-entropy against (1 - e) one_hot(label) + e / V (Szegedy et al. 2015, equation 7).

    With log Z the logarithm of the softmax's denominator this is
    log Z - (1 - e) logit(label) - e mean(logits), and nothing as large as the logits is kept.
    """
    labels = batch.target.ids
    weights = (batch.target.segments != 0).astype(logits.dtype)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    # A one-hot contraction, not a gather, so that the vocabulary may be divided over devices.
    hot = labels[..., None] == jnp.arange(logits.shape[-1])[None, None]
    chosen = jnp.sum(jnp.where(hot, logits, 0), axis=-1)
    log_loss = log_z - chosen
    loss = log_z - (1 - smoothing) * chosen - smoothing * jnp.mean(logits, axis=-1)
    return Sums(
        loss=jnp.sum(loss * weights),
        log_loss=jnp.sum(log_loss * weights),
        tokens=jnp.sum(weights),
        source_tokens=jnp.sum((batch.source.segments != 0).astype(logits.dtype)),
        # The pairs of a row are numbered from 1.
        pairs=jnp.sum(jnp.max(batch.target.segments, axis=-1).astype(logits.dtype)),
    )


def perplexity(log_loss: float, tokens: float) -> float:
    """exp of the mean cross-entropy (section 6.1); infinite when that is beyond a float."""
    mean = log_loss / tokens
    return math.exp(mean) if mean < 700 else math.inf
