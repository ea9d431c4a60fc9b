"""How far a run has come, and what ends it."""

import math
from dataclasses import dataclass, field

from transduce.config import TrainingConfig


@dataclass(kw_only=True)
class Progress:
    """Counted over all restarts: it is saved with every checkpoint."""

    pairs: int = 0
    """Sentence pairs trained on."""
    seconds: float = 0.0
    """Time of updates; compiling, evaluating and saving are not in it."""
    apart: dict[str, float] = field(default_factory=dict)
    """Seconds of all else, by `report.Spent`; waiting, for data, is in the time of updates too."""
    evaluated: int = 0
    """The update after which dev was last evaluated."""
    best: float | None = None
    """Of the watched value, over the evaluations of dev."""
    best_step: int = 0
    without_improvement: int = 0
    """Evaluations of dev since the best one."""
    nonfinite: int = 0
    """Updates that were left out because their loss or gradient was no finite number."""
    nonfinite_in_a_row: int = 0
    """Those since the last that was not."""

    def evaluate(self, step: int, value: float, *, watch: str) -> bool:
        """Counts an evaluation of dev; returns whether it is the best so far."""
        self.evaluated = step
        sign = 1 if watch == "loss" else -1
        if not math.isfinite(value) or (self.best is not None and sign * value >= sign * self.best):
            self.without_improvement += 1
            return False
        self.best, self.best_step, self.without_improvement = value, step, 0
        return True


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What ends a run; of several the first."""

    config: TrainingConfig
    epoch: int
    """Pairs that are selected for training."""

    def late(self, progress: Progress) -> bool:
        """Whether training.minutes are over by the clock of this process."""
        minutes = self.config.minutes
        return minutes > 0 and progress.seconds >= 60 * minutes

    def reached(self, step: int, progress: Progress, *, late: bool) -> str:
        """Which limit update `step` has reached, with its value; empty if none.

        `late` is what the processes agree on; they agree on all else by themselves.
        """
        config = self.config
        if config.patience and progress.without_improvement >= config.patience:
            best = progress.best_step
            return f"training.patience is {config.patience:,}, the best was update {best:,}"
        if step >= config.steps:
            return f"training.steps is {config.steps:,}"
        if config.epochs and progress.pairs >= config.epochs * self.epoch:
            return f"training.epochs is {config.epochs:,g}"
        if late:
            return f"training.minutes is {config.minutes:,g}"
        return ""

    def seconds_left(
        self, step: int, progress: Progress, *, updates: int, pairs: float, seconds: float
    ) -> float:
        """Time of updates after update `step`, if they go on like `updates` did just now.

        Those had `pairs` and took `seconds`.
        """
        config = self.config
        left = [(config.steps - step) * seconds / updates]
        if config.epochs:
            left.append((config.epochs * self.epoch - progress.pairs) * seconds / pairs)
        if config.minutes:
            left.append(60 * config.minutes - progress.seconds)
        return max(0.0, min(left))
