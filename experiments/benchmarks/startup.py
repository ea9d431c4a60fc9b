"""Seconds until there is something to see.

    python -m experiments.benchmarks.startup --workdir W

help: the whole of `transduce --help`. translate: the whole of `transduce translate W` of one line,
with compiled code in the cache. train: from the start of the demo, experiments/phrasebook.py, with
empty caches until its first update is recorded: corpus made, vocabulary trained, step compiled.
Aims: 0.5, 3 and 20 seconds.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro

from transduce.environment import ALLOCATOR

PROGRAM = str(Path(sys.executable).with_name("transduce"))
DEMO = Path(__file__).parents[1] / "phrasebook.py"
AIMS = {"help": 0.5, "translate": 3.0, "train": 20.0}


@dataclass
class Arguments:
    """Measure starting up."""

    workdir: str = ""
    """What transduce train made, to translate with; without it, that is not measured."""
    line: str = "A man in a blue shirt is standing on a ladder cleaning a window."
    rounds: int = 3


def main() -> None:
    asked = tyro.cli(Arguments)
    # As a user starts it: it starts itself anew with the allocator's settings.
    for name in ALLOCATOR:
        os.environ.pop(name, None)
    measures: dict[str, Callable[[], float]] = {"help": show_help, "train": train}
    if asked.workdir:
        measures["translate"] = lambda: translate(asked.workdir, asked.line)
        translate(asked.workdir, asked.line)
    show_help()
    times: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(asked.rounds):
        for name, measure in measures.items():
            times[name].append(measure())
            print(f"{name:<12}{times[name][-1]:>8.2f} s", file=sys.stderr)
    print(f"median of {asked.rounds} (least to most)")
    for name, values in times.items():
        middle = statistics.median(values)
        print(
            f"{name:<12}{middle:>8.2f} s ({min(values):.2f} to {max(values):.2f}), "
            f"aim {AIMS[name]:g}"
        )


def show_help() -> float:
    return seconds([PROGRAM, "--help"])


def translate(workdir: str, line: str) -> float:
    return seconds([PROGRAM, "translate", workdir], f"{line}\n")


def seconds(command: list[str], text: str = "") -> float:
    """Of a whole process that reads `text`."""
    began = time.perf_counter()
    subprocess.run(command, input=text.encode(), check=True, capture_output=True)
    return time.perf_counter() - began


def train() -> float:
    """Until the first update of a run that has nothing in its caches is recorded."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"XDG_CACHE_HOME": folder, "TRANSDUCE_CACHE": f"{folder}/corpora"}
        workdir = Path(folder, "run")
        command = [PROGRAM, "train", str(DEMO), "--workdir", str(workdir)]
        began = time.perf_counter()
        run = subprocess.Popen(
            [*command, "--training.log-every", "1"],
            env=os.environ | caches,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        metrics = workdir / "metrics.jsonl"
        while not (metrics.exists() and '"loss"' in metrics.read_text()):
            if run.poll() is not None:
                sys.exit(f"{' '.join(command)} ended with {run.returncode}")
            time.sleep(0.02)
        took = time.perf_counter() - began
        run.kill()
        run.wait()
        return took


if __name__ == "__main__":
    main()
