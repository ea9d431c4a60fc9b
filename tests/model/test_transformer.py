import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import Array, Batch, Tokens
from transduce.config import ModelConfig
from transduce.model.transformer import Transformer
from transduce.training.objective import objective

from .examples import QUICKLY, filled, named, packed, random_pairs, tiny, unpacked
from .reference import Reference, complex_step

SMOOTHING = 0.1

# Two sequences and padding; one sequence and padding on the source side alone.
PAIRS = random_pairs([(3, 2), (2, 4), (4, 7)], vocabulary=11, seed=1)
ROWS = [PAIRS[:2], PAIRS[2:]]


def batch(rubbish: Callable[[tuple[int, ...]], np.ndarray] = np.zeros) -> Batch:
    return packed(ROWS, source_length=6, target_length=7, rubbish=rubbish)


@functools.partial(jax.jit, compiler_options=QUICKLY)
def loss_logits_gradients(model: Transformer, batch: Batch) -> tuple[Array, Array, Transformer]:
    """`objective`, a position at a time, and the logits that it never has as a whole."""

    def loss(model: Transformer) -> tuple[Array, Array]:
        sums = objective(model, batch, smoothing=SMOOTHING, chunks=7, key=None)
        return sums.loss, model(batch)

    (value, logits), gradients = jax.value_and_grad(loss, has_aux=True)(model)
    return value, logits, gradients


def with_ids(side: Tokens, ids: Array) -> Tokens:
    return dataclasses.replace(side, ids=ids)


def reference(model: Transformer, **changes: Any) -> Reference:
    config = model.config
    return Reference(named(model), positions=config.positions, norm=config.norm, **changes)


def reference_loss(model: Transformer) -> Callable[[Any], np.ndarray]:
    like = reference(model)
    return lambda p: dataclasses.replace(like, parameters=p).loss(PAIRS, SMOOTHING)


def largest(gradients: dict[str, np.ndarray]) -> float:
    return max(np.abs(gradient).max() for gradient in gradients.values())


CHOICES = [
    tiny(norm="post", positions="sinusoidal"),
    tiny(norm="post", positions="learned", unroll=0),
    tiny(norm="post", positions="rotary"),
    tiny(norm="pre", positions="sinusoidal", encoder_layers=2, decoder_layers=1),
    tiny(norm="pre", positions="learned", d_k=3, d_v=5),
    tiny(norm="pre", positions="rotary", heads=3, d_k=2),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("config", CHOICES, ids=lambda c: f"{c.norm}-{c.positions}")
def test_loss_logits_and_gradients_are_the_papers(config: ModelConfig) -> None:
    """R14 in part: sequences packed in a row give what each gives alone."""
    model = filled(config)
    loss, logits, gradients = loss_logits_gradients(model, batch())
    assert logits.dtype == loss.dtype == jnp.float64

    paper = reference(model)
    for (source, target), ours in unpacked(logits, batch(), ROWS):
        np.testing.assert_allclose(ours, paper.logits(source, target), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(loss, paper.loss(PAIRS, SMOOTHING), rtol=1e-9)

    ours = named(gradients)
    function, parameters = reference_loss(model), named(model)
    generator = np.random.default_rng(2)
    for name, value in parameters.items():
        for _ in range(2):
            direction = generator.standard_normal(value.shape)
            slope = complex_step(function, parameters, name, direction)
            assert abs((ours[name] * direction).sum() - slope) < 1e-9 * largest(ours), name


@pytest.mark.usefixtures("x64")
def test_the_derivative_in_every_coordinate_is_the_papers() -> None:
    model = filled(CHOICES[0])
    ours = named(loss_logits_gradients(model, batch())[2])
    function, parameters = reference_loss(model), named(model)
    for name, value in parameters.items():
        paper = np.empty(value.shape)
        for place in np.ndindex(*value.shape):
            unit = np.zeros(value.shape)
            unit[place] = 1
            paper[place] = complex_step(function, parameters, name, unit)
        np.testing.assert_allclose(
            ours[name], paper, rtol=0, atol=1e-9 * largest(ours), err_msg=name
        )


@pytest.mark.usefixtures("x64")
def test_what_lies_under_padding_changes_nothing() -> None:
    """Ids and positions where there is no sequence may be anything: not a bit changes."""
    generator = np.random.default_rng(3)
    model = filled(CHOICES[0])
    loss, logits, gradients = loss_logits_gradients(model, batch())
    other = batch(rubbish=lambda shape: generator.integers(0, 11, shape))
    assert (other.source.ids != batch().source.ids).any()
    assert (other.target.ids != batch().target.ids).any()
    other_loss, other_logits, other_gradients = loss_logits_gradients(model, other)
    assert other_loss == loss
    for (_, here), (_, there) in zip(
        unpacked(logits, batch(), ROWS), unpacked(other_logits, other, ROWS), strict=True
    ):
        np.testing.assert_array_equal(here, there)
    jax.tree.map(np.testing.assert_array_equal, gradients, other_gradients)


@pytest.mark.usefixtures("x64")
def test_sequences_of_a_row_do_not_see_each_other() -> None:
    model = filled(CHOICES[0])
    plain = batch()

    def another_second(side: Tokens) -> Tokens:
        return with_ids(side, jnp.where(side.segments == 2, (side.ids + 1) % 11, side.ids))

    changed = Batch(source=another_second(plain.source), target=another_second(plain.target))
    logits = np.asarray(loss_logits_gradients(model, plain)[1])
    other = np.asarray(loss_logits_gradients(model, changed)[1])
    second = np.asarray(plain.target.segments)[0] == 2
    np.testing.assert_array_equal(other[1], logits[1])
    np.testing.assert_array_equal(other[0, :2], logits[0, :2])
    assert (other[0, second] != logits[0, second]).all()


@pytest.mark.usefixtures("x64")
def test_a_prediction_does_not_see_the_pieces_from_its_own_on() -> None:
    model = filled(CHOICES[0])
    logits = np.asarray(loss_logits_gradients(model, batch())[1])
    for position in range(7):
        ids = batch().target.ids
        ids = ids.at[1, position].set((ids[1, position] + 1) % 11)
        changed = dataclasses.replace(batch(), target=with_ids(batch().target, ids))
        other = np.asarray(loss_logits_gradients(model, changed)[1])
        np.testing.assert_array_equal(other[1, : position + 1], logits[1, : position + 1])
        assert (other[1, position + 1 :] != logits[1, position + 1 :]).all()


@pytest.mark.usefixtures("x64")
def test_more_padding_and_empty_rows_change_nothing() -> None:
    """R3, R14: wider rows and a row that is all padding; its gradients are finite and add 0."""
    model = filled(CHOICES[0])
    wider = packed([*ROWS, []], source_length=9, target_length=8)
    loss, _, gradients = loss_logits_gradients(model, batch())
    other_loss, other_logits, other_gradients = loss_logits_gradients(model, wider)
    assert np.isfinite(other_logits).all()
    np.testing.assert_allclose(other_loss, loss, rtol=1e-12)
    scale = largest(named(gradients))
    for name, gradient in named(other_gradients).items():
        np.testing.assert_allclose(gradient, named(gradients)[name], rtol=0, atol=1e-12 * scale)


def test_bfloat16_changes_the_loss_by_less_than_a_thousandth() -> None:
    """R15: the same float32 parameters, activations in bfloat16."""
    sizes: dict[str, Any] = {"vocabulary_size": 500, "encoder_layers": 2, "d_model": 64, "d_ff": 96}
    pairs = random_pairs([(20, 24)] * 8, vocabulary=500, seed=4)
    rows = packed([[pair] for pair in pairs], source_length=24, target_length=24)
    losses = []
    for dtype in ("float32", "bfloat16"):
        model = filled(tiny(**sizes, heads=4, d_k=16, d_v=16, dtype=dtype), scale=0.125)
        assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("float32")}
        totals = functools.partial(objective, smoothing=SMOOTHING, chunks=4, key=None)
        sums = jax.jit(totals)(model, rows)
        assert sums.loss.dtype == jnp.float32
        losses.append(float(sums.loss / sums.tokens))
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
