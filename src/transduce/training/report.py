"""What a run says of itself: its work and speed, what became of its time, and its memory."""

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import jax

from transduce.config import Experiment
from transduce.model.arithmetic import parameters, training_flops
from transduce.parallel.hardware import peak_rate


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one update computes, over all its micro-batches and all devices."""

    positions: int
    """Of the target, B T: real tokens and padding. The source has as many."""
    flops: int
    """`training_flops` over those rows, padding included."""
    peak: float | None
    """FLOP/s of all devices together in the model's dtype; None where that is not known."""


def work_of(experiment: Experiment, devices: Sequence[Any]) -> Work:
    """The work of an update of `experiment` on `devices`, which are of one kind."""
    data, model = experiment.data, experiment.model
    flops = training_flops(
        model, rows=data.rows, source_length=data.row_length, target_length=data.row_length
    )
    rate = peak_rate(devices[0].device_kind, model.dtype)
    return Work(
        positions=data.rows * data.row_length,
        flops=flops.total,
        peak=None if rate is None else rate * len(devices),
    )


def speed(
    work: Work, *, updates: int, seconds: float, tokens: float, source_tokens: float
) -> dict[str, float]:
    """The speed of `updates` that took `seconds` and had so many real tokens, for a record.

    `target_tokens_per_second` are real ones; padding counts in the one with padding and in
    FLOP/s. `utilisation`, which is there where the devices' peak is known, is FLOP/s over that
    peak: the model's, so neither rematerialisation nor accumulation raises it.
    """
    positions = work.positions * updates
    flops = work.flops * updates / seconds
    values = {
        "target_tokens_per_second": tokens / seconds,
        "padded_target_tokens_per_second": positions / seconds,
        "padding": 1 - tokens / positions,
        "source_padding": 1 - source_tokens / positions,
        "updates_per_second": updates / seconds,
        "flops_per_second": flops,
    }
    if work.peak is not None:
        values["utilisation"] = flops / work.peak
    return values


type Spent = Literal["starting", "compiling", "restoring", "evaluating", "saving", "waiting"]
"""What a run does beside updates; waiting, for data, is the only one in the time of updates."""


def spend(apart: dict[str, float], what: Spent, seconds: float) -> None:
    """Adds `seconds` to those that went on `what`."""
    apart[what] = apart.get(what, 0.0) + seconds


@contextmanager
def timed(apart: dict[str, float], what: Spent) -> Iterator[None]:
    """`spend`s the time that the block takes, however it ends."""
    began = time.perf_counter()
    try:
        yield
    finally:
        spend(apart, what, time.perf_counter() - began)


class Waiting:
    """How long devices had nothing to do because the next batch was not there."""

    def __init__(self) -> None:
        # An update is waited for in a thread, so that its end is known while the next batch is
        # not there yet.
        self._thread = ThreadPoolExecutor(1)
        self._end: Future[float] | None = None

    def began(self, outputs: Any) -> Future[float]:
        """An update is under way; gives the time at which its `outputs`, arrays, will be there."""
        self._end = self._thread.submit(_time_when_ready, outputs)
        return self._end

    def batch_came(self) -> float:
        """Seconds, till now, in which no update was under way since the last one ended."""
        if self._end is None or not self._end.done():
            return 0.0
        return max(0.0, time.perf_counter() - self._end.result())

    def pause(self) -> None:
        """What comes before the next update is not waiting: an evaluation, for instance."""
        self._end = None


def _time_when_ready(outputs: Any) -> float:
    jax.block_until_ready(outputs)
    return time.perf_counter()


def goodput(seconds: float, apart: Mapping[str, float]) -> float:
    """Share of a run's time in which it made updates, over all restarts.

    `seconds` is the time of updates, waiting for data included; `apart` is what `spend` has
    added up. Both are saved with checkpoints, so updates that were lost because the run was
    killed before it saved them are in neither.
    """
    return (seconds - apart.get("waiting", 0.0)) / total_time(seconds, apart)


def total_time(seconds: float, apart: Mapping[str, float]) -> float:
    """Seconds of a run in all, over all restarts."""
    return seconds + sum(apart.values()) - apart.get("waiting", 0.0)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peaks, in bytes."""

    step: int
    """Of one device in the compiled step, as the compiler plans it: its arguments included."""
    device: int | None
    """In use on the fullest device of this process since it began; None where JAX does not say,
    as on a CPU."""
    process: int
    """Of this process in the host's memory."""


def memory(step: jax.stages.Compiled) -> Memory:
    """Peaks up to now; `step` is the compiled training step."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    in_use = [each["peak_bytes_in_use"] for each in stats if each]
    planned: Any = step.memory_analysis()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = planned.peak_memory_in_bytes
    if not in_use:
        # A CPU's compiler leaves temporaries out.
        peak += planned.temp_size_in_bytes
    return Memory(
        step=peak,
        device=max(in_use, default=None),
        # Kilobytes, but for macOS.
        process=resident if sys.platform == "darwin" else resident * 1024,
    )


def summary(seconds: float, apart: Mapping[str, float], peaks: Memory) -> dict[str, float]:
    """Of a run that is over, for a record: goodput, seconds of each kind, peaks of memory."""
    values = {
        "goodput": goodput(seconds, apart),
        "seconds": total_time(seconds, apart),
        **{f"seconds_{what}": part for what, part in apart.items()},
        "step_peak_bytes": peaks.step,
        "process_peak_bytes": peaks.process,
    }
    if peaks.device is not None:
        values["device_peak_bytes"] = peaks.device
    return values


# ---- In words ------------------------------------------------------------------------------


def model_in_words(experiment: Experiment) -> str:
    """Parameters, by kind."""
    count = parameters(experiment.model)
    return (
        f"{count.total:,} parameters: {count.embedding:,} embedding, {count.attention:,} "
        f"attention, {count.feed_forward:,} feed-forward, {count.norms:,} norms"
    )


def work_in_words(work: Work) -> str:
    """Work of an update, and the devices' peak if it is known."""
    peak = "" if work.peak is None else f"; peak {si(work.peak)}FLOP/s"
    return f"{work.positions:,} positions a side and {si(work.flops)}FLOP an update{peak}"


def speed_in_words(values: Mapping[str, float]) -> str:
    """Utilisation where it is known, else FLOP/s."""
    if "utilisation" in values:
        return f"{values['utilisation']:.1%} of peak"
    return f"{si(values['flops_per_second'])}FLOP/s"


def time_in_words(seconds: float, apart: Mapping[str, float]) -> str:
    """Goodput, and what the rest of the time went on, most first."""
    total = total_time(seconds, apart)
    parts = sorted(apart.items(), key=lambda part: -part[1])
    rest = ", ".join(f"{what} {part / total:.1%}" for what, part in parts if part)
    return f"updates {goodput(seconds, apart):.1%} of the time" + (f"; {rest}" if rest else "")


def memory_in_words(peaks: Memory) -> str:
    """Peaks, that of the devices if it is known."""
    device = "" if peaks.device is None else f"{gib(peaks.device)} on the fullest device, "
    return f"peak {device}{gib(peaks.step)} planned for the step, {gib(peaks.process)} of the host"


def gib(size: float) -> str:
    """Bytes as 1.25 GiB."""
    return f"{size / 2**30:,.2f} GiB"


def si(value: float) -> str:
    """With a unit's prefix, 1.23 G, to be followed by the unit."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if value >= 10**power:
            return f"{value / 10**power:.2f} {prefix}"
    return f"{value:,.0f} "
