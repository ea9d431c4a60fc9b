"""What ends a run, and which parameters are kept as the best."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from transduce import cli
from transduce.checkpoints import load_model, named_arrays, saved_steps
from transduce.config import Experiment, Interrupted
from transduce.training import loop, window
from transduce.training.step import abstract_state, initial_state_on
from transduce.workdir import Workdir

from .examples import Update, make_mesh, metrics, records, state, steps

pytestmark = pytest.mark.usefixtures("one_device")

PAIRS_OF_AN_UPDATE = 6
SECONDS_OF_AN_UPDATE = 15.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def train(tmp_path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs in tmp_path/workdir with updates that only add 1 to every parameter.

    Each has 6 pairs and takes 15 seconds. `found` is what an evaluation finds, by step; SIGTERM is
    sent in update `stop`.
    """
    clock = Clock()
    monkeypatch.setattr(window.time, "perf_counter", clock)

    def train(*, found: Mapping[int, float] | None = None, stop: int = 0, **changes: Any) -> None:
        def compile_adding(experiment, mesh, state, batch):
            def update(state, batch):
                step = int(state.step) + 1
                clock.now += SECONDS_OF_AN_UPDATE
                if step == stop:
                    signal.raise_signal(signal.SIGTERM)
                model = jax.tree.map(lambda x: x + 1, state.model)
                new = replace(state, step=state.step + 1, model=model)
                return new, metrics(pairs=PAIRS_OF_AN_UPDATE)

            return Update(update)

        class Found:
            def __init__(self, *_: Any) -> None:
                pass

            def __call__(self, monitor, split, model, step) -> dict[str, float]:
                clock.now += 1000
                monitor.record(split, step)
                value = (found or {}).get(step, 9.0)
                return {"loss": value, "bleu": value}

        monkeypatch.setattr(loop, "compile_train_step", compile_adding)
        monkeypatch.setattr(loop, "Assessment", Found)
        plain = replace(
            experiment.training, ema_decay=0.0, steps=100, evaluate_every=0, save_every=100
        )
        asked = replace(experiment, training=replace(plain, **changes))
        loop.train(asked, Workdir.of(str(tmp_path / "workdir")))

    return train


@pytest.fixture
def workdir(tmp_path) -> Path:
    return tmp_path / "workdir"


def evaluations(workdir: Path) -> list[int]:
    return [record["step"] for record in records(workdir, "dev")]


# The best is that of update 4: what is equal is no improvement.
LOSSES = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.0, 10: 4.25, 12: 4.1, 14: 1.0}


def test_a_run_ends_when_its_patience_does(train, workdir: Path, capsys) -> None:
    train(found=LOSSES, evaluate_every=2, patience=4)
    assert evaluations(workdir) == [2, 4, 6, 8, 10, 12]
    assert steps(workdir) == [12]
    ended = "Ended     after update 12: training.patience is 4, the best was update 4"
    assert ended in capsys.readouterr().err
    # Asked again, it trains nothing; its last evaluation counts but once.
    train(found=LOSSES, evaluate_every=2, patience=4)
    assert "Nothing to train: training.patience is 4" in capsys.readouterr().err
    assert steps(workdir) == [12]
    # With more of it, it goes on, and finds better ones.
    train(found=LOSSES, evaluate_every=2, patience=5, steps=14)
    assert evaluations(workdir) == [2, 4, 6, 8, 10, 12, 12, 14]
    assert saved_steps(Workdir.of(str(workdir)).best) == [14]


def test_patience_is_not_forgotten_when_a_run_is_cut(train, workdir: Path) -> None:
    """R5: at 3 of 4, it ends after one more."""
    with pytest.raises(Interrupted):
        train(found=LOSSES, evaluate_every=2, patience=4, stop=11)
    assert evaluations(workdir) == [2, 4, 6, 8, 10]
    train(found=LOSSES, evaluate_every=2, patience=4)
    assert evaluations(workdir) == [2, 4, 6, 8, 10, 12]
    assert steps(workdir) == [12]


@pytest.mark.parametrize(("watch", "step"), [("loss", 4), ("bleu", 8)])
def test_the_parameters_that_did_best_are_kept(
    train, workdir: Path, experiment: Experiment, watch: str, step: int
) -> None:
    found = {2: 5.0, 4: 4.0, 6: 4.5, 8: 6.0, 10: float("nan"), 12: 6.0}
    train(found=found, evaluate_every=2, watch=watch, steps=12, keep=1, save_every=4)
    place = Workdir.of(str(workdir))
    assert (saved_steps(place.best), saved_steps(place.checkpoints)) == ([step], [12])
    mesh = make_mesh(experiment.mesh, jax.devices()[:1])
    # Each update adds 1 to every parameter.
    kept = load_model(place, abstract_state(experiment, mesh).model, best=True)
    drawn = named_arrays(initial_state_on(experiment, mesh).model)
    for name, value in named_arrays(kept).items():
        np.testing.assert_allclose(value - drawn[name], step, rtol=1e-5, err_msg=name)


def test_a_run_ends_with_its_epochs(train, workdir: Path, capsys) -> None:
    # 48 pairs are selected, so that 1.5 epochs are 72 pairs, 12 updates; 1.51 are a little more.
    with pytest.raises(Interrupted):
        train(epochs=1.5, stop=5)
    train(epochs=1.5)
    assert steps(workdir) == [12]
    assert "Ended     after update 12: training.epochs is 1.5" in capsys.readouterr().err
    train(epochs=1.51)
    assert steps(workdir) == [13]


def test_a_run_ends_after_its_minutes_over_all_restarts(
    train, workdir: Path, experiment: Experiment, capsys
) -> None:
    """Evaluations, here of 1,000 seconds, do not count."""
    with pytest.raises(Interrupted):
        train(minutes=2.0, evaluate_every=2, stop=5)
    train(minutes=2.0, evaluate_every=2)
    assert steps(workdir) == [8]
    assert "Ended     after update 8: training.minutes is 2" in capsys.readouterr().err
    assert evaluations(workdir) == [2, 4, 6, 8]
    experiment = replace(experiment, training=replace(experiment.training, ema_decay=0.0))
    _, _, progress = state(experiment, workdir, 8)
    assert progress["pairs"] == 48


def test_a_save_that_fails_ends_the_run_with_a_line(
    train, workdir: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    from orbax.checkpoint._src.checkpointers import async_checkpointer

    commit = async_checkpointer._on_commit_callback

    def full(temporary: Any, *arguments: Any) -> None:
        if temporary.get_final().name == "6":
            raise OSError("No space left on device")
        commit(temporary, *arguments)

    monkeypatch.setattr(async_checkpointer, "_on_commit_callback", full)
    monkeypatch.setitem(cli.VERBS, "train", lambda _: train(save_every=3, log_every=1))
    assert cli.run(["train"]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == (
        f"transduce: {workdir}: a checkpoint could not be saved: No space left on device; those "
        "saved before are as they were"
    )
    assert saved_steps(Workdir.of(str(workdir)).checkpoints) == [3]
    # With space again the same command goes on, and saves that step.
    monkeypatch.setattr(async_checkpointer, "_on_commit_callback", commit)
    train(save_every=3, steps=6)
    assert steps(workdir) == [3, 6]
