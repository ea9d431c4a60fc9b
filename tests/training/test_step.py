from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transduce.arrays import EOS, Batch, Tokens
from transduce.config import (
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.model.transformer import Transformer
from transduce.parallel.mesh import make_mesh, parameter_shardings, place
from transduce.training import step as module
from transduce.training.step import (
    batch_gradients,
    compile_train_step,
    initial_state,
    initial_state_on,
    pass_over,
    train_step,
)

QUICKLY = {"xla_backend_optimization_level": 0}
"""Compiler options that halve the time to compile; what is tested is the mathematics."""

EXPERIMENT = Experiment(
    name="step",
    model=ModelConfig(
        vocabulary_size=12,
        encoder_layers=1,
        decoder_layers=1,
        d_model=8,
        d_ff=4,
        heads=2,
        d_k=4,
        d_v=2,
        dropout=0.0,
        dtype="float64",
    ),
    data=DataConfig(vocabulary=VocabularyConfig(size=12), rows=16, row_length=10),
    optimizer=OptimizerConfig(warmup_steps=2, peak_learning_rate=0.01),
)


def side(lengths: Sequence[Sequence[int]], *, seed: int) -> Tokens:
    """Rows of 10 with sequences of the given lengths, EOS counted."""
    generator = np.random.default_rng(seed)
    ids, segments, positions = (np.zeros((len(lengths), 10), np.int32) for _ in range(3))
    for row, parts in enumerate(lengths):
        start = 0
        for number, length in enumerate(parts, start=1):
            place = slice(start, start := start + length)
            ids[row, place] = [*generator.integers(4, 12, length - 1), EOS]
            segments[row, place] = number
            positions[row, place] = range(length)
    arrays: Any = {"ids": ids, "segments": segments, "positions": positions}
    return Tokens(**arrays)


# Micro-batches take every fourth row. Their target tokens: 5, 40, 16, and 0 + 0 + 0 + 1.
TARGETS = [
    *([[2], [3, 7], [2, 2], []], [[1], [10], [4], []]),
    *([[1], [5, 5], [2, 2], []], [[1], [4, 6], [4], [1]]),
]
ROWS = [row for rows in TARGETS for row in rows]
# Equal segments of a row belong together, so both sides of a row have as many.
UNEVEN = Batch(source=side([[3] * len(row) for row in ROWS], seed=1), target=side(ROWS, seed=2))


@cache
def gradients(*, mesh: MeshConfig, devices: int, accumulation: int) -> tuple[Any, dict[str, float]]:
    """By name, and the batch's totals, for one fixed model."""
    generator = np.random.default_rng(3)
    shapes: Any = jax.eval_shape(lambda: Transformer(EXPERIMENT.model, rngs=nnx.Rngs(0)))
    model = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape), shapes)
    here = make_mesh(mesh, jax.devices()[:devices])
    experiment = replace(EXPERIMENT, training=TrainingConfig(accumulation=accumulation))
    compute = jax.jit(partial(batch_gradients, experiment), compiler_options=QUICKLY)
    with jax.set_mesh(here):
        placed = jax.device_put(model, parameter_shardings(here, shapes))
        found, sums = compute(placed, place(here, UNEVEN), jax.random.key(0))
    named = jax.tree_util.tree_leaves_with_path(found)
    return (
        {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in named},
        {name: float(value) for name, value in vars(sums).items()},
    )


ONE, EIGHT = MeshConfig(), MeshConfig(data=2, fsdp=2, tensor=2)


@pytest.mark.parametrize(
    ("mesh", "devices", "accumulation"), [(ONE, 1, 4), (EIGHT, 8, 1), (EIGHT, 8, 4)]
)
def test_uneven_micro_batches_and_devices_give_the_gradients_of_one_batch(
    x64, mesh: MeshConfig, devices: int, accumulation: int
) -> None:
    """R1."""
    expected, expected_sums = gradients(mesh=ONE, devices=1, accumulation=1)
    found, sums = gradients(mesh=mesh, devices=devices, accumulation=accumulation)
    assert expected_sums["tokens"] == 5 + 40 + 16 + 1
    assert expected_sums["pairs"] == 5 + 3 + 5 + 5
    assert sums == pytest.approx(expected_sums, rel=1e-12)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert np.abs(gradient).max() > 1e-6
        np.testing.assert_allclose(found[name], gradient, rtol=1e-10, atol=1e-12, err_msg=name)


def test_an_update_is_the_same_on_one_device_and_on_eight(x64, monkeypatch) -> None:
    """Also with dropout, whose masks do not depend on where the rows lie."""
    monkeypatch.setattr(module.jax, "jit", partial(jax.jit, compiler_options=QUICKLY))
    model = replace(EXPERIMENT.model, dropout=0.3)
    training = TrainingConfig(accumulation=2, ema_decay=0.5)
    experiment = replace(EXPERIMENT, model=model, training=training)

    def updated(mesh: MeshConfig, devices: int):
        here = make_mesh(mesh, jax.devices()[:devices])
        state, batch = initial_state_on(experiment, here), place(here, UNEVEN)
        step = compile_train_step(experiment, here, state, batch)
        losses = []
        for _ in range(3):
            state, metrics = step(state, batch)
            losses.append(float(metrics.sums.loss))
        return losses, jax.tree.map(np.asarray, state)

    expected_losses, expected = updated(ONE, 1)
    losses, state = updated(EIGHT, 8)
    assert losses == pytest.approx(expected_losses, rel=1e-10)
    assert losses[0] > losses[2]
    assert (int(state.step), int(expected.step)) == (3, 3)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-9), state, expected)


def test_the_moving_average_forgets_what_was_drawn(x64) -> None:
    """Against numpy: it keeps 2/11, 3/12 and 4/13 of itself, and never more than the decay."""
    training = TrainingConfig(ema_decay=0.3)
    experiment = replace(EXPERIMENT, training=training)
    make = jax.jit(partial(initial_state, experiment), compiler_options=QUICKLY)
    update = jax.jit(partial(train_step, experiment), compiler_options=QUICKLY)
    state = make()
    average = jax.tree.map(np.asarray, state.model)
    jax.tree.map(np.testing.assert_array_equal, state.ema, average)
    for kept in (2 / 11, 3 / 12, 0.3):
        state, _ = update(state, UNEVEN)
        assert state.result is state.ema
        parameters = jax.tree.map(np.asarray, state.model)
        average = jax.tree.map(lambda a, p, k=kept: k * a + (1 - k) * p, average, parameters)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), state.ema, average)


def test_the_optimizer_counts_updates_not_micro_batches(x64) -> None:
    """R2: accumulation 4, warm-up 100; the peak falls on update 100."""
    # Without memory Adam's change is the learning rate times the sign of the gradient.
    optimizer = OptimizerConfig(beta1=0, beta2=0, warmup_steps=100, peak_learning_rate=1e-4)
    experiment = replace(EXPERIMENT, optimizer=optimizer, training=TrainingConfig(accumulation=4))
    make = jax.jit(partial(initial_state, experiment), compiler_options=QUICKLY)
    update = jax.jit(partial(train_step, experiment), compiler_options=QUICKLY)
    state, changes, rates = make(), [], []
    for _ in range(103):
        before = state.model.decoder.feed_forward.out[...]
        state, metrics = update(state, UNEVEN)
        after = state.model.decoder.feed_forward.out[...]
        changes.append(float(jnp.abs(after - before).max()))
        rates.append(float(metrics.learning_rate))
    expected = [1e-6 * step for step in range(1, 101)]
    expected += [1e-4 * (100 / step) ** 0.5 for step in (101, 102, 103)]
    assert changes == pytest.approx(expected, rel=1e-4)
    assert rates == pytest.approx(expected, rel=1e-6)
    assert np.argmax(changes) + 1 == np.argmax(rates) + 1 == 100
    assert int(state.step) == 103


def test_each_update_draws_other_dropout_masks(x64) -> None:
    model = replace(EXPERIMENT.model, dropout=0.5)
    still = replace(EXPERIMENT, model=model, optimizer=OptimizerConfig(peak_learning_rate=1e-30))
    make = jax.jit(partial(initial_state, still), compiler_options=QUICKLY)
    update = jax.jit(partial(train_step, still), compiler_options=QUICKLY)
    state, losses = make(), []
    for _ in range(4):
        state, metrics = update(state, UNEVEN)
        losses.append(float(metrics.sums.loss))
    assert len(set(losses)) == 4
    assert float(update(make(), UNEVEN)[1].sums.loss) == losses[0]


def test_an_update_that_is_not_finite_is_left_out_when_asked(x64) -> None:
    """R19: parameters, moments and average stay to the bit, and the schedule waits."""
    model = replace(EXPERIMENT.model, positions="learned", learned_positions=10)
    training = TrainingConfig(nonfinite="skip", ema_decay=0.3)
    experiment = replace(EXPERIMENT, model=model, training=training)
    make = jax.jit(partial(initial_state, experiment), compiler_options=QUICKLY)
    update = jax.jit(partial(train_step, experiment), compiler_options=QUICKLY)
    # One target alone is ten tokens long, and meets the last position.
    short = Batch(source=side([[3]] * 16, seed=1), target=side([[4]] * 16, seed=2))

    def broken(path: Any, leaf: Any) -> Any:
        return leaf.at[9].set(jnp.nan) if "position_table" in jax.tree_util.keystr(path) else leaf

    start = jax.tree_util.tree_map_with_path(broken, make())
    first, metrics = update(start, short)
    assert np.isfinite(float(metrics.sums.loss))
    left, metrics = update(first, UNEVEN)
    assert not np.isfinite(float(metrics.sums.loss))
    assert (int(first.step), int(left.step)) == (1, 2)
    for name in ("model", "optimizer", "ema"):
        jax.tree.map(np.testing.assert_array_equal, getattr(left, name), getattr(first, name))
    second, metrics = update(left, short)
    # The peak is at the second update that is made.
    assert float(metrics.learning_rate) == pytest.approx(0.01)
    twice, _ = update(first, short)
    jax.tree.map(np.testing.assert_array_equal, second.model, twice.model)
    assert int(pass_over(second).step) == 4
