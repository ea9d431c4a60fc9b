"""Training throughput, ours and Hugging Face's, on synthetic full rows.

    python -m experiments.benchmarks.training --shape tiny

Real target tokens a second of the whole update: forward, backward, dropout 0.1, label smoothing
0.1, Adam; float32. Each side runs in a process of its own, in turns, with the same allocator
settings and number of threads; the peer's environment is made when it is absent.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from experiments.benchmarks.shapes import SHAPES

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "peers" / "requirements.txt"


@dataclass
class Arguments:
    """Compare training throughput."""

    shape: Literal["tiny", "base"] = "tiny"
    rounds: int = 3
    """Measurements of each side, in turns."""
    seconds: float = 20.0
    """Of each measurement, after half as long to warm up."""
    threads: int = 2
    peer_python: str = "python3.11"
    """The interpreter from which the peers' environment is made."""
    peers: Path = Path("~/.cache/transduce/peers")
    """The peers' environment."""
    ours: bool = False
    """Measure our side in this process and print it: what this program starts itself with."""


def main() -> None:
    asked = tyro.cli(Arguments)
    if asked.ours:
        print(json.dumps(measure_ours(asked.shape, asked.seconds)))
        return
    peer = peer_environment(asked.peers.expanduser(), asked.peer_python)
    mine = [sys.executable, "-m", "experiments.benchmarks.training", "--ours"]
    sides = {
        "transduce": [*mine, "--shape", asked.shape, "--seconds", str(asked.seconds)],
        "Hugging Face Marian": [
            str(peer),
            str(HERE / "peers" / "marian_training.py"),
            json.dumps(SHAPES[asked.shape]),
            str(asked.seconds),
        ],
    }
    # Both sides inherit it; XLA has as many threads as it has processors.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.threads])
    environment = os.environ | settings(asked.threads)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(asked.rounds):
        for name, command in sides.items():
            answer = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            rates[name].append(json.loads(answer.stdout.splitlines()[-1])["tokens_per_second"])
            print(f"{name:<22}{rates[name][-1]:>10,.0f}", file=sys.stderr)
    print(f"{asked.shape}, {asked.threads} threads, median of {asked.rounds} (least to most)")
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        ratio = medians["transduce"] / medians[name]
        print(
            f"{name:<22}{medians[name]:>10,.0f} target tokens/s "
            f"({min(values):,.0f} to {max(values):,.0f})  transduce is {ratio:.2f} times this"
        )


def settings(threads: int) -> dict[str, str]:
    """The same for every side: threads, and the allocator as `transduce` sets it."""
    from transduce.environment import ALLOCATOR

    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        **ALLOCATOR,
    }


def peer_environment(folder: Path, python: str) -> Path:
    """The interpreter of the environment with the peers' pinned versions."""
    interpreter = folder / "bin" / "python"
    ready = folder / REQUIREMENTS.name
    if not ready.exists() or ready.read_text() != REQUIREMENTS.read_text():
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True, stdout=sys.stderr)
        ready.write_text(REQUIREMENTS.read_text())
    return interpreter


def measure_ours(name: str, seconds: float) -> dict[str, float]:
    """Our train step on one batch of random ids, after warm-up."""
    import jax
    import numpy as np

    from transduce.arrays import Batch, Tokens
    from transduce.config import DataConfig, Experiment, ModelConfig, VocabularyConfig
    from transduce.parallel.mesh import make_mesh, place
    from transduce.training.step import compile_train_step, initial_state_on

    shape = SHAPES[name]
    rows, length, vocabulary = shape["rows"], shape["length"], shape["vocabulary"]
    width = shape["d_model"] // shape["heads"]
    experiment = Experiment(
        name=name,
        model=ModelConfig(
            vocabulary_size=vocabulary,
            encoder_layers=shape["layers"],
            decoder_layers=shape["layers"],
            d_model=shape["d_model"],
            d_ff=shape["d_ff"],
            heads=shape["heads"],
            d_k=width,
            d_v=width,
            unroll=0,
        ),
        data=DataConfig(
            rows=rows,
            readers=rows,
            row_length=length,
            vocabulary=VocabularyConfig(size=vocabulary),
        ),
    )
    generator = np.random.default_rng(0)

    def full_rows() -> Tokens:
        ids = generator.integers(4, vocabulary, (rows, length)).astype(np.int32)
        positions = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
        segments = np.ones_like(ids)
        return Tokens(ids=ids, segments=segments, positions=positions)  # pyright: ignore[reportArgumentType] numpy until it is placed

    mesh = make_mesh(experiment.mesh, jax.devices()[:1])
    batch = place(mesh, Batch(source=full_rows(), target=full_rows()))
    state = initial_state_on(experiment, mesh)
    step = compile_train_step(experiment, mesh, state, batch)

    def measure(seconds: float) -> float:
        nonlocal state
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            state, metrics = step(state, batch)
            jax.block_until_ready(metrics)
            steps += 1
        return steps * rows * length / (time.perf_counter() - began)

    measure(seconds / 2)  # until its memory is there
    return {"tokens_per_second": measure(seconds)}


if __name__ == "__main__":
    main()
