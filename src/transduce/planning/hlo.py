"""The text of a compiled program (HLO), read as far as a plan needs it.

A module is a list of computations, a computation a list of instructions

    %name = shape opcode(%operand, ...), attribute=value, ...

which in a program whose header says `is_scheduled=true` stand in the order in which they run.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

WIDTHS = {
    **{"pred": 1, "token": 0, "opaque": 0},
    **{f"{sign}{bits}": bits / 8 for sign in "su" for bits in (2, 4, 8, 16, 32, 64)},
    **{"bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16},
}
"""Bytes of an element; those of types that begin with f8 have one."""

_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](?:\{([^{}]*)\})?")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*-> .*\{\s*$")
_NAME = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(body|condition|calls|to_apply|true_computation|false_computation|called_computations"
    r"|branch_computations)=(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_TABLE_ROW = re.compile(r"(\d+) (.*)")


class Unreadable(ValueError):
    """The text is not what this module knows; the message names the line."""


@dataclass(frozen=True, kw_only=True)
class Array:
    """One array of a shape; an instruction whose shape is a tuple has several."""

    kind: str
    """Its type of elements, as HLO names it."""
    sizes: tuple[int, ...]
    layout: str
    """Dimensions from the fastest to the slowest, then tiles T(...), then memory space S(n)."""

    @property
    def bytes(self) -> int:
        """Without what tiles add."""
        width = 1 if self.kind.startswith("f8") else WIDTHS[self.kind]
        return math.ceil(math.prod(self.sizes) * width)

    @property
    def tiled_bytes(self) -> int:
        """With the padding of the last dimensions to whole tiles."""
        order, _, rest = self.layout.partition(":")
        tile = re.match(r"T\(([\d,]+)\)", rest)
        if not tile or not self.sizes:
            return self.bytes
        steps = [int(size) for size in tile[1].split(",")]
        sizes = list(self.sizes)
        for dimension, step in zip(order.split(","), reversed(steps), strict=False):
            sizes[int(dimension)] = math.ceil(sizes[int(dimension)] / step) * step
        width = 1 if self.kind.startswith("f8") else WIDTHS[self.kind]
        return math.ceil(math.prod(sizes) * width)

    @property
    def in_main_memory(self) -> bool:
        return not re.search(r"S\([1-9]", self.layout)

    def __str__(self) -> str:
        return f"{self.kind}[{','.join(map(str, self.sizes))}]"


def arrays(shape: str) -> tuple[Array, ...]:
    """The arrays of a shape, those of a tuple in order."""
    return tuple(
        Array(
            kind=kind,
            sizes=tuple(int(size.lstrip("<=")) for size in sizes.split(",") if size),
            layout=layout,
        )
        for kind, sizes, layout in _ARRAY.findall(re.sub(r"/\*.*?\*/", "", shape))
    )


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    literal: str
    """What stands in its parentheses: of a constant, its value."""

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        return arrays(self.shape)

    def called(self, kind: str) -> list[str]:
        """Names of the computations that the attribute `kind` gives."""
        found = [
            [listed, single]
            for name, listed, single in _CALLED.findall(self.attributes)
            if name == kind
        ]
        return [
            name.strip().lstrip("%")
            for pair in found
            for item in pair
            for name in item.split(",")
            if name.strip()
        ]

    def attribute(self, pattern: str) -> str | None:
        """The first group of `pattern` in the attributes."""
        match = re.search(pattern, self.attributes)
        return match[1] if match else None

    @property
    def op_name(self) -> str:
        """What JAX was doing when it asked for this."""
        return self.attribute(r'op_name="([^"]*)"') or ""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A program."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str
    frames: dict[int, tuple[str, int]]
    """Stack frame to the innermost place in this package, as file and line; where there is one."""

    def by_name(self, computation: str) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.computations[computation]}

    def place(self, instruction: Instruction) -> str:
        """The line of this package that asked for an instruction; "" where none is known."""
        frame = instruction.attribute(r"stack_frame_id=(\d+)")
        found = self.frames.get(int(frame)) if frame else None
        return f"{found[0]}:{found[1]}" if found else ""

    def trips(self, loop: Instruction) -> int | None:
        """How often a `while` runs; None where neither it nor its condition says so."""
        known = loop.attribute(r'known_trip_count"?:\{"?n"?:"?(\d+)')
        if known:
            return int(known)
        (condition,) = loop.called("condition")
        bounds = {
            int(instruction.literal)
            for name in [condition, *self._fusions(condition)]
            for instruction in self.computations[name]
            if instruction.opcode == "constant" and re.fullmatch(r"\d+", instruction.literal)
        }
        if len(bounds) != 1:
            return None
        return bounds.pop()

    def _fusions(self, computation: str) -> list[str]:
        return [
            name
            for instruction in self.computations[computation]
            for name in instruction.called("calls")
        ]


def parse(text: str, *, package: str = "transduce") -> Module:
    """Raises `Unreadable` where a line of a computation is not an instruction."""
    computations: dict[str, tuple[Instruction, ...]] = {}
    tables: dict[str, dict[int, str]] = {}
    entry, name, lines, table = "", None, [], None
    for line in text.splitlines():
        if name is None:
            header = _HEADER.match(line)
            if header and not line.startswith(" "):
                name, lines = header[2], []
                entry = name if header[1] else entry
            elif line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = tables.setdefault(line, {})
            elif table is not None and (row := _TABLE_ROW.match(line)):
                table[int(row[1])] = row[2]
        elif re.match(r"\}(, execution_thread=.*)?\s*$", line):
            computations[name] = tuple(_instruction(line) for line in lines)
            name = None
        elif _NAME.match(line) or not lines:
            lines.append(line)
        else:
            lines[-1] += line  # a quoted attribute with ends of lines in it
    if not entry:
        raise Unreadable("no ENTRY computation in the compiled program's text")
    return Module(computations=computations, entry=entry, frames=_frames(tables, package))


def _instruction(line: str) -> Instruction:
    name = _NAME.match(line)
    if not name:
        raise Unreadable(f"not an instruction: {line.strip()[:200]}")
    rest = line[name.end() :]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opcode = _OPCODE.match(rest, end)
    if not opcode:
        raise Unreadable(f"no operation in: {line.strip()[:200]}")
    close = _closing(rest, opcode.end() - 1)
    inner = rest[opcode.end() : close]
    return Instruction(
        name=name[1],
        shape=rest[:end],
        opcode=opcode[1],
        operands=tuple(_OPERAND.findall(inner)),
        attributes=rest[close + 1 :],
        literal=inner.strip(),
    )


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` closes."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    raise Unreadable(f"parentheses do not match in: {text[:200]}")


def _frames(tables: dict[str, dict[int, str]], package: str) -> dict[int, tuple[str, int]]:
    files, functions = tables.get("FileNames", {}), tables.get("FileLocations", {})
    stack = {
        number: tuple(int(value) for value in re.findall(r"=(\d+)", row))
        for number, row in tables.get("StackFrames", {}).items()
    }

    def chain(number: int) -> Iterator[int]:
        seen = set()
        while number in stack and number not in seen:
            seen.add(number)
            yield number
            # The parent is given as its number plus one; an outermost frame names itself.
            number = stack[number][1] - 1 if len(stack[number]) > 1 else 0

    found = {}
    for number in stack:
        for frame in chain(number):
            location = functions.get(stack[frame][0], "")
            file = re.search(r"file_name_id=(\d+)", location)
            line = re.search(r"\bline=(\d+)", location)
            path = files.get(int(file[1]), "").strip('"') if file else ""
            if line and f"/{package}/" in path:
                found[number] = (path.rpartition(f"/{package}/")[2], int(line[1]))
                break
    return found
