"""What SECURITY.md says: each of its sentences has a test, here or where it says."""

import ast
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from transduce.checkpoints import Checkpoints
from transduce.config import CorpusConfig, RequestError
from transduce.config_files import from_json, to_json
from transduce.text import wmt14
from transduce.text.corpora import prepare
from transduce.text.prepared import build
from transduce.text.vocabulary import train_vocabulary
from transduce.workdir import Workdir

from .checkpoint_examples import EXPERIMENT, JSON, abstract, assert_equal, mesh, saved, state

ROOT = Path(__file__).resolve().parent.parent


def test_every_sentence_names_a_test_that_is_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    holds = text.split("## What holds")[1].split("## What does not")[0]
    sentences = [line for line in holds.splitlines() if line.startswith("- ")]
    assert len(sentences) > 5
    for sentence in sentences:
        found = re.search(r" \(`(tests/[a-z0-9_/]+\.py)::(test_\w+)`\)$", sentence)
        assert found, sentence
        body = ast.parse((ROOT / found[1]).read_text()).body
        names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        assert found[2] in names, sentence


WATCHED = """
import os, sys

workdir, outside = sys.argv.pop(), sys.argv.pop()
code = os.path.realpath(workdir)

def say(*words):
    # In one write: several threads open files.
    os.write(2, (" ".join(map(str, words)) + "\\n").encode())

def watch(event, arguments):
    if event in ("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn",
                 "socket.connect", "socket.getaddrinfo"):
        say("SEEN", event, arguments)
    if event == "exec" and code in str(getattr(arguments[0], "co_filename", "")):
        say("SEEN", event, arguments)
    if event == "import" and str(arguments[0]).startswith("planted"):
        say("SEEN", event, arguments)
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.fsdecode(arguments[0])
        if path.startswith(outside):
            say("SEEN", event, path)
        if path.startswith(workdir):
            say("READ", path)

from transduce.cli import run

sys.addaudithook(watch)
sys.exit(run(sys.argv[1:]))
"""


def test_decoding_runs_nothing_and_opens_nothing_that_a_workdir_names(tmp_path) -> None:
    """By Python's audit hooks, which see every import, exec, open, unpickling and connection."""
    workdir, outside = tmp_path / "workdir", tmp_path / "outside"
    outside.mkdir()
    made = Workdir.of(str(workdir))
    corpus = CorpusConfig(
        name="c",
        source_language="en",
        target_language="de",
        train=(str(outside / "a"), str(outside / "b")),
        dev=(str(outside / "c"), str(outside / "d")),
    )
    resolved = json.loads(to_json(EXPERIMENT))
    resolved["model"]["vocabulary_size"] = resolved["data"]["vocabulary"]["size"] = 290
    resolved["data"]["corpora"] = [asdict(corpus)]
    resolved["data"]["folder"] = str(outside)
    named = {"source_model": str(outside / "s"), "target_model": str(outside / "t")}
    resolved["data"]["vocabulary"] |= named
    resolved["training"]["warm_start"] = str(outside / "w")
    experiment = from_json(json.dumps(resolved), origin="here")
    for name in "abcdst":
        (outside / name).write_text("never read\n")
    with made.begin(experiment), Checkpoints(made, keep=1) as checkpoints:
        config = experiment.data.vocabulary
        train_vocabulary(["a man reads a book"] * 9, config=config, path=made.vocabulary)
        checkpoints.save(1, state(mesh(), step=1, experiment=experiment), **JSON)
    for name in ("sitecustomize", "planted", "conftest", "__init__", "config"):
        (workdir / f"{name}.py").write_text("raise SystemExit('run')\n")
        shutil.copy(workdir / f"{name}.py", workdir / "checkpoints" / "1" / "model")
    (workdir / "model.pkl").write_bytes(pickle.dumps(print))
    command = [sys.executable, "-c", WATCHED, "translate", str(workdir)]
    run = subprocess.run(
        [*command, str(outside), str(workdir)],
        input="a man\n",
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    lines = run.stderr.splitlines()
    assert [line for line in lines if line.startswith("SEEN")] == []
    read = {
        Path(line.split(" ", 1)[1]).relative_to(workdir).parts[0]
        for line in lines
        if line.startswith("READ")
    }
    assert {"config.json", "vocabulary.model"} <= read
    assert read <= {"config.json", "vocabulary.model", "checkpoints", "best"}


class Trap:
    """What runs when it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch trapped",)


def test_a_pickle_in_a_checkpoint_is_never_loaded(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workdir = Workdir.of(str(tmp_path / "workdir"))
    saved(workdir, 1)
    checkpoint = Path(workdir.checkpoints / "1")
    trap = pickle.dumps(Trap())
    (checkpoint / "checksums.json").unlink()
    for name in (
        "pipeline/metadata",
        "progress/metadata",
        "model/_METADATA",
        "_CHECKPOINT_METADATA",
    ):
        path = checkpoint / name
        whole = path.read_bytes()
        path.write_bytes(trap)
        with Checkpoints(workdir, keep=9) as checkpoints:
            try:
                restored, _, _ = checkpoints.restore(1, abstract(mesh()))
            except (RequestError, ValueError):
                pass  # It is no JSON.
            else:
                assert name == "_CHECKPOINT_METADATA"
                assert_equal(restored, state(mesh(), step=1))
        path.write_bytes(whole)
    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap()], dtype=object), allow_pickle=True)
    (checkpoint / "checksums.json").write_bytes(buffer.getvalue())
    assert not (tmp_path / "trapped").exists()


def test_nothing_of_an_archive_is_unpacked(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file of it is read, by its exact name; others may be called what they like."""
    folder = tmp_path / "folder"
    folder.mkdir()
    archive = folder / "archive.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("../evil", "/tmp/evil", "training/../../evil", "training/text"):
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"good\n" if name == "training/text" else b"evil\n"))
        link = tarfile.TarInfo("training/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(folder)
    assert list(wmt14._lines(archive, "training/text")) == ["good"]
    for name in ("training/link", "evil"):
        with pytest.raises((RequestError, KeyError)):
            list(wmt14._lines(archive, name))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_data_set_names_no_module_and_no_file_elsewhere(tmp_path) -> None:
    build(tmp_path / "made", {"train": [("a", "b")], "validation": [("c", "d")]}, ("en", "de"))
    (folder,) = (tmp_path / "made").rglob("dataset_info.json")
    place = folder.parent
    corpus = CorpusConfig(
        name="c", builder="tfds", source_language="en", target_language="de", path=str(place)
    )
    assert list(prepare(corpus, folder="/")["train"]) == [("a", "b")]
    features, info = place / "features.json", place / "dataset_info.json"
    whole = features.read_text()
    features.write_text(whole.replace("tensorflow_datasets.core.features", "planted.features", 1))
    with pytest.raises(
        RequestError, match=r"features\.json: planted\.features\S* is no feature of"
    ):
        prepare(corpus, folder="/")
    features.write_text(whole)
    other = tmp_path / "elsewhere"
    other.mkdir()
    for path in place.glob("*train*"):
        shutil.copy(path, other)
    text = info.read_text()
    assert "{DATASET}-{SPLIT}" in text
    info.write_text(text.replace("{DATASET}-{SPLIT}", "../../../elsewhere/{DATASET}-{SPLIT}"))
    with pytest.raises(RequestError, match="lies outside of the data set's folder"):
        prepare(corpus, folder="/")
