import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.config import Diverged, RequestError, TrainingConfig
from transduce.training.faults import Faults, skipped
from transduce.training.progress import Progress
from transduce.workdir import Workdir


class Records:
    """Stands for the monitor."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.lines: list[str] = []

    def record(self, kind: str, step: int, **values: Any) -> None:
        self.records.append((kind, step, values))

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def faults(tmp_path) -> Faults:
    records: Any = Records()
    return Faults(
        config=TrainingConfig(nonfinite="skip", nonfinite_limit=2),
        workdir=Workdir.of(str(tmp_path)),
        monitor=records,
        progress=Progress(),
        pairs=lambda step: {"corpus": [7, step, 7], "other": [3]},
    )


def losses(faults: Faults, *values: float) -> list[int]:
    """The places of the values, from 0 on, that leap."""
    for place, value in enumerate(values):
        faults.finite(place, value)
    monitor: Any = faults.monitor
    assert all(kind == "spike" for kind, _, _ in monitor.records)
    return [step for _, step, _ in monitor.records]


def test_a_run_stops_at_the_first_number_that_is_not_finite(faults: Faults, tmp_path) -> None:
    """R19: it says at which update, and lists the sentence pairs."""
    stopping = replace(faults, config=TrainingConfig())
    path = tmp_path / "nonfinite" / "31.json"
    message = f"update 31: loss nan, gradient norm inf; its sentence pairs are listed in {path}; "
    with pytest.raises(Diverged, match=f"{message}the checkpoints saved before are as they were"):
        stopping.nonfinite(31, math.nan, math.inf)
    assert json.loads(path.read_text()) == {
        "step": 31,
        "loss": "nan",
        "gradient_norm": "inf",
        "pairs": {"corpus": [7, 31], "other": [3]},
    }


def test_updates_are_left_out_up_to_a_limit_in_a_row(faults: Faults, tmp_path) -> None:
    """R19."""
    for step in (1, 2, 4, 5):
        if step == 4:
            faults.finite(3, 1.0)
        faults.nonfinite(step, math.nan, 1.0)
    assert (faults.progress.nonfinite, faults.progress.nonfinite_in_a_row) == (4, 2)
    monitor: Any = faults.monitor
    values = {"loss": "nan", "gradient_norm": "1.0"}
    assert monitor.records == [("nonfinite", step, values) for step in (1, 2, 4, 5)]
    message = r"update 6: loss inf, .*; training\.nonfinite_limit is 2 in a row; the checkpoints"
    with pytest.raises(Diverged, match=message):
        faults.nonfinite(6, math.inf, 1.0)
    names = sorted(path.name for path in (tmp_path / "nonfinite").iterdir())
    assert names == ["1.json", "2.json", "4.json", "5.json", "6.json"]


def test_a_loss_that_leaps_is_recorded(faults: Faults) -> None:
    # The median is 2.05, and the median distance from it 0.05: half a nat is ten times that.
    usual = [2.0, 2.1] * 25
    assert losses(faults, *usual, 2.5, 2.7, 2.0) == [51]
    monitor: Any = faults.monitor
    _, _, values = monitor.records[0]
    assert values == {"loss": 2.7, "median": pytest.approx(2.1)}
    assert monitor.lines == ["Spike     update 51: loss 2.700, after a median of 2.100"]


def test_a_small_change_of_a_loss_that_hardly_changes_is_no_leap(faults: Faults) -> None:
    assert losses(faults, *[0.01] * 50, 0.1, 0.12) == [51]


def test_there_is_no_leap_before_there_is_a_usual_loss(faults: Faults) -> None:
    assert losses(faults, *[9.0 - number / 10 for number in range(48)], 100.0) == []


def test_updates_may_be_skipped_on_purpose() -> None:
    config = TrainingConfig(skip_steps=("3:4", "9:9"))
    assert [step for step in range(1, 12) if skipped(config, step)] == [3, 4, 9]
    assert not skipped(TrainingConfig(), 1)


@pytest.mark.parametrize("updates", ["", "3", "4:3", "0:3", "a:b", "-1:2", "1:2:3", "1:"])
def test_ranges_that_are_none_are_refused(updates: str) -> None:
    with pytest.raises(RequestError, match=r"training\.skip_steps must be FIRST:LAST"):
        TrainingConfig(skip_steps=(updates,))


def test_what_is_listed_can_be_found_in_the_workdir(tmp_path: Path) -> None:
    assert Workdir.of(str(tmp_path)).nonfinite(7) == tmp_path / "nonfinite" / "7.json"
