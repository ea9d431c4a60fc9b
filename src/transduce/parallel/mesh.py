"""The device mesh, and the one table that says what lies where on it."""

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import jax
from flax import nnx
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array
from transduce.config import MeshConfig, RequestError

AXES = ("data", "fsdp", "context", "tensor")

TABLE = MappingProxyType(
    {
        "batch": ("data", "fsdp"),
        "positions": ("context",),
        "embed": ("fsdp",),
        "heads": ("tensor",),
        "feed_forward": ("tensor",),
        "vocabulary": ("tensor",),
    }
)
"""Logical axis to mesh axes.

batch         rows of activations: every device of data and of fsdp has rows of its own.
positions     of rows, source and target alike: a row longer than a device can hold lies on
              several. Attention alone looks beyond a device's part: see `model/ring.py`.
embed         the D side of parameters: stored divided over fsdp, gathered where they are used,
              so that a device holds a part of the parameters and of Adam's moments.
heads, feed_forward, vocabulary
              of parameters and activations alike: a product into them needs no communication,
              the product out of them adds up over tensor. D of activations is never divided.
"""


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh over all `devices` (by default all there are), its axes explicit.

    Raises `RequestError` when the axes' product is not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    rest = config.fsdp * config.context * config.tensor
    data = config.data if config.data > 0 else max(1, len(devices) // rest)
    if data * rest != len(devices):
        raise RequestError(
            f"mesh.data {config.data} x fsdp {config.fsdp} x context {config.context} x tensor "
            f"{config.tensor} does not make the {len(devices)} devices that are here"
        )
    shape = (data, config.fsdp, config.context, config.tensor)
    if devices[0].platform != "tpu":
        return jax.make_mesh(shape, AXES, devices=list(devices))
    # jax.make_mesh refuses shapes that part a dimension of the torus between two axes.
    arranged = mesh_utils.create_device_mesh(shape, list(devices), allow_split_physical_axes=True)
    return Mesh(arranged, AXES, axis_types=(AxisType.Explicit,) * len(AXES))


def spec(*logical: str | None, without: tuple[str, ...] = (), mesh: Mesh | None = None) -> P:
    """The partition of an array whose dimensions are the `logical` axes (None: not divided).

    Names only those axes of the mesh (by default the one in force) that are explicit, so that
    model code also runs with no mesh at all and inside `jax.shard_map`, and only those of more
    than one device. `without` leaves mesh axes out.
    Raises `ValueError` when two dimensions want the same mesh axis.
    """
    present = _dividing(mesh).keys() - set(without)
    axes = [
        tuple(axis for axis in TABLE[name] if axis in present) if name else () for name in logical
    ]
    used = [axis for group in axes for axis in group]
    if len(set(used)) < len(used):
        raise ValueError(f"two dimensions of {logical} lie on the same mesh axis: {axes}")
    return P(*(group or None for group in axes))


def _dividing(mesh: Mesh | None = None) -> dict[str, int]:
    """Explicit axes of the mesh that have several devices, and how many."""
    abstract = jax.sharding.get_abstract_mesh() if mesh is None else mesh.abstract_mesh
    sizes = abstract.shape
    return {axis: sizes[axis] for axis in abstract.explicit_axes if sizes[axis] > 1}


def parts(logical: str) -> int:
    """In how many parts the mesh in force divides a dimension that is a `logical` axis."""
    sizes = _dividing()
    return math.prod(sizes.get(axis, 1) for axis in TABLE[logical])


def constrain(x: Array, *logical: str | None) -> Array:
    """`x`, laid out as the table says; `x` itself when there is no explicit mesh."""
    if not jax.sharding.get_abstract_mesh().explicit_axes:
        return x
    return jax.reshard(x, spec(*logical))


def out_sharding(*logical: str | None) -> P | None:
    """For the `out_sharding` argument of JAX functions: None when there is no explicit mesh."""
    if not jax.sharding.get_abstract_mesh().explicit_axes:
        return None
    return spec(*logical)


def gathered(parameter: nnx.Param, dtype: Any) -> Array:
    """A parameter as a layer uses it: cast first, so that less is sent, then whole over fsdp."""
    value = parameter[...].astype(dtype)
    if not jax.sharding.get_abstract_mesh().explicit_axes:
        return value
    names = parameter.get_metadata().get("axes", ())
    return jax.reshard(value, _parameter_spec(names, value.ndim, without=("fsdp",)))


def _parameter_spec(
    names: tuple[str | None, ...],
    ndim: int,
    *,
    without: tuple[str, ...] = (),
    mesh: Mesh | None = None,
) -> P:
    # Dimensions before the named ones count stacked layers, which are never divided.
    return spec(*(None,) * (ndim - len(names)), *names, without=without, mesh=mesh)


def _placed(mesh: Mesh, what: str, shape: tuple[int, ...], partition: P) -> NamedSharding:
    """Raises `RequestError` when a dimension of `what` does not divide over its mesh axes."""
    for size, axes in zip(shape, partition, strict=False):
        names = (axes,) if isinstance(axes, str) else axes or ()
        count = math.prod(mesh.shape[axis] for axis in names)
        if size % count:
            raise RequestError(
                f"{what} of shape {shape}: {size} does not divide over mesh axes "
                f"{', '.join(names)} of {count} devices"
            )
    return NamedSharding(mesh, partition)


def parameter_shardings(mesh: Mesh, tree: Any) -> Any:
    """`tree` (modules or an optimiser's state over them) with a sharding in place of each array.

    Raises `RequestError` when a dimension of a parameter does not divide over its mesh axes.
    """

    def place(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, nnx.Variable):
            return NamedSharding(mesh, P())
        shape, names = leaf.get_value().shape, leaf.get_metadata().get("axes", ())
        partition = _parameter_spec(names, len(shape), mesh=mesh)
        what = f"parameter {jax.tree_util.keystr(path)}"
        return leaf.replace(_placed(mesh, what, shape, partition))

    return jax.tree_util.tree_map_with_path(
        place, tree, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Of arrays whose first dimensions are rows and positions."""
    return NamedSharding(mesh, spec("batch", "positions", mesh=mesh))


def place(mesh: Mesh, tree: Any, *, rows: int | None = None) -> Any:
    """Host arrays whose first dimensions are rows and positions, as arrays over the mesh.

    With `rows`, that is how many there are in all, and each process gives those of its own
    devices, in order; else each gives the same, all there are.
    Raises `RequestError` when a dimension does not divide over its mesh axes.
    """
    partition = spec("batch", "positions", mesh=mesh)

    def put(path: Any, leaf: Any) -> Array:
        what, shape = f"batch {jax.tree_util.keystr(path)}", (rows or len(leaf), *leaf.shape[1:])
        sharding = _placed(mesh, what, shape, partition)
        return jax.make_array_from_process_local_data(sharding, leaf, shape)

    return jax.tree_util.tree_map_with_path(put, tree)
