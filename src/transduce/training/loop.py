"""A run, from an experiment and a workdir to a trained model."""

import os
import shlex
import sys
import time
from contextlib import closing

import jax

from transduce.checkpoints import Checkpoints, Workdir
from transduce.config import Experiment, RequestError
from transduce.model.transformer import parameter_count
from transduce.parallel.mesh import make_mesh, place
from transduce.pipeline.batches import training_batches
from transduce.pipeline.data import prepare_data
from transduce.training.assess import Assessment
from transduce.training.monitor import Monitor
from transduce.training.step import (
    abstract_state,
    compile_train_step,
    initial_state_on,
)
from transduce.training.window import Window


def train(experiment: Experiment, workdir: Workdir, *, profile: bool = False) -> None:
    """Trains until training.steps, from the newest checkpoint in `workdir` if there is one.

    Raises `RequestError` when the data, the mesh or the workdir do not fit the experiment, and
    `Diverged` when the loss is not finite; checkpoints saved before then stay.
    """
    config = experiment.training
    mesh = make_mesh(experiment.mesh)
    shares = mesh.shape["data"] * mesh.shape["fsdp"] * config.accumulation
    if experiment.data.rows % shares:
        raise RequestError(
            f"data.rows ({experiment.data.rows}) does not divide over mesh.data x mesh.fsdp x "
            f"training.accumulation ({shares})"
        )
    like = abstract_state(experiment, mesh)

    # ---- Data ----------------------------------------------------------------------------
    with workdir.begin(experiment):
        began = time.perf_counter()
        data = prepare_data(
            experiment.data,
            vocabulary_path=workdir.vocabulary,
            vocabulary_rows=experiment.model.vocabulary_size,
        )
        assess = Assessment(experiment, mesh, workdir, data)
        prepared = f"{data.selection}; {time.perf_counter() - began:.1f} s"
    dataset = training_batches(
        data.splits["train"],
        data.selection.kept,
        data.vocabulary,
        experiment.data,
        place=lambda batch: place(mesh, batch),
    )
    with (
        Monitor(workdir) as monitor,
        Checkpoints(workdir, keep=config.keep) as checkpoints,
        closing(iter(dataset)) as batches,
    ):
        count, kind = parameter_count(experiment.model), jax.devices()[0].device_kind
        monitor.say(f"Run       {experiment.name}, in {workdir.path}")
        monitor.say(f"Data      {prepared}")
        monitor.say(f"Model     {count:,} parameters; {mesh.size} x {kind}")

        # ---- State: new, or the newest checkpoint's --------------------------------------
        first = checkpoints.latest() or 0
        if first:
            state, position = checkpoints.restore(first, like)
            batches.set_state(position)
            monitor.say(f"Continues after step {first:,} of {workdir.path}")
        else:
            state = initial_state_on(experiment, mesh)
        final = max(first, config.steps)
        if first == final:
            monitor.say(f"Nothing to train: training.steps is {config.steps:,}")

        # ---- Updates ---------------------------------------------------------------------
        window = Window(experiment, monitor)
        step = None
        profiled = _profiled(first, final) if profile else range(0)
        for number in range(first + 1, final + 1):
            batch = next(batches)
            if step is None:
                began = time.perf_counter()
                step = compile_train_step(experiment, mesh, state, batch)
                seconds = time.perf_counter() - began
                monitor.record("compile", number, seconds=round(seconds, 3))
                monitor.say(f"Compiled  the training step in {seconds:.1f} s")
                window.restart()
            if profiled and number == profiled[0]:
                window.drain()
                jax.profiler.start_trace(str(workdir.path / "profile"))
                window.restart()
            state, metrics = step(state, batch)
            window.add(number, metrics)
            if profiled and number == profiled[-1]:
                window.drain()
                jax.profiler.stop_trace()
                monitor.say(f"Profile   {workdir.path / 'profile'}")
                window.restart()

            last = number == final
            if last or number % config.log_every == 0:
                window.report()
            if last or number % config.save_every == 0:
                window.drain()
                checkpoints.save(number, state, batches.get_state())
                window.restart()
            if config.evaluate_every and number % config.evaluate_every == 0 and not last:
                window.drain()
                assess(monitor, "dev", state.model, number)
                window.restart()

        # ---- The result ------------------------------------------------------------------
        assess(monitor, "dev", state.model, final)
        if "test" in data.splits:
            assess(monitor, "test", state.model, final)
        example = shlex.quote(next(iter(data.splits["dev"]))[0])
        monitor.say(f"Workdir   {workdir.path}")
        monitor.say(f"Next      echo {example} | {_program()} translate {workdir.path}")


def _program() -> str:
    """How the user would start this program again."""
    name = os.path.relpath(sys.argv[0])
    return name if os.path.basename(name) == "transduce" else "transduce"


def _profiled(first: int, final: int) -> range:
    """The three updates after `first` to trace: not the first ones, if there are others."""
    start = max(first + 1, min(first + 10, final - 2))
    return range(start, min(start + 3, final + 1))
