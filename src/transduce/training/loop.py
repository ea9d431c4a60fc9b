"""A run, from an experiment and a workdir to a trained model."""

import os
import shlex
import signal
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, replace

import jax
import jax.numpy as jnp

from transduce.checkpoints import Checkpoints, require_same_arrays, saved_steps
from transduce.config import Experiment, Interrupted, RequestError
from transduce.model.transformer import parameter_count
from transduce.parallel import hosts
from transduce.parallel.mesh import make_mesh, place
from transduce.pipeline.batches import TrainingBatches, own_readers
from transduce.pipeline.data import prepare_data
from transduce.training.agreement import Agreement
from transduce.training.assess import Assessment
from transduce.training.interruption import BrokenOff, Interruption
from transduce.training.monitor import Monitor
from transduce.training.progress import Limits, Progress
from transduce.training.step import (
    abstract_state,
    compile_train_step,
    initial_state_on,
)
from transduce.training.warm_start import warm_start
from transduce.training.window import Window
from transduce.workdir import Workdir


def train(experiment: Experiment, workdir: Workdir, *, profile: bool = False) -> None:
    """Trains to the first of training's limits, from the newest checkpoint if there is one.

    Of several processes all train; the first alone writes what is written once, and speaks.
    Raises `RequestError` when the data, the mesh or the workdir do not fit the experiment;
    `Diverged` when the loss is not finite and `SaveFailed` when a checkpoint cannot be written,
    and checkpoints saved before then stay; `Interrupted` when a signal asks for the end and all
    that was done is saved.
    """
    config = experiment.training
    mesh = make_mesh(experiment.mesh)
    shares = mesh.shape["data"] * mesh.shape["fsdp"] * config.accumulation
    if experiment.data.rows % shares:
        raise RequestError(
            f"data.rows ({experiment.data.rows}) does not divide over mesh.data x mesh.fsdp x "
            f"training.accumulation ({shares})"
        )
    if experiment.data.row_length % mesh.shape["context"]:
        raise RequestError(
            f"data.row_length ({experiment.data.row_length}) does not divide over mesh.context "
            f"({mesh.shape['context']})"
        )
    like = abstract_state(experiment, mesh)
    with ExitStack() as run:
        interruption = run.enter_context(Interruption())
        run.enter_context(workdir.begin(experiment))
        newest = max(saved_steps(workdir.checkpoints), default=0)
        number = saved = int(hosts.from_first(str(newest).encode()))
        if number:
            require_same_arrays(workdir.checkpoints / str(number), like)

        # ---- Data ------------------------------------------------------------------------
        began = time.perf_counter()
        parameters = warm_start(experiment, workdir, like.model)
        data = prepare_data(
            experiment.data,
            vocabulary_path=workdir.vocabulary,
            vocabulary_rows=experiment.model.vocabulary_size,
        )
        readers = own_readers(mesh, experiment.data)
        assess = Assessment(experiment, mesh, workdir, data, interruption)
        workdir.settle(
            experiment, corpora=data.fingerprints, vocabulary=data.vocabulary.fingerprint
        )
        seconds = time.perf_counter() - began

        monitor = run.enter_context(Monitor(workdir))
        count, kind = parameter_count(experiment.model), jax.devices()[0].device_kind
        processes = hosts.process()[1]
        monitor.say(f"Run       {experiment.name}, in {workdir.path}")
        for name, selection in data.selections.items():
            monitor.say(f"Data      {name}: {selection}")
        monitor.say(f"Data      ready in {seconds:.1f} s")
        monitor.say(
            f"Model     {count:,} parameters; {mesh.size} x {kind}"
            + (f", in {processes} processes" if processes > 1 else "")
        )

        # ---- State: new, or the newest checkpoint's --------------------------------------
        checkpoints = run.enter_context(
            Checkpoints(workdir, keep=config.keep, every=config.save_every)
        )
        progress, position = Progress(), None
        if number:
            state, position, values = checkpoints.restore(number, like)
            progress = Progress(**values)
            monitor.say(f"Continues after step {number:,} of {workdir.path}")
        else:
            state = initial_state_on(experiment, mesh)
        if parameters is not None:
            average = None if state.ema is None else jax.tree.map(jnp.copy, parameters)
            state = replace(state, model=parameters, ema=average)
            monitor.say(f"Begins    with the parameters of {config.warm_start}")
        batches = run.enter_context(
            closing(
                TrainingBatches(
                    data.training,
                    data.vocabulary,
                    experiment.data,
                    place=lambda batch: place(mesh, batch, rows=experiment.data.rows),
                    state=position,
                    numbers=readers,
                )
            )
        )

        # ---- Updates, and what is due after each -----------------------------------------
        limits = Limits(config=config, epoch=sum(len(c.kept) for c in data.training))
        window = Window(experiment, monitor, progress=progress, limits=limits)
        agree, asked, late = Agreement(), 0, limits.late(progress)
        step = None
        profiled = _profiled(number, config.steps) if profile and hosts.is_first() else range(0)
        if ended := limits.reached(number, progress, late=late):
            monitor.say(f"Nothing to train: {ended}")
        while True:
            # At first this is the newest checkpoint, whose evaluation may have been broken off.
            unsaved = number > saved
            if unsaved and (ended or asked or number % config.log_every == 0):
                window.report()
                checkpoints.check()
            due = config.evaluate_every and number % config.evaluate_every == 0
            if (ended or (due and progress.evaluated < number)) and not asked:
                window.drain()
                try:
                    scores = assess(monitor, "dev", state.result, number)
                except BrokenOff as by:
                    asked = by.signal
                else:
                    if progress.evaluated < number:
                        if progress.evaluate(number, scores[config.watch], watch=config.watch):
                            checkpoints.save_best(number, state.result)
                        ended = limits.reached(number, progress, late=late)
                window.restart()
            if unsaved and (ended or asked or number % config.save_every == 0):
                if ended or asked:
                    window.report()
                window.drain()
                checkpoints.save(
                    number, state, pipeline=batches.get_state(), progress=asdict(progress)
                )
                saved = number
                window.restart()
            if ended or asked:
                break

            batch = next(batches)
            number += 1
            if step is None:
                began = time.perf_counter()
                step = compile_train_step(experiment, mesh, state, batch)
                hosts.barrier("the training step is compiled")
                interruption.begin()
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
            if config.epochs:
                window.drain()  # so that the pairs of this update count
            if profiled and number == profiled[-1]:
                window.drain()
                jax.profiler.stop_trace()
                monitor.say(f"Profile   {workdir.path / 'profile'}")
                window.restart()
            asked, over = agree(interruption.asked or 0, limits.late(progress))
            late = bool(over)
            ended = limits.reached(number, progress, late=late)

        # ---- The result ------------------------------------------------------------------
        checkpoints.wait()
        if step is not None and ended:
            monitor.say(f"Ended     after update {number:,}: {ended}")
        if "test" in data.splits and not asked:
            try:
                assess(monitor, "test", state.result, number)
            except BrokenOff as by:
                asked = by.signal
        # Whoever ends long before another ends that one too.
        hosts.barrier("the run is at its end")
        if asked:
            raise Interrupted(
                f"{signal.Signals(asked).name}: stopped after update {number:,}, which is saved; "
                "the same command goes on"
            )
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
