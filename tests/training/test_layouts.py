"""One device and eight in every arrangement: the same loss, gradients and updates."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from transduce.arrays import Array, Batch
from transduce.config import (
    CorpusConfig,
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    RequestError,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.model.transformer import Remat, Transformer
from transduce.parallel.mesh import make_mesh, parameter_shardings, place
from transduce.training import step as module
from transduce.training.objective import objective
from transduce.training.step import batch_gradients, compile_train_step, initial_state

from ..model.examples import QUICKLY, filled, named, packed, random_pairs

ONE = (1, 1, 1, 1)
LAYOUTS = [(8, 1, 1, 1), (1, 8, 1, 1), (2, 2, 1, 2), (1, 1, 8, 1), (1, 2, 2, 2)]
"""Devices on data, fsdp, context, tensor."""

Layout = tuple[int, int, int, int]

EXPERIMENT = Experiment(
    name="layouts",
    model=ModelConfig(
        vocabulary_size=24,
        encoder_layers=1,
        decoder_layers=2,
        d_model=16,
        d_ff=16,
        heads=2,
        d_k=6,
        d_v=4,
        dropout=0.2,
    ),
    data=DataConfig(vocabulary=VocabularyConfig(size=24), rows=32, row_length=16),
    optimizer=OptimizerConfig(warmup_steps=2, peak_learning_rate=0.01),
)


def every_layout(*quick: tuple[Layout, int]) -> pytest.MarkDecorator:
    """Of eight devices, with accumulation 1 and 4; all but the `quick` ones are slow."""
    cases = [(layout, accumulation) for accumulation in (4, 1) for layout in LAYOUTS]
    return pytest.mark.parametrize(
        ("layout", "accumulation"),
        [pytest.param(*c, marks=() if c in quick else pytest.mark.slow) for c in cases],
        ids=["x".join(map(str, layout)) + f"-{number}" for layout, number in cases],
    )


RATE = 0.3
"""Of plain gradient descent."""


def mesh_of(layout: Layout) -> Mesh:
    data, fsdp, context, tensor = layout
    config = MeshConfig(data=data, fsdp=fsdp, context=context, tensor=tensor)
    return make_mesh(config, jax.devices()[: data * fsdp * context * tensor])


@functools.cache
def batch() -> Batch:
    """Rows of none, one or two pairs, of any length up to a row's."""
    generator = np.random.default_rng(1)
    lengths = [(int(a), int(b)) for a, b in generator.integers(1, 9, (48, 2))]
    pairs = random_pairs(lengths, vocabulary=24, seed=2)
    long = random_pairs([(16, 16), (16, 3), (2, 16)], vocabulary=24, seed=3)
    rows = [pairs[start : start + 2] for start in range(0, 48, 2)]
    rows += [[pair] for pair in long] + [[pair] for pair in pairs[:4]] + [[]]
    made = packed(rows, source_length=16, target_length=16)
    numbers = {"source": made.source.positions // 2 + 1, "target": made.target.positions % 5}
    made = Batch(
        source=replace(made.source, words=numbers["source"]),
        target=replace(made.target, words=numbers["target"]),
    )
    # Arrays of JAX would lie on the mesh that was in force when they were made.
    return jax.tree.map(np.asarray, made)


def experiment(accumulation: int) -> Experiment:
    """Of a parser, whose attention is guided."""
    training = TrainingConfig(accumulation=accumulation, guided_attention=0.5)
    trees = CorpusConfig(
        name="trees",
        source_language="en",
        target_language="trees",
        builder="treebank",
        train=("a", ""),
        dev=("b", ""),
    )
    return replace(EXPERIMENT, data=replace(EXPERIMENT.data, corpora=(trees,)), training=training)


# ---- Gradients, and gradient descent -----------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    losses: list[float]
    """Before each update."""
    missed: list[float]
    """By the attention, a token that is aligned."""
    gradients: dict[str, np.ndarray]
    """Of the first."""
    parameters: dict[str, np.ndarray]
    """After the last."""


@functools.cache
def descent(layout: Layout, accumulation: int) -> Descent:
    """Five updates, each with dropout masks of its own."""

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def update(
        model: Transformer, batch: Batch, key: Array
    ) -> tuple[tuple[Array, Array], Any, Any]:
        gradients, sums = batch_gradients(experiment(accumulation), model, batch, key)
        # Each gradient lies as its parameter does, or this would not compile.
        new = jax.tree.map(lambda value, slope: value - RATE * slope, model, gradients)
        return (sums.loss / sums.tokens, sums.missed / sums.aligned), gradients, new

    mesh = mesh_of(layout)
    model = filled(EXPERIMENT.model, scale=0.2)
    losses, missed, first = [], [], {}
    with jax.set_mesh(mesh):
        model = jax.device_put(model, parameter_shardings(mesh, model))
        placed = place(mesh, batch())
        for step in range(5):
            (loss, miss), gradients, model = update(model, placed, jax.random.key(step))
            losses.append(float(loss))
            missed.append(float(miss))
            first = first or named(gradients)
    return Descent(losses=losses, missed=missed, gradients=first, parameters=named(model))


@every_layout(*((layout, 4) for layout in LAYOUTS), ((1, 2, 2, 2), 1))
def test_gradients_and_descent_are_those_of_one_device(layout: Layout, accumulation: int) -> None:
    """R1 in part: rows with different numbers of tokens, one with none, dropout on."""
    expected, found = descent(ONE, accumulation), descent(layout, accumulation)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert expected.losses[4] < expected.losses[0] - 0.1
    assert found.missed == pytest.approx(expected.missed, rel=1e-5)
    assert min(expected.missed) > 0.1
    largest = max(np.abs(gradient).max() for gradient in expected.gradients.values())
    for name, gradient in expected.gradients.items():
        np.testing.assert_allclose(
            found.gradients[name], gradient, rtol=0, atol=1e-5 * largest, err_msg=name
        )
        np.testing.assert_allclose(
            found.parameters[name], expected.parameters[name], rtol=0, atol=1e-5, err_msg=name
        )


# ---- The compiled step, with Adam --------------------------------------------------------------


@functools.cache
def losses(layout: Layout, accumulation: int) -> list[float]:
    """Before each of five updates."""
    with pytest.MonkeyPatch.context() as patch:
        quick = functools.partial(jax.jit, compiler_options=QUICKLY)
        patch.setattr(module.jax, "jit", quick)
        mesh = mesh_of(layout)
        state = drawn()
        state = jax.device_put(state, parameter_shardings(mesh, state))
        placed = place(mesh, batch())
        step = compile_train_step(experiment(accumulation), mesh, state, placed)
    found = []
    for _ in range(5):
        state, metrics = step(state, placed)
        found.append(float(metrics.sums.loss / metrics.sums.tokens))
    return found


@functools.cache
def drawn() -> Any:
    make = jax.jit(functools.partial(initial_state, EXPERIMENT), compiler_options=QUICKLY)
    return jax.tree.map(np.asarray, make())


@every_layout(((1, 2, 2, 2), 4))
def test_losses_with_adam_are_those_of_one_device(layout: Layout, accumulation: int) -> None:
    expected = losses(ONE, accumulation)
    assert losses(layout, accumulation) == pytest.approx(expected, rel=1e-4)
    assert expected[4] < expected[0] - 0.1


# ---- Choices of the model ----------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"positions": "learned"}, {"positions": "rotary"}])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_model_has_a_layout(changes: dict[str, Any], norm: Any) -> None:
    """JAX, which is told where everything lies, finds nothing that does not fit."""
    config = replace(EXPERIMENT.model, norm=norm, **changes)
    mesh = mesh_of((1, 2, 2, 2))
    model = filled(config)

    def loss(model: Transformer, batch: Batch) -> Array:
        key = jax.random.key(0)
        return objective(model, batch, smoothing=0.1, chunks=2, key=key).loss

    with jax.set_mesh(mesh):
        shardings = parameter_shardings(mesh, model)
        placed = jax.device_put(model, shardings), place(mesh, batch())
        gradients = jax.eval_shape(jax.grad(loss), *placed)
    for leaf, sharding in zip(jax.tree.leaves(gradients), jax.tree.leaves(shardings), strict=True):
        assert leaf.sharding.spec == sharding.spec


def test_a_row_that_does_not_divide_over_context_is_refused() -> None:
    """R13: an error that names the number."""
    expected = r"data.row_length \(16\) must be a multiple of mesh.context \(3\)"
    with pytest.raises(RequestError, match=expected):
        replace(EXPERIMENT, mesh=MeshConfig(context=3))


# ---- Rematerialisation -------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("remat", "unroll"), compiler_options=QUICKLY)
def gradients_with(model: Transformer, batch: Batch, *, remat: Remat, unroll: int) -> Any:
    model.config = replace(model.config, unroll=unroll)
    key = jax.random.key(3)

    def loss(model: Transformer) -> Array:
        return objective(model, batch, smoothing=0.1, chunks=2, key=key, remat=remat).loss

    return jax.grad(loss)(model)


@pytest.mark.parametrize("unroll", [1, 0])
@pytest.mark.parametrize("remat", ["layer", "dots"])
def test_what_is_made_again_gives_the_same_gradients(remat: Remat, unroll: int) -> None:
    """Dropout masks too are made again, and are the same ones."""
    model = filled(EXPERIMENT.model, scale=0.2)
    expected = named(gradients_with(model, batch(), remat="none", unroll=unroll))
    found = named(gradients_with(model, batch(), remat=remat, unroll=unroll))
    largest = max(np.abs(gradient).max() for gradient in expected.values())
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-6 * largest)


def test_what_is_made_again_is_not_kept() -> None:
    """Of each of 8 layers: its input [B, T, D] at least, and with `dots` its products too."""
    config = replace(EXPERIMENT.model, encoder_layers=8, dropout=0.0)
    model, source = jax.eval_shape(lambda: filled(config)), batch().source

    def kept(remat: Remat) -> int:
        def loss(model: Transformer) -> Array:
            return jnp.sum(model.encode(source, remat=remat))

        memory = jax.jit(jax.grad(loss)).lower(model).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    none, dots, layer = kept("none"), kept("dots"), kept("layer")
    # In float32, KiB: an input is 32; queries, keys 24 each, values 16, W^O's and the inner and
    # outer products of the feed-forward layer 32 each. With `none` of the last three the inner one
    # alone, but what attention mixes, 16, and both normalisations' inputs and results.
    assert layer < dots - 7 * 96 * 1024
    assert dots < none - 7 * 48 * 1024
    # The weights of attention, 64, are not kept, whatever is asked for.
    assert none < dots + 7 * 64 * 1024
