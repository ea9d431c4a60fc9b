"""What a workdir holds, and who may begin a run in it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

from transduce.config import DataConfig, Experiment, ModelConfig, RequestError, VocabularyConfig
from transduce.config_files import from_json, to_json
from transduce.workdir import Workdir

EXPERIMENT = Experiment(
    name="workdirs",
    model=ModelConfig(vocabulary_size=12, d_ff=4),
    data=DataConfig(vocabulary=VocabularyConfig(size=12)),
)

CORPORA = {"news/train": "a1", "news/dev": "b2", "talks/train": "c3"}
"""Fingerprints."""


@pytest.fixture
def workdir(tmp_path) -> Workdir:
    return Workdir.of(str(tmp_path / "workdir"))


def test_a_workdir_may_be_relative_in_the_home_folder_or_in_a_cloud(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/someone")
    places = {
        "runs/one": f"{tmp_path}/runs/one",
        "~/one": "/someone/one",
        "gs://bucket/one": "gs://bucket/one",
    }
    for given, path in places.items():
        assert str(Workdir.of(given).path) == path


def changed(section: str, **changes: Any) -> Experiment:
    part: Any = replace(getattr(EXPERIMENT, section), **changes)
    return replace(EXPERIMENT, **{section: part})


def begin(workdir: Workdir, experiment: Experiment = EXPERIMENT) -> None:
    with workdir.begin(experiment):
        pass


def test_a_new_workdir_holds_the_resolved_configuration(workdir: Workdir) -> None:
    begin(workdir)
    assert {path.name for path in workdir.path.iterdir()} == {"config.json", ".lock"}
    assert workdir.read_experiment() == EXPERIMENT
    content = json.loads(workdir.config.read_bytes())
    assert content["workdir_version"] == 1
    assert content["experiment"]["model"]["d_ff"] == 4


def test_a_run_that_goes_on_may_be_longer_and_on_other_devices(workdir: Workdir) -> None:
    begin(workdir)
    for other in (
        changed("training", steps=7, save_every=2, keep=3),
        changed("training", epochs=3.5, minutes=60.0, patience=2),
        changed("mesh", tensor=2),
        changed("search", beam=9),
        changed("data", folder="/elsewhere"),
    ):
        with workdir.begin(other):
            # Not before all is ready.
            assert workdir.read_experiment() != other
            workdir.settle(other, corpora=CORPORA, vocabulary="d4")
        assert workdir.read_experiment() == other


def test_another_experiment_is_refused_with_all_that_differs(workdir: Workdir) -> None:
    begin(workdir)
    before = workdir.config.read_bytes()
    other = replace(changed("model", d_ff=6, dropout=0.3), name="other")
    other = replace(other, training=replace(other.training, steps=5))
    with pytest.raises(RequestError) as raised:
        begin(workdir, other)
    message = str(raised.value)
    assert "holds another experiment" in message
    for difference in (
        "model.d_ff is 4 there and 6 here",
        "model.dropout is 0.1 there and 0.3 here",
        "name is 'workdirs' there and 'other' here",
    ):
        assert difference in message
    assert "training.steps" not in message
    assert workdir.config.read_bytes() == before


def test_a_folder_that_holds_something_else_stays_as_it_is(workdir: Workdir) -> None:
    workdir.path.mkdir()
    (workdir.path / "notes").write_text("mine")
    with pytest.raises(RequestError, match="neither empty nor a workdir"):
        begin(workdir)
    assert [path.name for path in workdir.path.iterdir()] == ["notes"]


def test_a_place_that_cannot_be_a_folder_is_refused(workdir: Workdir) -> None:
    workdir.path.write_text("a file")
    for place in (workdir, Workdir(workdir.path / "below")):
        with pytest.raises(RequestError, match=r"workdir.*: cannot write: "):
            begin(place)
    assert workdir.path.read_text() == "a file"


@pytest.mark.parametrize("error", [RequestError("no such corpus"), KeyboardInterrupt()])
def test_a_workdir_whose_data_cannot_be_made_ready_is_taken_back(
    workdir: Workdir, error: BaseException
) -> None:
    def fail() -> None:
        with workdir.begin(EXPERIMENT):
            workdir.vocabulary.write_bytes(b"made already")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert not workdir.path.exists()
    workdir.path.mkdir()
    with pytest.raises(type(error)):
        fail()
    assert not any(workdir.path.iterdir())
    # The corrected request finds its place free.
    begin(workdir, changed("model", d_ff=6))


def test_a_workdir_that_was_there_before_is_never_taken_back(workdir: Workdir) -> None:
    begin(workdir)
    workdir.vocabulary.write_bytes(b"old")

    def fail() -> None:
        with workdir.begin(EXPERIMENT):
            raise RequestError("no such corpus")

    with pytest.raises(RequestError, match="no such corpus"):
        fail()
    assert workdir.read_experiment() == EXPERIMENT
    assert workdir.vocabulary.read_bytes() == b"old"


@pytest.mark.parametrize("text", [b"", b"\xff", b"{", b"[]", b'{"name": "a", "modle": {}}'])
def test_a_configuration_that_is_not_ours_is_refused(workdir: Workdir, text: bytes) -> None:
    workdir.path.mkdir()
    workdir.config.write_bytes(text)
    with pytest.raises(RequestError, match=r"config\.json: "):
        workdir.read_experiment()
    with pytest.raises(RequestError, match=r"config\.json: "):
        begin(workdir)


def test_a_folder_that_is_no_workdir_has_no_experiment(workdir: Workdir) -> None:
    with pytest.raises(RequestError, match="not a workdir of transduce train"):
        workdir.read_experiment()


def test_names_in_other_scripts_survive(workdir: Workdir) -> None:
    experiment = replace(EXPERIMENT, name="Übersetzung ☃")
    begin(workdir, experiment)
    assert workdir.read_experiment() == experiment == from_json(to_json(experiment), origin="x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            asdict(EXPERIMENT),
            r"has no workdir_version: it is of transduce before 0\.1\.0, and what",
        ),
        (
            {"workdir_version": 2, "experiment": asdict(EXPERIMENT), "more": 1},
            r"is of workdir version 2, and this transduce reads version 1: CHANGELOG\.md says",
        ),
    ],
)
def test_a_workdir_of_another_version_is_refused_by_name(
    workdir: Workdir, content: dict[str, Any], message: str
) -> None:
    workdir.path.mkdir()
    workdir.config.write_text(json.dumps(content))
    for refuse in (workdir.read_experiment, lambda: begin(workdir)):
        with pytest.raises(RequestError, match=rf"^{workdir.config}: {message}"):
            refuse()
    assert [path.name for path in workdir.path.iterdir()] == ["config.json"]


# ---- One run at a time -------------------------------------------------------------------------

HOLD = """
import sys, time
from transduce.config import Experiment
from transduce.workdir import Workdir

with Workdir.of(sys.argv[1]).begin(Experiment(name="first")):
    print("held", flush=True)
    time.sleep(100)
"""


def test_a_workdir_in_use_is_refused_until_the_other_run_is_dead(workdir: Workdir) -> None:
    experiment = Experiment(name="first")
    command = [sys.executable, "-c", HOLD, str(workdir.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RequestError, match=rf"is going on in it \(process {other.pid} on "):
            begin(workdir, experiment)
        assert workdir.read_experiment() == experiment
        # To decode with it is no run.
        other.send_signal(signal.SIGKILL)
    begin(workdir, experiment)
    assert workdir.lock.read_text().startswith(f"process {os.getpid()} on ")


# ---- What the data were ------------------------------------------------------------------------


def settle(workdir: Workdir, **data: Any) -> None:
    with workdir.begin(EXPERIMENT):
        workdir.settle(EXPERIMENT, **{"corpora": CORPORA, "vocabulary": "d4"} | data)


def test_data_that_are_as_they_were_go_on(workdir: Workdir) -> None:
    settle(workdir)
    kept = workdir.data.read_bytes()
    assert json.loads(kept) == {"corpora": CORPORA, "vocabulary": "d4"}
    settle(workdir)
    assert workdir.data.read_bytes() == kept


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"corpora": CORPORA | {"news/dev": "other"}}, "corpus split news/dev"),
        ({"corpora": {"news/train": "a1"}}, "corpus split news/dev, corpus split talks/train"),
        ({"corpora": CORPORA | {"talks/test": "e5"}}, "corpus split talks/test"),
        ({"vocabulary": "other"}, r"\S*/workdir/vocabulary\.model"),
    ],
)
def test_data_that_have_changed_are_refused_by_name(
    workdir: Workdir, data: dict[str, Any], named: str
) -> None:
    settle(workdir)
    kept = workdir.data.read_bytes()
    with pytest.raises(RequestError, match=rf"when this run began: {named}; bring that back"):
        settle(workdir, **data)
    assert workdir.data.read_bytes() == kept


def test_a_workdir_whose_data_were_ready_is_never_taken_back(workdir: Workdir) -> None:
    def fail() -> None:
        with workdir.begin(EXPERIMENT):
            workdir.settle(EXPERIMENT, corpora=CORPORA, vocabulary="d4")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert workdir.data.exists()
    assert workdir.read_experiment() == EXPERIMENT
