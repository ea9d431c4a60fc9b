"""Ring attention against plain attention, on meshes that divide batch, positions and heads."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import Array
from transduce.config import MeshConfig
from transduce.model import ring
from transduce.model.kernels import attend
from transduce.model.ring import ring_attend
from transduce.model.visibility import Visible
from transduce.parallel.mesh import make_mesh

from .examples import QUICKLY

MESHES = {"context 8": MeshConfig(context=8), "2 x 2 x 2": MeshConfig(fsdp=2, context=2, tensor=2)}
KINDS = {"encoder": (16, 16, False), "decoder": (16, 16, True), "cross": (16, 24, False)}

Arrays = tuple[Array, Array, Array]


def segments(length: int, *, seed: int) -> Array:
    """Four rows of three sequences, wherever they begin and end, and some padding."""
    generator = np.random.default_rng(seed)
    ends = np.sort(generator.choice(np.arange(2, length), (4, 3), replace=False), axis=1)
    numbers = 1 + (np.arange(length)[None, :, None] >= ends[:, None]).sum(-1)
    return jnp.asarray(np.where(numbers == 4, 0, numbers))


def example(kind: str, dtype: str = "float64") -> tuple[Arrays, Visible]:
    """Queries [4, T, 2, 6], keys [4, S, 2, 6] and values [4, S, 2, 3]; who sees whom."""
    length, width, causal = KINDS[kind]
    generator = np.random.default_rng(1)
    shapes = [(4, length, 2, 6), (4, width, 2, 6), (4, width, 2, 3)]
    queries, keys, values = (jnp.asarray(generator.normal(size=s), dtype) for s in shapes)
    looking = segments(length, seed=2)
    looked_at = looking if length == width else segments(width, seed=3)
    return (queries, keys, values), Visible(queries=looking, keys=looked_at, causal=causal)


def mixed_and_gradients(
    attention: Callable[..., Array], arrays: Arrays, visible: Visible
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What queries get that see something, and gradients of a sum of it with random weights."""
    shape = (*arrays[0].shape[:3], arrays[2].shape[-1])
    wide = jnp.promote_types(arrays[0].dtype, jnp.float32)
    seeing = (visible.queries != 0)[:, :, None, None]
    weights = jnp.where(seeing, np.random.default_rng(4).normal(size=shape), 0).astype(wide)

    def total(arrays: Arrays) -> tuple[Array, Array]:
        mixed = attention(*arrays, visible).astype(wide)
        return jnp.sum(mixed * weights), mixed

    compute = jax.jit(jax.grad(total, has_aux=True), compiler_options=QUICKLY)
    gradients, mixed = compute(arrays)
    return np.where(seeing, mixed, 0), [np.asarray(gradient, wide) for gradient in gradients]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are several on a device; a device's 3 keys are two chunks and padding."""
    monkeypatch.setattr(ring, "CHUNK", 2)


@pytest.mark.usefixtures("x64", "small_chunks")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh", MESHES)
def test_values_and_gradients_are_those_of_plain_attention(mesh: str, kind: str) -> None:
    arrays, visible = example(kind)
    expected = mixed_and_gradients(attend, arrays, visible)
    with jax.set_mesh(make_mesh(MESHES[mesh])):
        found = mixed_and_gradients(ring_attend, arrays, visible)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-12)
    for here, there in zip(found[1], expected[1], strict=True):
        assert np.abs(there).max() > 0.1
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-9 * np.abs(there).max())


@pytest.mark.usefixtures("x64")
def test_a_chunk_may_be_longer_than_the_keys_of_a_device() -> None:
    arrays, visible = example("cross")
    expected = mixed_and_gradients(attend, arrays, visible)
    with jax.set_mesh(make_mesh(MESHES["2 x 2 x 2"])):
        found = mixed_and_gradients(ring_attend, arrays, visible)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-12)
    for here, there in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-9 * np.abs(there).max())


@pytest.mark.usefixtures("small_chunks")
def test_sums_of_narrow_numbers_are_wide() -> None:
    """Of bfloat16 each result is rounded once, by 1/256 of itself at most."""
    arrays, visible = example("decoder", "bfloat16")
    widened: Arrays = jax.tree.map(lambda x: x.astype(jnp.float32), arrays)
    expected = mixed_and_gradients(attend, widened, visible)
    with jax.set_mesh(make_mesh(MESHES["context 8"])):
        mixed = jax.jit(ring_attend, compiler_options=QUICKLY)(*arrays, visible)
        found = mixed_and_gradients(ring_attend, arrays, visible)
    assert mixed.dtype == jnp.bfloat16
    np.testing.assert_allclose(found[0], expected[0], rtol=0.01, atol=0.02)
    for here, there in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(here, there, rtol=0, atol=0.03 * np.abs(there).max())


def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient() -> None:
    """R14: a row that is all padding."""
    arrays, visible = example("decoder", "float32")
    nothing = jnp.zeros_like(visible.queries)
    blind = Visible(queries=nothing, keys=nothing, causal=True)

    def total(arrays: Arrays) -> tuple[Array, Array]:
        mixed = ring_attend(*arrays, blind)
        return jnp.sum(mixed), mixed

    compute = jax.jit(jax.grad(total, has_aux=True), compiler_options=QUICKLY)
    with jax.set_mesh(make_mesh(MESHES["context 8"])):
        gradients, mixed = compute(arrays)
    for x in (mixed, *gradients):
        np.testing.assert_array_equal(x, 0)


def test_a_device_holds_the_scores_of_a_chunk() -> None:
    """A thirtieth of all scores, at length 8,192, forward and backward."""
    length = 8192
    shape = jax.ShapeDtypeStruct((1, length, 1, 8), jnp.float32)
    row = jax.ShapeDtypeStruct((1, length), jnp.int32)
    visible = Visible(queries=row, keys=row, causal=True)  # pyright: ignore[reportArgumentType] shapes

    def total(arrays: Arrays, visible: Visible) -> Array:
        return jnp.sum(ring_attend(*arrays, visible))

    with jax.set_mesh(make_mesh(MESHES["context 8"])):
        compiled = jax.jit(jax.grad(total)).lower((shape,) * 3, visible).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    # Scores, weights and their gradients of 1,024 queries and 512 keys, in float32.
    assert memory.temp_size_in_bytes < 5 * 1024 * 512 * 4
