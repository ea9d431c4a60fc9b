from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.config import MeshConfig, ModelConfig, RequestError
from transduce.model.layers import dropout
from transduce.model.transformer import Transformer
from transduce.parallel.mesh import (
    batch_sharding,
    constrain,
    gathered,
    make_mesh,
    out_sharding,
    parameter_shardings,
    parts,
    place,
    spec,
)

from ..model.examples import filled, named, tiny

LAYOUTS = {
    "data 8": MeshConfig(),
    "fsdp 8": MeshConfig(fsdp=8),
    "data 2, fsdp 2, tensor 2": MeshConfig(data=2, fsdp=2, tensor=2),
    "context 2, tensor 4": MeshConfig(context=2, tensor=4),
    "fsdp 2, context 4": MeshConfig(fsdp=2, context=4),
}


@pytest.fixture(params=LAYOUTS)
def mesh(request: pytest.FixtureRequest) -> Mesh:
    return make_mesh(LAYOUTS[request.param])


def test_a_mesh_is_explicit_and_has_the_devices_in_order() -> None:
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    assert mesh.shape == {"data": 2, "fsdp": 2, "context": 1, "tensor": 2}
    assert tuple(make_mesh(MeshConfig(fsdp=2, context=4)).shape.values()) == (1, 2, 4, 1)
    assert mesh.axis_types == (AxisType.Explicit,) * 4
    assert mesh.devices.ravel().tolist() == jax.devices()


def test_data_minus_one_takes_the_devices_that_are_left() -> None:
    assert make_mesh(MeshConfig(fsdp=2, tensor=2)).shape["data"] == 2
    assert make_mesh(MeshConfig(fsdp=2, context=2)).shape["data"] == 2
    assert make_mesh(MeshConfig(), jax.devices()[:1]).shape["data"] == 1
    assert make_mesh(MeshConfig(), jax.devices()[:3]).shape["data"] == 3


@pytest.mark.parametrize(
    "config",
    [
        MeshConfig(data=4),
        MeshConfig(data=16),
        MeshConfig(fsdp=3),
        MeshConfig(tensor=16),
        MeshConfig(context=16),
        MeshConfig(data=2, fsdp=2),
    ],
)
def test_a_mesh_that_does_not_make_the_devices_is_refused(config: MeshConfig) -> None:
    expected = (
        f"mesh.data {config.data} x fsdp {config.fsdp} x context {config.context} x tensor "
        f"{config.tensor} does not make the 8 devices"
    )
    with pytest.raises(RequestError, match=expected):
        make_mesh(config)


def test_a_partition_names_the_mesh_axes_of_the_table() -> None:
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        assert spec("batch", None, None) == P(("data", "fsdp"), None, None)
        assert spec("embed", "heads", None) == P(("fsdp",), ("tensor",), None)
        assert spec("feed_forward") == spec("vocabulary") == P(("tensor",))
        assert spec("embed", "heads", without=("fsdp",)) == P(None, ("tensor",))
        assert spec() == P()
        assert (parts("batch"), parts("embed"), parts("positions")) == (4, 2, 1)


def test_an_axis_of_one_device_divides_nothing_and_is_left_out() -> None:
    mesh = make_mesh(MeshConfig(data=1, fsdp=2, context=4))
    with jax.set_mesh(mesh):
        assert spec("batch", "positions", "heads") == P(("fsdp",), ("context",), None)
        assert (parts("batch"), parts("positions"), parts("heads")) == (2, 4, 1)
    assert spec("batch", "positions", mesh=mesh) == P(("fsdp",), ("context",))


def test_two_dimensions_on_one_mesh_axis_are_refused() -> None:
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        for logical in [("heads", "feed_forward"), ("batch", "embed"), ("embed", "embed")]:
            with pytest.raises(ValueError, match="same mesh axis"):
                spec(*logical)


def test_without_an_explicit_mesh_nothing_is_laid_out() -> None:
    x = jnp.ones((8, 2))
    assert spec("batch", "heads") == P(None, None)
    assert out_sharding("batch", None) is None
    assert parts("batch") == 1
    assert constrain(x, "batch", None) is x
    kernel = nnx.Param(x, axes=("embed", "heads"))
    assert gathered(kernel, jnp.bfloat16).dtype == jnp.bfloat16


def test_constrain_lays_out_and_out_sharding_is_the_same_partition() -> None:
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        assert out_sharding("batch", "heads") == spec("batch", "heads")
        x = constrain(jnp.arange(32.0).reshape(8, 4), "batch", "heads")
        assert x.addressable_shards[0].data.shape == (2, 2)
        np.testing.assert_array_equal(x, np.arange(32.0).reshape(8, 4))


def test_gathered_is_whole_over_fsdp_and_stays_divided_over_tensor() -> None:
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    stored = NamedSharding(mesh, P("fsdp", "tensor"))
    kernel = nnx.Param(jax.device_put(jnp.ones((4, 4)), stored), axes=("embed", "heads"))
    assert kernel.get_value().addressable_shards[0].data.shape == (2, 2)
    with jax.set_mesh(mesh):
        used = jax.jit(lambda: gathered(kernel, jnp.float32))()
    assert used.addressable_shards[0].data.shape == (4, 2)


def sizes(**changes: Any) -> ModelConfig:
    """Every size a multiple of 8 where a mesh of 8 divides it, and dropout on."""
    base: dict[str, Any] = {"vocabulary_size": 24, "d_model": 16, "d_ff": 12, "heads": 4}
    return tiny(**base | {"dtype": "float32", "dropout": 0.25} | changes)


def test_parameters_lie_divided() -> None:
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    model = filled(sizes(positions="learned", norm="pre"))
    model = jax.device_put(model, parameter_shardings(mesh, model))
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    parts = {
        name: leaf.addressable_shards[0].data.shape
        for name, (_, leaf) in zip(named(model), leaves, strict=True)
    }
    # V 24, D 16, N 4, F 12 in halves; L (2 decoder layers), H 4, J 3 and positions 12 whole.
    attention = {"query": (2, 8, 2, 4), "key": (2, 8, 2, 4), "value": (2, 8, 2, 3)}
    attention["out"] = (2, 2, 3, 8)
    feed_forward = {"into": (2, 8, 6), "into_bias": (2, 6), "out": (2, 6, 8), "out_bias": (2, 16)}
    expected = {"table": (12, 8), "position_table": (12, 8), "decoder_norm.scale": (16,)}
    expected |= {f"decoder.attention.{name}": shape for name, shape in attention.items()}
    expected |= {f"decoder.cross_attention.{name}": shape for name, shape in attention.items()}
    expected |= {f"decoder.feed_forward.{name}": shape for name, shape in feed_forward.items()}
    expected |= {"decoder.around_attention.norm.bias": (2, 16)}
    assert {name: parts[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "named_so"),
    [
        ({"vocabulary_size": 25}, "table.* 25 does not divide over mesh axes tensor of 2"),
        ({"d_model": 15, "positions": "rotary"}, "15 does not divide over mesh axes fsdp of 2"),
        ({"heads": 3}, r"attention.* 3 does not divide over mesh axes tensor of 2"),
        ({"d_ff": 13}, "feed_forward.* 13 does not divide over mesh axes tensor of 2"),
    ],
)
def test_a_parameter_that_does_not_divide_is_named(changes: dict[str, Any], named_so: str) -> None:
    """R13: an error that names the number."""
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    config = sizes(**changes)
    model = jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    with pytest.raises(RequestError, match=named_so):
        parameter_shardings(mesh, model)


def test_a_batch_is_divided_by_rows_and_by_positions() -> None:
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    assert batch_sharding(mesh).spec == P(("data", "fsdp"), None)
    placed = place(mesh, {"x": np.arange(16).reshape(8, 2)})["x"]
    assert placed.addressable_shards[0].data.shape == (2, 2)
    np.testing.assert_array_equal(placed, np.arange(16).reshape(8, 2))
    mesh = make_mesh(MeshConfig(data=2, context=4))
    assert batch_sharding(mesh).spec == P(("data",), ("context",))
    placed = place(mesh, {"x": np.arange(16).reshape(2, 8)})["x"]
    held = [np.asarray(shard.data).tolist() for shard in placed.addressable_shards]
    assert held[:2] == [[[0, 1]], [[2, 3]]]
    assert held[-1] == [[14, 15]]


@pytest.mark.parametrize(
    ("shape", "named_so"),
    [
        ((3, 16), r"ids.* of shape \(3, 16\): 3 does not divide over mesh axes data, fsdp of 4"),
        ((4, 15), r"ids.* of shape \(4, 15\): 15 does not divide over mesh axes context of 2"),
    ],
)
def test_a_batch_that_does_not_divide_is_named(shape: tuple[int, int], named_so: str) -> None:
    """R7: too few examples for the devices."""
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, context=2))
    with pytest.raises(RequestError, match=named_so):
        place(mesh, {"ids": np.zeros(shape)})


def test_the_dropout_mask_is_the_same_on_any_mesh(mesh: Mesh) -> None:
    key, ones = jax.random.key(7), np.ones((8, 8, 10), np.float32)
    alone = dropout(jnp.asarray(ones), 0.3, key)
    with jax.set_mesh(mesh):
        divided = jax.jit(lambda x: dropout(x, 0.3, key))(place(mesh, ones))
    assert len({shard.index for shard in divided.addressable_shards}) > 1
    np.testing.assert_array_equal(divided, alone)
