"""Costs of hand-written programs, worked out by hand."""

from dataclasses import replace

import pytest

from transduce.planning.buffers import largest_buffers
from transduce.planning.cost import Cost, Machine, by_kind, cost
from transduce.planning.hlo import parse
from transduce.planning.interconnect import Network

from .programs import FUSED, KERNEL, LOOP

RING = Network(places=((0,), (1,), (2,), (3,)), extents=(4,), closed=(True,), link=1e6)
MACHINE = Machine(clock=1e6, rate=1e12, bandwidth=1e9, network=RING, array=128)
WIDE = replace(MACHINE, bandwidth=1e15)


def of(text: str, machine: Machine = MACHINE) -> Cost:
    return cost(parse(text), machine)


def test_a_loops_body_counts_as_often_as_it_runs() -> None:
    """6 times 1,000 cycles, and 4,000 and 500 outside; the sentinel is no estimate."""
    found = of(LOOP)
    assert found.compiled == pytest.approx((6 * 1000 + 4000 + 500) / 1e6)
    dense = next(item for item in found.instructions if item.name == "dense")
    assert (dense.seconds, dense.place) == (pytest.approx(0.006), "model/layers.py:59")


def test_a_collective_is_waited_for_with_what_is_left_of_it() -> None:
    """4,000 bytes over pairs of the ring, one link: 2 x 4,000 / 2 / 1e6 = 4 ms, of which 500 cycles
    run beside it."""
    found = of(LOOP)
    (item,) = found.collectives
    assert (item.kind, item.bytes, item.runs, item.chips) == ("all-reduce", 4000, 1, 2)
    assert item.seconds == pytest.approx(0.004)
    assert item.waited == found.waited == pytest.approx(0.0035)
    assert (item.place, item.op_name) == ("model/layers.py:59", "jit(step)/sum")
    assert found.total == pytest.approx(0.0105 + 0.0035 + found.uncosted)


def test_a_collective_that_is_not_started_ahead_is_waited_for_whole() -> None:
    text = LOOP.replace("all-reduce-start", "all-reduce").replace(
        "ROOT %done = f32[1000]{0:T(1024)} all-reduce-done(%started)",
        "ROOT %done = f32[1000]{0:T(1024)} bitcast(%started)",
    )
    assert of(text).waited == pytest.approx(0.004)


def test_a_loop_of_unknown_length_is_named_and_counts_once() -> None:
    found = of(LOOP.replace("constant(6)", "parameter(1)"))
    assert found.unknown_loops == ["loop"]
    assert found.compiled == pytest.approx(0.0055)


def test_groups_that_are_not_understood_are_named_and_count_over_all() -> None:
    found = of(LOOP.replace("replica_groups={{0,1},{2,3}}", "replica_groups=<new>"))
    assert found.unknown_groups == ["started"]
    assert found.collectives[0].chips == 4


def test_collectives_are_summed_by_kind() -> None:
    sums = by_kind(of(LOOP).collectives)
    assert sums == {
        "all-reduce": {
            "runs": 1,
            "bytes": 4000,
            "seconds": pytest.approx(0.004),
            "waited": pytest.approx(0.0035),
        }
    }


def test_attention_kernels_count_by_formula_and_others_are_named() -> None:
    """Two products forward, three for the queries' gradient, of which the causal mask leaves 3 of
    4 blocks; heads of 64 fill 128 columns."""
    product = 2 * 6 * 8 * 1024 * 2048 * 128
    found = of(KERNEL, WIDE)
    assert found.kernels == pytest.approx((2 * product + 3 * product * 0.75) / 1e12)
    assert found.kernel_calls == 2
    assert found.unknown_kernels == ["other"]


def test_a_kernel_that_gives_all_gradients_at_once_has_five_products() -> None:
    """256 queries, 128 keys, heads of 64 fill 128 columns; positions may come last."""
    found = of(FUSED, WIDE)
    assert found.kernels == pytest.approx(5 * 2 * 6 * 8 * 256 * 128 * 128 / 1e12)


def test_a_kernel_takes_at_least_as_long_as_its_bytes() -> None:
    """Tiles fill heads of 64 to 128: q is 6 x 8 x 1024 x 128 x 2 bytes, k twice that. Forward: q,
    k, v, the result without tiles, and the sums in float32; then q, k, v, positions, the result."""
    q = 6 * 8 * 1024 * 128 * 2
    forward = q + 2 * q + 2 * q + q // 2 + 2 * q + 1
    gradient = q + 2 * q + 2 * q + 1024 * 128 * 4 + q // 2
    assert of(KERNEL).kernels == pytest.approx((forward + gradient) / 1e9)


def test_the_largest_buffers_are_named_with_what_they_are_for() -> None:
    """[8, 256, 1024] in bfloat16: the argument, and what the loop makes; no tuple, no view."""
    found = largest_buffers(parse(LOOP))
    assert [(b.name, b.bytes, b.shape) for b in found[:2]] == [
        ("x.1", 4_194_304, "bf16[8,256,1024]"),
        ("dense", 4_194_304, "bf16[8,256,1024]"),
    ]
    assert (found[0].opcode, found[0].op_name) == ("parameter", "batch")
    assert found[1].place == "model/layers.py:59"
    assert [b.name for b in found[2:4]] == ["grad", "started"]
