import threading
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from transduce.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.training import report as module
from transduce.training.report import (
    Memory,
    Waiting,
    Work,
    goodput,
    memory,
    memory_in_words,
    model_in_words,
    si,
    speed,
    speed_in_words,
    spend,
    summary,
    time_in_words,
    timed,
    total_time,
    work_in_words,
    work_of,
)


def experiment(*, accumulation: int = 1, dtype: Any = "bfloat16") -> Experiment:
    """One layer of each kind; h (d_k + d_v) is 8."""
    return Experiment(
        name="report",
        model=ModelConfig(
            vocabulary_size=100,
            encoder_layers=1,
            decoder_layers=1,
            d_model=4,
            d_ff=16,
            heads=2,
            d_k=2,
            d_v=2,
            dtype=dtype,
        ),
        data=DataConfig(
            rows=8,
            readers=8,
            row_length=10,
            vocabulary=VocabularyConfig(size=100),
        ),
        training=TrainingConfig(accumulation=accumulation),
    )


def devices(kind: str, count: int) -> list[Any]:
    return [SimpleNamespace(device_kind=kind)] * count


# 80 positions a side. Projections 4 x 80 x 4 x 8 of the encoder, as much of the decoder and as
# much again to the source; attention 2 x 8 x 3 x 10^2 x 8; feed-forward 2 x 4 x 80 x 4 x 16;
# logits 2 x 80 x 4 x 100.
FORWARD = 3 * 10_240 + 38_400 + 40_960 + 64_000


def test_the_work_of_an_update_by_hand() -> None:
    assert FORWARD == 174_080
    found = work_of(experiment(), devices("TPU v5p", 4))
    assert found == Work(positions=80, flops=3 * 174_080, peak=4 * 459e12)


def test_the_peak_is_that_of_the_dtype_and_not_known_of_a_cpu() -> None:
    h100 = devices("NVIDIA H100 80GB HBM3", 1)
    assert work_of(experiment(dtype="float32"), h100).peak == 494.7e12
    assert work_of(experiment(dtype="float64"), h100).peak is None
    assert work_of(experiment(), jax.devices()[:1]).peak is None


def test_speed_by_hand() -> None:
    """5 updates of 80 positions in 2 seconds; 1,000 FLOP each, of a peak of 10,000 a second."""
    work = Work(positions=80, flops=1000, peak=10_000)
    assert speed(work, updates=5, seconds=2, tokens=300, source_tokens=320) == {
        "target_tokens_per_second": 150,
        "padded_target_tokens_per_second": 200,
        "padding": 0.25,
        "source_padding": pytest.approx(0.2),
        "updates_per_second": 2.5,
        "flops_per_second": 2500,
        "utilisation": 0.25,
    }


def test_accumulation_and_padding_change_neither_speed_nor_utilisation() -> None:
    """R17: what takes the same time is as fast; padding is reported apart."""
    found = {
        (accumulation, padding): speed(
            work_of(experiment(accumulation=accumulation), devices("NVIDIA H200", 8)),
            updates=10,
            seconds=4.0,
            tokens=800 * (1 - padding),
            source_tokens=800 * (1 - padding),
        )
        for accumulation in (1, 4)
        for padding in (0.0, 0.5)
    }
    for (_, padding), values in found.items():
        assert values["padded_target_tokens_per_second"] == 200
        assert values["utilisation"] == pytest.approx(3 * FORWARD * 10 / 4 / (8 * 989.4e12))
        assert values["padding"] == values["source_padding"] == padding
        assert values["target_tokens_per_second"] == 200 * (1 - padding)


def test_utilisation_is_not_given_where_the_peak_is_not_known() -> None:
    work = Work(positions=80, flops=2_000_000, peak=None)
    values = speed(work, updates=1, seconds=1, tokens=80, source_tokens=80)
    assert "utilisation" not in values
    assert speed_in_words(values) == "2.00 MFLOP/s"
    assert speed_in_words({"utilisation": 0.4567, "flops_per_second": 1.0}) == "45.7% of peak"


# ---- Time ------------------------------------------------------------------------------------


class Clock:
    """Goes on only when it is told to; notes that it was read in another thread."""

    def __init__(self) -> None:
        self.now, self.read_elsewhere = 100.0, threading.Event()

    def __call__(self) -> float:
        if threading.current_thread() is not threading.main_thread():
            self.read_elsewhere.set()
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "perf_counter", clock)
    return clock


class Update:
    """Stands for an array that a device computes until it is told to end."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def block_until_ready(self) -> "Update":
        assert self.end.wait(10)
        return self


def test_waiting_is_the_time_between_two_updates(clock: Clock) -> None:
    waiting, update = Waiting(), Update()
    assert waiting.batch_came() == 0  # before the first update
    end = waiting.began(update)
    clock.now = 103
    assert waiting.batch_came() == 0  # the device is still at work
    update.end.set()
    assert end.result() == 103
    assert clock.read_elsewhere.is_set()
    clock.now = 107
    assert waiting.batch_came() == 4


def test_what_a_pause_is_for_is_not_waiting(clock: Clock) -> None:
    waiting, update = Waiting(), Update()
    update.end.set()
    waiting.began(update).result()
    waiting.pause()
    clock.now = 500
    assert waiting.batch_came() == 0


def test_an_update_that_fails_says_so() -> None:
    class Failing:
        def block_until_ready(self) -> None:
            raise RuntimeError("device lost")

    with pytest.raises(RuntimeError, match="device lost"):
        Waiting().began(Failing()).result()


def test_time_is_added_up_by_what_it_went_on(clock: Clock) -> None:
    apart = {"saving": 5.0}
    with timed(apart, "compiling"):
        clock.now += 30

    def broken_off() -> None:
        with timed(apart, "saving"):
            clock.now += 2
            raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        broken_off()
    spend(apart, "waiting", 1.5)
    assert apart == {"saving": 7.0, "compiling": 30.0, "waiting": 1.5}


def test_goodput_by_hand() -> None:
    """60 s of updates, 6 of them waiting for data, and 40 s of other things."""
    apart = {"starting": 4.0, "compiling": 26.0, "saving": 10.0, "waiting": 6.0, "restoring": 0.0}
    assert total_time(60.0, apart) == 100
    assert goodput(60.0, apart) == pytest.approx(0.54)
    assert time_in_words(60.0, apart) == (
        "updates 54.0% of the time; compiling 26.0%, saving 10.0%, waiting 6.0%, starting 4.0%"
    )
    assert time_in_words(60.0, {}) == "updates 100.0% of the time"


# ---- Memory ----------------------------------------------------------------------------------


def test_peaks_of_memory_on_a_cpu() -> None:
    """A megabyte in and a megabyte out; JAX tells no peak of a CPU's devices."""
    x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    found = memory(jax.jit(jnp.sin).lower(x).compile())
    assert 2 * 2**20 <= found.step < 3 * 2**20
    # Its sorted copy is a temporary of another megabyte at least.
    found = memory(jax.jit(lambda x: jnp.sort(x.ravel())[::7].sum()).lower(x).compile())
    assert found.step >= 2 * 2**20
    assert found.device is None
    # Python and JAX alone take more than 50 MiB, and the tests less than a terabyte.
    assert 50 * 2**20 < found.process < 2**40


def test_the_fullest_device_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = [{"peak_bytes_in_use": 5}, {"peak_bytes_in_use": 7}, {"peak_bytes_in_use": 6}]
    devices = [SimpleNamespace(memory_stats=lambda each=each: each) for each in stats]
    monkeypatch.setattr(module.jax, "local_devices", lambda: devices)
    step: Any = SimpleNamespace(
        memory_analysis=lambda: SimpleNamespace(peak_memory_in_bytes=4),
    )
    found = memory(step)
    assert (found.step, found.device) == (4, 7)


def test_the_summary_of_a_run_by_hand() -> None:
    apart = {"compiling": 20.0, "waiting": 8.0}
    peaks = Memory(step=3, device=None, process=5)
    expected = {
        "goodput": 0.72,
        "seconds": 100.0,
        "seconds_compiling": 20.0,
        "seconds_waiting": 8.0,
        "step_peak_bytes": 3,
        "process_peak_bytes": 5,
    }
    assert summary(80.0, apart, peaks) == expected
    known = summary(80.0, apart, Memory(step=3, device=4, process=5))
    assert known == expected | {"device_peak_bytes": 4}


# ---- In words --------------------------------------------------------------------------------


def test_a_model_and_its_work_in_words() -> None:
    assert model_in_words(Experiment(name="base")) == (
        "63,045,632 parameters: 18,944,000 embedding, 18,874,368 attention, "
        "25,196,544 feed-forward, 30,720 norms"
    )
    work = Work(positions=24_576, flops=9_310_000_000_000, peak=None)
    assert work_in_words(work) == "24,576 positions a side and 9.31 TFLOP an update"
    known = Work(positions=80, flops=1_500_000, peak=3.672e15)
    assert work_in_words(known) == (
        "80 positions a side and 1.50 MFLOP an update; peak 3.67 PFLOP/s"
    )


def test_memory_in_words() -> None:
    peaks = Memory(step=3 * 2**29, device=None, process=2**32)
    assert memory_in_words(peaks) == "peak 1.50 GiB planned for the step, 4.00 GiB of the host"
    assert memory_in_words(Memory(step=2**30, device=2**31, process=2**32)) == (
        "peak 2.00 GiB on the fullest device, 1.00 GiB planned for the step, 4.00 GiB of the host"
    )


def test_prefixes_of_units() -> None:
    assert [si(x) for x in (999, 1e6, 2.5e9, 315.4e12, 3.672e15)] == [
        "999 ",
        "1.00 M",
        "2.50 G",
        "315.40 T",
        "3.67 P",
    ]
