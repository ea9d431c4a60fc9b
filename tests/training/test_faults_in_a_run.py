"""What a run does with updates that go wrong or are to be left out."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.config import Diverged, Experiment, RequestError, TrainingConfig
from transduce.training import loop
from transduce.workdir import Workdir

from .examples import PAIRS, Update, metrics, records, steps

pytestmark = pytest.mark.usefixtures("one_device", "compiled")

type Step = Callable[[Any, Any], Any]


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, np.ndarray]]:
    """The updates that are made, with their numbers by the state and the ids of their sources.

    They change nothing; those of numbers 3, 5 and 6 have no finite loss.
    """
    made: list[tuple[int, np.ndarray]] = []

    def compile_train_step(experiment: Any, mesh: Any, state: Any, batch: Any) -> Any:
        def update(state: Any, batch: Any) -> Any:
            number = int(state.step) + 1
            made.append((number, np.asarray(batch.source.ids)))
            loss = math.nan if number in (3, 5, 6) else 1.0
            return replace(state, step=state.step + 1), metrics(loss=loss)

        return Update(update)

    monkeypatch.setattr(loop, "compile_train_step", compile_train_step)
    return made


def train(experiment: Experiment, workdir: Path, **changes: Any) -> str:
    """Until it diverges; the message."""
    values = {"steps": 9, "save_every": 2, "evaluate_every": 0, **changes}
    training: TrainingConfig = replace(experiment.training, **values)
    with pytest.raises(Diverged) as raised:
        loop.train(replace(experiment, training=training), Workdir.of(str(workdir)))
    return str(raised.value)


def test_updates_without_a_finite_loss_are_left_out_and_their_pairs_are_listed(
    tmp_path, experiment: Experiment, updates: list[tuple[int, np.ndarray]]
) -> None:
    """R19: up to the limit; the checkpoints before stay, and say how many were left out."""
    workdir = tmp_path / "workdir"
    message = train(experiment, workdir, nonfinite="skip", nonfinite_limit=1)
    assert message.startswith(
        "update 6: loss nan, gradient norm 1.0; its sentence pairs are listed"
    )
    assert [record["step"] for record in records(workdir, "nonfinite")] == [3, 5, 6]
    assert steps(workdir)[-1] == 4
    training = [pair for pair in PAIRS if pair not in PAIRS[::5]]
    for number in (3, 5, 6):
        listed = json.loads((workdir / "nonfinite" / f"{number}.json").read_text())
        places = listed["pairs"]["small"]
        assert all(0 <= place < len(training) for place in places)
        # A row of 32 tokens has room for a pair and more; ids above 3 stand for text.
        assert len(places) >= experiment.data.rows
    assert len(updates) in (6, 7)


def test_updates_are_skipped_on_purpose_and_their_batches_passed_over(
    tmp_path, experiment: Experiment, updates: list[tuple[int, np.ndarray]]
) -> None:
    """R19."""
    train(experiment, tmp_path / "all")
    everything = dict(updates)
    updates.clear()
    message = train(experiment, tmp_path / "some", skip_steps=("1:1", "3:4"))
    assert message.startswith("update 5: ")
    assert [number for number, _ in updates][:2] == [2, 5]
    np.testing.assert_array_equal(updates[0][1], everything[2])
    workdir = tmp_path / "some"
    assert [record["step"] for record in records(workdir, "skipped")] == [1, 3, 4]
    assert steps(workdir)[-1] == 4


def test_a_run_goes_on_before_a_damaged_checkpoint_when_asked(
    tmp_path, experiment: Experiment, updates: list[tuple[int, np.ndarray]]
) -> None:
    workdir = tmp_path / "workdir"
    train(experiment, workdir, nonfinite="skip", nonfinite_limit=1)
    assert steps(workdir) == [2, 4]
    path = workdir / "checkpoints" / "4" / "pipeline" / "metadata"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    stopping = replace(experiment.training, steps=9, save_every=2, evaluate_every=0)
    with pytest.raises(RequestError, match=rf"{path}: is damaged: .*; --training\.on-damage prev"):
        loop.train(replace(experiment, training=stopping), Workdir.of(str(workdir)))
    updates.clear()
    train(experiment, workdir, nonfinite="skip", nonfinite_limit=1, on_damage="previous")
    assert updates[0][0] == 3
    assert (workdir / "damaged" / "4").is_dir()
    assert steps(workdir) == [2, 4]
