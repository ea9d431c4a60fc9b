import math
from typing import Any

import pytest

from transduce.config import DataConfig, Diverged, Experiment, TrainingConfig
from transduce.training import window as module
from transduce.training.faults import Faults
from transduce.training.objective import Sums
from transduce.training.progress import Limits, Progress
from transduce.training.report import Work
from transduce.training.step import StepMetrics
from transduce.training.window import Window
from transduce.workdir import Workdir

EXPERIMENT = Experiment(
    name="window",
    data=DataConfig(rows=16, row_length=10),
    training=TrainingConfig(steps=1000),
)


class Clock:
    """Goes on only when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Records:
    """Stands for the monitor."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.lines: list[str] = []

    def record(self, kind: str, step: int, **values: float) -> None:
        self.records.append({"kind": kind, "step": step, **values})

    def progress(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "perf_counter", clock)
    return clock


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
def window(clock: Clock, records: Any, progress: Progress, tmp_path) -> Window:
    limits = Limits(config=EXPERIMENT.training, epoch=1)
    work = Work(positions=160, flops=64_000_000, peak=None)
    faults = Faults(
        config=EXPERIMENT.training,
        workdir=Workdir.of(str(tmp_path)),
        monitor=records,
        progress=progress,
        pairs=lambda step: {"corpus": [step, 0]},
    )
    return Window(EXPERIMENT, records, work=work, progress=progress, limits=limits, faults=faults)


def metrics(
    *,
    loss: float,
    tokens: float,
    log_loss: float = 1.0,
    norm: float = 1.0,
    rate: float = 1.0,
    pairs: float = 1.0,
    missed: float = 0.0,
    aligned: float = 0.0,
) -> StepMetrics:
    values: dict[str, Any] = {"loss": loss, "log_loss": log_loss, "tokens": tokens, "pairs": pairs}
    values |= {"missed": missed, "aligned": aligned}
    parts: dict[str, Any] = {"gradient_norm": norm, "learning_rate": rate}
    return StepMetrics(sums=Sums(**values, source_tokens=values["tokens"]), **parts)


def test_means_weigh_by_target_tokens(window: Window, records: Records, clock: Clock) -> None:
    window.add(7, metrics(loss=10, log_loss=5, tokens=10, norm=1, rate=0.1))
    window.add(8, metrics(loss=300, log_loss=215, tokens=100, norm=4, rate=0.3))
    clock.now += 1
    window.report()
    (record,) = records.records
    assert (record["kind"], record["step"]) == ("train", 8)
    assert record["loss"] == pytest.approx(310 / 110)
    assert record["perplexity"] == pytest.approx(math.exp(2))
    assert record["gradient_norm"] == pytest.approx(2.5)
    assert record["learning_rate"] == 0.3
    assert "attention_missed" not in record


def test_what_attention_missed_is_a_mean_over_aligned_tokens(
    window: Window, records: Records, clock: Clock
) -> None:
    clock.now += 1
    window.add(7, metrics(loss=1, tokens=10, missed=4.0, aligned=2.0))
    window.add(8, metrics(loss=1, tokens=100, missed=2.0, aligned=10.0))
    window.report()
    assert records.records[0]["attention_missed"] == pytest.approx(0.5)


def test_only_the_time_of_updates_counts(window: Window, records: Records, clock: Clock) -> None:
    """R20: neither compiling nor what is done between draining and restarting."""
    clock.now += 500  # compiling
    window.restart()
    window.add(1, metrics(loss=1, tokens=30))
    clock.now += 2
    window.drain()
    clock.now += 100  # evaluating
    window.restart()
    window.add(2, metrics(loss=1, tokens=50))
    clock.now += 3
    window.report()
    (record,) = records.records
    assert record["target_tokens_per_second"] == pytest.approx(80 / 5)
    assert record["updates_per_second"] == pytest.approx(2 / 5)


def test_pairs_and_the_time_of_updates_are_added_to_the_progress(
    window: Window, progress: Progress, clock: Clock
) -> None:
    progress.pairs, progress.seconds = 1000, 50.0
    clock.now += 500  # compiling
    window.restart()
    window.add(1, metrics(loss=1, tokens=30, pairs=7))
    clock.now += 2
    window.add(2, metrics(loss=1, tokens=30, pairs=5))
    assert progress.seconds == 52
    clock.now += 1
    window.drain()
    clock.now += 100  # evaluating
    window.restart()
    window.report()
    assert (progress.pairs, progress.seconds) == (1012, 53)
    window.report()
    assert (progress.pairs, progress.seconds) == (1012, 53)


def test_padding_is_reported_apart(window: Window, records: Records, clock: Clock) -> None:
    """R17: rows are 16 x 10."""
    for step, tokens in [(1, 120), (2, 40)]:
        window.add(step, metrics(loss=1, tokens=tokens))
    clock.now += 2
    window.report()
    (record,) = records.records
    assert record["target_tokens_per_second"] == pytest.approx(80)
    assert record["padded_target_tokens_per_second"] == pytest.approx(160)
    assert record["padding"] == pytest.approx(0.5)
    assert record["flops_per_second"] == pytest.approx(64e6)
    assert "utilisation" not in record


def test_waiting_for_data_is_counted_apart_and_in_the_time_of_updates(
    window: Window, progress: Progress, clock: Clock
) -> None:
    window.fetched()
    window.add(1, metrics(loss=1, tokens=30))
    window.drain()
    clock.now += 3
    window.fetched()
    window.add(2, metrics(loss=1, tokens=30))
    window.drain()
    clock.now += 100  # evaluating
    window.restart()
    window.fetched()
    window.add(3, metrics(loss=1, tokens=30))
    clock.now += 4
    window.report()
    assert progress.apart == {"waiting": 3}
    assert progress.seconds == 7


def test_a_report_begins_anew(window: Window, records: Records, clock: Clock) -> None:
    window.add(1, metrics(loss=1, tokens=10))
    clock.now += 1
    window.report()
    window.add(2, metrics(loss=40, tokens=10))
    clock.now += 4
    window.report()
    assert records.records[1]["loss"] == pytest.approx(4)
    assert records.records[1]["target_tokens_per_second"] == pytest.approx(2.5)


def test_the_live_line_shows_what_a_user_waits_for(
    window: Window, records: Records, clock: Clock
) -> None:
    window.add(400, metrics(loss=25, tokens=10, norm=1.5, rate=0.0007))
    clock.now += 2
    window.report()
    # 600 updates of 2 seconds are left: 20 minutes.
    assert records.lines == [
        "    400 of 1,000  loss 2.500  lr 7.00e-04  grad 1.50  "
        "5 target tokens/s (80 with padding)  32.00 MFLOP/s  20:00 left"
    ]


@pytest.mark.parametrize(
    ("loss", "norm"), [(math.nan, 1), (math.inf, 1), (1, math.nan), (1, math.inf)]
)
def test_a_run_that_diverges_stops_and_names_the_update(
    window: Window, records: Records, clock: Clock, loss: float, norm: float
) -> None:
    """R19."""
    window.add(6, metrics(loss=1, tokens=1))
    window.add(7, metrics(loss=loss, norm=norm, tokens=1))
    window.add(8, metrics(loss=math.nan, tokens=1))
    with pytest.raises(Diverged, match=r"update 7: loss .*, gradient norm .*; its sentence pairs"):
        window.report()
    assert records.records == []


def test_a_perplexity_beyond_a_float_is_infinite(
    window: Window, records: Records, clock: Clock
) -> None:
    window.add(1, metrics(loss=1, log_loss=1e6, tokens=1))
    clock.now += 1
    window.report()
    assert records.records[0]["perplexity"] == math.inf
