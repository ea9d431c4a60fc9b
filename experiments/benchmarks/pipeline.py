"""Target tokens a second that the pipeline makes ready, and those that accelerators want.

    python -m experiments.benchmarks.pipeline

Multi30k in rows of 256, packed, real tokens alone: tokenised on the fly and before, with no worker
process (a thread does it), one and two, in turns. Then what a chip and a host of chips take in at
half their peak bfloat16 rate (parallel/hardware.py) in training the paper's base and big models
(model/arithmetic.py), and the cores that feed them: their rate over what one core's second gives.
"""

import math
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from etils import epath

from experiments.benchmarks.rate import per_second
from experiments.benchmarks.shapes import SHAPES
from experiments.benchmarks.training import data_config
from transduce.config import DataConfig, ModelConfig
from transduce.model.arithmetic import training_flops
from transduce.parallel.hardware import CHIPS
from transduce.pipeline.batches import TrainingBatches
from transduce.pipeline.data import Data, prepare_data

MODELS = {
    "base": ModelConfig(),
    "big": ModelConfig(d_model=1024, d_ff=4096, heads=16),
}
LENGTH = 256
UTILISATION = 0.5
HOW = {"on the fly": False, "tokenised before": True}


@dataclass
class Arguments:
    """Measure the pipeline."""

    workers: tuple[int, ...] = (0, 1, 2)
    rounds: int = 3
    seconds: float = 5.0
    """Of each measurement at least."""


def main() -> None:
    asked = tyro.cli(Arguments)
    rates: dict[tuple[str, int], list[float]] = {
        (how, workers): [] for how in HOW for workers in asked.workers
    }
    cores: dict[str, list[float]] = {how: [] for how in HOW}
    with tempfile.TemporaryDirectory() as folder:
        made = {how: prepared(folder, pretokenized=before) for how, before in HOW.items()}
        for _ in range(asked.rounds):
            for (how, workers), values in rates.items():
                rate, core = measure(*made[how], workers=workers, seconds=asked.seconds)
                values.append(rate)
                if not workers:
                    cores[how].append(core)
                print(f"{how:<18}{workers} workers{rate:>12,.0f}", file=sys.stderr)
    print(f"target tokens a second, median of {asked.rounds} (least to most)")
    for (how, workers), values in rates.items():
        print(
            f"{how:<18}{workers} workers{statistics.median(values):>12,.0f} "
            f"({min(values):,.0f} to {max(values):,.0f})"
        )
    needs({how: statistics.median(values) for how, values in cores.items() if values})


def prepared(folder: str, *, pretokenized: bool) -> tuple[DataConfig, Data]:
    config = replace(
        data_config(SHAPES["base"]),
        rows=64,
        row_length=LENGTH,
        readers=16,
        pretokenized=pretokenized,
    )
    data = prepare_data(
        config,
        vocabulary_path=epath.Path(Path(folder, "vocabulary.model")),
        vocabulary_rows=config.vocabulary.size,
    )
    return config, data


def measure(config: DataConfig, data: Data, *, workers: int, seconds: float) -> tuple[float, float]:
    """Target tokens a second, and a second of this process' processor time."""
    batches = TrainingBatches(
        data.training, data.vocabulary, replace(config, workers=workers), place=lambda batch: batch
    )
    total = 0

    def work() -> int:
        nonlocal total
        tokens = int((next(batches).target.segments != 0).sum())
        total += tokens
        return tokens

    try:
        # Until every reader has filled its bins once, and what was read ahead is used up.
        per_second(work, 0, warm=2 * config.prefetch + 4)
        total, began = 0, time.process_time()
        rate = per_second(work, seconds, warm=0)
        return rate, total / (time.process_time() - began)
    finally:
        batches.close()


def needs(cores: dict[str, float]) -> None:
    for how, core in cores.items():
        print(f"{how}: {core:,.0f} target tokens a second of one core")
    print(f"at {UTILISATION:.0%} of the peak bfloat16 rate, rows of {LENGTH}:")
    for chip in CHIPS:
        if chip.name not in ("h200", "v5p"):
            continue
        for name, model in MODELS.items():
            flops = training_flops(model, rows=1, source_length=LENGTH, target_length=LENGTH)
            a_token = flops.total / LENGTH
            rate = UTILISATION * chip.rates["bfloat16"] / a_token
            for chips in (1, chip.chips_a_host):
                wanted = ", ".join(
                    f"{math.ceil(chips * rate / core)} cores {how}" for how, core in cores.items()
                )
                print(
                    f"{chips} x {chip.name:<6}{name:<5}{a_token / 1e6:>7,.0f} MFLOP a token"
                    f"{chips * rate:>12,.0f} target tokens/s: {wanted}"
                )


if __name__ == "__main__":
    main()
