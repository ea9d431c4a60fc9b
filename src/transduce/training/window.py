"""The updates since the last training record: their sums, their time, and whether all is well."""

import math
import time
from concurrent.futures import Future

import jax

from transduce.config import Experiment
from transduce.training.faults import Faults
from transduce.training.monitor import Monitor, duration
from transduce.training.objective import perplexity
from transduce.training.progress import Limits, Progress
from transduce.training.report import Waiting, Work, speed, speed_in_words, spend
from transduce.training.step import StepMetrics


class Window:
    """Counts updates and the time they take; compiling, saving and evaluating are not in it.

    What it counts it adds to the run's progress: time at once, waiting for data in it and also
    apart; pairs when it drains.
    """

    def __init__(
        self,
        experiment: Experiment,
        monitor: Monitor,
        *,
        work: Work,
        progress: Progress,
        limits: Limits,
        faults: Faults,
    ):
        self._experiment, self._monitor, self._work = experiment, monitor, work
        self._progress, self._limits, self._faults = progress, limits, faults
        self._data = Waiting()
        self._end: Future[float] | None = None
        self._waiting: list[tuple[int, StepMetrics]] = []
        self._done: list[tuple[int, StepMetrics]] = []
        self._seconds = 0.0
        self._began = time.perf_counter()

    def restart(self) -> None:
        """The clock goes on from now: what was done since `drain` is not counted."""
        self._began = time.perf_counter()
        self._data.pause()

    def fetched(self) -> None:
        """The batch of the next update is there."""
        spend(self._progress.apart, "waiting", self._data.batch_came())

    def add(self, step: int, metrics: StepMetrics) -> None:
        """Notes an update that was just begun, and waits for the one before it.

        So one update is always under way while the next is prepared, and never more.
        """
        if self._end:
            self._end.result()
        self._end = self._data.began(metrics)
        self._waiting.append((step, metrics))
        self._count_time()

    def drain(self) -> None:
        """Waits for the updates under way and stops the clock.

        Raises `Diverged` at the first whose loss or gradient is not finite, unless it was left out.
        """
        if self._end:
            self._end.result()
        values = jax.device_get([metrics for _, metrics in self._waiting])
        self._count_time()
        for (step, _), metrics in zip(self._waiting, values, strict=True):
            loss, norm = float(metrics.sums.loss), float(metrics.gradient_norm)
            if math.isfinite(loss) and math.isfinite(norm):
                self._faults.finite(step, loss / max(float(metrics.sums.tokens), 1))
                self._done.append((step, metrics))
            else:
                self._faults.nonfinite(step, loss, norm)
            self._progress.pairs += int(metrics.sums.pairs)
        self._waiting = []

    def _count_time(self) -> None:
        now = time.perf_counter()
        self._seconds += now - self._began
        self._progress.seconds += now - self._began
        self._began = now

    def report(self) -> None:
        """Records the mean of the updates since the last report, if any, and begins anew."""
        self.drain()
        if not self._done:
            return
        step, last = self._done[-1]
        updates = len(self._done)
        tokens = sum(float(metrics.sums.tokens) for _, metrics in self._done)
        seconds = self._seconds
        values = {
            "loss": sum(float(metrics.sums.loss) for _, metrics in self._done) / tokens,
            "perplexity": perplexity(
                sum(float(metrics.sums.log_loss) for _, metrics in self._done), tokens
            ),
            "learning_rate": float(last.learning_rate),
            "gradient_norm": sum(float(m.gradient_norm) for _, m in self._done) / updates,
            **speed(
                self._work,
                updates=updates,
                seconds=seconds,
                tokens=tokens,
                source_tokens=sum(float(m.sums.source_tokens) for _, m in self._done),
            ),
        }
        if aligned := sum(float(metrics.sums.aligned) for _, metrics in self._done):
            missed = sum(float(metrics.sums.missed) for _, metrics in self._done)
            values["attention_missed"] = missed / aligned
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
            f"{speed_in_words(values)}  {duration(left)} left"
        )
        self._done, self._seconds = [], 0.0
