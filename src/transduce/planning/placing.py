"""Where the chips of a mesh stand in a slice: JAX's own arrangement, without its devices."""

from dataclasses import dataclass

from jax.experimental import mesh_utils

from transduce.config import MeshConfig
from transduce.planning.estimate import shape_of
from transduce.planning.interconnect import Network
from transduce.planning.target import Target


@dataclass(frozen=True)
class _Chip:
    """As much of a device as JAX looks at when it arranges them."""

    id: int
    coords: tuple[int, ...]
    device_kind: str
    platform: str = "tpu"
    process_index: int = 0
    core_on_chip: int = 0


def network_of(target: Target, mesh: MeshConfig, places: list[list[int]] | None = None) -> Network:
    """The links of a target's chips, which stand at `places` in the mesh's order if those are
    known, else where JAX would put them."""
    if target.chip is None:
        return Network(places=((0,),), extents=(1,), closed=(False,), link=1.0)
    if target.kind == "gpu":
        each = target.shape[1]
        return Network(
            places=tuple((number // each, 0) for number in range(target.chips)),
            extents=(target.shape[0], 1),
            closed=(False, False),
            link=target.chip.link,
            between_hosts=target.chip.network,
        )
    whole = (*target.shape, *(1,) * (3 - len(target.shape)))
    return Network(
        places=tuple(tuple(place) for place in places or _arranged(target, mesh, whole)),
        extents=whole,
        closed=(*target.closed, *(False,) * (3 - len(target.shape))),
        link=target.chip.link,
    )


def _arranged(target: Target, mesh: MeshConfig, whole: tuple[int, ...]) -> list[tuple[int, ...]]:
    assert target.chip is not None
    x, y, z = whole
    chips = [
        _Chip(number, (number % x, number // x % y, number // x // y), target.chip.kinds[0])
        for number in range(x * y * z)
    ]
    arranged = mesh_utils.create_device_mesh(
        shape_of(mesh),
        chips,  # pyright: ignore[reportArgumentType]  # JAX reads no more of them than this
        allow_split_physical_axes=True,
    )
    return [chip.coords for chip in arranged.flat]
