"""Beam search over scores and states; it knows no model and no text.

A hypothesis Y is ranked by log P(Y) / penalty(|Y|) + beta cp(Y) (section 6.1; Wu et al. 2016,
equation 14), |Y| counting its pieces and the EOS that ends it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import jax
import jax.numpy as jnp
from jax import lax

from transduce.arrays import BOS, EOS, PAD, Array, Bool, Float, Int
from transduce.decoding.constraints import Constraint, permitted_pieces
from transduce.decoding.top import IMPOSSIBLE, best_pieces


class State(Protocol):
    """What a step function keeps between pieces."""

    def reorder(self, beams: Int[Array, "B K"]) -> Self:
        """Hypothesis k of a row becomes what hypothesis beams[k] was.

        beams[k] is k, or else a place j with beams[j] = j: nothing changes places.
        """
        ...


type Step[S: State] = Callable[
    [Int[Array, "B K"], Int[Array, "B"], S],
    tuple[Float[Array, "B K V"], Float[Array, "B K S"] | None, S],
]
"""(ids, each row's position, state) to (logits of the next piece, attention to the source if there
is such a thing, state)."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How finished hypotheses are compared."""

    penalty: Literal["paper", "power", "none"]
    """((5 + |Y|) / 6)^alpha, |Y|^alpha, or 1."""
    alpha: float
    coverage: float = 0.0
    """beta, the weight of sum_i log min(sum_j a_ji, 1), a_ji being the attention of piece j of the
    hypothesis to token i of the source; 0: no coverage penalty."""

    def length_penalty(self, length: Array) -> Array:
        if self.penalty == "none":
            return jnp.ones(jnp.shape(length))
        base = (5.0 + length) / 6.0 if self.penalty == "paper" else jnp.asarray(length, float)
        return base**self.alpha


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """K finished hypotheses a row, best first."""

    ids: Int[Array, "B K T"]
    """EOS included, then PAD."""
    lengths: Int[Array, "B K"]
    """EOS included; 0 where there are fewer than K hypotheses."""
    log_probabilities: Float[Array, "B K T"]
    """Natural logarithm, of each piece; then 0."""
    totals: Float[Array, "B K"]
    """Their sums."""
    scores: Float[Array, "B K"]
    """What ranks them; -inf where there is no hypothesis."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Search:
    """A search on its way: each row has come as far as its own `lengths`."""

    lengths: Int[Array, "B"]
    """Of the live hypotheses."""
    live: Hypotheses
    """Hypotheses without EOS, in no order; their scores are their totals. A live hypothesis keeps
    its place from piece to piece unless there is none that goes on from it."""
    coverage: Float[Array, "B K S"]
    """Attention that each source token had from each live hypothesis so far."""
    finished: Hypotheses
    done: Bool[Array, "B"]
    """Rows whose finished hypotheses no live one can beat; they change no more."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Rules:
    """What may be written, row by row, and how it is ranked."""

    limits: Int[Array, "B"]
    """The largest number of pieces before EOS; a hypothesis that reaches it can only end."""
    constraints: tuple[Constraint, ...]
    source: Bool[Array, "B S"]
    """The tokens of a source that the coverage penalty wants covered."""


def begin(
    rows: int, *, beams: int, length: int, n_best: int | None = None, source_length: int = 0
) -> Search:
    """A search for the `n_best` (by default all `beams`) hypotheses that has written nothing.

    There is room for `length` pieces, EOS included.
    """

    def none(count: int) -> Hypotheses:
        return Hypotheses(
            ids=jnp.full((rows, count, length), PAD, jnp.int32),
            lengths=jnp.zeros((rows, count), jnp.int32),
            log_probabilities=jnp.zeros((rows, count, length)),
            # Of a dtype that is said: what is computed with it is then compiled for one only.
            totals=jnp.full((rows, count), IMPOSSIBLE, float),
            scores=jnp.full((rows, count), -jnp.inf, float),
        )

    # All K begin alike, so only the first may live.
    totals = none(beams).totals.at[:, 0].set(0.0)
    return Search(
        lengths=jnp.zeros(rows, jnp.int32),
        live=replace(none(beams), totals=totals, scores=totals),
        coverage=jnp.zeros((rows, beams, source_length)),
        finished=none(n_best or beams),
        done=jnp.zeros(rows, bool),
    )


def beam_search[S: State](
    step: Step[S], state: S, search: Search, rules: Rules, *, ranking: Ranking
) -> Hypotheses:
    """The best finished hypotheses of each row, from BOS on; one beam is greedy search.

    Probabilities are those of the whole softmax, as in forced scoring, whatever the constraints
    leave of it. The hypothesis of EOS alone is one like the others. A row goes on until its best
    live hypothesis, even at the most favourable length left and with its source covered, cannot
    beat the worst of the finished ones that are asked for. What a row finds does not depend on
    the other rows. It finds no hypothesis only where logits are not finite.
    """

    def unfinished(parts: tuple[Search, S]) -> Array:
        return ~jnp.all(parts[0].done)

    def onward(parts: tuple[Search, S]) -> tuple[Search, S]:
        search, state = parts
        return advance(step, state, search, rules, ranking=ranking)

    search, _ = lax.while_loop(unfinished, onward, (search, state))
    return search.finished


def advance[S: State](
    step: Step[S], state: S, search: Search, rules: Rules, *, ranking: Ranking
) -> tuple[Search, S]:
    """One more piece for every row that is not done."""
    beams, room = search.live.ids.shape[1:]
    logits, attention, state = step(last_pieces(search), search.lengths, state)
    mask = permitted_pieces(
        rules.constraints,
        search.live.ids,
        search.lengths,
        width=logits.shape[-1],
        ended=search.lengths >= rules.limits,
    )
    # At most K of the 2K best candidates end, since only one of each parent's does; so K that
    # do not end remain. Greedy search looks at the best one alone, and ends when that is EOS.
    best = best_pieces(logits, search.live.totals, mask, count=1 if beams == 1 else 2 * beams)
    coverage = search.coverage
    if ranking.coverage:
        if attention is None:
            raise ValueError("a coverage penalty needs a step function that gives attention")
        coverage = coverage + attention
    length = search.lengths + 1
    ids = take(search.live.ids, best.parents)
    here = jnp.arange(room)[None, None] == search.lengths[:, None, None]
    # Logits that are all -inf would make it +inf.
    possible = (best.totals > IMPOSSIBLE / 2) & (best.totals < jnp.inf)
    candidates = Hypotheses(
        ids=jnp.where(here, best.pieces[..., None], ids),
        lengths=jnp.where(possible, length[:, None], 0),
        log_probabilities=jnp.where(
            here,
            best.log_probabilities[..., None],
            take(search.live.log_probabilities, best.parents),
        ),
        totals=jnp.where(possible, best.totals, IMPOSSIBLE),
        scores=best.totals,
    )

    ends = (best.pieces == EOS) & possible
    scores = best.totals / ranking.length_penalty(length)[:, None]
    if ranking.coverage:
        logs = jnp.log(jnp.clip(coverage, 1e-9, 1.0))
        covered = jnp.sum(jnp.where(rules.source[:, None], logs, 0.0), axis=-1)
        scores = scores + ranking.coverage * take(covered, best.parents)
    ended = replace(
        candidates,
        lengths=jnp.where(ends, candidates.lengths, 0),
        scores=jnp.where(ends, scores, -jnp.inf),
    )
    finished = _freeze(search.done, search.finished, _best(search.finished, ended))

    going_on = jnp.where(ends, IMPOSSIBLE, candidates.totals)
    _, chosen = lax.top_k(going_on, beams)
    chosen = _kept_in_place(chosen, take(best.parents, chosen))
    live = jax.tree.map(lambda x: take(x, chosen), candidates)
    # Of a parent without a candidate that goes on, the place is filled with what cannot win.
    live = replace(live, totals=take(going_on, chosen))
    parents = jnp.where(search.done[:, None], jnp.arange(beams)[None], take(best.parents, chosen))

    highest = jnp.max(live.totals, axis=1)
    # Penalties rise or fall with length all the way, so the most favourable one is at an end.
    favourable = jnp.maximum(
        ranking.length_penalty(length + 1), ranking.length_penalty(rules.limits + 1)
    )
    beaten = highest / favourable <= jnp.min(finished.scores, axis=1)
    search = Search(
        lengths=jnp.where(search.done, search.lengths, length),
        live=live,
        coverage=take(coverage, parents),
        finished=finished,
        done=search.done | beaten | ~(highest > IMPOSSIBLE / 2),
    )
    return search, state.reorder(parents)


def last_pieces(search: Search) -> Int[Array, "B K"]:
    """The last piece of each live hypothesis; BOS where nothing is written yet."""
    last = jnp.maximum(search.lengths - 1, 0)[:, None, None]
    pieces = jnp.take_along_axis(search.live.ids, last, axis=2)[..., 0]
    return jnp.where(search.lengths[:, None] == 0, BOS, pieces)


def _kept_in_place(chosen: Int[Array, "B K"], parents: Int[Array, "B K"]) -> Int[Array, "B K"]:
    """`chosen` in another order: the first child of a parent takes the parent's place.

    The other children take, in order, the places of parents that have none. So a state is
    copied only into places whose own state is needed no more.
    """
    beams = chosen.shape[1]
    places = jnp.arange(beams)
    first = jnp.triu(parents[:, :, None] == parents[:, None], 1).any(axis=1) == 0  # [B, K]
    at_home = parents[:, None] == places[None, :, None]  # [B, place, child]
    kept = at_home & first[:, None]
    free = ~at_home.any(axis=-1)  # [B, place]
    ranks = jnp.cumsum(free, axis=1), jnp.cumsum(~first, axis=1)
    moved = free[:, :, None] & ~first[:, None] & (ranks[0][:, :, None] == ranks[1][:, None])
    return take(chosen, jnp.argmax(kept | moved, axis=-1))


def _freeze(done: Bool[Array, "B"], old: Hypotheses, new: Hypotheses) -> Hypotheses:
    return jax.tree.map(lambda a, b: jnp.where(row_flags(done, a), a, b), old, new)


def _best(old: Hypotheses, new: Hypotheses) -> Hypotheses:
    """The best of both, as many as there are old ones; the old one where scores are equal."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), old, new)
    _, index = lax.top_k(both.scores, old.scores.shape[1])
    return jax.tree.map(lambda x: take(x, index), both)


def take(x: Array, index: Int[Array, "B K"]) -> Array:
    """Entries `index` of the second dimension, row by row."""
    return jnp.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - 2)), axis=1)


def row_flags(flags: Bool[Array, "B"], x: Array) -> Array:
    """`flags` with as many dimensions as `x`."""
    return flags.reshape(-1, *[1] * (x.ndim - 1))
