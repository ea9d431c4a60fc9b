"""Sentences searched in blocks of one shape, a free row taken by the next in the queue.

Devices wait for each other only when they need new sentences.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array
from transduce.decoding.block import Method, Rows, Steppers, orders_of, read, run, start
from transduce.decoding.blocks import blocks, rectangle
from transduce.decoding.search import Hypotheses
from transduce.decoding.threads import in_threads
from transduce.model.stepping import Memory
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
    kinds: Sequence[int] = ()
    """Of the sentence's words, where only trees may be written."""


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
        self._steppers = Steppers.of(models, self._mesh)

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
                block = start(
                    self._steppers, memories, rows, self._method, self._mesh, length=shape[1]
                )
            taken = np.full(len(owners), -1, np.int32)
            for slot in free:
                if waiting := staged[slot // self._rows]:
                    taken[slot], (owners[slot], _) = waiting.popleft()
            if all(owner is None for owner in owners):
                return
            orders = orders_of(taken, self._enough(owners, staged, more=queue.has_more()))
            block = run(
                self._steppers, block, memories, rows, self._put(orders), self._method, self._mesh
            )
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
    ) -> tuple[tuple[Memory, ...], Rows]:
        """What the encoder makes of the requests of each device."""

        def rectangles(width: int, of: Callable[[Request], Sequence[int]]) -> np.ndarray:
            parts = [rectangle(map(of, part), rows=self._rows, width=width) for part in requests]
            return np.concatenate(parts)

        def numbers(of: Callable[[Request], int]) -> np.ndarray:
            parts = [[*map(of, part), *[0] * (self._rows - len(part))] for part in requests]
            return np.asarray(parts, np.int32).reshape(-1)

        sources = rectangles(shape[0], lambda each: each.source)
        prefixes = rectangles(shape[1] if self._method.prefixes else 1, lambda each: each.prefix)
        kinds = rectangles(
            shape[0] if self._method.trees else 1,
            # From 1 in the rectangle, where 0 is none.
            lambda each: [*(kind + 1 for kind in each.kinds), 0],
        )
        rows = Rows(
            limits=self._put(numbers(lambda each: each.limit)),
            minimums=self._put(numbers(lambda each: each.minimum)),
            prefixes=self._put(prefixes),
            prefix_lengths=self._put(numbers(lambda each: len(each.prefix))),
            lines=self._put(numbers(lambda each: each.line)),
            kinds=self._put(kinds - 1),
        )
        return read(self._steppers, self._put(sources), self._mesh), rows

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
