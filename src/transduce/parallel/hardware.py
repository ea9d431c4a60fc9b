"""What accelerators can do at most, as their makers say: the one table, with its sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One TPU chip or one GPU: in either case one device to JAX."""

    name: str
    kinds: tuple[str, ...]
    """What JAX may call it, the `device_kind` of a device."""
    rates: Mapping[str, float]
    """Peak FLOP/s of dense products of matrices, by the dtype of their operands."""
    memory: int
    """Bytes. The makers' GB are units of 2^30 here, as the devices themselves report."""
    bandwidth: float
    """Bytes a second to and from memory."""
    links: float
    """Bytes a second to and from other chips, over all links and both directions."""
    torus: int
    """Dimensions of the torus in which TPU chips stand, with a link to either side in each; 0: the
    GPUs of a host, each of whose links leads to the same switches."""
    network: float | None = None
    """Bytes a second into one GPU from other hosts; TPU slices have no others."""
    arrays: int | None = None
    """Of multipliers on a TPU chip, each `array` x `array`, with one product an element a cycle."""
    array: int = 1
    chips_a_host: int
    """Of a physical host; v5e and v6e slices of several hosts come as virtual machines of 4."""
    source: str

    @property
    def link(self) -> float:
        """Bytes a second of one link in one direction; of a GPU, of all of them."""
        return self.links / 2 / max(1, 2 * self.torus)

    @property
    def clock(self) -> float | None:
        """Cycles a second of a TPU: its rate over the operations of all arrays in a cycle."""
        if self.arrays is None:
            return None
        return self.rates["bfloat16"] / (2 * self.arrays * self.array**2)


def _tpu(rate: float) -> Mapping[str, float]:
    # JAX multiplies float32 in one pass of bfloat16 there unless a precision is asked for
    # (JAX documentation, Matmul precision).
    return MappingProxyType({"bfloat16": rate, "float32": rate})


def _gpu(*, bfloat16: float, tf32: float) -> Mapping[str, float]:
    # And in TF32 here (the same page).
    return MappingProxyType({"bfloat16": bfloat16, "float32": tf32})


_A100 = _gpu(bfloat16=312e12, tf32=156e12)
_H100 = _gpu(bfloat16=989.4e12, tf32=494.7e12)

CHIPS = (
    Chip(
        name="v5e",
        kinds=("TPU v5 lite", "TPU v5e"),
        rates=_tpu(197e12),
        memory=16 * _GIB,
        bandwidth=819e9,
        links=400e9,
        torus=2,
        arrays=4,
        array=128,
        chips_a_host=8,
        source="Google Cloud documentation, TPU v5e",
    ),
    Chip(
        name="v5p",
        kinds=("TPU v5", "TPU v5p"),
        rates=_tpu(459e12),
        memory=95 * _GIB,
        bandwidth=2765e9,
        links=1200e9,
        torus=3,
        arrays=8,
        array=128,
        chips_a_host=4,
        source="Google Cloud documentation, TPU v5p",
    ),
    Chip(
        name="v6e",
        kinds=("TPU v6 lite", "TPU v6e"),
        rates=_tpu(918e12),
        memory=32 * _GIB,
        # 1,600 in the page's latest version, 1,640 in those before and in JAX.
        bandwidth=1640e9,
        links=800e9,
        torus=2,
        arrays=4,
        array=256,
        chips_a_host=8,
        source="Google Cloud documentation, TPU v6e",
    ),
    Chip(
        name="a100-40gb",
        kinds=("NVIDIA A100-SXM4-40GB",),
        rates=_A100,
        memory=40 * _GIB,
        bandwidth=1555e9,
        links=600e9,
        torus=0,
        network=200e9 / 8,
        chips_a_host=8,
        source="NVIDIA A100 datasheet, SXM, without sparsity; HGX A100 for chips a host, "
        "DGX A100 for the network",
    ),
    Chip(
        name="a100-80gb",
        kinds=("NVIDIA A100-SXM4-80GB",),
        rates=_A100,
        memory=80 * _GIB,
        bandwidth=2039e9,
        links=600e9,
        torus=0,
        network=200e9 / 8,
        chips_a_host=8,
        source="NVIDIA A100 datasheet, SXM, without sparsity; HGX A100 for chips a host, "
        "DGX A100 for the network",
    ),
    Chip(
        name="h100",
        kinds=("NVIDIA H100 80GB HBM3",),
        rates=_H100,
        memory=80 * _GIB,
        bandwidth=3350e9,
        links=900e9,
        torus=0,
        network=400e9 / 8,
        chips_a_host=8,
        source="NVIDIA H100 whitepaper (rates) and datasheet, SXM, without sparsity; HGX H100 for "
        "chips a host, DGX H100 for the network",
    ),
    Chip(
        name="h200",
        kinds=("NVIDIA H200",),
        # The same die as the H100's: the datasheet gives the same rates.
        rates=_H100,
        memory=141 * _GIB,
        bandwidth=4800e9,
        links=900e9,
        torus=0,
        network=400e9 / 8,
        chips_a_host=8,
        source="NVIDIA H200 datasheet, SXM, without sparsity; HGX H200 for chips a host, "
        "DGX H200 for the network",
    ),
)


def chip_of(device_kind: str) -> Chip | None:
    """The chip that JAX calls `device_kind`; None for a CPU and for what is not in the table."""
    return next((chip for chip in CHIPS if device_kind in chip.kinds), None)


def peak_rate(device_kind: str, dtype: str) -> float | None:
    """Peak FLOP/s of one device in `dtype`; None where it is not known."""
    chip = chip_of(device_kind)
    return chip.rates.get(dtype) if chip else None


def chip_named(name: str) -> Chip | None:
    """The chip that this table calls `name`."""
    return next((chip for chip in CHIPS if chip.name == name), None)
