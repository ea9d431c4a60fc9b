"""Attention that is told where to look (Chen et al. 2016): the loss of one head of cross-attention.

The paper's model finds out by itself which words of source and target belong together. Where that
is known, as it is of words and their tags in a tree, a part of the loss can say so; the model and
what it computes stay the same.
"""

import jax
import jax.numpy as jnp

from transduce.arrays import Array, Float, Int
from transduce.model.kernels import MASKED, scaled
from transduce.model.visibility import Visible
from transduce.parallel.mesh import constrain


def attention_missed(
    queries: Float[Array, "B T H"],
    keys: Float[Array, "B S H"],
    visible: Visible,
    *,
    target_words: Int[Array, "B T"],
    source_words: Int[Array, "B S"],
) -> Float[Array, ""]:
    """-log of the attention that a position pays to the pieces of its word, summed, in nats.

    Over positions whose word is not 0 and has a piece in the source. The softmax is that of
    equation 1.
    """
    # Positions of the target may be divided over devices; each looks at the whole source.
    keys = constrain(keys, "batch", None, None)
    source_words = constrain(source_words, "batch", None)
    visible = Visible(queries=visible.queries, keys=constrain(visible.keys, "batch", None))
    scores = jnp.einsum("bth,bsh->bts", scaled(queries), keys)
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    scores = jnp.where(visible.mask(), scores, MASKED)
    belong = target_words[:, :, None] == source_words[:, None, :]
    belong &= visible.mask() & (target_words != 0)[:, :, None]
    all_of_it = jax.nn.logsumexp(scores, axis=-1)
    of_the_word = jax.nn.logsumexp(jnp.where(belong, scores, MASKED), axis=-1)
    return jnp.sum(jnp.where(jnp.any(belong, axis=-1), all_of_it - of_the_word, 0))
