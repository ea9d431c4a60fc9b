"""Peak memory of training the base model, ours and Hugging Face's.

    python -m experiments.benchmarks.memory

Resident bytes at most of a process that makes updates on full rows, 4,096 tokens a batch on either
side, float32, and its target tokens a second; each side in a process of its own with the same
threads, with glibc's settings as they are and as `transduce` sets them; ours keeping all that the
backward pass needs, and with `training.remat`. Aim: at most half of Hugging Face's.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from experiments.benchmarks.shapes import SHAPES
from experiments.benchmarks.training import answer, our_command, restrict, sides_of, work_of
from transduce.environment import ALLOCATOR


@dataclass
class Arguments:
    """Compare the memory of training."""

    shape: Literal["tiny", "base"] = "base"
    threads: int = 2
    seconds: float = 10.0
    """Of each measurement at least, in whole updates, after some to warm up."""
    peer_python: str = "python3.11"
    """The interpreter from which the peers' environments are made."""
    peers: Path = Path("~/.cache/transduce/peers")
    """The peers' environments."""


def main() -> None:
    asked = tyro.cli(Arguments)
    restrict(asked.threads)
    work = work_of(asked.shape, asked.seconds, "")
    theirs = "Hugging Face Marian"
    sides = {theirs: sides_of(work, asked.peers.expanduser(), asked.peer_python)[theirs]}
    for remat in ("none", "dots", "layer"):
        made = work_of(asked.shape, asked.seconds, "", remat=remat)
        sides[f"transduce, remat {remat}"] = our_command(made)
    shape = SHAPES[asked.shape]
    print(f"{asked.shape}, {shape['rows'] * shape['length']:,} tokens a batch")
    ours = {name: os.environ.pop(name) for name in ALLOCATOR}
    for settings, environment in (("glibc's own settings", {}), ("transduce's settings", ours)):
        print(settings)
        answers = {name: answer(command, environment) for name, command in sides.items()}
        for name, found in answers.items():
            peak, of_theirs = found["peak_memory"], answers[theirs]["peak_memory"]
            print(
                f"{name:<24}{peak / 2**30:>6.2f} GiB, {peak / of_theirs:.2f} times; "
                f"{found['per_second']:>8,.0f} tokens/s"
            )


if __name__ == "__main__":
    main()
