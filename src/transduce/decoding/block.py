"""What a block of sentences does, compiled for its one shape: begin, read, search.

Devices hold blocks of their own, of the same shape, and do not talk to each other.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array, Int, Tokens
from transduce.decoding.constraints import (
    Constraint,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgram,
    Pieces,
)
from transduce.decoding.ensemble import Caches, step_all
from transduce.decoding.grammar import Alphabet, TreeGrammar
from transduce.decoding.sampling import Sampling, sample
from transduce.decoding.search import Ranking, Rules, Search, advance, begin, row_flags
from transduce.model.stepping import Memory, Stepper
from transduce.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is done with every sentence alike."""

    beams: int
    n_best: int
    """Of what is found, how many are wanted; with fewer, a search can end earlier."""
    vocabulary: int
    ranking: Ranking
    sampling: Sampling | None = None
    banned: tuple[int, ...] = ()
    no_repeat_ngram: int = 0
    prefixes: bool = False
    """Requests may have a prefix."""
    trees: Alphabet | None = None
    """That of the trees which alone may be written, if any."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Rows:
    """What requests ask for; a row each."""

    limits: Int[Array, "B"]
    minimums: Int[Array, "B"]
    prefixes: Int[Array, "B P"]
    prefix_lengths: Int[Array, "B"]
    lines: Int[Array, "B"]
    kinds: Int[Array, "B W"]
    """Of words; see `TreeGrammar`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Block:
    """Sentences at work, a row each, and the models' states."""

    rows: Rows
    search: Search
    state: Caches


@dataclass(frozen=True, eq=False)
class _Layout:
    """Of models as trees. It is equal to itself alone, which is quickly found out."""

    tree: Any


_layout = functools.cache(_Layout)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["layout"])
@dataclass(frozen=True)
class Steppers:
    """Models laid out for steps, as a list of arrays: each call that is given modules goes through
    all of them in Python, which took a fifth of the time with a small model."""

    leaves: list[Array]
    layout: _Layout

    @classmethod
    def of(cls, models: Sequence[Transformer], mesh: Mesh) -> "Steppers":
        """Whole on each device of `mesh`."""
        steppers = jax.device_put(tuple(map(_laid_out, models)), NamedSharding(mesh, P()))
        leaves, tree = jax.tree.flatten(steppers)
        return cls(leaves, _layout(tree))

    def __call__(self) -> tuple[Stepper, ...]:
        return jax.tree.unflatten(self.layout.tree, self.leaves)


@jax.jit
def _laid_out(model: Transformer) -> Stepper:
    return Stepper.of(model)


def _on_each_device[**A, R](function: Callable[A, R], mesh: Mesh, *divided: bool) -> Callable[A, R]:
    """`function` on each device's own rows; arguments that are not `divided` are whole on each.

    Devices do not talk to each other, so that each can loop as long as it must.
    """
    specs = tuple(P("data") if each else P() for each in divided)
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P("data"), check_vma=False)


@functools.partial(jax.jit, static_argnames="mesh")
def read(steppers: Steppers, sources: Int[Array, "B S"], mesh: Mesh) -> tuple[Memory, ...]:
    """What the encoders make of `sources`, in rows of a block's shape."""

    def on_device(steppers: Steppers, sources: Array) -> tuple[Memory, ...]:
        return tuple(stepper.read(Tokens.single(sources)) for stepper in steppers())

    return _on_each_device(on_device, mesh, False, True)(steppers, sources)


@functools.partial(jax.jit, static_argnames=("method", "mesh", "length"))
def start(
    steppers: Steppers,
    memories: tuple[Memory, ...],
    rows: Rows,
    method: Method,
    mesh: Mesh,
    *,
    length: int,
) -> Block:
    """A block in which every row is free."""

    def on_device(steppers: Steppers, memories: tuple[Memory, ...], rows: Rows) -> Block:
        count, width = memories[0].visible.shape
        search = begin(
            count,
            beams=method.beams,
            length=length,
            n_best=method.n_best,
            source_length=width,
        )
        caches = tuple(
            stepper.start(memory, beams=method.beams, length=length)
            for stepper, memory in zip(steppers(), memories, strict=True)
        )
        free = jnp.ones_like(search.done)
        return Block(rows=rows, search=replace(search, done=free), state=Caches(caches=caches))

    return _on_each_device(on_device, mesh, False, True, True)(steppers, memories, rows)


def orders_of(taken: np.ndarray, enough: np.ndarray) -> np.ndarray:
    """[devices, rows + 1]: which sentence each row begins with, or -1, and when to stop."""
    return np.concatenate([taken.reshape(len(enough), -1), enough[:, None]], axis=1)


@functools.partial(jax.jit, static_argnames=("method", "mesh"), donate_argnums=1)
def run(
    steppers: Steppers,
    block: Block,
    memories: tuple[Memory, ...],
    rows: Rows,
    orders: Int[Array, "devices rows"],
    method: Method,
    mesh: Mesh,
) -> Block:
    """Begins sentences of `memories` and `rows` by `orders_of`, and searches on until enough are
    done."""

    def on_device(
        steppers: Steppers,
        block: Block,
        memories: tuple[Memory, ...],
        rows: Rows,
        orders: Array,
    ) -> Block:
        taken, enough = orders[0, :-1], orders[0, -1]
        block = _admit(block, memories, rows, taken)
        rules = Rules(
            limits=block.rows.limits,
            constraints=_constraints(method, block.rows),
            source=block.state.caches[0].memory.visible,
        )
        step = functools.partial(step_all, steppers())

        def unfinished(parts: tuple[Search, Caches]) -> Array:
            return jnp.sum(~parts[0].done) > enough

        def onward(parts: tuple[Search, Caches]) -> tuple[Search, Caches]:
            search, state = parts
            if method.sampling is None:
                return advance(step, state, search, rules, ranking=method.ranking)
            lines = block.rows.lines
            return sample(step, state, search, rules, lines=lines, sampling=method.sampling)

        search, state = lax.while_loop(unfinished, onward, (block.search, block.state))
        return replace(block, search=search, state=state)

    divided = (False, True, True, True, True)
    return _on_each_device(on_device, mesh, *divided)(steppers, block, memories, rows, orders)


def _admit(block: Block, memories: tuple[Memory, ...], rows: Rows, taken: Int[Array, "B"]) -> Block:
    """Begins in each row with taken >= 0 the sentence of that row of `memories` and `rows`."""

    def pick(old: Array, new: Array) -> Array:
        return jnp.where(row_flags(taken >= 0, old), new, old)

    def pick_taken(old: Array, new: Array) -> Array:
        return pick(old, new[jnp.maximum(taken, 0)])

    count, beams, length = block.search.live.ids.shape
    width = block.search.coverage.shape[2]
    n_best = block.search.finished.scores.shape[1]
    fresh = begin(count, beams=beams, length=length, n_best=n_best, source_length=width)
    caches = tuple(
        replace(cache, memory=jax.tree.map(pick_taken, cache.memory, memory))
        for cache, memory in zip(block.state.caches, memories, strict=True)
    )
    return Block(
        rows=jax.tree.map(pick_taken, block.rows, rows),
        search=jax.tree.map(pick, block.search, fresh),
        state=Caches(caches=caches),
    )


def _constraints(method: Method, rows: Rows) -> tuple[Constraint, ...]:
    constraints: list[Constraint] = [
        Pieces(vocabulary=method.vocabulary, banned=method.banned),
        MinimumLength(minimum=rows.minimums),
    ]
    if method.no_repeat_ngram:
        constraints.append(NoRepeatedNgram(n=method.no_repeat_ngram))
    if method.trees:
        constraints.append(TreeGrammar(alphabet=method.trees, kinds=rows.kinds, limits=rows.limits))
    if method.prefixes:
        constraints.append(ForcedPrefix(prefix=rows.prefixes, length=rows.prefix_lengths))
    return tuple(constraints)
