"""How long chips take to exchange bytes: arithmetic over the rates of their links, no latency.

TPU chips stand in a torus, or in a mesh where it does not close, and each has a link to either
side in every dimension. A ring of them uses both links of a dimension that closes, and one of a
dimension that does not, whose ends have no other; a group that spans several dimensions uses those
of all.
GPUs of a host reach each other through a switch, at the whole rate of their links, and other hosts
each by a network interface of its own.

With b the bytes that a chip holds, n the chips of a group and r the bytes a second into a chip:

    all-gather          b (n - 1) / n / r, b the whole result
    reduce-scatter      b (n - 1) / n / r, b the whole operand
    all-reduce          both: 2 b (n - 1) / n / r
    all-to-all          b (n - 1) / n times the mean way in links, / r
    collective-permute  b times the longest way in links, / the rate of one link
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

type Group = tuple[int, ...]
"""Chips that exchange something, by their number in the program."""

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)


@dataclass(frozen=True, kw_only=True)
class Network:
    """Where the chips of a program stand, and what links them."""

    places: tuple[tuple[int, ...], ...]
    """Of each chip, in the program's order: coordinates in the torus, or its host and 0."""
    extents: tuple[int, ...]
    """Of the torus; of GPUs, hosts and 1."""
    closed: tuple[bool, ...]
    """Dimensions in which the torus closes."""
    link: float
    """Bytes a second of one TPU link in one direction; of GPUs, into one through its switch."""
    between_hosts: float | None = None
    """Bytes a second into one GPU from other hosts; None on TPUs."""

    def rate(self, group: Group) -> float:
        """Bytes a second into a chip while all of the group send and receive."""
        if self.between_hosts is not None:
            hosts = Counter(self.places[chip][0] for chip in group)
            if len(hosts) == 1:
                return self.link
            # As many rings as GPUs, each of which has its own way out of the host.
            return min(self.link, self.between_hosts * min(hosts.values()))
        links = sum(
            2 if closed and extent == whole else 1
            for extent, whole, closed in zip(
                self._spans(group), self.extents, self.closed, strict=True
            )
            if extent > 1
        )
        return self.link * max(1, links)

    def mean_way(self, group: Group) -> float:
        """Links on the way from one chip to another, on average: a quarter of a ring, a third of
        a line, and at least 1. A GPU sends what is for other hosts by its own way out alone."""
        if self.between_hosts is not None:
            inside = len({self.places[chip][0] for chip in group}) == 1
            return 1.0 if inside else self.rate(group) / self.between_hosts
        way = sum(
            extent / (4 if closed and extent == whole else 3)
            for extent, whole, closed in zip(
                self._spans(group), self.extents, self.closed, strict=True
            )
            if extent > 1
        )
        return max(1.0, way)

    def way(self, one: int, other: int) -> int:
        """Links between two chips."""
        if self.between_hosts is not None:
            return 1
        steps = 0
        for a, b, whole, closed in zip(
            self.places[one], self.places[other], self.extents, self.closed, strict=True
        ):
            distance = abs(a - b)
            steps += min(distance, whole - distance) if closed else distance
        return steps

    def seconds(self, kind: str, size: float, groups: Sequence[Group]) -> float:
        """Of one collective over its slowest group; of a collective-permute, groups are pairs."""
        if kind == "collective-permute":
            return max(
                (
                    size * self.way(*pair) / self._permuting(pair)
                    for pair in groups
                    if pair[0] != pair[1]
                ),
                default=0.0,
            )
        return max((self._exchange(kind, size, group) for group in groups), default=0.0)

    def _exchange(self, kind: str, size: float, group: Group) -> float:
        if len(group) == 1:
            return 0.0
        once = size * (len(group) - 1) / len(group) / self.rate(group)
        if kind == "all-reduce":
            return 2 * once
        return once * self.mean_way(group) if "all-to-all" in kind else once

    def _permuting(self, pair: Group) -> float:
        return self.link if self.between_hosts is None else self.rate(pair)

    def _spans(self, group: Group) -> list[int]:
        """In each dimension, how many places the group's chips have."""
        return [len(set(values)) for values in zip(*(self.places[i] for i in group), strict=True)]


def groups_of(attributes: str, *, chips: int) -> list[Group] | None:
    """The groups, or pairs, of a collective; None where they are written in a way not known here.

    Known are `{{0,1},{2,3}}`, `[2,2]<=[4]` with or without `T(1,0)`, and a mesh with the axes that
    a group spans, `mesh['a'=2,'b'=2] {'b'}`.
    """
    if pairs := re.search(r"source_target_pairs=\{(\{.*?\})\}", attributes):
        return _listed(pairs[1])
    found = re.search(r"replica_groups=(\S.*?)(?:, [a-z_]+=|$)", attributes)
    if not found or found[1] == "{}":
        return [tuple(range(chips))]
    text = found[1].rstrip(", ")
    if text.startswith("{{"):
        return _listed(text[1:-1])
    if iota := re.fullmatch(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        ids = np.arange(chips).reshape(_numbers(iota[2]))
        ids = ids.transpose(_numbers(iota[3])) if iota[3] else ids
        return [tuple(group) for group in ids.reshape(_numbers(iota[1])).tolist()]
    return _of_mesh(text, chips)


def _of_mesh(text: str, chips: int) -> list[Group] | None:
    mesh = re.fullmatch(
        r"mesh\[([^\]]*)\](?:, ?device_ids=\(?\[([\d,]+)\](?:T\(([\d,]+)\))?\)?)? \{([^}]*)\}", text
    )
    if not mesh:
        return None
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
    ids = np.arange(chips)
    if mesh[2]:
        ids = ids.reshape(_numbers(mesh[2]))
        ids = ids.transpose(_numbers(mesh[3])) if mesh[3] else ids
    # A part of an axis, 'a':(2)4, is the middle one of the three that the axis falls into.
    inside: set[str] = set()
    for name, before, part in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", mesh[4]):
        if not part:
            inside.add(name)
            continue
        split = [(f"{name}<", int(before)), (name, int(part))]
        split.append((f"{name}>", sizes[name] // int(before) // int(part)))
        sizes = dict(
            item
            for axis, size in sizes.items()
            for item in (split if axis == name else [(axis, size)])
        )
        inside.add(name)
    axes = list(sizes)
    ids = ids.reshape([sizes[axis] for axis in axes])
    order = [i for i, axis in enumerate(axes) if axis not in inside]
    order += [i for i, axis in enumerate(axes) if axis in inside]
    count = int(np.prod([sizes[axis] for axis in inside]))
    return [tuple(group) for group in ids.transpose(order).reshape(-1, count).tolist()]


def _listed(text: str) -> list[Group]:
    return [_numbers(group) for group in re.findall(r"\{([\d, ]+)\}", text)]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))
