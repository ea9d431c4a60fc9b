"""The demo's run, cut by every signal."""

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from transduce.config_files import load_experiment

from .examples import RUN, assert_same_state, records, start, steps

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "phrasebook.py"

SIGNALLED = """
import os, sys
from transduce.cli import run
from transduce.training.window import Window

number, step = int(sys.argv.pop()), int(sys.argv.pop())
add = Window.add

def signalled(self, update, metrics):
    add(self, update, metrics)
    if update == step:
        os.kill(os.getpid(), number)

Window.add = signalled
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_demo_cut_by_every_signal_at_random_steps_ends_as_if_it_had_not_been(tmp_path) -> None:
    """R4: 300 updates; parameters, optimiser, data and progress to the bit."""
    places: dict[str, Any] = {"cache": tmp_path / "cache", "compiled": tmp_path / "compiled"}

    def arguments(workdir: str) -> list[str]:
        options = {"steps": 300, "save-every": 40, "evaluate-every": 100}
        options |= {"evaluation-sentences": 16, "samples": 0}
        named = [f"--training.{name}={value}" for name, value in options.items()]
        return ["train", str(EXPERIMENT), "--workdir", str(tmp_path / workdir), *named]

    def end(workdir: str, *, status: int, cut: list[int] | None = None) -> None:
        more = [str(value) for value in cut or []]
        program = SIGNALLED if cut else RUN
        with start([*arguments(workdir), *more], program=program, **places) as process:
            output, lines = process.communicate()
        assert (process.returncode, output) == (status, ""), lines

    end("uncut", status=0)
    seed = time.time_ns()
    generator = random.Random(seed)
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
    generator.shuffle(signals)
    for number, step in zip(signals, sorted(generator.sample(range(41, 300), 3)), strict=True):
        print(f"seed {seed}: {number.name} at update {step}")
        killed = number == signal.SIGKILL
        end("cut", status=-number if killed else 75, cut=[step, number])
        if not killed:
            assert steps(tmp_path / "cut")[-1] == step
    end("cut", status=0)
    experiment = load_experiment(str(EXPERIMENT))
    assert_same_state(experiment, tmp_path / "cut", tmp_path / "uncut", 300)
    losses = [
        {record["step"]: (record["loss"], record["bleu"]) for record in records(path, "dev")}
        for path in (tmp_path / "cut", tmp_path / "uncut")
    ]
    assert losses[0] == losses[1]
