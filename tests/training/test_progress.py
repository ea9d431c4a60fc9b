import math
from typing import Any

import pytest

from transduce.config import TrainingConfig
from transduce.training.progress import Limits, Progress


@pytest.mark.parametrize(
    ("watch", "values", "best_at"),
    [
        ("loss", [3.0, 2.0, 2.0, 2.5, 1.0], [1, 2, 2, 2, 5]),
        ("bleu", [3.0, 2.0, 3.0, 3.5, 1.0], [1, 1, 1, 4, 4]),
        # A loss that is no number is never the best.
        ("loss", [math.nan, math.inf, 9.0, math.nan, 8.0], [0, 0, 3, 3, 5]),
    ],
)
def test_the_best_is_the_first_of_the_best_ones(
    watch: str, values: list[float], best_at: list[int]
) -> None:
    progress = Progress()
    for step, (value, best) in enumerate(zip(values, best_at, strict=True), start=1):
        assert progress.evaluate(step, value, watch=watch) == (best == step)
        assert (progress.best_step, progress.evaluated) == (best, step)
        assert progress.without_improvement == step - best
        assert progress.best == (values[best - 1] if best else None)


def test_what_a_checkpoint_from_before_the_times_apart_holds_is_read() -> None:
    saved = {"pairs": 7, "seconds": 2.5, "evaluated": 3, "best": 1.5, "best_step": 3}
    progress = Progress(**saved, without_improvement=0)
    assert (progress.pairs, progress.seconds, progress.apart) == (7, 2.5, {})


def limits(**config: Any) -> Limits:
    values: dict[str, Any] = {"steps": 1000, "patience": 3}
    return Limits(config=TrainingConfig(**values | config), epoch=50)


@pytest.mark.parametrize(
    ("config", "step", "progress", "reached"),
    [
        ({}, 999, Progress(pairs=10**9, seconds=1e9, without_improvement=2), ""),
        ({}, 1000, Progress(), "training.steps is 1,000"),
        ({}, 1001, Progress(), "training.steps is 1,000"),
        ({"epochs": 2.5}, 9, Progress(pairs=124), ""),
        ({"epochs": 2.5}, 9, Progress(pairs=125), "training.epochs is 2.5"),
        ({"minutes": 60}, 9, Progress(seconds=3599.9), ""),
        ({"minutes": 60}, 9, Progress(seconds=3600), "training.minutes is 60"),
        (
            {},
            9,
            Progress(without_improvement=3, best_step=5),
            "training.patience is 3, the best was update 5",
        ),
        ({"patience": 0}, 9, Progress(without_improvement=3), ""),
    ],
)
def test_a_run_ends_at_the_first_limit_that_it_reaches(
    config: dict[str, Any], step: int, progress: Progress, reached: str
) -> None:
    late = limits(**config).late(progress)
    assert limits(**config).reached(step, progress, late=late) == reached


@pytest.mark.parametrize(
    ("config", "left"),
    [
        # 600 updates, of which two took 5 seconds.
        ({}, 1500),
        # 50 of 3,050 pairs are done; 10 took 5 seconds.
        ({"epochs": 61}, 1500),
        ({"epochs": 41}, 1000),
        ({"epochs": 41, "minutes": 2}, 20),
        ({"epochs": 41, "minutes": 1}, 0),
    ],
)
def test_the_time_left_is_that_to_the_nearest_limit(config: dict[str, Any], left: float) -> None:
    progress = Progress(pairs=50, seconds=100)
    found = limits(**config).seconds_left(400, progress, updates=2, pairs=10, seconds=5)
    assert found == pytest.approx(left)
