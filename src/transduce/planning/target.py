"""Machines by name: `tpu-v5e:4x4`, `h200:8`, `cpu`."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from transduce.config import RequestError
from transduce.parallel.hardware import CHIPS, Chip, chip_named
from transduce.planning.gpu import HOPPER

FLAT_SLICES = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
"""Of v5e and v6e; an axis of 16 closes to a ring."""

SMALL_SLICES = ((1, 1, 1), (2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
"""Of v5p; those made of whole cubes of 4 x 4 x 4 close in every dimension, these do not."""

CUBE, LARGEST = 4, 6144
"""The side of a cube of v5p, and the chips of the largest slice."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine to plan for."""

    name: str
    kind: Literal["tpu", "gpu", "cpu"]
    chip: Chip | None
    """None of a CPU, whose rate is measured."""
    shape: tuple[int, ...]
    """Of a TPU slice; of GPUs, hosts and GPUs of each; of a CPU, 1."""

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def closed(self) -> tuple[bool, ...]:
        """The dimensions of a TPU slice in which its torus closes."""
        if self.kind != "tpu":
            return (False,) * len(self.shape)
        if len(self.shape) == 2:
            return tuple(size == FLAT_SLICES[-1][0] for size in self.shape)
        return (all(size % CUBE == 0 for size in self.shape),) * 3


def parse_target(text: str) -> Target:
    """Raises `RequestError` that says what would be right."""
    if text == "cpu":
        return Target(name=text, kind="cpu", chip=None, shape=(1,))
    name, _, size = text.partition(":")
    chip = chip_named(name.removeprefix("tpu-"))
    if (
        chip is None
        or name != (f"tpu-{chip.name}" if chip.torus else chip.name)
        or not (chip.torus or chip.name in HOPPER)
    ):
        names = [f"tpu-{known.name}:..." for known in CHIPS if known.torus]
        names += [f"{name}:8" for name in HOPPER]
        raise RequestError(f"--on {text}: not one of {', '.join([*names, 'cpu'])}")
    return _slice(text, chip, size) if chip.torus else _hosts(text, chip, size)


def _slice(text: str, chip: Chip, size: str) -> Target:
    shape = tuple(int(n) for n in size.split("x")) if re.fullmatch(r"\d+(x\d+)*", size) else ()
    if chip.torus == 2:
        right, slices = shape in FLAT_SLICES, FLAT_SLICES
        more = ""
    else:
        cubes = all(n and n % CUBE == 0 for n in shape) and list(shape) == sorted(shape)
        right = shape in SMALL_SLICES or (len(shape) == 3 and cubes and math.prod(shape) <= LARGEST)
        slices, more = SMALL_SLICES, f", or AxBxC of multiples of {CUBE}, ascending, to {LARGEST:,}"
    if not right:
        known = ", ".join("x".join(map(str, item)) for item in slices)
        raise RequestError(f"--on {text}: slices of {chip.name} are {known}{more}")
    return Target(name=text, kind="tpu", chip=chip, shape=shape)


def _hosts(text: str, chip: Chip, size: str) -> Target:
    count, whole = int(size) if re.fullmatch(r"\d+", size) else 0, chip.chips_a_host
    if not count or (count > whole and count % whole):
        raise RequestError(
            f"--on {text}: say how many, up to {whole} on a host or a multiple of {whole}"
        )
    hosts = max(1, count // whole)
    return Target(name=text, kind="gpu", chip=chip, shape=(hosts, count // hosts))
