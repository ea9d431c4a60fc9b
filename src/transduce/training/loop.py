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

from transduce.checkpoints import Checkpoints, newest_whole, require_same_arrays
from transduce.config import Experiment, Interrupted, RequestError
from transduce.model.arithmetic import parameters as parameter_count
from transduce.parallel import hosts
from transduce.parallel.mesh import make_mesh, place
from transduce.pipeline.batches import TrainingBatches, own_rows
from transduce.pipeline.data import prepare_data
from transduce.training.agreement import Agreement
from transduce.training.assess import Assessment
from transduce.training.faults import Faults, skipped
from transduce.training.interruption import BrokenOff, Interruption
from transduce.training.monitor import Monitor, duration
from transduce.training.progress import Limits, Progress
from transduce.training.report import (
    memory,
    memory_in_words,
    model_in_words,
    spend,
    summary,
    time_in_words,
    timed,
    total_time,
    work_in_words,
    work_of,
)
from transduce.training.step import (
    abstract_state,
    compile_train_step,
    initial_state_on,
    pass_over,
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
    started = time.perf_counter()
    like = abstract_state(experiment, mesh)
    with ExitStack() as run:
        interruption = run.enter_context(Interruption())
        run.enter_context(workdir.begin(experiment))
        newest = 0
        with hosts.first_ahead():
            if hosts.is_first():
                newest = newest_whole(workdir, on_damage=config.on_damage)
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
        assess = Assessment(experiment, mesh, workdir, data, interruption)
        workdir.settle(
            experiment, corpora=data.fingerprints, vocabulary=data.vocabulary.fingerprint
        )
        seconds = time.perf_counter() - began

        monitor = run.enter_context(Monitor(workdir))
        work, kind = work_of(experiment, list(mesh.devices.flat)), jax.devices()[0].device_kind
        processes = hosts.process()[1]
        monitor.say(f"Run       {experiment.name}, in {workdir.path}")
        for name, selection in data.selections.items():
            monitor.say(f"Data      {name}: {selection}")
        monitor.say(f"Data      ready in {seconds:.1f} s")
        monitor.say(
            f"Devices   {mesh.size} x {kind}"
            + (f", in {processes} processes" if processes > 1 else "")
        )
        monitor.say(f"Model     {model_in_words(experiment)}")
        monitor.say(f"Work      {work_in_words(work)}")
        count = parameter_count(experiment.model).total
        monitor.record("start", number, parameters=count, flops_per_update=work.flops)

        # ---- State: new, or the newest checkpoint's --------------------------------------
        with hosts.ending_together():
            checkpoints = run.enter_context(
                Checkpoints(workdir, keep=config.keep, every=config.save_every)
            )
            progress, position = Progress(), None
            if number:
                began = time.perf_counter()
                state, position, values = checkpoints.restore(number, like)
                seconds = time.perf_counter() - began
                progress = Progress(**values)
                spend(progress.apart, "restoring", seconds)
                started += seconds
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
                    own=own_rows(mesh, experiment.data),
                    history=config.log_every + 2,
                )
            )
        )

        # Entered last, it is left first: what is left after it may wait for other processes.
        run.enter_context(hosts.ending_together())

        # ---- Updates, and what is due after each -----------------------------------------
        limits = Limits(config=config, epoch=sum(len(c.kept) for c in data.training))
        names = [corpus.name for corpus in experiment.data.corpora]

        def pairs(step: int) -> dict[str, list[int]]:
            return {names[corpus]: of for corpus, of in batches.pairs(number - step).items()}

        faults = Faults(
            config=config, workdir=workdir, monitor=monitor, progress=progress, pairs=pairs
        )
        window = Window(
            experiment, monitor, work=work, progress=progress, limits=limits, faults=faults
        )
        agree, asked, late = Agreement(), 0, limits.late(progress)
        step = None
        profiled = _profiled(number, config.steps) if profile and hosts.is_first() else range(0)
        if ended := limits.reached(number, progress, late=late):
            monitor.say(f"Nothing to train: {ended}")
        spend(progress.apart, "starting", time.perf_counter() - started)
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
                    with timed(progress.apart, "evaluating"):
                        scores = assess(monitor, "dev", state.result, number)
                except BrokenOff as by:
                    asked = by.signal
                else:
                    if progress.evaluated < number:
                        if progress.evaluate(number, scores[config.watch], watch=config.watch):
                            with timed(progress.apart, "saving"):
                                checkpoints.save_best(number, state.result)
                        ended = limits.reached(number, progress, late=late)
                window.restart()
            if unsaved and (ended or asked or number % config.save_every == 0):
                if ended or asked:
                    window.report()
                window.drain()
                with timed(progress.apart, "saving"):
                    checkpoints.save(
                        number, state, pipeline=batches.get_state(), progress=asdict(progress)
                    )
                saved = number
                window.restart()
            if ended or asked:
                break

            batch = next(batches)
            window.fetched()
            number += 1
            if step is None:
                began = time.perf_counter()
                step = compile_train_step(experiment, mesh, state, batch)
                hosts.barrier("the training step is compiled")
                interruption.begin()
                seconds = time.perf_counter() - began
                spend(progress.apart, "compiling", seconds)
                planned = memory(step).step
                monitor.record(
                    "compile", number, seconds=round(seconds, 3), step_peak_bytes=planned
                )
                monitor.say(f"Compiled  the training step in {seconds:.1f} s")
                window.restart()
            if profiled and number == profiled[0]:
                window.drain()
                jax.profiler.start_trace(str(workdir.path / "profile"))
                window.restart()
            if skipped(config, number):
                window.drain()
                state = pass_over(state)
                monitor.record("skipped", number)
                monitor.say(f"Left out  update {number:,}: training.skip_steps")
                window.restart()
            else:
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
        with timed(progress.apart, "saving"):
            checkpoints.wait()
        if step is not None and ended:
            monitor.say(f"Ended     after update {number:,}: {ended}")
        if "test" in data.splits and not asked:
            try:
                with timed(progress.apart, "evaluating"):
                    assess(monitor, "test", state.result, number)
            except BrokenOff as by:
                asked = by.signal
        if step is not None:
            seconds, apart, peaks = progress.seconds, progress.apart, memory(step)
            monitor.record("end", number, **summary(seconds, apart, peaks))
            total = duration(total_time(seconds, apart))
            monitor.say(f"Time      {total} in all: {time_in_words(seconds, apart)}")
            monitor.say(f"Memory    {memory_in_words(peaks)}")
        if ended and not asked:
            monitor.record("over", number, by=ended)
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
