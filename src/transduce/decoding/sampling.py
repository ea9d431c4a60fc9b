"""Hypotheses drawn at random, by the same step functions as search."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import EOS, Array, Float, Int
from transduce.decoding.constraints import permitted_pieces
from transduce.decoding.search import Hypotheses, Rules, Search, State, Step, last_pieces
from transduce.decoding.top import IMPOSSIBLE


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """From which distribution the next piece is drawn."""

    temperature: float
    """Logits are divided by it."""
    top_k: int = 0
    """Only the so many most probable pieces, and those as probable as their last; 0: all."""
    top_p: float = 1.0
    """Only the most probable pieces that together have this probability, the one that reaches it
    included (Holtzman et al. 2020); 1: all."""
    seed: int = 1


def sample[S: State](
    step: Step[S],
    state: S,
    search: Search,
    rules: Rules,
    *,
    lines: Int[Array, "B"],
    sampling: Sampling,
) -> tuple[Search, S]:
    """One more piece for every row that is not done.

    A row draws K hypotheses, each for itself and in no order, from what its rules permit. The
    draws depend on the seed, the row's number in `lines`, the hypothesis and the place alone.
    Log-probabilities are the model's own, as in forced scoring, whatever was drawn from.
    """
    beams, room = search.live.ids.shape[1:]
    logits, _, state = step(last_pieces(search), search.lengths, state)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    permitted = permitted_pieces(
        rules.constraints,
        search.live.ids,
        search.lengths,
        width=logits.shape[-1],
        ended=search.lengths >= rules.limits,
    )
    offered = narrowed(jnp.where(permitted, logits, IMPOSSIBLE), sampling)

    def draw(line: Array, place: Array, offered: Array) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(sampling.seed), line), place)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(beams))
        return jax.vmap(jax.random.categorical)(keys, offered)

    pieces = jax.vmap(draw)(lines, search.lengths, offered)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    gains = jnp.take_along_axis(logits, pieces[..., None], axis=-1)[..., 0] - log_z

    here = jnp.arange(room)[None, None] == search.lengths[:, None, None]
    length = search.lengths + 1
    totals = jnp.where(search.lengths[:, None] == 0, 0.0, search.live.totals) + gains
    live = Hypotheses(
        ids=jnp.where(here, pieces[..., None], search.live.ids),
        lengths=jnp.broadcast_to(length[:, None], pieces.shape),
        log_probabilities=jnp.where(here, gains[..., None], search.live.log_probabilities),
        totals=totals,
        scores=totals,
    )
    # Logits that are not finite, here or before, give no hypothesis: the row is done without it.
    failed = ~jnp.isfinite(totals)
    ends = (pieces == EOS) & ~search.done[:, None] & (search.finished.lengths == 0) & ~failed
    finished = jax.tree.map(
        lambda old, new: jnp.where(ends.reshape(*ends.shape, *[1] * (old.ndim - 2)), new, old),
        search.finished,
        live,
    )
    search = replace(
        search,
        lengths=jnp.where(search.done, search.lengths, length),
        live=live,
        finished=finished,
        done=search.done | jnp.all((finished.lengths > 0) | failed, axis=1),
    )
    return search, state


def narrowed(logits: Float[Array, "B K V"], sampling: Sampling) -> Float[Array, "B K V"]:
    """The logits to draw from."""
    logits = logits / sampling.temperature
    if sampling.top_k and sampling.top_k < logits.shape[-1]:
        least = lax.top_k(logits, sampling.top_k)[0][..., -1:]
        logits = jnp.where(logits < least, IMPOSSIBLE, logits)
    if sampling.top_p < 1:
        ranked = -jnp.sort(-logits, axis=-1)
        before = jnp.cumsum(jax.nn.softmax(ranked, axis=-1), axis=-1)
        before = jnp.pad(before[..., :-1], ((0, 0), (0, 0), (1, 0)))
        least = jnp.min(jnp.where(before < sampling.top_p, ranked, jnp.inf), axis=-1)
        logits = jnp.where(logits < least[..., None], IMPOSSIBLE, logits)
    return logits
