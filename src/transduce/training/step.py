"""One update of the parameters, compiled for the mesh."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax
from jax.sharding import Mesh

from transduce.arrays import Array, Batch, Float, Int
from transduce.config import Experiment
from transduce.model.transformer import Transformer
from transduce.parallel.mesh import batch_sharding, constrain, parameter_shardings
from transduce.training.objective import Sums, objective
from transduce.training.optimizer import learning_rate, make_optimizer


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TrainState:
    """All that training carries from one update to the next; the data's state is apart."""

    step: Int[Array, ""]
    """Updates done."""
    model: Transformer
    optimizer: optax.OptState
    ema: Transformer | None = None
    """The moving average of the parameters, when training.ema_decay asks for one."""

    @property
    def result(self) -> Transformer:
        """The parameters that are evaluated and decoded with."""
        return self.model if self.ema is None else self.ema


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """What one update reports."""

    sums: Sums
    gradient_norm: Float[Array, ""]
    """Of the gradient of the mean loss over target tokens, before clipping."""
    learning_rate: Float[Array, ""]


def initial_state(experiment: Experiment) -> TrainState:
    """Parameters drawn from training.seed, their average the same, Adam's moments zero."""
    key = jax.random.fold_in(jax.random.key(experiment.training.seed), 0)
    model: Any = Transformer(experiment.model, rngs=nnx.Rngs(key))
    optimizer = make_optimizer(experiment.optimizer, d_model=experiment.model.d_model)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        model=model,
        optimizer=optimizer.init(model),
        ema=jax.tree.map(jnp.copy, model) if experiment.training.ema_decay else None,
    )


def abstract_state(experiment: Experiment, mesh: Mesh) -> TrainState:
    """The state's shapes, dtypes and shardings, as `jax.ShapeDtypeStruct`s."""
    shapes = jax.eval_shape(lambda: initial_state(experiment))
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        parameter_shardings(mesh, shapes),
    )


def initial_state_on(experiment: Experiment, mesh: Mesh) -> TrainState:
    """`initial_state`, made in place on the mesh: no device ever holds more than its part."""
    shardings = _shardings(experiment, mesh)
    make = jax.jit(
        lambda: initial_state(experiment),
        out_shardings=shardings,
        # It runs once; compiled for speed, the random numbers take ten times as long to compile.
        compiler_options={"xla_backend_optimization_level": 1},
    )
    with jax.set_mesh(mesh):
        return make()


def compile_train_step(
    experiment: Experiment, mesh: Mesh, state: TrainState, batch: Batch
) -> jax.stages.Compiled:
    """`train_step`, compiled for the shapes of `state` and `batch`; it consumes its state."""
    shardings = _shardings(experiment, mesh)
    step = jax.jit(
        functools.partial(train_step, experiment),
        in_shardings=(shardings, batch_sharding(mesh)),
        out_shardings=(shardings, None),
        donate_argnums=0,
    )
    with jax.set_mesh(mesh):
        return step.lower(state, batch).compile()


def _shardings(experiment: Experiment, mesh: Mesh) -> Any:
    return jax.tree.map(lambda leaf: leaf.sharding, abstract_state(experiment, mesh))


def train_step(
    experiment: Experiment, state: TrainState, batch: Batch
) -> tuple[TrainState, StepMetrics]:
    """One update from the mean loss over the batch's target tokens.

    With training.nonfinite "skip" an update whose loss or gradient is not finite leaves all but the
    step as it was: its moments, and the count that the schedule goes by.
    """
    key = jax.random.fold_in(jax.random.key(experiment.training.seed), state.step + 1)
    gradients, sums = batch_gradients(experiment, state.model, batch, key)
    model: Any = state.model  # a tree of parameters, to Optax
    optimizer = make_optimizer(experiment.optimizer, d_model=experiment.model.d_model)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer)
    schedule = learning_rate(experiment.optimizer, d_model=experiment.model.d_model)
    model = optax.apply_updates(model, updates)
    ema = state.ema
    if ema is not None:
        ema = moving_average(ema, model, step=state.step + 1, decay=experiment.training.ema_decay)
    norm = optax.tree.norm(gradients)
    new = TrainState(step=state.step + 1, model=model, optimizer=optimizer_state, ema=ema)
    if experiment.training.nonfinite == "skip":
        finite = jnp.isfinite(sums.loss) & jnp.isfinite(norm)
        kept = replace(state, step=new.step)
        new = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, kept)
    chain: Any = state.optimizer  # its last part counts the updates that were made
    rate = schedule(chain[-1].count)
    metrics = StepMetrics(sums=sums, gradient_norm=norm, learning_rate=jnp.asarray(rate))
    return new, metrics


def pass_over(state: TrainState) -> TrainState:
    """The state after an update that is left out."""
    count = jax.jit(lambda step: step + 1, out_shardings=state.step.sharding)
    return replace(state, step=count(state.step))


def moving_average(
    average: Transformer, model: Transformer, *, step: Int[Array, ""], decay: float
) -> Transformer:
    """`average` once `model` has come to it after update `step`.

    The average keeps min(decay, (1 + step) / (10 + step)) of itself: less at first, so that the
    parameters that were drawn at random are soon forgotten.
    """
    kept = jnp.minimum(decay, (1 + step) / (10 + step))
    return jax.tree.map(
        lambda old, new: (new + kept * (old - new)).astype(old.dtype), average, model
    )


def batch_gradients(
    experiment: Experiment, model: Transformer, batch: Batch, key: Array
) -> tuple[Any, Sums]:
    """Gradients of the mean loss over the batch's target tokens, and the batch's totals.

    With training.guided_attention so many times what attention missed is added to the loss.

    The batch is cut into training.accumulation micro-batches whose summed losses and gradients
    add up; dividing by the tokens comes last, so uneven micro-batches weigh as they should.
    """

    def summed(model: Transformer, batch: Batch, key: Array) -> tuple[Array, Sums]:
        config = experiment.training
        sums = objective(
            model,
            batch,
            smoothing=config.label_smoothing,
            chunks=config.loss_chunks,
            key=key,
            remat=config.remat,
            guided=config.guided_attention > 0,
        )
        return sums.loss + config.guided_attention * sums.missed, sums

    differentiate = jax.grad(summed, has_aux=True)
    parts = experiment.training.accumulation
    if parts == 1:
        gradients, sums = differentiate(model, batch, jax.random.fold_in(key, 0))
    else:

        def add(total: Any, part: tuple[Array, Batch]) -> tuple[Any, None]:
            index, micro_batch = part
            new = differentiate(model, micro_batch, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, total, new), None

        micro_batches = _micro_batches(batch, parts)
        first = jax.tree.map(lambda x: x[0], micro_batches)
        zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(differentiate, model, first, key))
        (gradients, sums), _ = lax.scan(add, zero, (jnp.arange(parts), micro_batches))
    tokens = jnp.maximum(sums.tokens, 1)
    return jax.tree.map(lambda gradient: gradient / tokens, gradients), sums


def _micro_batches(batch: Batch, parts: int) -> Batch:
    """[B, T] to [parts, B / parts, T]; each takes every parts-th row, so no row changes device."""

    def split(x: Array) -> Array:
        rows, length = x.shape
        x = x.reshape(rows // parts, parts, length)
        return constrain(jnp.swapaxes(x, 0, 1), None, "batch", "positions")

    return jax.tree.map(split, batch)
