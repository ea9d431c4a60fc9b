"""Disks that are full, read-only or somebody else's: one clear line, and nothing saved is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.checkpoints import Checkpoints, newest_whole, saved_steps
from transduce.config import CorpusConfig, RequestError, SaveFailed, WriteFailed
from transduce.decoding.streams import whole_lines
from transduce.text.corpora import prepare
from transduce.training.monitor import Monitor
from transduce.workdir import Workdir

from .checkpoint_examples import EXPERIMENT, abstract, assert_equal, mesh, saved, state
from .disks import fill, make_read_only, small_disk


def test_a_disk_that_fills_while_data_are_prepared_is_named(tmp_path) -> None:
    corpus = CorpusConfig(
        name="c",
        source_language="en",
        target_language="de",
        train=("a", "b"),
        dev=("a", "b"),
    )
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{number} {'x' * 90}\n" for number in range(5000)))
    with small_disk(tmp_path / "disk", kib=256) as disk:
        with pytest.raises(RequestError, match=f"{disk}.*: cannot prepare corpus c: ") as raised:
            prepare(corpus, folder=str(tmp_path), cache=str(disk))
        assert "\n" not in str(raised.value)
        assert [path for path in disk.iterdir() if path.is_dir()] == []
    assert (
        len(prepare(corpus, folder=str(tmp_path), cache=str(tmp_path / "roomy"))["train"]) == 5000
    )


def test_a_disk_that_fills_while_a_checkpoint_is_saved_takes_none_that_was_saved(tmp_path) -> None:
    with small_disk(tmp_path / "disk", kib=4096) as disk:
        workdir = Workdir.of(str(disk / "workdir"))
        saved(workdir, 1)
        filler = fill(disk)
        message = f"{workdir.path}: a checkpoint could not be saved: .*; those saved before"
        with pytest.raises(SaveFailed, match=message) as raised:
            saved(workdir, 2)
        assert "\n" not in str(raised.value)
        assert saved_steps(workdir.checkpoints) == [1]
        assert newest_whole(workdir, on_damage="stop") == 1
        filler.unlink()
        saved(workdir, 2)
        assert newest_whole(workdir, on_damage="stop") == 2
        with Checkpoints(workdir, keep=9) as checkpoints:
            assert_equal(checkpoints.restore(2, abstract(mesh()))[0], state(mesh(), step=2))


def test_a_disk_that_fills_while_records_are_written_leaves_whole_ones(tmp_path) -> None:
    with small_disk(tmp_path / "disk", kib=64) as disk:
        workdir = Workdir.of(str(disk))

        def record_without_end() -> None:
            with Monitor(workdir) as monitor:
                for step in range(10_000):
                    monitor.record("train", step, loss=1.5)

        with pytest.raises(WriteFailed) as raised:
            record_without_end()
        assert str(raised.value) == (
            f"{disk}: records cannot be written: No space left on device; checkpoints saved "
            "before are as they were"
        )
        # Room again, and the run goes on: half a record at the end is gone.
        for path in workdir.tensorboard.iterdir():
            path.unlink()
        with Monitor(workdir) as monitor:
            monitor.record("train", 10_000, loss=2.5)
        records = [json.loads(line) for line in workdir.metrics.read_text().splitlines()]
        steps = [record["step"] for record in records]
        assert steps == [*range(len(steps) - 1), 10_000]
        assert len(steps) > 50


def test_a_disk_that_fills_while_lines_are_written_has_whole_ones(tmp_path) -> None:
    with small_disk(tmp_path / "disk", kib=64) as disk:
        line = "x" * 999
        message = r"out: cannot write: No space left on device; its first (\d+) lines are whole"

        def write_without_end() -> None:
            with whole_lines(str(disk / "out")) as writer:
                for _ in range(1000):
                    writer.write([line])

        with pytest.raises(WriteFailed, match=message) as raised:
            write_without_end()
        count = int(str(raised.value).split("first ")[1].split()[0])
        assert (disk / "out").read_text() == f"{line}\n" * count
        assert count > 50


def test_a_workdir_that_becomes_read_only_is_an_error_in_a_line(tmp_path) -> None:
    with small_disk(tmp_path / "disk", kib=4096) as disk:
        workdir = Workdir.of(str(disk / "workdir"))
        with workdir.begin(EXPERIMENT):
            saved(workdir, 1)
        make_read_only(disk)
        message = "cannot write: Read-only file system"
        with pytest.raises(RequestError, match=message) as refused, workdir.begin(EXPERIMENT):
            pass
        assert "\n" not in str(refused.value)
        with pytest.raises(WriteFailed, match="cannot be written: Read-only"):
            Monitor(workdir)
        assert newest_whole(workdir, on_damage="stop") == 1


def test_what_cannot_be_written_later_ends_a_run_with_a_line(tmp_path) -> None:
    workdir = Workdir.of(str(tmp_path / "workdir"))
    with (
        pytest.raises(
            WriteFailed, match=r"translations: No such file .*; checkpoints saved before"
        ),
        workdir.begin(EXPERIMENT),
    ):
        next((workdir.path / "translations").iterdir())


OTHERS = """
import os, sys
sys.path.insert(0, sys.argv[2])
from transduce.checkpoints import saved_steps
from transduce.config import SaveFailed
from transduce.workdir import Workdir
from tests.checkpoint_examples import saved

workdir = Workdir.of(sys.argv[1])
saved(workdir, 1)
os.chmod(workdir.checkpoints, 0o555)
try:
    saved(workdir, 2)
except SaveFailed as error:
    print(saved_steps(workdir.checkpoints), error)
"""


def test_rights_that_are_lost_on_the_way_fail_the_save(tmp_path) -> None:
    """In a process without root's privilege to do what rights forbid."""
    unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    if os.getuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("needs setpriv, to give up root's privileges")
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-W", "ignore", "-c", OTHERS, str(tmp_path / "workdir"), str(root)]
    run = subprocess.run(
        [*(unprivileged if os.getuid() == 0 else []), *command],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    (tmp_path / "workdir" / "checkpoints").chmod(0o755)
    (line,) = run.stdout.splitlines()
    assert line.startswith(f"[1] {tmp_path}/workdir: a checkpoint could not be saved: "), run.stderr
    assert "ermission denied" in line
