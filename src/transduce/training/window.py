"""The updates since the last training record: their sums, their time, and whether all is well."""

import math
import time

import jax

from transduce.config import Diverged, Experiment
from transduce.training.monitor import Monitor, duration
from transduce.training.objective import perplexity
from transduce.training.progress import Limits, Progress
from transduce.training.step import StepMetrics


class Window:
    """Counts updates and the time they take; compiling, saving and evaluating are not in it.

    What it counts it adds to the run's progress: time at once, pairs when it drains.
    """

    def __init__(
        self, experiment: Experiment, monitor: Monitor, *, progress: Progress, limits: Limits
    ):
        self._experiment, self._monitor = experiment, monitor
        self._progress, self._limits = progress, limits
        self._waiting: list[tuple[int, StepMetrics]] = []
        self._done: list[tuple[int, StepMetrics]] = []
        self._seconds = 0.0
        self._began = time.perf_counter()

    def restart(self) -> None:
        """The clock goes on from now: what was done since `drain` is not counted."""
        self._began = time.perf_counter()

    def add(self, step: int, metrics: StepMetrics) -> None:
        """Notes an update that was just begun, and waits for the one before it.

        So one update is always under way while the next is prepared, and never more.
        """
        if self._waiting:
            jax.block_until_ready(self._waiting[-1][1])
        self._waiting.append((step, metrics))
        self._count_time()

    def drain(self) -> None:
        """Waits for the updates under way and stops the clock.

        Raises `Diverged` at the first whose loss or gradient is not finite.
        """
        values = jax.device_get([metrics for _, metrics in self._waiting])
        self._count_time()
        for (step, _), metrics in zip(self._waiting, values, strict=True):
            loss, norm = float(metrics.sums.loss), float(metrics.gradient_norm)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Diverged(
                    f"update {step}, on the batch that data.seed gives for it: loss {loss}, "
                    f"gradient norm {norm}; the checkpoints saved before are as they were"
                )
            self._done.append((step, metrics))
            self._progress.pairs += int(metrics.sums.pairs)
        self._waiting = []

    def _count_time(self) -> None:
        seconds = time.perf_counter() - self._began
        self._seconds += seconds
        self._progress.seconds += seconds
        self.restart()

    def report(self) -> None:
        """Records the mean of the updates since the last report, if any, and begins anew."""
        self.drain()
        if not self._done:
            return
        step, last = self._done[-1]
        updates = len(self._done)
        tokens = sum(float(metrics.sums.tokens) for _, metrics in self._done)
        data, seconds = self._experiment.data, self._seconds
        padded = data.rows * data.row_length * updates
        values = {
            "loss": sum(float(metrics.sums.loss) for _, metrics in self._done) / tokens,
            "perplexity": perplexity(
                sum(float(metrics.sums.log_loss) for _, metrics in self._done), tokens
            ),
            "learning_rate": float(last.learning_rate),
            "gradient_norm": sum(float(m.gradient_norm) for _, m in self._done) / updates,
            "target_tokens_per_second": tokens / seconds,
            "padded_target_tokens_per_second": padded / seconds,
            "padding": 1 - tokens / padded,
            "updates_per_second": updates / seconds,
        }
        self._monitor.record("train", step, **values)
        left = self._limits.seconds_left(
            step,
            self._progress,
            updates=updates,
            pairs=sum(float(metrics.sums.pairs) for _, metrics in self._done),
            seconds=seconds,
        )
        self._monitor.progress(
            f"{step:>7,} of {self._experiment.training.steps:,}  loss {values['loss']:.3f}  "
            f"lr {values['learning_rate']:.2e}  grad {values['gradient_norm']:.2f}  "
            f"{values['target_tokens_per_second']:,.0f} target tokens/s "
            f"({values['padded_target_tokens_per_second']:,.0f} with padding)  "
            f"{duration(left)} left"
        )
        self._done, self._seconds = [], 0.0
