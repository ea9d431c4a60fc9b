"""A plan of an experiment on one machine, and how it comes about."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from transduce.config import Experiment, MeshConfig
from transduce.planning import hlo
from transduce.planning.buffers import Buffer, largest_buffers
from transduce.planning.compile import Answer, compiled
from transduce.planning.cost import Cost, Machine, cost
from transduce.planning.estimate import (
    Estimate,
    estimate,
    meshes,
    needed_flops,
    resolved,
    shape_of,
)
from transduce.planning.placing import network_of
from transduce.planning.target import Target

COMPILED = 4
"""Meshes of a search that are compiled: those that arithmetic finds best."""

ROOM = 0.95
"""Of a chip's memory, how much arithmetic lets a step take: its figures are rough."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Of one target and mesh; without `answer`, by arithmetic alone."""

    experiment: Experiment
    """With the mesh counted out."""
    target: Target
    estimate: Estimate
    answer: Answer | None = None
    cost: Cost | None = None
    buffers: tuple[Buffer, ...] = ()

    @property
    def fits(self) -> bool | None:
        """None on a CPU, whose memory is not in the table of hardware."""
        if self.target.chip is None:
            return None
        if self.answer is None:
            return self.estimate.peak <= ROOM * self.target.chip.memory
        return self.answer.fits and self.peak <= self.target.chip.memory

    @property
    def peak(self) -> float:
        """Bytes on a chip at the worst moment."""
        if self.answer is None or not self.answer.fits:
            return self.estimate.peak
        memory = self.answer.memory
        if self.target.kind == "cpu":
            # Its compiler's peak leaves out what is neither argument nor result.
            return memory["arguments"] + memory["temporaries"]
        return memory["peak"]

    @property
    def rate(self) -> float | None:
        """Peak FLOP/s of a chip, or of the CPU as measured; None as long as it was not."""
        if self.target.chip is not None:
            return self.target.chip.rates.get(self.experiment.model.dtype)
        return self.answer.matrix_rate if self.answer else None

    @property
    def floors(self) -> dict[str, float]:
        """Seconds that a step cannot do without, by what would bind: none counts the others."""
        if not self.rate:
            return {}
        found = {"compute": needed_flops(self.experiment) / self.target.chips / self.rate}
        if self.target.chip is None:
            return found
        state = sum(self.estimate.memory[k] for k in ("parameters", "optimizer", "average"))
        if self.answer is not None:
            state = sum(self.answer.state.values())
        found["memory bandwidth"] = 2 * state / self.target.chip.bandwidth
        if self.cost is not None:
            found["interconnect"] = sum(item.seconds for item in self.cost.collectives)
        else:
            found["interconnect"] = self.estimate.interconnect
        return found

    @property
    def step(self) -> float | None:
        """Seconds of an update: the compiler's cycles with what they leave out, else arithmetic."""
        if not self.rate:
            return None
        if self.target.chip is None:
            return self.floors["compute"]
        if self.cost is None:
            return self.estimate.total
        if self.target.chip.clock is None:
            found = self.estimate
            return found.compute + found.again + found.traffic + self.cost.waited
        return self.cost.total

    @property
    def binds(self) -> str | None:
        """What most of a step goes on. The compiler's cycles for TPUs do not tell products from
        traffic: there it is the higher floor of the two, where collectives take less than all else.
        """
        chip, found = self.target.chip, self.estimate
        if chip is None or not self.step:
            return None
        waited = found.interconnect if self.cost is None else self.cost.waited
        if self.cost is not None and chip.clock is not None:
            others = {name: value for name, value in self.floors.items() if name != "interconnect"}
            highest = max(others, key=others.__getitem__)
            return "interconnect" if waited > self.step - waited else highest
        parts = {
            "compute": found.compute + found.again,
            "memory bandwidth": found.traffic,
            "interconnect": waited,
        }
        return max(parts, key=parts.__getitem__)

    @property
    def tokens_a_second(self) -> float | None:
        """Target positions, padding among them."""
        data = self.experiment.data
        return data.rows * data.row_length / self.step if self.step else None

    @property
    def utilisation(self) -> float | None:
        """The compute floor's share of a step; of a CPU, whose peak is not known, None."""
        if not self.step or self.target.chip is None:
            return None
        return self.floors["compute"] / self.step

    @property
    def hours(self) -> float | None:
        """Of training.steps updates; what is evaluated and saved between them is not counted."""
        return self.experiment.training.steps * self.step / 3600 if self.step else None

    def money(self, price: float) -> float | None:
        """At a price of a chip for an hour."""
        return self.hours * self.target.chips * price if self.hours is not None else None


def quick(experiment: Experiment, target: Target, mesh: MeshConfig | None = None) -> Plan:
    """By arithmetic. Raises `RequestError` where the experiment does not fit the target."""
    mesh = mesh or resolved(experiment, target)
    experiment = replace(experiment, mesh=mesh)
    chip = target.chip
    return Plan(
        experiment=experiment,
        target=target,
        estimate=estimate(
            experiment,
            mesh,
            network_of(target, mesh),
            rate=chip.rates.get(experiment.model.dtype, math.inf) if chip else math.inf,
            bandwidth=chip.bandwidth if chip else math.inf,
        ),
    )


def thorough(plan: Plan, *, say: Callable[[str], None]) -> Plan:
    """The same, compiled. Raises what `compiled` raises."""
    answer = compiled(plan.experiment, plan.target, say=say)
    if not answer.fits:
        return replace(plan, answer=answer)
    module = hlo.parse(answer.text)
    chip, rate = plan.target.chip, plan.rate
    found = None
    if chip is not None and rate is not None:
        network = network_of(plan.target, plan.experiment.mesh, answer.places)
        machine = Machine(
            clock=chip.clock,
            rate=rate,
            bandwidth=chip.bandwidth,
            network=network,
            array=chip.array,
        )
        found = cost(module, machine)
    return replace(
        plan,
        answer=replace(answer, text=""),
        cost=found,
        buffers=tuple(largest_buffers(module)),
    )


def searched(experiment: Experiment, target: Target) -> list[Plan]:
    """Every mesh of the target that the experiment divides over, the best by arithmetic first.

    Those that do not fit come last.
    """
    plans = [quick(experiment, target, mesh) for mesh in meshes(experiment, target.chips)]
    return ranked(plans)


def ranked(plans: list[Plan]) -> list[Plan]:
    """The fastest first, of those that fit."""
    return sorted(
        plans, key=lambda p: (p.fits is False, p.step or math.inf, shape_of(p.experiment.mesh))
    )


def worth_compiling(plans: list[Plan], default: MeshConfig) -> list[Plan]:
    """The best by arithmetic, and the experiment's own mesh, to be compared with."""
    own = [plan for plan in plans[COMPILED:] if plan.experiment.mesh == default]
    return plans[:COMPILED] + own
