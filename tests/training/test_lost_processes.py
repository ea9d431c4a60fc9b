"""A process that is lost while a run restores or saves ends the others as it does in an update."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ..parallel.processes import Ended, run_together
from .examples import COMPILED, experiment_in, write_experiment

LOST = """
import os, signal, sys
from transduce.checkpoints import Checkpoints
from transduce.cli import main
from transduce.parallel import hosts

hosts.HEARTBEAT_SECONDS, hosts.ROLL_CALL_SECONDS = 15, 2
step, name = int(sys.argv.pop()), sys.argv.pop()
method = getattr(Checkpoints, name)

def lost(self, number, *arguments, **named):
    if (hosts.process()[0], number) == (1, step):
        os.kill(os.getpid(), signal.SIGKILL)
    return method(self, number, *arguments, **named)

setattr(Checkpoints, name, lost)
main()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an experiment of four updates, after each of which there is a checkpoint."""
    small = experiment_in(tmp_path)
    training = replace(small.training, steps=4, save_every=1, evaluate_every=0)
    write_experiment(tmp_path / "experiment.py", replace(small, training=training))
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRANSDUCE_MALLOC", "0")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    for name, value in COMPILED.items():
        monkeypatch.setenv(name.upper(), str(value))
    return tmp_path


def train(folder: Path, *lost: str) -> list[Ended]:
    arguments = ["train", str(folder / "experiment.py"), "--workdir", str(folder / "run"), *lost]
    return run_together(LOST, *arguments, count=2, seconds=200)


def newest_whole(workdir: Path) -> int:
    names = [path.name for path in (workdir / "checkpoints").iterdir()]
    return max(int(name) for name in names if name.isdecimal())


@pytest.mark.slow
def test_a_process_that_is_lost_in_a_save_or_a_restore_is_not_a_fault_of_the_checkpoint(
    folder: Path,
) -> None:
    """R18: killed; the other can be started again, and nothing saved is lost.

    In a save it waits at the coordinator, where JAX ends it unless it is quicker to say so itself.
    """
    first, lost = train(folder, "save", "3")
    assert lost.status == -signal.SIGKILL, lost.error
    assert first.status in (75, -signal.SIGABRT), first.error
    assert "could not be saved" not in first.error
    newest = newest_whole(folder / "run")
    # The save before is written in the background, and may have been cut too.
    assert newest in (1, 2)

    first, lost = train(folder, "restore", str(newest))
    assert lost.status == -signal.SIGKILL, lost.error
    assert first.status == 75, first.error
    (line,) = [text for text in first.error.splitlines() if text.startswith("transduce: ")]
    what = "process 1 of 2 is lost: killed, stopped or stuck; the same command goes on"
    assert line == f"transduce: {what}"
    assert newest_whole(folder / "run") == newest
