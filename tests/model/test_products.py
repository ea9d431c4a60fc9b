"""Products with matrices, and their gradients."""

import jax
import numpy as np
import pytest

from transduce.model.products import product

SHAPES = {
    "btd,dnh->btnh": ((2, 3, 4), (4, 2, 5)),
    "btnv,nvd->btd": ((2, 3, 2, 5), (2, 5, 4)),
    "btd,df->btf": ((2, 3, 4), (4, 6)),
}


@pytest.mark.parametrize("platform", ["cpu", "default"])
@pytest.mark.parametrize("formula", SHAPES)
def test_values_and_gradients_are_those_of_numpy_products(
    formula: str, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of a CPU and in that of all else, which runs here too."""
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *inputs, **branches: branches[platform](*inputs)
    )
    generator = np.random.default_rng(0)
    x, matrix = (generator.normal(size=shape).astype(np.float32) for shape in SHAPES[formula])
    value, gradients = jax.vjp(lambda x, matrix: product(formula, x, matrix), x, matrix)
    wide_x, wide_matrix = x.astype(np.float64), matrix.astype(np.float64)
    expected = np.einsum(formula, wide_x, wide_matrix)
    g = generator.normal(size=expected.shape).astype(np.float32)
    of_x, of_matrix = gradients(g)

    # As matrices of two dimensions: rows of x are tokens, columns of the result what they become.
    inner = wide_matrix.size // (expected.size // (x.size // x[0, 0].size))
    rows, columns = wide_x.reshape(-1, inner), wide_matrix.reshape(inner, -1)
    g_rows = g.astype(np.float64).reshape(len(rows), -1)
    np.testing.assert_allclose(value, (rows @ columns).reshape(expected.shape), rtol=0, atol=1e-5)
    np.testing.assert_allclose(of_x, (g_rows @ columns.T).reshape(x.shape), rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        of_matrix, (rows.T @ g_rows).reshape(matrix.shape), rtol=0, atol=1e-5
    )


def test_bfloat16_stays_bfloat16() -> None:
    x, matrix = jax.numpy.ones((1, 2, 3), "bfloat16"), jax.numpy.ones((3, 4), "bfloat16")
    value, gradients = jax.vjp(lambda x, matrix: product("btd,df->btf", x, matrix), x, matrix)
    assert {each.dtype for each in (value, *gradients(value))} == {jax.numpy.dtype("bfloat16")}


@pytest.mark.parametrize(("platform", "barriers"), [("cpu", 1), ("tpu", 0), ("cuda", 0)])
def test_what_a_cpu_likes_is_compiled_for_cpus_alone(platform: str, barriers: int) -> None:
    """Wherever it is compiled: here for machines that are not."""

    def loss(x: jax.Array, matrix: jax.Array) -> jax.Array:
        return product("btd,df->btf", x, matrix).sum()

    x, matrix = jax.ShapeDtypeStruct((1, 2, 3), "float32"), jax.ShapeDtypeStruct((3, 4), "float32")
    traced = jax.jit(jax.grad(loss, argnums=1)).trace(x, matrix)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert text.count("optimization_barrier") == barriers
