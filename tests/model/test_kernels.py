from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transduce.config import MeshConfig, RequestError
from transduce.model import kernels
from transduce.model.attention import MultiHeadAttention
from transduce.model.chunked import attend_in_chunks
from transduce.model.kernels import (
    Attention,
    Kernel,
    attend,
    attend_at_once,
    attention_weights,
    choose,
    on_each_device,
)
from transduce.model.splash import attend_by_splash
from transduce.model.transformer import Transformer
from transduce.model.visibility import Visible
from transduce.parallel.mesh import make_mesh
from transduce.training.objective import objective

from . import examples
from .attention_examples import (
    EXAMPLES,
    Rows,
    assert_agrees,
    packed,
    random_slopes,
    value_and_gradients,
)
from .examples import filled, named, random_pairs, tiny, unpacked

# One row, two queries, three keys, one head of width 4 (so the scale is 1/2), values of width 2.
QUERIES = jnp.asarray([[[[2.0, 0, 0, 0]], [[0, 2.0, 0, 0]]]])
KEYS = jnp.log(jnp.asarray([[[[1.0, 1, 1, 1]], [[3.0, 1, 1, 1]], [[4.0, 9, 1, 1]]]]))
EVERYTHING = Visible(queries=jnp.ones((1, 2), int), keys=jnp.ones((1, 3), int))
VALUES = jnp.asarray([[[[1.0, 0]], [[0, 1.0]], [[8.0, 8.0]]]])


def test_attention_by_hand() -> None:
    """Equation 1: scores are half the products, log 1, log 3, log 4 and log 1, log 1, log 9."""
    weights = attention_weights(QUERIES, KEYS, EVERYTHING)
    expected = [[1 / 8, 3 / 8, 4 / 8], [1 / 11, 1 / 11, 9 / 11]]
    np.testing.assert_allclose(weights[0, 0], expected, rtol=1e-6)
    mixed = attend(QUERIES, KEYS, VALUES, EVERYTHING)
    expected = [[1 / 8 + 4, 3 / 8 + 4], [73 / 11, 73 / 11]]
    np.testing.assert_allclose(mixed[0, :, 0], expected, rtol=1e-6)


def test_what_may_not_be_seen_has_weight_zero_whatever_it_is() -> None:
    visible = Visible(queries=jnp.asarray([[1, 1]]), keys=jnp.asarray([[1, 1, 0]]))
    weights = attention_weights(QUERIES, KEYS.at[0, 2].set(1e6), visible)
    np.testing.assert_allclose(weights[0, 0], [[1 / 4, 3 / 4, 0], [1 / 2, 1 / 2, 0]], rtol=1e-6)
    assert not weights[0, 0, :, 2].any()


def test_a_query_that_sees_nothing_stays_finite() -> None:
    """R14 in part."""
    mixed = attend(QUERIES, KEYS, VALUES, replace(EVERYTHING, keys=jnp.zeros((1, 3), int)))
    assert np.isfinite(mixed).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_softmax_of_narrow_activations_is_float32(dtype: str) -> None:
    weights = attention_weights(QUERIES.astype(dtype), KEYS.astype(dtype), EVERYTHING)
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    mixed = attend(QUERIES.astype(dtype), KEYS.astype(dtype), VALUES.astype(dtype), EVERYTHING)
    assert mixed.dtype == jnp.dtype(dtype)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rows", EXAMPLES.values(), ids=EXAMPLES)
def test_plain_values_and_gradients_are_attentions(rows: Rows) -> None:
    """R14 in part: rows that are all padding, too."""
    assert_agrees(attend, rows, dtype=np.float64, tolerance=1e-9)


ALL: dict[str, Attention] = {
    "plain": attend_at_once,
    "chunked": partial(attend_in_chunks, block=4),
    "splash": partial(attend_by_splash, interpret=True),
}

each_kernel = pytest.mark.parametrize("attention", ALL.values(), ids=ALL)


@each_kernel
@pytest.mark.parametrize("causal", [False, True])
def test_sequences_packed_in_a_row_give_what_each_gives_alone(
    attention: Attention, causal: bool
) -> None:
    """R14."""
    together = Rows([packed(5, 4, padding=2)], [packed(5, 4, padding=2)], causal=causal)
    queries, keys, values = (jnp.asarray(x, jnp.float32) for x in together.arrays())
    mixed = attention(queries, keys, values, together.visible())
    for start, stop in ((0, 5), (5, 9)):
        one = slice(start, stop)
        segments = jnp.ones((1, stop - start), jnp.int32)
        visible = Visible(queries=segments, keys=segments, causal=causal)
        alone = attention(queries[:, one], keys[:, one], values[:, one], visible)
        np.testing.assert_allclose(mixed[:, start:stop], alone, rtol=0, atol=2e-6)


SHARED = Rows(
    [packed(5, 4, 2, padding=2), packed(13), packed(padding=13), packed(1, 12)],
    [packed(5, 4, 2, padding=2), packed(13), packed(padding=13), packed(1, 12)],
    causal=True,
)


@each_kernel
def test_devices_that_share_rows_and_heads_give_what_one_gives(attention: Attention) -> None:
    slopes = random_slopes(SHARED)
    one = value_and_gradients(attention, SHARED, slopes, np.float32)
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        many = value_and_gradients(partial(on_each_device, attention), SHARED, slopes, np.float32)
    np.testing.assert_allclose(many[0], one[0], rtol=0, atol=1e-6)
    for ours, theirs in zip(many[1], one[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())


@each_kernel
def test_each_device_keeps_its_rows_and_heads(attention: Attention) -> None:
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        arrays = [jnp.asarray(x, jnp.float32) for x in SHARED.arrays()]
        mixed = jax.jit(partial(on_each_device, attention))(*arrays, SHARED.visible())
    assert mixed.sharding.shard_shape(mixed.shape) == (1, 13, 1, 3)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("platform", "dtype", "width", "kernel"),
    [
        ("cpu", "float32", 64, "chunked"),
        ("cpu", "bfloat16", 64, "chunked"),
        ("tpu", "bfloat16", 64, "splash"),
        ("tpu", "float32", 256, "splash"),
        ("tpu", "float64", 64, "chunked"),
        ("gpu", "bfloat16", 64, "cudnn"),
        ("gpu", "bfloat16", 256, "chunked"),
        ("gpu", "float32", 64, "chunked"),
    ],
)
def test_the_kernel_goes_by_platform_length_and_dtype(
    platform: str, dtype: str, width: int, kernel: Kernel
) -> None:
    def chosen(rows: int, queries: int, keys: int) -> Kernel:
        shapes: list[Any] = [
            jax.ShapeDtypeStruct((rows, length, 2, width), dtype)
            for length in (queries, keys, keys)
        ]
        return choose(platform, *shapes)

    assert chosen(1, 256, 256) == chosen(64, 128, 1024) == kernel
    assert chosen(1, 64, 64) == chosen(999, 255, 256) == "plain"


@pytest.mark.parametrize(
    ("kernel", "named"), [("splash", "is for TPUs"), ("cudnn", "is for NVIDIA GPUs")]
)
def test_a_kernel_of_another_platform_is_refused(kernel: Kernel, named: str) -> None:
    with pytest.raises(RequestError, match=f"^model.attention {kernel} {named}.* devices are cpu"):
        attend(QUERIES, KEYS, VALUES, EVERYTHING, kernel=kernel)


def test_the_platform_is_that_of_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be of devices that are not here."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    with jax.set_mesh(make_mesh(MeshConfig())), pytest.raises(RequestError, match="are cpu"):
        attend(QUERIES, KEYS, VALUES, EVERYTHING, kernel="splash")


@pytest.mark.usefixtures("x64")
def test_a_model_computes_the_same_by_another_kernel() -> None:
    """R14: packed rows, and one that is all padding; logits and gradients to 1e-9."""
    pairs = random_pairs([(3, 2), (2, 4), (4, 7)], vocabulary=11, seed=1)
    rows = [pairs[:2], pairs[2:], []]
    batch = examples.packed(rows, source_length=6, target_length=7)

    @partial(jax.jit, compiler_options=examples.QUICKLY)
    def logits_and_gradients(model: Transformer) -> Any:
        def loss(model: Transformer) -> Any:
            logits = model(batch)
            return objective(model, batch, smoothing=0.1, chunks=7, key=None).loss, logits

        return jax.grad(loss, has_aux=True)(model)

    results = []
    for kernel in ("plain", "chunked"):
        gradients, logits = logits_and_gradients(filled(tiny(attention=kernel)))
        results.append((named(gradients), unpacked(logits, batch, rows)))
    (plain, plain_logits), (chunked, chunked_logits) = results
    for (_, ours), (_, theirs) in zip(chunked_logits, plain_logits, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    for name, gradient in plain.items():
        assert np.isfinite(chunked[name]).all()
        np.testing.assert_allclose(chunked[name], gradient, rtol=0, atol=1e-9, err_msg=name)


def test_a_layer_attends_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def recorded(*arguments: Any, block: int) -> Any:
        used.append("chunked")
        return attend_in_chunks(*arguments, block=2)

    monkeypatch.setattr(kernels, "attend_in_chunks", recorded)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 5, 6)), jnp.float32)
    mixed = []
    for kernel in ("plain", "chunked"):
        layer = MultiHeadAttention(
            d_model=6,
            heads=2,
            d_k=4,
            d_v=3,
            rotary=False,
            kernel=kernel,
            dtype=jnp.float32,
            param_dtype=jnp.float32,
            rngs=nnx.Rngs(0),
        )
        visible = Visible(queries=jnp.ones((1, 5), int), keys=jnp.ones((1, 5), int))
        mixed.append(layer(x, x, visible, positions=jnp.arange(5)[None]))
    assert used == ["chunked"]
    np.testing.assert_allclose(mixed[1], mixed[0], rtol=0, atol=1e-6)
