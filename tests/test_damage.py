"""Checkpoints that are no longer what was saved."""

import json
import re
import shutil
from pathlib import Path

import pytest

from transduce.checkpoints import Checkpoints, newest_whole, saved_steps
from transduce.config import RequestError
from transduce.damage import CHECKSUMS, Damaged, require_whole, write_checksums
from transduce.workdir import Workdir

from .checkpoint_examples import JSON, abstract, assert_equal, loaded, mesh, saved, state


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "workdir"
    saved(Workdir.of(str(path)), 1, 2, 3)
    return path


@pytest.fixture
def workdir(made: Path, tmp_path) -> Workdir:
    """With checkpoints of updates 1, 2 and 3."""
    return Workdir.of(str(shutil.copytree(made, tmp_path / "workdir")))


def flip(path: Path) -> None:
    """One bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def parameters(workdir: Workdir, step: int) -> Path:
    """The largest file with parameters of a checkpoint."""
    files = Path(workdir.checkpoints / str(step) / "model").rglob("d/*")
    return max(files, key=lambda path: path.stat().st_size)


def test_checksums_are_those_of_the_standard(tmp_path) -> None:
    # The check value of CRC-32 (ISO 3309) is that of these nine digits.
    (tmp_path / "item" / "d").mkdir(parents=True)
    (tmp_path / "item" / "d" / "x").write_bytes(b"123456789")
    (tmp_path / "item" / "empty").write_bytes(b"")
    (tmp_path / "not of an item").write_bytes(b"x")
    write_checksums(Workdir.of(str(tmp_path)).path)
    found = json.loads((tmp_path / CHECKSUMS).read_text())
    assert found == {"item/d/x": [9, 0xCBF43926], "item/empty": [0, 0]}


def test_every_damaged_file_is_named(workdir: Workdir) -> None:
    """Of each file one bit, its end, something after it, or all of it."""
    checkpoint = Path(workdir.checkpoints / "3")
    require_whole(workdir.checkpoints / "3")
    items = [path for path in checkpoint.iterdir() if path.is_dir()]
    assert {path.name for path in items} == {"model", "optimizer", "pipeline", "progress"}
    files = [(item, path) for item in items for path in item.rglob("*") if path.is_file()]
    assert len(files) > 20
    for item, path in files:
        whole = path.read_bytes()
        for damage in (flip, cut, lengthen, Path.unlink):
            damage(path)
            what = "is damaged: it is" if path.exists() else "cannot be read: No such file"
            for part in ("", item.name):
                with pytest.raises(Damaged, match=re.escape(f"{path}: {what}")):
                    require_whole(workdir.checkpoints / "3", item=part)
            other = "optimizer" if item.name == "model" else "model"
            require_whole(workdir.checkpoints / "3", item=other)
            path.write_bytes(whole)
    require_whole(workdir.checkpoints / "3")


@pytest.mark.parametrize("text", ["", '{"model/x": [1, ', "[]", '"x"', "\0"])
def test_damaged_checksums_are_named(tmp_path, text: str) -> None:
    (tmp_path / CHECKSUMS).write_text(text)
    with pytest.raises(Damaged, match=f"{tmp_path / CHECKSUMS}: is damaged"):
        require_whole(Workdir.of(str(tmp_path)).path)


def test_a_run_stops_at_a_damaged_checkpoint_unless_told_otherwise(workdir: Workdir) -> None:
    assert newest_whole(workdir, on_damage="stop") == 3
    flip(parameters(workdir, 3))
    message = f"{parameters(workdir, 3)}: is damaged: .*; --training.on-damage previous goes on"
    with pytest.raises(RequestError, match=message):
        newest_whole(workdir, on_damage="stop")
    assert saved_steps(workdir.checkpoints) == [1, 2, 3]


def test_a_run_goes_on_from_the_newest_that_is_whole_when_asked(
    workdir: Workdir, caplog: pytest.LogCaptureFixture
) -> None:
    assert newest_whole(workdir, on_damage="previous") == 3
    damaged = [parameters(workdir, step) for step in (3, 2)]
    for path in damaged:
        flip(path)
    assert newest_whole(workdir, on_damage="previous") == 1
    places = [Path(workdir.damaged / step) for step in ("3", "2")]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: is damaged: it is not what was saved; moved to {place}"
        for path, place in zip(damaged, places, strict=True)
    ]
    assert all(place.is_dir() for place in places)
    with Checkpoints(workdir, keep=9) as checkpoints:
        restored, _, _ = checkpoints.restore(1, abstract(mesh()))
        assert_equal(restored, state(mesh(), step=1))
        checkpoints.save(2, state(mesh(), step=2), **JSON)
    assert newest_whole(workdir, on_damage="stop") == 2
    # Damaged once more at the same update.
    flip(parameters(workdir, 2))
    assert newest_whole(workdir, on_damage="previous") == 1


def test_a_run_without_a_whole_checkpoint_does_not_begin_anew(workdir: Workdir) -> None:
    for step in (1, 2, 3):
        flip(parameters(workdir, step))
    message = f"{parameters(workdir, 3)}: is damaged: .*; no other checkpoint is whole"
    with pytest.raises(RequestError, match=message):
        newest_whole(workdir, on_damage="previous")
    assert saved_steps(workdir.checkpoints) == [1, 2, 3]


def test_a_new_run_has_no_checkpoint(tmp_path) -> None:
    assert newest_whole(Workdir.of(str(tmp_path / "new")), on_damage="stop") == 0


def test_what_decodes_names_the_damage_and_takes_another_when_told(workdir: Workdir) -> None:
    flip(parameters(workdir, 3))
    message = f"{parameters(workdir, 3)}: is damaged: .*; choose another checkpoint with --step"
    for which in ({}, {"step": 3}, {"average": 2}):
        with pytest.raises(RequestError, match=message):
            loaded(workdir, **which)
    assert_equal(loaded(workdir, step=2), state(mesh(), step=2).model)
    # It reads the parameters alone.
    for path in Path(workdir.checkpoints / "2" / "optimizer").rglob("d/*"):
        flip(path)
    assert_equal(loaded(workdir, step=2), state(mesh(), step=2).model)


def test_a_checkpoint_without_checksums_is_used_with_a_warning(
    workdir: Workdir, caplog: pytest.LogCaptureFixture
) -> None:
    (workdir.checkpoints / "3" / CHECKSUMS).unlink()
    assert newest_whole(workdir, on_damage="stop") == 3
    (record,) = caplog.records
    checkpoint = workdir.checkpoints / "3"
    assert record.getMessage() == f"{checkpoint}: has no checksums.json: it is used unchecked"
    assert_equal(loaded(workdir), state(mesh(), step=3).model)
