"""A first answer by arithmetic alone: memory, floors and time of a training step on a mesh.

Of a chip, with P the model's parameters, p the chips that divide them (fsdp x tensor), c the bytes
of a value in the model's dtype, and n the positions of a micro-batch that lie on the chip:

    state        4 P / p of parameters, 8 P / p of Adam's moments, 4 P / p of a moving average
    gradients    4 P / p, and with accumulation as much again for their sum
    gathered     c P / tensor, the parameters whole over fsdp, where fsdp divides them
    kept         what layers keep for the backward pass, as training.remat says: `_kept_a_position`
    loss         two arrays [n / loss_chunks, V / tensor] in float32, and the table's gradient
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from transduce.config import Experiment, MeshConfig, RequestError
from transduce.model.arithmetic import Flops, parameters, training_flops
from transduce.parallel.mesh import AXES
from transduce.planning.interconnect import Group, Network
from transduce.planning.target import Target

BYTES = {"bfloat16": 2, "float32": 4, "float64": 8}

LANES = 128
"""Values of the last dimension that a TPU stores together: narrower heads are filled up."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A kind of collective in a step, as arithmetic expects it."""

    what: str
    kind: str
    axes: tuple[str, ...]
    bytes: float
    """Of all its runs in a step."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Of one chip and one step."""

    memory: dict[str, float]
    """Bytes by kind."""
    flops: float
    compute: float
    """Seconds that the products of matrices take at the chip's peak rate."""
    again: float
    """The same, of those that training.remat has made a second time."""
    traffic: float
    """Seconds that state and kept activations take to and from memory."""
    exchanges: tuple[Exchange, ...]

    @property
    def peak(self) -> float:
        return sum(self.memory.values())

    @property
    def interconnect(self) -> float:
        return sum(exchange.seconds for exchange in self.exchanges)

    @property
    def total(self) -> float:
        """Nothing beside anything else, which is not far from what compilers do."""
        return self.compute + self.again + self.traffic + self.interconnect


def resolved(experiment: Experiment, target: Target) -> MeshConfig:
    """The experiment's mesh on the target, `data` counted out.

    Raises `RequestError` where it does not have as many chips as the target, or the batch or the
    model does not divide over it.
    """
    config = experiment.mesh
    rest = config.fsdp * config.context * config.tensor
    data = config.data if config.data > 0 else max(1, target.chips // rest)
    mesh = replace(config, data=data)
    if data * rest != target.chips:
        raise RequestError(
            f"--on {target.name}: mesh.data {data} x fsdp {config.fsdp} x context {config.context} "
            f"x tensor {config.tensor} makes {data * rest}, not {target.chips} chips: set "
            "--mesh.data, --mesh.fsdp, --mesh.context, --mesh.tensor, or --search-mesh"
        )
    if reason := does_not_divide(experiment, mesh):
        raise RequestError(f"--on {target.name}: {reason}")
    return mesh


def does_not_divide(experiment: Experiment, mesh: MeshConfig) -> str | None:
    """Which number of the experiment a mesh does not divide, and what would be right."""
    data, model = experiment.data, experiment.model
    shares = mesh.data * mesh.fsdp * experiment.training.accumulation
    wanted = (
        ("data.rows", data.rows, "mesh.data x mesh.fsdp x training.accumulation", shares),
        ("data.row_length", data.row_length, "mesh.context", mesh.context),
        ("model.d_model", model.d_model, "mesh.fsdp", mesh.fsdp),
        ("model.heads", model.heads, "mesh.tensor", mesh.tensor),
        ("model.d_ff", model.d_ff, "mesh.tensor", mesh.tensor),
        ("model.vocabulary_size", model.vocabulary_size, "mesh.tensor", mesh.tensor),
    )
    for name, value, axes, count in wanted:
        if value % count:
            up = value + -value % count
            near = [str(n) for n in (up - count, up) if n > 0]
            return (
                f"{name} ({value:,}) does not divide over {axes} ({count}): "
                f"{' or '.join(near)} would"
            )
    return None


def meshes(experiment: Experiment, chips: int) -> list[MeshConfig]:
    """All ways to divide the chips over the axes that the experiment divides over."""
    found = []
    for data in _divisors(chips):
        for fsdp in _divisors(chips // data):
            for context in _divisors(chips // data // fsdp):
                tensor = chips // data // fsdp // context
                mesh = MeshConfig(data=data, fsdp=fsdp, context=context, tensor=tensor)
                if does_not_divide(experiment, mesh) is None:
                    found.append(mesh)
    return found


def shape_of(mesh: MeshConfig) -> tuple[int, ...]:
    """Chips of each axis, in the order of `AXES`."""
    return mesh.data, mesh.fsdp, mesh.context, mesh.tensor


def needed_flops(experiment: Experiment) -> float:
    """Of all chips in a step: `training_flops`, but no products of scores that the decoder's
    attention to itself masks."""
    data, model = experiment.data, experiment.model
    total = _flops(experiment).total
    width = model.heads * (model.d_k + model.d_v)
    masked = model.decoder_layers * data.rows * data.row_length * (data.row_length - 1) / 2
    return total - 3 * 2 * masked * width


def _flops(experiment: Experiment) -> Flops:
    data = experiment.data
    sizes = {"rows": data.rows, "source_length": data.row_length, "target_length": data.row_length}
    return training_flops(experiment.model, **sizes)


def _again(experiment: Experiment) -> float:
    """FLOPs of all chips in a step, besides `needed_flops`: of remat `layer` the layers' forward
    pass, of `dots` the scores and what they mix."""
    flops = _flops(experiment)
    inside = {"none": 0, "dots": flops.attention, "layer": flops.total - flops.logits}
    return inside[experiment.training.remat] / 3


def estimate(
    experiment: Experiment, mesh: MeshConfig, network: Network, *, rate: float, bandwidth: float
) -> Estimate:
    """By the formulas of this module and of `interconnect.py`."""
    flops = needed_flops(experiment) / math.prod(shape_of(mesh))
    memory = _memory(experiment, mesh)
    state = sum(memory[kind] for kind in ("parameters", "optimizer", "average"))
    parts = experiment.training.accumulation
    # What is kept is written and read, and about as much again goes through memory unkept.
    moved = 2 * state + 2 * memory["gradients"] + 4 * memory["kept"] * parts
    return Estimate(
        memory=memory,
        flops=flops,
        compute=flops / rate,
        again=_again(experiment) / math.prod(shape_of(mesh)) / rate,
        traffic=moved / bandwidth,
        exchanges=tuple(_exchanges(experiment, mesh, network)),
    )


def _memory(experiment: Experiment, mesh: MeshConfig) -> dict[str, float]:
    model, training = experiment.model, experiment.training
    count = parameters(model).total
    wide = max(4, BYTES[model.dtype])
    held = wide * count / (mesh.fsdp * mesh.tensor)
    positions = _positions(experiment, mesh)
    loss = positions / min(training.loss_chunks, experiment.data.row_length)
    vocabulary = model.vocabulary_size / mesh.tensor
    return {
        "parameters": held,
        "optimizer": 2 * held,
        "average": held if training.ema_decay else 0.0,
        "gradients": held * (2 if training.accumulation > 1 else 1),
        "gathered": BYTES[model.dtype] * count / mesh.tensor if mesh.fsdp > 1 else 0.0,
        "kept": positions * _kept_a_position(experiment, mesh),
        "loss": 2 * wide * loss * vocabulary + wide * vocabulary * model.d_model,
    }


def _positions(experiment: Experiment, mesh: MeshConfig) -> float:
    """Of source, and of target, in a micro-batch on one chip."""
    data = experiment.data
    chips = mesh.data * mesh.fsdp * mesh.context * experiment.training.accumulation
    return data.rows * data.row_length / chips


def _kept_a_position(experiment: Experiment, mesh: MeshConfig) -> float:
    """Bytes that all layers keep for a position: with remat `layer` a layer's input, with `dots`
    also its products with matrices; with `none` what products read, each normalisation's input,
    and masks of dropout."""
    model, remat = experiment.model, experiment.training.remat
    size = BYTES[model.dtype]
    encoder, decoder = model.encoder_layers, model.decoder_layers
    if remat == "layer":
        return (encoder + decoder) * model.d_model * size
    filled = [math.ceil(width / LANES) * LANES for width in (model.d_k, model.d_v)]
    # Queries and keys; values, and what they are mixed to.
    attention = model.heads / mesh.tensor * 2 * (filled[0] + filled[1]) * size
    kept = (encoder + 2 * decoder) * attention
    kept += (encoder + decoder) * model.d_ff / mesh.tensor * size
    sublayers = 2 * encoder + 3 * decoder
    if remat == "dots":
        return kept + sublayers * model.d_model * size
    return kept + sublayers * model.d_model * (2 * size + 1)


def _exchanges(experiment: Experiment, mesh: MeshConfig, network: Network) -> list[Exchange]:
    model, training = experiment.model, experiment.training
    size, parts = BYTES[model.dtype], training.accumulation
    count = parameters(model).total / mesh.tensor
    positions = _positions(experiment, mesh)
    sizes: dict[str, int] = dict(zip(AXES, shape_of(mesh), strict=True))
    found: list[Exchange] = []

    def add(what: str, kind: str, axes: tuple[str, ...], amount: float) -> None:
        group = tuple(axis for axis in axes if sizes[axis] > 1)
        if group and amount:
            seconds = network.seconds(kind, amount, [first_group(sizes, group)])
            found.append(Exchange(what=what, kind=kind, axes=group, bytes=amount, seconds=seconds))

    again = 2 if training.remat != "none" else 1
    add("parameters, gathered", "all-gather", ("fsdp",), again * parts * size * count)
    add("gradients", "reduce-scatter", ("fsdp",), parts * size * count)
    add("gradients", "all-reduce", ("data", "context"), parts * size * count / mesh.fsdp)
    sublayers = 2 * model.encoder_layers + 3 * model.decoder_layers
    activations = parts * positions * model.d_model * size
    forward_again = 3 if training.remat == "layer" else 2
    add("activations", "all-reduce", ("tensor",), forward_again * sublayers * activations)
    width = model.heads / mesh.tensor * (model.d_k + model.d_v)
    attentions = model.encoder_layers + 2 * model.decoder_layers
    # Keys and values go all the way around in the forward pass, and again in the backward pass,
    # their gradients with them and one step more, in float32.
    steps = 2 * mesh.context * size + (mesh.context + 1) * max(4, size)
    around = attentions * parts * positions * width * steps
    if mesh.context > 1:
        group = first_group(sizes, ("context",))
        ring = [(a, b) for a, b in zip(group, (*group[1:], group[0]), strict=True)]
        seconds = network.seconds("collective-permute", around, ring)
        found.append(
            Exchange(
                what="keys and values",
                kind="collective-permute",
                axes=("context",),
                bytes=around,
                seconds=seconds,
            )
        )
    return found


def first_group(sizes: dict[str, int], axes: tuple[str, ...]) -> Group:
    """The chips, by number, that differ from the first one only along `axes`."""
    group, step = [0], 1
    for axis in reversed(AXES):
        if axis in axes:
            group = [chip + step * i for i in range(sizes[axis]) for chip in group]
        step *= sizes[axis]
    return tuple(sorted(group))


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def described(value: Estimate) -> dict[str, Any]:
    """As JSON has it."""
    return asdict(value) | {
        "peak": value.peak,
        "interconnect": value.interconnect,
        "total": value.total,
    }
