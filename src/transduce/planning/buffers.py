"""The largest arrays of a compiled program in main memory, and what they are for."""

from collections.abc import Iterator
from dataclasses import dataclass

from transduce.planning.hlo import Array, Instruction, Module

_NOT_MADE = frozenset(
    [
        "tuple",
        "get-tuple-element",
        "bitcast",
        "while",
        "conditional",
        "call",
        "constant",
        "copy-done",
        "slice-done",
        "async-start",
        "async-update",
        "call-start",
        "call-update",
        "optimization-barrier",
        "opt-barrier",
    ]
)
"""Names what another instruction made, or no array."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Arrays of one shape, made by one line of this program."""

    bytes: int
    """Of one, with what tiles add."""
    count: int
    shape: str
    opcode: str
    name: str
    """Of the first instruction that makes one."""
    place: str
    op_name: str


def largest_buffers(module: Module, *, count: int = 8) -> list[Buffer]:
    """By bytes, the largest first; arguments are those of the state and the batch.

    Not all need to be alive at once, and some may take each other's place: the sum of all that
    is alive at the worst moment is the compiler's peak.
    """
    found: dict[tuple[str, str, str], Buffer] = {}
    for computation in _run(module, module.entry):
        known = module.by_name(computation)
        for item in known.values():
            if item.opcode in _NOT_MADE or (
                item.opcode == "parameter" and computation != module.entry
            ):
                continue
            for array in item.arrays:
                if array.in_main_memory and array.tiled_bytes:
                    _add(found, module, item, array)
    return sorted(found.values(), key=lambda buffer: -buffer.bytes)[:count]


def _add(
    found: dict[tuple[str, str, str], Buffer], module: Module, item: Instruction, array: Array
) -> None:
    source = _maker(module, item)
    place, op_name = module.place(source), source.op_name
    key = str(array), place, op_name
    before = found.get(key)
    found[key] = Buffer(
        bytes=array.tiled_bytes,
        count=before.count + 1 if before else 1,
        shape=str(array),
        opcode=before.opcode if before else item.opcode,
        name=before.name if before else item.name,
        place=place,
        op_name=op_name,
    )


def _maker(module: Module, item: Instruction) -> Instruction:
    """Of a fusion that only writes into a stack, what made the slice that it writes."""
    for name in item.called("calls") if item.opcode == "fusion" else []:
        inside = module.by_name(name)
        for inner in inside.values():
            if inner.opcode == "dynamic-update-slice" and len(inner.operands) > 1:
                made = inside.get(inner.operands[1])
                while made and "dynamic_update" in made.op_name and made.operands:
                    made = inside.get(made.operands[0])
                if made and made.op_name:
                    return made
    return item


def _run(module: Module, name: str) -> Iterator[str]:
    """Computations whose instructions have buffers of their own: not the insides of fusions."""
    yield name
    for item in module.computations[name]:
        for kind in ("body", "branch_computations", "true_computation", "false_computation"):
            for called in item.called(kind):
                yield from _run(module, called)
        if item.opcode == "call":
            for called in item.called("to_apply"):
                yield from _run(module, called)
