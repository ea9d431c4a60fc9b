"""Updates that went wrong: losses that are no finite numbers, and losses that leap."""

import json
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from transduce.config import Diverged, TrainingConfig
from transduce.parallel import hosts
from transduce.training.monitor import Monitor
from transduce.training.progress import Progress
from transduce.workdir import Workdir

RECENT = 50
"""Updates that say what a loss should be like."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Says what is wrong with updates, and ends the run where that is asked for."""

    config: TrainingConfig
    workdir: Workdir
    monitor: Monitor
    progress: Progress
    pairs: Callable[[int], Mapping[str, Sequence[int]]]
    """The sentence pairs of an update in this process: by the names of corpora, where they stand
    in the training split, from 0 on."""
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def finite(self, step: int, loss: float) -> None:
        """Update `step` is done, with `loss` a target token; a leap of the loss is recorded.

        That is one of at least 0.1 nats over the median of the last 50, and over 10 times the
        median distance from it.
        """
        self.progress.nonfinite_in_a_row = 0
        if len(self._recent) == RECENT:
            middle = statistics.median(self._recent)
            usual = statistics.median(abs(other - middle) for other in self._recent)
            if loss - middle > max(0.1, 10 * usual):
                self.monitor.record("spike", step, loss=loss, median=middle)
                self.monitor.say(
                    f"Spike     update {step:,}: loss {loss:.3f}, after a median of {middle:.3f}"
                )
        self._recent.append(loss)

    def nonfinite(self, step: int, loss: float, norm: float) -> None:
        """The loss or the gradient norm of update `step` is no finite number.

        All processes call this alike. Raises `Diverged` unless the update was left out and may be.
        """
        where = self._listed(step, loss, norm)
        what = f"update {step}: loss {loss}, gradient norm {norm}; {where}"
        kept = "the checkpoints saved before are as they were"
        if self.config.nonfinite == "stop":
            raise Diverged(f"{what}; {kept}")
        self.progress.nonfinite += 1
        self.progress.nonfinite_in_a_row += 1
        self.monitor.record("nonfinite", step, loss=str(loss), gradient_norm=str(norm))
        self.monitor.say(f"Left out  {what}")
        if self.progress.nonfinite_in_a_row > (limit := self.config.nonfinite_limit):
            raise Diverged(f"{what}; training.nonfinite_limit is {limit} in a row; {kept}")

    def _listed(self, step: int, loss: float, norm: float) -> str:
        """Lists the sentence pairs of an update in the workdir, and says where."""
        parts = hosts.gather_bytes(json.dumps(self.pairs(step)).encode())
        path = self.workdir.nonfinite(step)
        if parts is not None:
            pairs: dict[str, list[int]] = {}
            for part in parts:
                for name, places in json.loads(part).items():
                    pairs[name] = sorted({*pairs.get(name, []), *places})
            content = {"step": step, "loss": str(loss), "gradient_norm": str(norm), "pairs": pairs}
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(content) + "\n")
        return f"its sentence pairs are listed in {path}"


def skipped(config: TrainingConfig, step: int) -> bool:
    """Whether training.skip_steps leaves update `step` out."""
    ranges = (map(int, updates.split(":")) for updates in config.skip_steps)
    return any(first <= step <= last for first, last in ranges)
