"""A run under the supervisor that is killed and that stops moving ends as an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ..training.examples import (
    COMPILED,
    RUN,
    assert_same_state,
    experiment_in,
    records,
    steps,
    write_experiment,
)
from .scripts import LAUNCH

# Slow enough for a test to look on.
SLOWLY = """
import time
from transduce.training.window import Window
add = Window.add
def slowly(*arguments, **named):
    time.sleep(0.05)
    return add(*arguments, **named)
Window.add = slowly
"""


def trained(workdir: Path) -> int:
    """The last update in the records."""
    if not (workdir / "metrics.jsonl").exists():
        return 0
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return max((record["step"] for record in found), default=0)


@pytest.mark.slow
def test_a_run_that_is_killed_and_then_frozen_is_started_again_each_time(tmp_path: Path) -> None:
    """R4, R10: what comes out is the same to the bit."""
    small = experiment_in(tmp_path)
    training = replace(small.training, log_every=4, evaluate_every=0, save_every=8, keep=9)
    experiment = replace(small, training=training)
    write_experiment(tmp_path / "experiment.py", experiment)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        **{name.upper(): str(value) for name, value in COMPILED.items()},
        "TRANSDUCE_CACHE": str(tmp_path / "cache"),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PLATFORMS": "cpu",
        "LOG": str(tmp_path / "log"),
        "STUCK_SECONDS": "15",
        "GRACE_SECONDS": "1",
        "BACKOFF_SECONDS": "0",
        # On a machine that others use it may seem stuck while it starts.
        "RESTARTS": "50",
    }

    def command(program: str, workdir: Path) -> list[str | Path]:
        options = ["train", tmp_path / "experiment.py", "--workdir", workdir]
        return [sys.executable, "-c", program, *options]

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(command(RUN, whole), env=environment, check=True, capture_output=True)

    supervised = [LAUNCH / "supervise.sh", cut, *command(SLOWLY + RUN, cut)]
    with subprocess.Popen(supervised, env=environment) as supervisor:
        try:
            for number, update in [(signal.SIGKILL, 20), (signal.SIGSTOP, 60)]:
                while trained(cut) < update:
                    assert supervisor.poll() is None
                    time.sleep(0.05)
                children = psutil.Process(supervisor.pid).children()
                (run,) = [child for child in children if child.name() != "sleep"]
                run.send_signal(number)
            assert supervisor.wait(timeout=300) == 0
        finally:
            supervisor.terminate()

    log = (tmp_path / "log").read_text()
    assert "ended with status 137\n" in log
    assert "nothing new in" in log
    assert "ended with status 137; it was stuck\n" in log
    assert len(records(cut, "compile")) >= 3
    assert steps(cut)[-1] == 120
    assert_same_state(experiment, cut, whole, 120)
