"""The device mesh, and the one table that says what lies where on it."""

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.arrays import Array
from transduce.config import MeshConfig, RequestError

AXES = ("data", "fsdp", "tensor")

TABLE = MappingProxyType(
    {
        "batch": ("data", "fsdp"),
        "embed": ("fsdp",),
        "heads": ("tensor",),
        "feed_forward": ("tensor",),
        "vocabulary": ("tensor",),
    }
)
"""Logical axis to mesh axes.

batch         rows of activations: every device of data and of fsdp has rows of its own.
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
    rest = config.fsdp * config.tensor
    data = config.data if config.data > 0 else max(1, len(devices) // rest)
    if data * rest != len(devices):
        raise RequestError(
            f"mesh.data {config.data} x fsdp {config.fsdp} x tensor {config.tensor} does not make "
            f"the {len(devices)} devices that are here"
        )
    return jax.make_mesh((data, config.fsdp, config.tensor), AXES, devices=list(devices))


def spec(*logical: str | None, without: tuple[str, ...] = ()) -> P:
    """The partition of an array whose dimensions are the `logical` axes (None: not divided).

    Names only those axes of the mesh in force that are explicit, so that model code also runs
    with no mesh at all and inside `jax.shard_map`. `without` leaves mesh axes out.
    Raises `ValueError` when two dimensions want the same mesh axis.
    """
    present = set(jax.sharding.get_abstract_mesh().explicit_axes) - set(without)
    axes = [
        tuple(axis for axis in TABLE[name] if axis in present) if name else () for name in logical
    ]
    used = [axis for group in axes for axis in group]
    if len(set(used)) < len(used):
        raise ValueError(f"two dimensions of {logical} lie on the same mesh axis: {axes}")
    return P(*(group or None for group in axes))


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


def _parameter_spec(names: tuple[str | None, ...], ndim: int, without: tuple[str, ...] = ()) -> P:
    # Dimensions before the named ones count stacked layers, which are never divided.
    return spec(*(None,) * (ndim - len(names)), *names, without=without)


def _as_tuple(axes: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else axes or ()


def parameter_shardings(mesh: Mesh, tree: Any) -> Any:
    """`tree` (modules or an optimiser's state over them) with a sharding in place of each array.

    Raises `RequestError` when a dimension of a parameter does not divide over its mesh axes.
    """

    def place(path: Any, leaf: Any) -> Any:
        if not isinstance(leaf, nnx.Variable):
            return NamedSharding(mesh, P())
        shape = leaf.get_value().shape
        partition = _parameter_spec(leaf.get_metadata().get("axes", ()), len(shape))
        for size, axes in zip(shape, partition, strict=True):
            parts = math.prod(mesh.shape[axis] for axis in _as_tuple(axes))
            if size % parts:
                raise RequestError(
                    f"parameter {jax.tree_util.keystr(path)} of shape {shape}: {size} does not "
                    f"divide over mesh axes {', '.join(_as_tuple(axes))} of {parts} devices"
                )
        return leaf.replace(NamedSharding(mesh, partition))

    with jax.set_mesh(mesh):
        return jax.tree_util.tree_map_with_path(
            place, tree, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)
        )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Of arrays whose first dimension is the batch."""
    return NamedSharding(mesh, P(TABLE["batch"]))


def place(mesh: Mesh, tree: Any) -> Any:
    """Host arrays with a batch dimension first, as arrays over the mesh."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda leaf: jax.device_put(leaf, sharding), tree)
