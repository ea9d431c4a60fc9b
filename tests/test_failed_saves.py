"""What becomes of checkpoints when a save fails or is cut short."""

import errno
import os
import shutil
import subprocess
import sys
import time
from typing import Any
from unittest.mock import Mock

import pytest
from orbax.checkpoint._src.checkpointers import async_checkpointer

from transduce.checkpoints import Checkpoints, saved_steps
from transduce.config import SaveFailed
from transduce.parallel import hosts
from transduce.workdir import Workdir

from .checkpoint_examples import JSON, abstract, assert_equal, loaded, mesh, saved, state


@pytest.fixture
def workdir(tmp_path) -> Workdir:
    return Workdir.of(str(tmp_path / "workdir"))


def test_a_save_that_fails_is_told_and_takes_nothing_that_was_saved(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    saved(workdir, 1, 2, keep=2)
    message = f"{workdir.path}: a checkpoint could not be saved: .* No space left on device; those"
    fail = pytest.raises(SaveFailed, match=message)
    with monkeypatch.context() as patch:
        patch.setattr(async_checkpointer, "_on_commit_callback", commit)
        # By the next save, by a look at it, by waiting for it, at the end.
        with fail, Checkpoints(workdir, keep=2) as checkpoints:
            checkpoints.save(3, state(mesh(), step=3), **JSON)
            checkpoints.save(4, state(mesh(), step=4), **JSON)
        with fail, Checkpoints(workdir, keep=2) as checkpoints:
            checkpoints.save(3, state(mesh(), step=3), **JSON)
            while True:
                checkpoints.check()
                time.sleep(0.01)
        with fail, Checkpoints(workdir, keep=2) as checkpoints:
            checkpoints.save_best(3, state(mesh(), step=3).model)
            checkpoints.wait()
        with fail, Checkpoints(workdir, keep=2) as checkpoints:
            checkpoints.save(3, state(mesh(), step=3), **JSON)
    assert saved_steps(workdir.checkpoints) == [1, 2]
    assert_equal(loaded(workdir), state(mesh(), step=2).model)
    saved(workdir, 3, keep=2)
    assert sorted(path.name for path in workdir.checkpoints.iterdir()) == ["2", "3"]
    assert_equal(loaded(workdir), state(mesh(), step=3).model)


def test_a_save_that_fails_because_a_process_is_lost_is_no_failed_save(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R18: of several processes; else, and where storage is unavailable, it is one."""
    lost = ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    away = ValueError("UNAVAILABLE: the bucket does not answer")
    with Checkpoints(workdir, keep=2) as checkpoints:
        for error, count, raised in [
            (lost, 2, ValueError),
            (lost, 1, SaveFailed),
            (away, 2, SaveFailed),
        ]:
            with monkeypatch.context() as patch:
                patch.setattr(checkpoints._best, "wait_until_finished", Mock(side_effect=error))
                patch.setattr(hosts, "process", lambda count=count: (0, count))
                with pytest.raises(raised):
                    checkpoints.save(1, state(mesh(), step=1), **JSON)


FULL = """
import resource, sys
import jax.numpy as jnp
from transduce.checkpoints import Checkpoints
from transduce.config import SaveFailed
from transduce.training.step import TrainState
from transduce.workdir import Workdir

arrays = {str(number): jnp.full((64, 64), number) for number in range(40)}
state = TrainState(step=jnp.int32(1), model=arrays, optimizer=arrays)
try:
    with Checkpoints(Workdir.of(sys.argv[1]), keep=1) as checkpoints:
        checkpoints.save(1, state, pipeline={}, progress={})
        checkpoints.wait()
        # From now on any larger file is an error, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        checkpoints.save(2, state, pipeline={}, progress={})
except SaveFailed as error:
    print(error, file=sys.stderr)
"""


def test_a_full_disk_is_told_in_one_line(workdir: Workdir) -> None:
    """Orbax alone prints hundreds, in tracebacks."""
    command = [sys.executable, "-W", "ignore", "-c", FULL, str(workdir.path)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    line, *more = run.stderr.splitlines()
    # Where one write fails while others are under way, threads of Orbax's may find their loop
    # closed, and say so, once for each.
    assert not more or more[-1] == "RuntimeError: Event loop is closed", run.stderr
    assert line.startswith(f"{workdir.path}: a checkpoint could not be saved: ")
    assert "File too large" in line
    assert saved_steps(workdir.checkpoints) == [1]


def test_a_folder_that_cannot_be_written_fails_the_save(workdir: Workdir) -> None:
    with Checkpoints(workdir, keep=2) as checkpoints:
        workdir.checkpoints.rmdir()
        workdir.checkpoints.write_text("in the way")
        with pytest.raises(SaveFailed, match="a checkpoint could not be saved"):
            checkpoints.save(1, state(mesh(), step=1), **JSON)


def test_what_a_cut_save_left_is_cleaned_away_and_in_nobodys_way(workdir: Workdir) -> None:
    """R10."""
    saved(workdir, 3)
    cut = workdir.checkpoints / "5.orbax-checkpoint-tmp"
    shutil.copytree(workdir.checkpoints / "3", cut)
    (cut / "model" / "manifest.ocdbt").unlink()
    # Decoding looks at it from outside, and touches nothing.
    assert_equal(loaded(workdir), state(mesh(), step=3).model)
    assert cut.exists()
    assert saved_steps(workdir.checkpoints) == [3]
    with Checkpoints(workdir, keep=9) as checkpoints:
        restored, _, _ = checkpoints.restore(3, abstract(mesh()))
        assert_equal(restored, state(mesh(), step=3))
        checkpoints.save(5, state(mesh(), step=5), **JSON)
    assert sorted(path.name for path in workdir.checkpoints.iterdir()) == ["3", "5"]
    assert_equal(loaded(workdir), state(mesh(), step=5).model)
