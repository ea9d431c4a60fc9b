"""What a scheduled program does in a step: the compiler's cycles, collectives, kernels, in order.

The compiler puts an estimate of its cycles at every instruction that it made itself, and runs them
one after the other; the body of a loop counts as often as it runs. It has no estimate of

    collectives    arithmetic: `interconnect.py`; one that starts and is done later runs beside
                   what stands between, and is waited for with what is left
    kernels        (Pallas) arithmetic: their products by formula, at the peak rate, or their bytes
                   over the bandwidth of memory, whichever takes longer
    the rest       copies and sorts that the compiler did not cost: their bytes over bandwidth
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from transduce.planning.hlo import Instruction, Module
from transduce.planning.interconnect import COLLECTIVES, Network, groups_of
from transduce.planning.kernels import kernel_flops

UNKNOWN_CYCLES = 2**63 - 1
"""What the compiler writes where it has no estimate."""

_FREE = frozenset(
    [
        "parameter",
        "constant",
        "get-tuple-element",
        "tuple",
        "bitcast",
        "after-all",
        "partition-id",
        "replica-id",
        "iota",
        "opt-barrier",
        "copy-start",
        "copy-done",
        "slice-start",
        "slice-done",
        "call-start",
        "call-update",
        "call-done",
        "async-start",
        "async-update",
        "async-done",
        "send",
        "send-done",
        "recv",
        "recv-done",
    ]
)
"""Costs nothing, or is a transfer that the compiler placed so that it runs beside other work."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a program is costed for."""

    clock: float | None
    """Cycles a second; None where the compiler estimates none."""
    rate: float
    """Peak FLOP/s."""
    bandwidth: float
    """Bytes a second of main memory."""
    network: Network
    array: int
    """Rows, and columns, of an array of multipliers: a product's narrow sides are filled up."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective, of a chip, with all its runs in a step."""

    kind: str
    bytes: int
    """Of one run: what `interconnect.py` calls b."""
    runs: int
    seconds: float
    """Of all runs, whether or not other work goes on meanwhile."""
    waited: float
    """Of those, seconds in which the chip does nothing else."""
    chips: int
    """In a group."""
    name: str
    place: str
    """The line of this program that asked for it."""
    op_name: str


@dataclass(frozen=True, kw_only=True)
class Costly:
    """One instruction that the compiler costed, with all its runs in a step."""

    name: str
    shape: str
    seconds: float
    place: str
    op_name: str


@dataclass(kw_only=True)
class Cost:
    """Seconds of a step on each chip, by what makes them, and what they are made of."""

    compiled: float = 0.0
    """By the compiler's cycles."""
    kernels: float = 0.0
    kernel_calls: int = 0
    uncosted: float = 0.0
    uncosted_instructions: int = 0
    waited: float = 0.0
    """For collectives."""
    collectives: list[Collective] = field(default_factory=list)
    instructions: list[Costly] = field(default_factory=list)
    unknown_loops: list[str] = field(default_factory=list)
    """Whose number of runs is not known: counted as one."""
    unknown_groups: list[str] = field(default_factory=list)
    """Collectives whose groups are not understood: counted over all chips."""
    unknown_kernels: list[str] = field(default_factory=list)
    """Custom calls that no formula is known for: counted as nothing."""

    @property
    def total(self) -> float:
        return self.compiled + self.kernels + self.uncosted + self.waited


def cost(module: Module, machine: Machine) -> Cost:
    """Of the whole program, for one chip."""
    found = Cost()
    _walk(module, module.entry, machine, 1, found)
    return found


def _walk(module: Module, name: str, machine: Machine, runs: int, found: Cost) -> None:
    """Adds what a computation costs in `runs` runs."""
    instructions = module.computations[name]
    known = {instruction.name: instruction for instruction in instructions}
    now = 0.0  # seconds since the computation began, in one run
    free = 0.0  # when the links are
    ready: dict[str, tuple[float, int]] = {}
    """By the start's name: when it is done, and its place in found.collectives."""
    for item in instructions:
        kind = _collective(module, item)
        if kind:
            entry = _exchange(module, item, kind, machine, runs, found, known)
            seconds = entry.seconds / runs
            free = max(now, free) + seconds
            found.collectives.append(entry)
            if item.opcode.endswith("-start"):
                ready[item.name] = (free, len(found.collectives) - 1)
            else:
                now = _wait(found, len(found.collectives) - 1, runs, now, free)
        elif item.opcode.endswith(("-done", "-update")) and (
            start := next((name for name in item.operands if name in ready), None)
        ):
            if item.opcode.endswith("-update"):
                ready[item.name] = ready[start]
            else:
                then, index = ready[start]
                now = _wait(found, index, runs, now, then)
        elif item.opcode == "while":
            trips = module.trips(item)
            if trips is None:
                found.unknown_loops.append(item.name)
            before = found.total
            for body in item.called("body"):
                _walk(module, body, machine, runs * (trips or 1), found)
            now += (found.total - before) / runs
        elif item.opcode in ("conditional", "call"):
            before = found.total
            _dearest(module, item, machine, runs, found)
            now += (found.total - before) / runs
        else:
            now += _instruction(module, item, machine, runs, found, known)


def _wait(found: Cost, index: int, runs: int, now: float, then: float) -> float:
    waited = max(0.0, then - now)
    entry = found.collectives[index]
    found.collectives[index] = Collective(**{**vars(entry), "waited": entry.waited + waited * runs})
    found.waited += waited * runs
    return max(now, then)


def _dearest(module: Module, item: Instruction, machine: Machine, runs: int, found: Cost) -> None:
    """Of the branches of a conditional, or of the one computation of a call."""
    branches = [
        name
        for kind in ("branch_computations", "true_computation", "false_computation", "to_apply")
        for name in item.called(kind)
    ]

    def alone(name: str) -> float:
        apart = Cost()
        _walk(module, name, machine, 1, apart)
        return apart.total

    _walk(module, max(branches, key=alone), machine, runs, found)


def _instruction(
    module: Module,
    item: Instruction,
    machine: Machine,
    runs: int,
    found: Cost,
    known: dict[str, Instruction],
) -> float:
    """Seconds of one run."""
    cycles = item.attribute(r'"estimated_cycles":"(\d+)"')
    if item.opcode == "custom-call":
        flops = kernel_flops(item, known, array=machine.array)
        if flops is not None:
            seconds = max(flops / machine.rate, _moved(item, known) / machine.bandwidth)
            found.kernels += seconds * runs
            found.kernel_calls += runs
            return seconds
        target = item.attribute(r'custom_call_target="([^"]*)"') or ""
        # Where no time is estimated by instructions, formulas have the kernels in them.
        if (
            machine.clock
            and not cycles
            and re.search("tpu_custom_call|cudnn|triton|mosaic", target)
        ):
            found.unknown_kernels.append(item.name)
        if not cycles:
            return 0.0
    if machine.clock and cycles and int(cycles) != UNKNOWN_CYCLES:
        seconds = int(cycles) / machine.clock
        found.compiled += seconds * runs
        found.instructions.append(_costly(module, item, seconds * runs))
        return seconds
    if not machine.clock or item.opcode in _FREE:
        return 0.0
    moved = _moved(item, known)
    if not moved or item.opcode in ("dynamic-update-slice", "broadcast"):
        return 0.0
    seconds = moved / machine.bandwidth
    found.uncosted += seconds * runs
    found.uncosted_instructions += runs
    found.instructions.append(_costly(module, item, seconds * runs))
    return seconds


def _moved(item: Instruction, known: dict[str, Instruction]) -> int:
    """Bytes that an instruction reads from main memory and writes to it, each array once."""
    given = [known[name] for name in item.operands if name in known]
    return sum(
        array.tiled_bytes
        for each in (item, *given)
        for array in each.arrays
        if array.in_main_memory
    )


def _costly(module: Module, item: Instruction, seconds: float) -> Costly:
    return Costly(
        name=item.name,
        shape=", ".join(map(str, item.arrays)),
        seconds=seconds,
        place=module.place(item),
        op_name=item.op_name,
    )


def _collective(module: Module, item: Instruction) -> str | None:
    """The kind of collective that an instruction is or starts, itself or in what it wraps."""
    if (base := item.opcode.removesuffix("-start")) in COLLECTIVES:
        return base
    if item.opcode in ("async-start", "fusion"):
        for name in item.called("calls"):
            for inner in module.computations.get(name, ()):
                if inner.opcode.removesuffix("-start") in COLLECTIVES:
                    return _collective(module, inner)
    return None


def _exchange(
    module: Module,
    item: Instruction,
    kind: str,
    machine: Machine,
    runs: int,
    found: Cost,
    known: dict[str, Instruction],
) -> Collective:
    inner, names = item, known
    if item.opcode in ("async-start", "fusion"):
        inside = module.by_name(item.called("calls")[0])
        inner = next(i for i in inside.values() if _collective(module, i))
        names = inside
    chips = len(machine.network.places)
    groups = groups_of(inner.attributes, chips=chips)
    if groups is None:
        found.unknown_groups.append(item.name)
        groups = [tuple(range(chips))]
    held = sum(
        array.bytes for name in inner.operands if name in names for array in names[name].arrays
    )
    # Every chip of a group holds a part of what is gathered.
    size = held * len(groups[0]) if kind == "all-gather" else held
    return Collective(
        kind=kind,
        bytes=size,
        runs=runs,
        seconds=machine.network.seconds(kind, size, groups) * runs,
        waited=0.0,
        chips=chips if kind == "collective-permute" else len(groups[0]),
        name=item.name,
        place=module.place(inner) or module.place(item),
        op_name=inner.op_name or item.op_name,
    )


def by_kind(collectives: list[Collective]) -> dict[str, dict[str, float]]:
    """Runs, bytes and seconds of a step, summed by kind of collective."""
    sums: dict[str, dict[str, float]] = defaultdict(
        lambda: {"runs": 0, "bytes": 0, "seconds": 0.0, "waited": 0.0}
    )
    for item in collectives:
        entry = sums[item.kind]
        entry["runs"] += item.runs
        entry["bytes"] += item.bytes * item.runs
        entry["seconds"] += item.seconds
        entry["waited"] += item.waited
    return dict(sorted(sums.items()))
