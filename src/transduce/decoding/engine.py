"""Blocks of sentences that are searched together, a free row taken by the next in the queue.

All of a block's functions are compiled for its one shape. Devices hold blocks of their own, of
the same shape, and wait for each other only when they need new sentences.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array, Int, Tokens
from transduce.decoding.blocks import blocks, rectangle
from transduce.decoding.constraints import (
    Constraint,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgram,
    Pieces,
)
from transduce.decoding.ensemble import Caches, step_all
from transduce.decoding.sampling import Sampling, sample
from transduce.decoding.search import (
    Hypotheses,
    Ranking,
    Rules,
    Search,
    advance,
    begin,
    row_flags,
)
from transduce.decoding.threads import in_threads
from transduce.model.stepping import Memory, Stepper
from transduce.model.transformer import Transformer

_REFILL = 8
"""Rows are filled again when one in so many is free."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A sentence to be searched."""

    source: Sequence[int]
    """EOS included."""
    shape: tuple[int, int]
    """Of its block: source tokens, and output pieces with EOS."""
    limit: int
    """Pieces before EOS that the output may have, and at least `minimum`."""
    minimum: int = 0
    prefix: Sequence[int] = ()
    line: int = 0
    """Seeds what is drawn for it."""


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


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class _Rows:
    """What requests ask for; a row each."""

    limits: Int[Array, "B"]
    minimums: Int[Array, "B"]
    prefixes: Int[Array, "B P"]
    prefix_lengths: Int[Array, "B"]
    lines: Int[Array, "B"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class _Block:
    rows: _Rows
    search: Search
    state: Caches


class _Queue:
    """Requests with their indices, which several threads take."""

    def __init__(self, items: Iterable[tuple[int, Request]]):
        self._items = deque(items)

    def take(self) -> list[tuple[int, Request]]:
        """The next one, if there is one."""
        try:
            return [self._items.popleft()]
        except IndexError:
            return []

    def has_more(self) -> bool:
        return bool(self._items)


type _Staged = deque[tuple[int, tuple[int, Request]]]
"""Of a device: sentences that are read, each with its row of what was read last."""


class Engine:
    """Searches with one model, or with several as one, on all `devices`."""

    def __init__(
        self,
        models: Sequence[Transformer],
        method: Method,
        *,
        rows: int,
        devices: Sequence[Any],
        at_once: int = 1,
    ):
        """`rows` are those of a block, of which each device has `at_once` at work at a time."""
        self._at_once = at_once
        self._mesh = jax.make_mesh((len(devices),), ("data",), devices=list(devices))
        self._method, self._rows = method, rows
        whole = NamedSharding(self._mesh, P())
        self._steppers = tuple(jax.device_put(_laid_out(model), whole) for model in models)

    def search(self, requests: Sequence[Request]) -> Iterator[tuple[int, Hypotheses]]:
        """The hypotheses of each request, [K, ...] in numpy, with its index, as they are found.

        There may be none where the model's logits are not finite.
        """
        shapes = [request.shape for request in requests]
        # The longest first, so that no row is at work for long when the others have ended.
        lengths = [-len(request.source) for request in requests]
        for shape, members in blocks(shapes, lengths, max(1, len(requests))):
            queue = _Queue((member, requests[member]) for member in members)
            most = self._rows * self._mesh.size
            working = min(self._at_once, -(-len(members) // most))
            yield from in_threads([self._search(shape, queue) for _ in range(working)])

    def _search(self, shape: tuple[int, int], queue: _Queue) -> Iterator[tuple[int, Hypotheses]]:
        """The same for requests of one shape, as long as the queue has any, in one block."""
        staged: list[_Staged] = [deque() for _ in range(self._mesh.size)]
        owners: list[int | None] = [None] * (self._mesh.size * self._rows)
        memories = rows = block = None
        while True:
            free = [slot for slot, owner in enumerate(owners) if owner is None]
            if queue.has_more() and not all(staged[slot // self._rows] for slot in free):
                requests = self._stage(staged, queue)
                if any(requests):
                    memories, rows = self._read(shape, requests)
            if memories is None or rows is None:
                return
            if block is None:
                block = _start(
                    self._steppers, memories, rows, self._method, self._mesh, length=shape[1]
                )
            taken = np.full(len(owners), -1, np.int32)
            for slot in free:
                if waiting := staged[slot // self._rows]:
                    taken[slot], (owners[slot], _) = waiting.popleft()
            if all(owner is None for owner in owners):
                return
            if np.any(taken >= 0):
                block = _admit(block, memories, rows, self._put(taken), self._mesh)
            enough = self._enough(owners, staged, more=queue.has_more())
            block = _run(self._steppers, block, self._put(enough), self._method, self._mesh)
            done = np.asarray(block.search.done)
            ready = [slot for slot, owner in enumerate(owners) if owner is not None and done[slot]]
            # Whole, since a row of what is divided over devices cannot be asked for; and copies,
            # since the block's own memory is used again.
            finished = jax.tree.map(np.array, block.search.finished)
            for slot in ready:
                index, owners[slot] = owners[slot], None
                assert index is not None
                yield index, _row(finished, slot)

    def _stage(self, staged: list[_Staged], queue: _Queue) -> list[list[Request]]:
        """Takes from the queue, in turns, what each device can read at once; all it will read."""
        waiting = [[item for _, item in device] for device in staged]
        for row in range(self._rows):
            for device in waiting:
                if len(device) == row:
                    device += queue.take()
        staged[:] = [deque(enumerate(device)) for device in waiting]
        return [[request for _, request in device] for device in waiting]

    def _read(
        self, shape: tuple[int, int], requests: list[list[Request]]
    ) -> tuple[tuple[Memory, ...], "_Rows"]:
        """What the encoder makes of the requests of each device."""

        def rectangles(width: int, field: str) -> np.ndarray:
            parts = [
                rectangle([getattr(each, field) for each in part], rows=self._rows, width=width)
                for part in requests
            ]
            return np.concatenate(parts)

        def numbers(of: Callable[[Request], int]) -> np.ndarray:
            parts = [[*map(of, part), *[0] * (self._rows - len(part))] for part in requests]
            return np.asarray(parts, np.int32).reshape(-1)

        sources = rectangles(shape[0], "source")
        prefixes = rectangles(shape[1] if self._method.prefixes else 1, "prefix")
        rows = _Rows(
            limits=self._put(numbers(lambda each: each.limit)),
            minimums=self._put(numbers(lambda each: each.minimum)),
            prefixes=self._put(prefixes),
            prefix_lengths=self._put(numbers(lambda each: len(each.prefix))),
            lines=self._put(numbers(lambda each: each.line)),
        )
        return _encode(self._steppers, self._put(sources), self._mesh), rows

    def _put(self, rows: np.ndarray) -> Array:
        return jax.device_put(rows, NamedSharding(self._mesh, P("data")))

    def _enough(self, owners: list[int | None], staged: list[_Staged], *, more: bool) -> np.ndarray:
        """At how many busy rows each device stops to have the others filled."""
        enough = []
        for device, waiting in enumerate(staged):
            slots = owners[device * self._rows : (device + 1) * self._rows]
            busy = sum(owner is not None for owner in slots)
            free = max(1, self._rows // _REFILL)
            enough.append(max(0, min(busy - 1, self._rows - free)) if waiting or more else 0)
        return np.asarray(enough, np.int32)


def _row(hypotheses: Hypotheses, row: int) -> Hypotheses:
    return jax.tree.map(lambda leaf: leaf[row], hypotheses)


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
def _encode(
    steppers: tuple[Stepper, ...], sources: Int[Array, "B S"], mesh: Mesh
) -> tuple[Memory, ...]:
    def encode(steppers: tuple[Stepper, ...], sources: Array) -> tuple[Memory, ...]:
        return tuple(stepper.read(Tokens.single(sources)) for stepper in steppers)

    return _on_each_device(encode, mesh, False, True)(steppers, sources)


@functools.partial(jax.jit, static_argnames=("method", "mesh", "length"))
def _start(
    steppers: tuple[Stepper, ...],
    memories: tuple[Memory, ...],
    rows: _Rows,
    method: Method,
    mesh: Mesh,
    *,
    length: int,
) -> _Block:
    """A block in which every row is free."""

    def start(steppers: tuple[Stepper, ...], memories: tuple[Memory, ...], rows: _Rows) -> _Block:
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
            for stepper, memory in zip(steppers, memories, strict=True)
        )
        free = jnp.ones_like(search.done)
        return _Block(rows=rows, search=replace(search, done=free), state=Caches(caches=caches))

    return _on_each_device(start, mesh, False, True, True)(steppers, memories, rows)


@functools.partial(jax.jit, static_argnames="mesh", donate_argnums=0)
def _admit(
    block: _Block,
    memories: tuple[Memory, ...],
    rows: _Rows,
    taken: Int[Array, "B"],
    mesh: Mesh,
) -> _Block:
    """Begins in each row with taken >= 0 the sentence of that row of `memories` and `rows`."""

    def admit(block: _Block, memories: tuple[Memory, ...], rows: _Rows, taken: Array) -> _Block:
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
        return _Block(
            rows=jax.tree.map(pick_taken, block.rows, rows),
            search=jax.tree.map(pick, block.search, fresh),
            state=Caches(caches=caches),
        )

    return _on_each_device(admit, mesh, True, True, True, True)(block, memories, rows, taken)


@functools.partial(jax.jit, static_argnames=("method", "mesh"), donate_argnums=1)
def _run(
    steppers: tuple[Stepper, ...],
    block: _Block,
    enough: Int[Array, "devices"],
    method: Method,
    mesh: Mesh,
) -> _Block:
    """Searches on until no more than `enough` rows of a device are not done."""

    def run(steppers: tuple[Stepper, ...], block: _Block, enough: Array) -> _Block:
        rules = Rules(
            limits=block.rows.limits,
            constraints=_constraints(method, block.rows),
            source=block.state.caches[0].memory.visible,
        )
        step = functools.partial(step_all, steppers)

        def unfinished(parts: tuple[Search, Caches]) -> Array:
            return jnp.sum(~parts[0].done) > enough[0]

        def onward(parts: tuple[Search, Caches]) -> tuple[Search, Caches]:
            search, state = parts
            if method.sampling is None:
                return advance(step, state, search, rules, ranking=method.ranking)
            lines = block.rows.lines
            return sample(step, state, search, rules, lines=lines, sampling=method.sampling)

        search, state = lax.while_loop(unfinished, onward, (block.search, block.state))
        return replace(block, search=search, state=state)

    return _on_each_device(run, mesh, False, True, True)(steppers, block, enough)


def _constraints(method: Method, rows: _Rows) -> tuple[Constraint, ...]:
    constraints: list[Constraint] = [
        Pieces(vocabulary=method.vocabulary, banned=method.banned),
        MinimumLength(minimum=rows.minimums),
    ]
    if method.no_repeat_ngram:
        constraints.append(NoRepeatedNgram(n=method.no_repeat_ngram))
    if method.prefixes:
        constraints.append(ForcedPrefix(prefix=rows.prefixes, length=rows.prefix_lengths))
    return tuple(constraints)
