"""Peak memory of training the base model, ours and Hugging Face's.

    python -m experiments.benchmarks.memory

Resident bytes at most of a process that makes a few updates on full rows, 4,096 tokens a batch on
either side, float32; each side in a process of its own with the same threads, with glibc's
settings as they are and as `transduce` sets them. Aim: at most half of Hugging Face's. What XLA
says the compiled update needs, parameters and Adam's moments included, is given too.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from experiments.benchmarks.shapes import SHAPES
from experiments.benchmarks.training import answer, restrict, sides_of, work_of
from transduce.environment import ALLOCATOR


@dataclass
class Arguments:
    """Compare the memory of training."""

    shape: Literal["tiny", "base"] = "base"
    threads: int = 2
    peer_python: str = "python3.11"
    """The interpreter from which the peers' environments are made."""
    peers: Path = Path("~/.cache/transduce/peers")
    """The peers' environments."""


def main() -> None:
    asked = tyro.cli(Arguments)
    restrict(asked.threads)
    work = work_of(asked.shape, 0.0, "")
    sides = sides_of(work, asked.peers.expanduser(), asked.peer_python)
    shape = SHAPES[asked.shape]
    print(f"{asked.shape}, {shape['rows'] * shape['length']:,} tokens a batch, GiB at most")
    plain = {name: os.environ.pop(name) for name in ALLOCATOR}
    for settings, environment in (("glibc's own", {}), ("transduce's", plain)):
        peaks = {}
        for name in ("transduce", "Hugging Face Marian"):
            peaks[name] = answer(sides[name], environment)["peak_memory"]
        ours, theirs = peaks.values()
        print(
            f"{settings:<14}transduce {ours / 2**30:.2f}, Hugging Face Marian "
            f"{theirs / 2**30:.2f}: {ours / theirs:.2f} times"
        )


if __name__ == "__main__":
    main()
