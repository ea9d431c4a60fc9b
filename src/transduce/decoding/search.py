"""Beam search over scores and states; it knows no model and no text.

A hypothesis Y is scored by log P(Y) / penalty(|Y|) (section 6.1; Wu et al. 2016, equation 14),
|Y| counting its pieces and the EOS that ends it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import BOS, EOS, PAD, Array, Bool, Float, Int

IMPOSSIBLE = -1e9
"""The log-probability of what is no hypothesis; finite, so that sums of it stay finite."""


class State(Protocol):
    """What a step function keeps between pieces."""

    def reorder(self, beams: Int[Array, "B K"]) -> Self:
        """Hypothesis k of a row becomes what hypothesis beams[k] was."""
        ...


type Step[S: State] = Callable[
    [Int[Array, "B K"], Int[Array, ""], S], tuple[Float[Array, "B K V"], S]
]
"""(ids at a position, the position, state) to (logits of the next piece, state)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """K finished hypotheses a row, best first."""

    ids: Int[Array, "B K T"]
    """EOS included, then PAD."""
    lengths: Int[Array, "B K"]
    """EOS included; 0 where there are fewer than K hypotheses."""
    log_probabilities: Float[Array, "B K"]
    """Natural logarithm, the sum over all pieces and EOS."""
    scores: Float[Array, "B K"]
    """The log-probability over the length penalty; -inf where there is no hypothesis."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class _Search[S: State]:
    """The search after `length` pieces."""

    length: Int[Array, ""]
    live_ids: Int[Array, "B K T"]
    live_scores: Float[Array, "B K"]
    """Log-probabilities."""
    finished: Hypotheses
    done: Bool[Array, "B"]
    """Rows whose finished hypotheses no live one can beat; they change no more."""
    state: S


def length_penalty(length: Array, alpha: float) -> Array:
    """((5 + |Y|) / 6)^alpha."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search[S: State](
    step: Step[S],
    state: S,
    *,
    limits: Int[Array, "B"],
    beams: int,
    length: int,
    vocabulary: int,
    alpha: float,
) -> Hypotheses:
    """The best finished hypotheses of each row, from BOS on; one beam is greedy search.

    `limits` is the largest number of pieces before EOS of each row, at most `length` - 1; a
    hypothesis that reaches it can only end. The hypothesis of EOS alone is one like the others.
    Ids below `vocabulary` may be written, but for PAD and BOS; the probabilities are those of
    the whole softmax, as in forced scoring.

    A row goes on until its best live hypothesis, even at the most favourable length left, cannot
    beat its worst finished one. What a row finds does not depend on the other rows. It finds no
    hypothesis only where logits are not finite.
    """
    rows = limits.shape[0]
    empty = jnp.full((rows, beams, length), PAD, jnp.int32)
    impossible = jnp.full((rows, beams), IMPOSSIBLE, jnp.float32)
    search = _Search(
        length=jnp.zeros((), jnp.int32),
        live_ids=empty,
        # All K begin alike, so only the first may live.
        live_scores=impossible.at[:, 0].set(0.0),
        finished=Hypotheses(
            ids=empty,
            lengths=jnp.zeros((rows, beams), jnp.int32),
            log_probabilities=impossible,
            scores=jnp.full_like(impossible, -jnp.inf),
        ),
        done=jnp.zeros(rows, bool),
        state=state,
    )

    def unfinished(search: _Search[S]) -> Array:
        return ~jnp.all(search.done)

    def advance(search: _Search[S]) -> _Search[S]:
        return _advance(search, step, limits=limits, vocabulary=vocabulary, alpha=alpha)

    return lax.while_loop(unfinished, advance, search).finished


def _advance[S: State](
    search: _Search[S], step: Step[S], *, limits: Array, vocabulary: int, alpha: float
) -> _Search[S]:
    rows, beams, _ = search.live_ids.shape
    previous = lax.dynamic_index_in_dim(
        search.live_ids, jnp.maximum(search.length - 1, 0), axis=2, keepdims=False
    )
    previous = jnp.where(search.length == 0, BOS, previous)  # [B, K]
    logits, state = step(previous, search.length, search.state)
    width = logits.shape[-1]
    allowed = _allowed(width, vocabulary, ended=search.length >= limits)  # [B, V]
    scores = _next_scores(logits, search.live_scores, allowed)  # [B, K, V]

    # At most K of the 2K best candidates end, since only one of each parent's does; so K that
    # do not end remain. Greedy search looks at the best one alone, and ends when that is EOS.
    count = 1 if beams == 1 else min(2 * beams, beams * width)
    top, index = lax.top_k(scores.reshape(rows, -1), count)  # [B, 2K]
    parents, pieces = index // width, index % width
    ids = _take(search.live_ids, parents)  # [B, 2K, T]
    ids = lax.dynamic_update_slice_in_dim(ids, pieces[..., None], search.length, axis=2)

    length = search.length + 1
    possible = top > IMPOSSIBLE / 2
    ends = (pieces == EOS) & possible
    candidates = Hypotheses(
        ids=ids,
        lengths=jnp.where(ends, length, 0),
        log_probabilities=jnp.where(ends, top, IMPOSSIBLE),
        scores=jnp.where(ends, top / length_penalty(length, alpha), -jnp.inf),
    )
    finished = _best(search.finished, candidates, beams)
    finished = jax.tree.map(
        lambda new, old: jnp.where(_like(search.done, new), old, new), finished, search.finished
    )

    live_scores, chosen = lax.top_k(jnp.where(ends | ~possible, IMPOSSIBLE, top), beams)  # [B, K]
    state = state.reorder(jnp.take_along_axis(parents, chosen, axis=1))

    # Penalties rise or fall with length all the way, so the most favourable one is at an end.
    favourable = jnp.maximum(length_penalty(length + 1, alpha), length_penalty(limits + 1, alpha))
    bound = jnp.max(live_scores, axis=1) / favourable
    alive = jnp.max(live_scores, axis=1) > IMPOSSIBLE / 2
    beaten = bound <= jnp.min(finished.scores, axis=1)
    return _Search(
        length=length,
        live_ids=_take(ids, chosen),
        live_scores=live_scores,
        finished=finished,
        done=search.done | beaten | ~alive,
        state=state,
    )


def _allowed(width: int, vocabulary: int, *, ended: Bool[Array, "B"]) -> Bool[Array, "B V"]:
    """The pieces that may come next; where a row has ended, EOS alone."""
    pieces = jnp.arange(width)[None]
    written = (pieces < vocabulary) & (pieces != PAD) & (pieces != BOS)
    return written & ((pieces == EOS) | ~ended[:, None])


def _next_scores(
    logits: Float[Array, "B K V"], live_scores: Float[Array, "B K"], allowed: Bool[Array, "B V"]
) -> Float[Array, "B K V"]:
    """Log-probabilities of the live hypotheses with each piece after them."""
    logits = logits.astype(jnp.float32)
    log_z = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    scores = live_scores[..., None] + (logits - log_z)
    return jnp.where(allowed[:, None], scores, IMPOSSIBLE)


def _best(old: Hypotheses, new: Hypotheses, beams: int) -> Hypotheses:
    """The `beams` best of both; the old one where scores are equal."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), old, new)
    _, index = lax.top_k(both.scores, beams)
    return jax.tree.map(lambda x: _take(x, index), both)


def _take(x: Array, index: Int[Array, "B K"]) -> Array:
    """Entries `index` of the second dimension, row by row."""
    return jnp.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - 2)), axis=1)


def _like(flags: Bool[Array, "B"], x: Array) -> Array:
    return flags.reshape(-1, *[1] * (x.ndim - 1))
