"""The training objective (section 5.4): cross-entropy with label smoothing, summed over tokens."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Batch, Float
from transduce.model.layers import Key
from transduce.model.transformer import Remat, Transformer
from transduce.parallel.mesh import gathered
from transduce.training.cross_entropy import cross_entropy


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
    missed: Float[Array, ""]
    """`attention_missed`, the mean over layers; 0 where attention is not guided."""
    aligned: Float[Array, ""]
    """Tokens of which `missed` is the sum."""


def objective(
    model: Transformer,
    batch: Batch,
    *,
    smoothing: float,
    chunks: int,
    key: Key,
    remat: Remat = "none",
    guided: bool = False,
) -> Sums:
    """Totals for a batch; dropout is on when there is a `key`.

    Sums, not means: micro-batches and devices then weigh by their target tokens. `chunks` is
    that of `cross_entropy`; `guided`, for a batch that has words, makes `missed`.
    """
    hidden, missed = model.hidden_and_missed(batch, key=key, remat=remat, guided=guided)
    table = gathered(model.table, model.dtype)
    wide = jnp.promote_types(model.dtype, jnp.float32)
    weights = (batch.target.segments != 0).astype(wide)
    loss, log_loss = cross_entropy(hidden, table, batch.target.ids, weights, smoothing, chunks)
    return Sums(
        loss=loss,
        log_loss=log_loss,
        tokens=jnp.sum(weights),
        source_tokens=jnp.sum((batch.source.segments != 0).astype(wide)),
        # The pairs of a row are numbered from 1.
        pairs=jnp.sum(jnp.max(batch.target.segments, axis=-1).astype(wide)),
        missed=missed,
        aligned=jnp.sum((batch.target.words != 0).astype(wide)) if guided else jnp.zeros(()),
    )


def perplexity(log_loss: float, tokens: float) -> float:
    """exp of the mean cross-entropy (section 6.1); infinite when that is beyond a float."""
    mean = log_loss / tokens
    return math.exp(mean) if mean < 700 else math.inf
