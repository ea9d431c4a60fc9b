"""Plans as text and as JSON; both say which figures are the compiler's."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from transduce.parallel.mesh import AXES
from transduce.planning.cost import by_kind
from transduce.planning.estimate import described, shape_of
from transduce.planning.plans import Plan

GIB = 2**30
ADVICE = "training.remat, more training.accumulation or mesh.fsdp, or fewer data.rows need less"


def mesh_of(plan: Plan) -> str:
    """`data 4 fsdp 4`: the axes of several chips."""
    sizes = zip(AXES, shape_of(plan.experiment.mesh), strict=True)
    return " ".join(f"{axis} {size}" for axis, size in sizes if size > 1) or "data 1"


def text(plan: Plan, *, price: float | None) -> str:
    """A block of lines. What stands under (compiler) is its word; the rest is arithmetic."""
    compiled = plan.answer is not None
    way = f"compiled in {plan.answer.seconds:.0f} s" if plan.answer else "by arithmetic, at once"
    lines = [
        f"{plan.experiment.name} on {plan.target.name}, {plan.target.chips} "
        f"{plan.target.chip.name if plan.target.chip else 'CPU'}, mesh {mesh_of(plan)}: {way}"
    ]

    def line(name: str, value: str) -> None:
        lines.append(f"  {name:<14}{value}")

    line("memory", _memory(plan))
    if compiled:
        assert plan.answer is not None
        line("", "of which (by shapes) " + _sizes(plan.answer.state))
        for message in _wrapped(plan):
            line("", message)
        for buffer in plan.buffers[:6]:
            times = f"{buffer.count} x " if buffer.count > 1 else ""
            what = buffer.place or buffer.op_name or "made by the compiler"
            line(
                "  (compiler)",
                f"{times}{buffer.bytes / GIB:.3f} GiB {buffer.shape} {buffer.opcode} "
                f"{buffer.name}: {what}",
            )
    else:
        line("", _sizes(plan.estimate.memory))
    if compiled and not plan.fits and plan.target.chip:
        return "\n".join(lines)
    if plan.floors and plan.target.chip:
        line(
            "floors",
            ", ".join(f"{name} {_time(value)}" for name, value in plan.floors.items())
            + f"; {plan.binds} binds the step",
        )
    if plan.step:
        line("step", _step(plan))
        _parts(plan, line)
        share = plan.utilisation
        of_peak = f", {share:.0%} of the peak rate" if share is not None else ""
        line("speed", f"{plan.tokens_a_second:,.0f} target positions/s{of_peak}")
        assert plan.hours is not None
        long = f"{plan.hours:,.1f} h" if plan.hours >= 1 else f"{60 * plan.hours:.1f} min"
        steps = plan.experiment.training.steps
        line("run", f"{long} for {steps:,} updates, without evaluating and saving")
        if price is not None:
            line("cost", f"{plan.money(price):,.2f} at {price:g} a chip-hour")
    return "\n".join(lines)


def _memory(plan: Plan) -> str:
    chip = plan.target.chip
    if plan.answer is not None and not plan.answer.fits:
        return "does not fit (compiler)"
    word = {True: "fits: ", False: "does not fit: ", None: ""}[plan.fits]
    room = f" of {chip.memory / GIB:.0f}" if chip else ""
    by = "compiler" if plan.answer else "arithmetic"
    advice = f"; {ADVICE}" if plan.fits is False else ""
    return f"{word}{plan.peak / GIB:.2f}{room} GiB a chip ({by}){advice}"


def _wrapped(plan: Plan) -> list[str]:
    """What the compiler says where memory is short, its first lines and the largest arrays."""
    if plan.answer is None or plan.answer.fits:
        return []
    lines = [line.strip() for line in plan.answer.message.splitlines() if line.strip()]
    return [*(line[:200] for line in lines[:12]), ADVICE]


def _step(plan: Plan) -> str:
    assert plan.step is not None
    if plan.target.chip is None:
        by = "arithmetic: FLOPs of all products over the rate measured of a feed-forward layer's"
    elif plan.cost is None:
        by = "arithmetic: nothing runs beside anything else"
    elif plan.target.chip.clock is None:
        by = "arithmetic, products at the peak rate: no compiler for GPUs estimates time"
    else:
        by = "compiler's cycles, arithmetic for the rest"
    floor = plan.step / plan.floors["compute"]
    more = f", {floor:.2f} x the compute floor" if plan.target.chip else ""
    return f"{_time(plan.step)}{more} ({by})"


def _parts(plan: Plan, line: Any) -> None:
    cost = plan.cost
    if cost is None:
        for item in plan.estimate.exchanges:
            axes = ", ".join(item.axes)
            line(
                "",
                f"{item.kind} over {axes}: {item.bytes / 1e6:,.1f} MB, {_time(item.seconds)} "
                f"({item.what})",
            )
        return
    if cost.compiled:
        line(
            "",
            f"compiler's cycles {_time(cost.compiled)}, {cost.kernel_calls} kernels "
            f"{_time(cost.kernels)}, waiting for collectives {_time(cost.waited)}, "
            f"{cost.uncosted_instructions} instructions without an estimate "
            f"{_time(cost.uncosted)}",
        )
    for kind, sums in by_kind(cost.collectives).items():
        line(
            "",
            f"{kind} (compiler) {sums['runs']:.0f} x, {sums['bytes'] / 1e6:,.1f} MB; "
            f"{_time(sums['seconds'])} (arithmetic), {_time(sums['waited'])} of it waited for",
        )
    for what, names in (
        ("loops whose runs are not known count once", cost.unknown_loops),
        ("collectives count over all chips", cost.unknown_groups),
        ("kernels without a formula do not count", cost.unknown_kernels),
    ):
        if names:
            line("", f"{len(names)} {what}: {', '.join(names[:3])}")


def ranking(plans: Sequence[Plan]) -> str:
    """All meshes of a search, a line each."""
    lines = [f"  {'mesh':<36}{'GiB a chip':>11}{'step':>11}   by"]
    for plan in plans:
        by = "compiler" if plan.answer else "arithmetic"
        fits = "" if plan.fits is not False else ", does not fit"
        step = _time(plan.step) if plan.step else "-"
        lines.append(f"  {mesh_of(plan):<36}{plan.peak / GIB:>11.2f}{step:>11}   {by}{fits}")
    return "\n".join(lines)


def as_json(plan: Plan, *, price: float | None) -> dict[str, Any]:
    """Bytes and seconds are those of a chip and a step."""
    answer, cost = plan.answer, plan.cost
    found: dict[str, Any] = {
        "experiment": plan.experiment.name,
        "target": plan.target.name,
        "chips": plan.target.chips,
        "mesh": asdict(plan.experiment.mesh),
        "by": "compiler" if answer else "arithmetic",
        "fits": plan.fits,
        "peak_bytes": plan.peak,
        "memory_bytes": plan.target.chip.memory if plan.target.chip else None,
        "flops": needed(plan),
        "floors_seconds": plan.floors,
        "binds": plan.binds,
        "step_seconds": plan.step,
        "tokens_per_second": plan.tokens_a_second,
        "utilisation": plan.utilisation,
        "hours": plan.hours,
        "money": None if price is None else plan.money(price),
        "arithmetic": described(plan.estimate),
    }
    if answer is not None:
        found["compiler"] = {
            "seconds": answer.seconds,
            "fits": answer.fits,
            "message": answer.message[:4000],
            "state_bytes": answer.state,
            "memory_bytes": answer.memory,
            "largest_buffers": [asdict(buffer) for buffer in plan.buffers],
        }
    if cost is not None:
        collectives = sorted(cost.collectives, key=lambda item: -item.seconds)
        instructions = sorted(cost.instructions, key=lambda item: -item.seconds)
        found["compiler"] |= {
            "cycles_seconds": cost.compiled,
            "collectives": by_kind(cost.collectives),
            "largest_collectives": [asdict(item) for item in collectives[:10]],
            "dearest_instructions": [asdict(item) for item in instructions[:20]],
        }
        found["arithmetic"] |= {
            "kernels_seconds": cost.kernels,
            "kernel_calls": cost.kernel_calls,
            "waited_seconds": cost.waited,
            "uncosted_seconds": cost.uncosted,
            "uncosted_instructions": cost.uncosted_instructions,
            "not_understood": cost.unknown_loops + cost.unknown_groups + cost.unknown_kernels,
        }
    return found


def needed(plan: Plan) -> float:
    """FLOPs of a chip in a step, by formula."""
    return plan.estimate.flops


def _sizes(sizes: dict[str, Any]) -> str:
    return ", ".join(
        f"{kind} {size / GIB:.3f}"
        for kind, size in sorted(sizes.items(), key=lambda item: -item[1])
        if size
    )


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.0f} us"
