"""A run that was cut, in whatever way and wherever, ends as if it had not been."""

import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from transduce.checkpoints import load_model, named_arrays, saved_steps
from transduce.cli import run
from transduce.config import Experiment, Interrupted
from transduce.training import loop
from transduce.training.assess import Assessment
from transduce.training.step import abstract_state, compile_train_step
from transduce.workdir import Workdir

from .examples import (
    Update,
    assert_same_state,
    make_mesh,
    on_one_device,
    records,
    start,
    state,
    steps,
)

pytestmark = pytest.mark.usefixtures("one_device", "compiled")


def best(experiment: Experiment, workdir: Path) -> dict[str, Any]:
    like = abstract_state(experiment, make_mesh(experiment.mesh, jax.devices()[:1])).model
    return named_arrays(load_model(Workdir.of(str(workdir)), like, best=True))


def assert_same_best(experiment: Experiment, left: Path, right: Path) -> None:
    assert saved_steps(Workdir.of(str(left)).best) == saved_steps(Workdir.of(str(right)).best)
    expected = best(experiment, right)
    for name, value in best(experiment, left).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.fixture(scope="module")
def short(experiment: Experiment) -> Experiment:
    """Twelve updates, in which the corpus is gone through three times or so."""
    training = replace(experiment.training, steps=12, evaluate_every=4, save_every=100)
    return replace(experiment, training=training)


@pytest.fixture(scope="module")
def uncut(compiled, folder: Path, short: Experiment) -> Path:
    path = folder / "short"
    with on_one_device(folder / "cache"):
        loop.train(short, Workdir.of(str(path)))
    return path


@pytest.fixture
def signal_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """Sends a signal while update `step` is done."""

    def arrange(number: int, step: int) -> None:
        def compiled(experiment, mesh, state, batch):
            update = compile_train_step(experiment, mesh, state, batch)

            def interrupted(state, batch):
                if int(state.step) + 1 == step:
                    signal.raise_signal(number)
                return update(state, batch)

            return Update(interrupted)

        monkeypatch.setattr(loop, "compile_train_step", compiled)

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield arrange
    # Nothing of ours is left behind.
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_run_that_is_asked_to_stop_saves_and_goes_on_as_if_it_had_not_been(
    tmp_path, short: Experiment, uncut: Path, signal_in
) -> None:
    """R4: cut within the first epoch, at its end and in the second; to the bit."""
    workdir = tmp_path / "workdir"
    # 48 pairs are an epoch; update 6 has the last of the first and the first of the second.
    for number, step, epochs in [
        (signal.SIGTERM, 2, 0),
        (signal.SIGINT, 5, 0),
        (signal.SIGTERM, 8, 1),
    ]:
        signal_in(number, step)
        with pytest.raises(Interrupted, match=f"^{number.name}: stopped after update {step}, wh"):
            loop.train(short, Workdir.of(str(workdir)))
        assert steps(workdir) == [step]
        _, _, progress = state(short, workdir, step)
        assert progress["pairs"] // 48 == epochs
        # What is due after update 8 is left to the next run.
        assert progress["evaluated"] == (4 if step > 4 else 0)
    signal_in(signal.SIGTERM, 0)
    loop.train(short, Workdir.of(str(workdir)))
    _, _, progress = state(short, uncut, 12)
    assert progress["pairs"] // 48 == 2
    assert_same_state(short, workdir, uncut, 12)
    assert_same_best(short, workdir, uncut)
    for kind in ("dev", "test"):
        found, expected = records(workdir, kind), records(uncut, kind)
        assert [(r["step"], r["loss"], r["bleu"]) for r in found] == [
            (r["step"], r["loss"], r["bleu"]) for r in expected
        ]


@pytest.mark.parametrize(("split", "step"), [("dev", 4), ("dev", 12), ("test", 12)])
def test_an_evaluation_is_broken_off_and_done_again(
    tmp_path, short: Experiment, uncut: Path, monkeypatch: pytest.MonkeyPatch, split: str, step: int
) -> None:
    assess = Assessment.__call__

    def interrupted(self, monitor, name, model, number):
        if (name, number) == (split, step):
            signal.raise_signal(signal.SIGTERM)
        return assess(self, monitor, name, model, number)

    workdir = tmp_path / "workdir"
    with monkeypatch.context() as patch:
        patch.setattr(Assessment, "__call__", interrupted)
        with pytest.raises(Interrupted, match=f"stopped after update {step}"):
            loop.train(short, Workdir.of(str(workdir)))
    assert steps(workdir) == [step]
    loop.train(short, Workdir.of(str(workdir)))
    found, expected = records(workdir, "dev"), records(uncut, "dev")
    assert {(r["step"], r["loss"]) for r in found} == {(r["step"], r["loss"]) for r in expected}
    assert len(records(workdir, "test")) == 1
    assert_same_best(short, workdir, uncut)
    if step < 12:
        assert_same_state(short, workdir, uncut, 12)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("during", ["prepare_data", "compile_train_step"])
def test_a_signal_before_the_first_update_ends_the_run_at_once(
    tmp_path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys, during: str, number: int
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(loop, during, interrupted)
    workdir = tmp_path / "workdir"
    arguments = ["train", str(folder / "experiment.py"), "--workdir", str(workdir)]
    assert run(arguments) == 128 + number
    assert capsys.readouterr().err.splitlines()[-1] == "transduce: interrupted"
    # Of a run whose data could not be made ready nothing is left; else there is no checkpoint.
    assert workdir.exists() == (during == "compile_train_step")
    assert saved_steps(Workdir.of(str(workdir)).checkpoints) == []


# ---- Processes that are ended ------------------------------------------------------------------

SLOW = """
import sys, time
from transduce.cli import run
from transduce.training.window import Window

add = Window.add

def slowly(self, step, metrics):
    time.sleep(0.02)
    add(self, step, metrics)

Window.add = slowly
sys.exit(run(sys.argv[1:]))
"""
KILLED_IN_A_SAVE = """
import os, signal, sys
from orbax.checkpoint._src.checkpointers import async_checkpointer
from transduce.cli import run

commit = async_checkpointer._on_commit_callback

def kill(temporary, *arguments):
    if temporary.get_final().name == "10":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(temporary, *arguments)

async_checkpointer._on_commit_callback = kill
run(sys.argv[1:])
"""
OURS = (
    r"(Run|Data|Devices|Model|Work|Continues|Compiled|Ended|Time|Memory|Workdir|Next|dev|test) .*|"
    r"(  \w+|[ \d,]+ of 120) .*|"
    r"transduce: (SIGTERM|SIGINT): stopped after update \d+, which is saved; the same command .*|"
)


def test_a_run_that_was_cut_at_random_moments_ends_as_if_it_had_not_been(
    finished: Path, tmp_path, folder: Path, experiment: Experiment
) -> None:
    """R4, R10: to the bit; and these programs write nothing but what they should."""
    workdir = tmp_path / "workdir"
    arguments = ["train", str(folder / "experiment.py"), "--workdir", str(workdir)]
    arguments += ["--training.save-every", "5"]
    places: dict[str, Any] = {"cache": folder / "cache", "compiled": folder / "compiled"}

    def ends(process: subprocess.Popen[str], *, status: int) -> None:
        output, lines = process.communicate(timeout=100)
        assert process.returncode == status, lines
        assert output == ""
        for line in lines.split("\n"):
            assert re.fullmatch(OURS, line), line

    with start(arguments, program=KILLED_IN_A_SAVE, **places) as process:
        ends(process, status=-signal.SIGKILL)
    assert saved_steps(Workdir.of(str(workdir)).checkpoints) == [5]
    assert (workdir / "checkpoints" / "10.orbax-checkpoint-tmp").is_dir()

    seed = time.time_ns()
    generator = random.Random(seed)
    for number, status in [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGTERM, 75),
        (signal.SIGINT, 75),
    ]:
        compilations = len(records(workdir, "compile"))
        with start(arguments, program=SLOW, **places) as process:
            while len(records(workdir, "compile")) == compilations:
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            moment = generator.uniform(0.05, 0.5)
            print(f"seed {seed}: {number.name} after {moment:.3f} s")
            time.sleep(moment)
            process.send_signal(number)
            ends(process, status=status)
        assert max(saved_steps(Workdir.of(str(workdir)).checkpoints)) < 120

    with start(arguments, **places) as process:
        ends(process, status=0)
    assert_same_state(experiment, workdir, finished, 120)
    assert_same_best(experiment, workdir, finished)
    name = "translations/test-120.txt"
    assert (workdir / name).read_bytes() == (finished / name).read_bytes()
    losses = {record["step"]: record["loss"] for record in records(workdir, "dev")}
    assert losses == {record["step"]: record["loss"] for record in records(finished, "dev")}
