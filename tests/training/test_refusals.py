"""What a run refuses at its start."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from transduce import cli
from transduce.config import Experiment, RequestError, VocabularyConfig
from transduce.parallel.mesh import make_mesh
from transduce.text.vocabulary import train_vocabulary
from transduce.training import loop
from transduce.workdir import Workdir

from .examples import PAIRS, experiment_in, files_in, write_experiment

pytestmark = pytest.mark.usefixtures("one_device")

TEXTS = [text for pair in PAIRS for text in pair]


def refusal(capsys, *arguments: str) -> str:
    """The one line that the program prints when it refuses."""
    assert cli.run(["train", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("transduce: ")
    (line,) = output.err.splitlines()
    return line


def test_a_workdir_of_another_experiment_is_refused(
    tmp_path, folder: Path, experiment: Experiment, capsys
) -> None:
    workdir = Workdir.of(str(tmp_path))
    with workdir.begin(experiment):
        pass
    before = files_in(tmp_path)
    other = ["--model.d-ff", "64", "--optimizer.warmup-steps", "7", "--training.steps", "9"]
    line = refusal(capsys, str(folder / "experiment.py"), "--workdir", str(tmp_path), *other)
    assert "model.d_ff is 32 there and 64 here" in line
    assert "optimizer.warmup_steps is 20 there and 7 here" in line
    assert "training.steps" not in line
    assert files_in(tmp_path) == before


def test_a_workdir_in_use_is_refused(
    tmp_path, folder: Path, experiment: Experiment, capsys
) -> None:
    with Workdir.of(str(tmp_path)).begin(experiment):
        before = files_in(tmp_path)
        line = refusal(capsys, str(folder / "experiment.py"), "--workdir", str(tmp_path))
        assert f"{tmp_path}: another run is going on in it (process {os.getpid()} on " in line
        assert files_in(tmp_path) == before


def test_a_run_whose_data_have_changed_is_refused(finished: Path, tmp_path, capsys) -> None:
    workdir, corpus = tmp_path / "workdir", tmp_path / "corpus"
    shutil.copytree(finished, workdir)
    corpus.mkdir()
    write_experiment(corpus / "experiment.py", experiment_in(corpus))
    where = [str(corpus / "experiment.py"), "--workdir", str(workdir)]
    for split in ("train", "dev"):
        text = (corpus / f"{split}.de").read_text()
        (corpus / f"{split}.de").write_text(text.replace("alte", "Alte", 1))
    before = files_in(workdir)
    line = refusal(capsys, *where)
    assert "when this run began: corpus split small/dev, corpus split small/train; bring" in line
    assert files_in(workdir) == before
    # The text as it was, and another vocabulary.
    experiment_in(corpus)
    vocabulary(workdir / "vocabulary.model", 296, texts=[text.upper() for text, _ in PAIRS])
    line = refusal(capsys, *where)
    assert f"when this run began: {workdir / 'vocabulary.model'}; bring" in line


def test_a_checkpoint_of_another_model_is_refused(
    finished: Path, tmp_path, folder: Path, capsys
) -> None:
    """As when it was copied from elsewhere; in training and in decoding."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"d_ff": 32', '"d_ff": 48'))
    before = files_in(tmp_path / "checkpoints")
    arguments = [str(folder / "experiment.py"), "--workdir", str(tmp_path), "--model.d-ff", "48"]
    line = refusal(capsys, *arguments)
    differs = "is of another model: decoder.feed_forward.into is (1, 32, 32) there and (1, 32, 48)"
    assert f"{tmp_path}/checkpoints/120/model: {differs}" in line
    assert files_in(tmp_path / "checkpoints") == before
    for best, item in (([], "checkpoints/120/ema"), (["--best"], "best/")):
        files = ["--source", str(folder / "dev.en"), "--target", str(folder / "dev.de")]
        assert cli.run(["score", str(tmp_path), *files, *best]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        (line,) = output.err.splitlines()
        assert f"transduce: {tmp_path}/{item}" in line
        assert differs in line


def test_a_folder_that_is_no_workdir_is_refused(tmp_path, folder: Path, capsys) -> None:
    (tmp_path / "mine").write_text("keep")
    line = refusal(capsys, str(folder / "experiment.py"), "--workdir", str(tmp_path))
    assert f"{tmp_path}: neither empty nor a workdir" in line
    assert files_in(tmp_path) == {str(tmp_path / "mine"): b"keep"}


def vocabulary(path: Path, size: int, texts: Sequence[str] = TEXTS) -> str:
    train_vocabulary(texts, config=VocabularyConfig(size=size), path=path)
    return str(path)


def test_a_vocabulary_larger_than_the_table_is_refused(tmp_path, folder: Path, capsys) -> None:
    """R12: as the configuration has it, and as an existing vocabulary has it."""
    where = [str(folder / "experiment.py"), "--workdir", str(tmp_path / "workdir")]
    line = refusal(capsys, *where, "--data.vocabulary.size", "301")
    assert "data.vocabulary.size (301) is larger than model.vocabulary_size (300)" in line
    model = vocabulary(tmp_path / "model", 296)
    given = ["--data.vocabulary.source-model", model, "--data.vocabulary.target-model", model]
    sizes = ["--model.vocabulary-size", "280", "--data.vocabulary.size", "280"]
    line = refusal(capsys, *where, *given, *sizes)
    assert "has 296 pieces, more than model.vocabulary_size (280)" in line
    assert not (tmp_path / "workdir").exists()


def test_separate_vocabularies_are_refused(tmp_path, folder: Path, capsys) -> None:
    """R16: the table is shared, and the message names both sizes."""
    models = ["--data.vocabulary.source-model", vocabulary(tmp_path / "source", 296)]
    models += ["--data.vocabulary.target-model", vocabulary(tmp_path / "target", 290)]
    where = [str(folder / "experiment.py"), "--workdir", str(tmp_path / "workdir")]
    line = refusal(capsys, *where, *models)
    assert "source (296 pieces)" in line
    assert "target (290 pieces)" in line
    assert not (tmp_path / "workdir").exists()


BROKEN = {
    "missing": (None, "no such file"),
    "of another length": (b"ein Satz\nnoch einer\n", "parallel files must have equally many"),
    "not UTF-8": (b"gut\nschlecht \xff\n", "line 2: not UTF-8"),
    "empty": (b"", "parallel files must have equally many"),
    "with a NUL": (b"a\0b\n", "line 1: has a NUL byte"),
}


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_corpus_is_refused_and_nothing_is_left(
    tmp_path, capsys, monkeypatch: pytest.MonkeyPatch, fault: str, split: str
) -> None:
    """T7, T11."""
    cache, corpus, workdir = (tmp_path / name for name in ("cache", "corpus", "workdir"))
    monkeypatch.setenv("TRANSDUCE_CACHE", str(cache))
    corpus.mkdir()
    write_experiment(corpus / "experiment.py", experiment_in(corpus))
    bad, (content, message) = corpus / f"{split}.de", BROKEN[fault]
    bad.unlink() if content is None else bad.write_bytes(content)
    line = refusal(capsys, str(corpus / "experiment.py"), "--workdir", str(workdir))
    assert message in line
    assert str(bad) in line
    assert not workdir.exists()
    assert not [path for path in cache.rglob("*") if path.suffix != ".lock"]


def test_an_empty_corpus_is_refused(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, workdir = tmp_path / "corpus", tmp_path / "workdir"
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    corpus.mkdir()
    write_experiment(corpus / "experiment.py", experiment_in(corpus))
    for language in ("en", "de"):
        (corpus / f"train.{language}").write_text("")
    line = refusal(capsys, str(corpus / "experiment.py"), "--workdir", str(workdir))
    assert f"{corpus / 'train.en'} and {corpus / 'train.de'} are empty" in line
    assert not workdir.exists()


def test_rows_that_do_not_divide_over_the_devices_are_refused_at_the_start(
    tmp_path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "make_mesh", make_mesh)
    data = replace(experiment.data, rows=12)
    with pytest.raises(RequestError, match=r"data\.rows \(12\) does not divide over .* \(8\)"):
        loop.train(replace(experiment, data=data), Workdir.of(str(tmp_path / "workdir")))
    odd = replace(experiment, mesh=replace(experiment.mesh, tensor=4))
    with pytest.raises(RequestError, match=r"does not divide over mesh axes tensor"):
        loop.train(odd, Workdir.of(str(tmp_path / "workdir")))
    assert not (tmp_path / "workdir").exists()


def test_a_sentence_beyond_learned_positions_is_refused_at_the_start(
    tmp_path, folder: Path, experiment: Experiment
) -> None:
    model = replace(experiment.model, positions="learned", learned_positions=32)
    long = " ".join(["clock"] * 40)
    (tmp_path / "dev.en").write_text(f"the clock\n{long}\n")
    (tmp_path / "dev.de").write_text("die Uhr\ndie Uhr\n")
    (corpus,) = experiment.data.corpora
    corpus = replace(corpus, dev=(str(tmp_path / "dev.en"), str(tmp_path / "dev.de")))
    data = replace(experiment.data, corpora=(corpus,))
    with pytest.raises(RequestError, match=r"a sentence of dev has \d+ tokens, more than model"):
        loop.train(
            replace(experiment, model=model, data=data), Workdir.of(str(tmp_path / "workdir"))
        )
    assert not (tmp_path / "workdir").exists()
