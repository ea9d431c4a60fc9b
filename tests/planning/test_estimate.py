"""Arithmetic by hand, on a small model."""

from dataclasses import replace
from typing import Any

import pytest

from transduce.config import (
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    RequestError,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.model.arithmetic import parameters, training_flops
from transduce.planning.estimate import (
    does_not_divide,
    estimate,
    first_group,
    meshes,
    needed_flops,
    resolved,
    shape_of,
)
from transduce.planning.interconnect import Network
from transduce.planning.placing import network_of
from transduce.planning.target import parse_target

EXPERIMENT = Experiment(
    name="small",
    model=ModelConfig(
        vocabulary_size=1000,
        encoder_layers=2,
        decoder_layers=3,
        d_model=64,
        d_ff=128,
        heads=4,
        d_k=128,
        d_v=128,
        dtype="bfloat16",
    ),
    data=DataConfig(vocabulary=VocabularyConfig(size=1000), rows=32, row_length=128),
    training=TrainingConfig(loss_chunks=8, remat="layer"),
)
LINE = Network(places=tuple((i,) for i in range(8)), extents=(8,), closed=(False,), link=1e9)


def mesh(data: int = 1, fsdp: int = 1, context: int = 1, tensor: int = 1) -> MeshConfig:
    return MeshConfig(data=data, fsdp=fsdp, context=context, tensor=tensor)


def of(where: MeshConfig, **training: Any) -> Any:
    changed = replace(EXPERIMENT, training=replace(EXPERIMENT.training, **training))
    return estimate(changed, where, LINE, rate=1e12, bandwidth=1e11)


def test_state_is_divided_over_fsdp_and_tensor() -> None:
    count = parameters(EXPERIMENT.model).total
    memory = of(mesh(data=2, fsdp=2, tensor=2), ema_decay=0.9).memory
    assert memory["parameters"] == memory["average"] == memory["gradients"] == count
    assert memory["optimizer"] == 2 * count
    assert memory["gathered"] == count  # of half of them, two bytes each


def test_what_layers_keep_is_their_input_when_all_else_is_made_again() -> None:
    """32 x 128 positions over 8 chips, 5 layers, 64 values of 2 bytes."""
    assert of(mesh(data=8)).memory["kept"] == 512 * 5 * 64 * 2
    assert of(mesh(data=8), accumulation=2).memory["kept"] == 256 * 5 * 64 * 2


def test_what_layers_keep_when_nothing_or_little_is_made_again() -> None:
    """8 attentions of queries, keys, values and mixed values, 4 heads of 128; 5 inner layers of
    128; 13 sub-layers of 64 values: their products, or input and output of their normalisation
    and a byte of dropout's mask."""
    products = 8 * 4 * 4 * 128 + 5 * 128
    assert of(mesh(data=8), remat="dots").memory["kept"] == 512 * 2 * (products + 13 * 64)
    assert of(mesh(data=8), remat="none").memory["kept"] == 512 * (2 * products + 13 * 64 * 5)


def test_the_logits_of_a_chunk_are_what_the_loss_takes() -> None:
    """An eighth of 512 positions by 1,000 pieces, twice, and a gradient [1000, 64], in float32."""
    assert of(mesh(data=8)).memory["loss"] == 2 * 4 * 64 * 1000 + 4 * 1000 * 64


def test_masked_scores_are_not_needed() -> None:
    """Of the decoder's attention to itself half less the diagonal: 128 x 127 / 2 a row and layer,
    each 2 (d_k + d_v) FLOPs for each of 4 heads, three times."""
    sizes = {"rows": 32, "source_length": 128, "target_length": 128}
    masked = 3 * 3 * 32 * (128 * 127 // 2) * 2 * 4 * 256
    assert needed_flops(EXPERIMENT) == training_flops(EXPERIMENT.model, **sizes).total - masked


def test_what_is_made_again_takes_time_but_is_not_needed() -> None:
    """8 attentions of 4 heads of 128 keys and as many values, 5 feed-forward networks."""
    found = {remat: of(mesh(data=2), remat=remat) for remat in ("none", "dots", "layer")}
    assert len({each.compute for each in found.values()}) == 1
    positions = 32 * 128
    scores = 8 * 2 * positions * 128 * 4 * 256
    projections = 8 * 4 * (2 * positions * 64 * 4 * 128)
    feed_forward = 5 * 2 * (2 * positions * 64 * 128)
    assert found["none"].again == 0
    assert found["dots"].again == pytest.approx(scores / 2 / 1e12)
    layers = scores + projections + feed_forward
    assert found["layer"].again == pytest.approx(layers / 2 / 1e12)
    spent = ("compute", "again", "traffic", "interconnect")
    assert found["layer"].total == pytest.approx(sum(getattr(found["layer"], x) for x in spent))


def test_gradients_are_summed_over_data_and_scattered_over_fsdp() -> None:
    """Over 2 x 4 chips on a line of links of 1 GB/s: groups of fsdp are neighbours."""
    count = parameters(EXPERIMENT.model).total
    found = {(e.what, e.kind): e for e in of(mesh(data=2, fsdp=4), remat="none").exchanges}
    assert set(found) == {
        ("parameters, gathered", "all-gather"),
        ("gradients", "reduce-scatter"),
        ("gradients", "all-reduce"),
    }
    gather = found["parameters, gathered", "all-gather"]
    assert gather.bytes == 2 * count
    assert gather.seconds == pytest.approx(2 * count * 3 / 4 / 1e9)
    total = found["gradients", "all-reduce"]
    assert total.bytes == 2 * count / 4
    assert total.seconds == pytest.approx(2 * total.bytes / 2 / 1e9)


def test_keys_and_values_go_around_the_context() -> None:
    """8 sub-layers, 32 x 128 / 4 positions, 4 heads of 256 values: 4 steps forward and 4 back
    in bfloat16, and 5 of the gradients in float32."""
    (item,) = [e for e in of(mesh(data=1, context=4)).exchanges if "keys" in e.what]
    assert item.bytes == 8 * 1024 * 1024 * (2 * 4 * 2 + 5 * 4)
    # The last of the line sends to the first, three links away.
    assert item.seconds == pytest.approx(item.bytes * 3 / 1e9)


def test_groups_are_those_of_the_mesh() -> None:
    sizes = {"data": 2, "fsdp": 2, "context": 1, "tensor": 2}
    assert first_group(sizes, ("tensor",)) == (0, 1)
    assert first_group(sizes, ("fsdp",)) == (0, 2)
    assert first_group(sizes, ("data",)) == (0, 4)
    assert first_group(sizes, ("data", "tensor")) == (0, 1, 4, 5)


def test_a_search_has_every_mesh_that_divides() -> None:
    """Heads 4 and rows 32: all divisions of 4 chips over four axes, 10; with 3 rows fewer."""
    assert len(meshes(EXPERIMENT, 4)) == 10
    odd = replace(EXPERIMENT, data=replace(EXPERIMENT.data, rows=3, readers=1))
    assert {shape_of(m) for m in meshes(odd, 4)} == {
        (1, 1, 1, 4),
        (1, 1, 2, 2),
        (1, 1, 4, 1),
    }


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (mesh(data=64), r"data.rows \(32\) .* \(64\): 64 would"),
        (mesh(data=5), r"data.rows \(32\) .* \(5\): 30 or 35 would"),
        (mesh(context=3), r"data.row_length \(128\) does not divide over mesh.context \(3\)"),
        (mesh(tensor=8), r"model.heads \(4\) does not divide over mesh.tensor \(8\): 8 would"),
        (mesh(fsdp=5), r"data.rows"),
    ],
)
def test_what_does_not_divide_is_named_with_what_would(where: MeshConfig, message: str) -> None:
    reason = does_not_divide(EXPERIMENT, where)
    with pytest.raises(ValueError, match=message):
        raise ValueError(reason)


def test_a_mesh_of_another_size_than_the_machine_is_refused() -> None:
    target = parse_target("tpu-v5e:2x2")
    assert shape_of(resolved(EXPERIMENT, target)) == (4, 1, 1, 1)
    wrong = replace(EXPERIMENT, mesh=mesh(data=2, fsdp=4))
    with pytest.raises(RequestError, match="makes 8, not 4 chips: set --mesh"):
        resolved(wrong, target)


def test_chips_stand_where_jax_puts_them() -> None:
    """Tensor of 4 on a 4x4: neighbours along one dimension of the slice."""
    network = network_of(parse_target("tpu-v5e:4x4"), mesh(data=4, tensor=4))
    first = [network.places[i] for i in range(4)]
    assert len({place[0] for place in first}) == 1 or len({place[1] for place in first}) == 1
    assert sorted(network.places) == sorted((x, y, 0) for x in range(4) for y in range(4))
    assert network.rate((0, 1, 2, 3)) == 50e9


def test_gpus_are_counted_by_host() -> None:
    network = network_of(parse_target("h200:16"), mesh(data=16))
    assert network.places[7] == (0, 0)
    assert network.places[8] == (1, 0)
    assert network.rate(tuple(range(8))) == 450e9
    assert network.rate(tuple(range(16))) == 8 * 50e9
