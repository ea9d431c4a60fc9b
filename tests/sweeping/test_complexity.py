"""What `experiments/benchmarks/complexity.py` measures, and how it fits exponents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks.complexity import Arguments, compiled, cycles, exponent
from experiments.benchmarks.complexity_layers import KINDS, banded
from transduce.planning.hlo import parse


def test_restricted_attention_sees_its_neighbourhood_alone() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 12, 2, 4)).astype(np.float32)
    expected = np.zeros_like(v)
    for b, i, h in np.ndindex(2, 12, 2):
        near = range(max(0, i - 3), min(12, i + 4))
        scores = np.array([q[b, i, h] @ k[b, j, h] / 2 for j in near])
        weights = np.exp(scores) / np.exp(scores).sum()
        expected[b, i, h] = sum(w * v[b, j, h] for w, j in zip(weights, near, strict=True))
    found = banded(jnp.array(q), jnp.array(k), jnp.array(v), 3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in KINDS if "recurrent" not in name])
def test_operations_are_those_that_the_compiler_counts(name: str) -> None:
    """Beside products it counts the softmax, a tenth at this width; a convolution sees less at
    its edges. Of a recurrent layer it counts one step.
    """
    asked = Arguments(d=128)
    program, *_ = compiled(KINDS[name], asked, 128, jax.devices("cpu")[0])
    counted = program.cost_analysis()["flops"]
    assert counted == pytest.approx(KINDS[name].operations(128, 128), rel=0.15)


def test_an_exponent_is_the_slope_of_logarithms_from_512_on() -> None:
    lengths = [256, 512, 1024, 2048]
    assert exponent(lengths, [7, 3 * 512**2, 3 * 1024**2, 3 * 2048**2]) == pytest.approx(2)
    assert exponent(lengths, [7, 5, 5, 5]) == pytest.approx(0)
    assert exponent([32, 64], [1, 2]) is None
    assert exponent(lengths, [0, 0, 0, 0]) is None


PROGRAM = """\
HloModule m, is_scheduled=true

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  ROOT %add = (s32[], f32[8]) fusion(%p), backend_config={"estimated_cycles":"10"}
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  ROOT %less = pred[] compare(%q, %q), direction=LT
}

ENTRY %main (x: (s32[], f32[8])) -> (s32[], f32[8]) {
  %x = (s32[], f32[8]) parameter(0)
  %copy = (s32[], f32[8]) copy(%x), backend_config={"estimated_cycles":"9223372036854775807"}
  %loop = (s32[], f32[8]) while(%copy), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"7"}}
  ROOT %end = (s32[], f32[8]) fusion(%loop), backend_config={"estimated_cycles":"5"}
}
"""  # noqa: E501 a line of a program


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    module = parse(PROGRAM)
    assert cycles(module, module.entry) == 7 * 10 + 5
