"""Table 1 of the paper, measured: one layer of each kind over sequences of growing length.

    python -m experiments.benchmarks.complexity --output cpu.json
    python -m experiments.benchmarks.complexity --on v5e:2x2 --dtype bfloat16 --output tpu.json
    python -m experiments.benchmarks.complexity_picture cpu.json tpu.json --output complexity.svg

One sequence, forward, width d 512, eight heads: here as time, on a TPU topology as the cycles that
its compiler estimates, which needs the package libtpu and no TPU. Memory is what the compiled
program takes beside its arguments and results. An exponent is the slope of logarithms over
lengths from 512 on; below that, parts that the paper leaves out weigh more, projections above all.
"""

import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import nnx
from jax.sharding import SingleDeviceSharding

from experiments.benchmarks.complexity_layers import KINDS, Kind
from transduce import environment
from transduce.arrays import Array
from transduce.planning.hlo import Module, parse

FITTED_FROM = 512


@dataclass
class Arguments:
    """Measure the layers of Table 1."""

    on: str = "cpu"
    """A TPU topology such as v5e:2x2, or cpu."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    d: int = 512
    lengths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
    seconds: float = 1.0
    """For each layer and length, after a first run: three more at least, nine at most."""
    output: Path | None = None
    """Where the figures go, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A layer at one length."""

    layer: str
    length: int
    cost: float
    """Seconds, or the compiler's cycles."""
    bytes: int
    operations: int


# ---- Measuring -------------------------------------------------------------------------------


def main() -> None:
    environment.prepare()
    asked = tyro.cli(Arguments)
    points: list[Point] = []
    for length in asked.lengths:
        print(f"length {length:,}", file=sys.stderr, flush=True)
        points += measure_here(asked, length) if asked.on == "cpu" else measure_there(asked, length)
    print(as_markdown(points, unit="ms" if asked.on == "cpu" else "thousand cycles"))
    if asked.output:
        content = {"on": asked.on, "dtype": asked.dtype, "points": [asdict(p) for p in points]}
        asked.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def compiled(kind: Kind, asked: Arguments, length: int, device: Any) -> tuple[Any, Any, Any]:
    """The program of a layer, and its abstract arguments: parameters and a sequence."""
    dtype = jnp.dtype(asked.dtype)
    graph, state = nnx.split(nnx.eval_shape(lambda: kind.make(asked.d, dtype)))
    place = SingleDeviceSharding(device)

    def argument(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    arguments = jax.tree.map(lambda x: argument(x.shape), state)
    x = argument((1, length, asked.d))

    def run(state: Any, x: Array) -> Array:
        layer: Any = nnx.merge(graph, state)
        return layer(x)

    return jax.jit(run).lower(arguments, x).compile(), arguments, x


def measure_here(asked: Arguments, length: int) -> list[Point]:
    """The layers in turns, so that what else the machine does meets all of them."""
    generator = np.random.default_rng(0)

    def drawn(x: jax.ShapeDtypeStruct) -> Array:
        values = generator.standard_normal(x.shape) / math.sqrt(asked.d)
        return jnp.asarray(values, x.dtype)

    programs, times = {}, {name: [] for name in KINDS}
    for name, kind in KINDS.items():
        program, *arguments = compiled(kind, asked, length, jax.devices("cpu")[0])
        values = jax.tree.map(drawn, arguments)
        jax.block_until_ready(program(*values))
        programs[name] = program, values
    for _ in range(9):
        for name, (program, values) in programs.items():
            if sum(times[name]) < asked.seconds or len(times[name]) < 3:
                began = time.perf_counter()
                jax.block_until_ready(program(*values))
                times[name].append(time.perf_counter() - began)
    return [
        _point(name, asked, length, statistics.median(times[name]), program)
        for name, (program, _) in programs.items()
    ]


def measure_there(asked: Arguments, length: int) -> list[Point]:
    """As compiled for one chip of a topology that is not here."""
    from jax.experimental import topologies

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    device = topologies.get_topology_desc(platform="tpu", topology_name=asked.on).devices[0]
    points = []
    for name, kind in KINDS.items():
        program, *_ = compiled(kind, asked, length, device)
        module = parse(program.as_text())
        points.append(_point(name, asked, length, cycles(module, module.entry), program))
    return points


def cycles(module: Module, computation: str) -> int:
    """The compiler's estimate, the body of a loop as often as it runs.

    An instruction that it has no estimate for, such as a copy that goes on beside others, is
    nothing.
    """
    total = 0
    for item in module.computations[computation]:
        if item.opcode == "while":
            trips = module.trips(item)
            assert trips is not None, f"how often {item.name} runs is not in the program"
            total += trips * sum(cycles(module, body) for body in item.called("body"))
        estimate = int(item.attribute(r'"estimated_cycles":"(\d+)"') or 0)
        total += estimate if estimate < 2**63 - 1 else 0
    return total


def _point(name: str, asked: Arguments, length: int, cost: float, program: Any) -> Point:
    return Point(
        layer=name,
        length=length,
        cost=cost,
        bytes=program.memory_analysis().temp_size_in_bytes,
        operations=KINDS[name].operations(length, asked.d),
    )


# ---- The table -------------------------------------------------------------------------------


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """The slope of log values over log lengths, from FITTED_FROM on; None of fewer than two."""
    kept = [(n, v) for n, v in zip(lengths, values, strict=True) if n >= FITTED_FROM and v > 0]
    if len(kept) < 2:
        return None
    x, y = np.log(np.array(kept, float)).T
    return float(np.polyfit(x, y, 1)[0])


def as_markdown(points: Sequence[Point], *, unit: str) -> str:
    """Costs by length with fitted exponents, then memory."""
    lengths = sorted({point.length for point in points})
    scale = 1e3 if unit == "ms" else 1e-3
    head = ["layer", "complexity", "sequential", "path", *(f"n = {n:,}" for n in lengths)]
    head += ["exponent of operations", "fitted", "paper"]
    costs, memory = [], []
    for name, group in itertools.groupby(sorted(points, key=_order), key=lambda p: p.layer):
        row, kind = list(group), KINDS[name]
        operations = exponent(lengths, [p.operations for p in row])
        fitted = exponent(lengths, [p.cost for p in row])
        costs.append(
            [
                *(name, kind.complexity, kind.sequential, kind.path),
                *(f"{p.cost * scale:,.3g}" if p.cost * scale < 100 else f"{p.cost * scale:,.0f}"
                  for p in row),
                *(_number(operations), _number(fitted), str(kind.exponent)),
            ]
        )  # fmt: skip
        grown = exponent(lengths, [p.bytes for p in row])
        memory.append([name, *(f"{p.bytes / 2**20:,.2f}" for p in row), _number(grown)])
    top = ["layer", *(f"n = {n:,}" for n in lengths), "fitted"]
    return f"{unit}\n\n{_table(head, costs)}\nMiB\n\n{_table(top, memory)}"


def _order(point: Point) -> tuple[int, int]:
    return list(KINDS).index(point.layer), point.length


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
