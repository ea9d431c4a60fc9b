"""Which checkpoint of a workdir decodes, what else is needed, and what workdirs go together."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transduce.config import Experiment, VocabularyConfig
from transduce.decoding.translator import Translator
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary, train_vocabulary

from .files import warnings, write


def test_a_checkpoint_can_be_chosen(
    command,
    workdir: Path,
    tmp_path: Path,
    sentences: list[str],
    other: Transformer,
    vocabulary: Vocabulary,
    experiment: Experiment,
) -> None:
    source = write(tmp_path / "source", sentences[:8])
    newest = command("translate", workdir, "--input", source)[1]
    first = command("translate", workdir, "--input", source, "--step", 1)[1]
    found = Translator([other], vocabulary, experiment.search).translate(sentences[:8])
    assert first == "".join(f"{translation.hypotheses[0].text}\n" for translation in found)
    assert first != newest


def test_the_mean_of_equal_checkpoints_is_each_of_them(
    command, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """R11: to the bit, and with no optimiser state: neither is needed to decode."""
    copy = tmp_path / "copy"
    shutil.copytree(workdir, copy)
    for folder in copy.glob("checkpoints/*/optimizer"):
        shutil.rmtree(folder)
    assert not list(copy.glob("checkpoints/*/optimizer"))
    source = write(tmp_path / "source", sentences[:8])
    options = ["--input", source, "--scores"]
    newest = command("translate", workdir, *options)[:2]
    assert newest[0] == 0
    assert command("translate", copy, *options, "--average", 2)[:2] == newest
    assert command("translate", copy, *options, "--average", 3)[:2] != newest


def test_the_order_of_checkpoints_does_not_change_their_mean(
    command, make_workdir, tmp_path: Path, sentences: list[str], model, other
) -> None:
    """R11."""
    source, target = (
        write(tmp_path / name, lines)
        for name, lines in (("source", sentences[:8]), ("target", sentences[8:16]))
    )
    files = ["--source", source, "--target", target]
    one = make_workdir(tmp_path / "one", {1: model, 2: other})
    two = make_workdir(tmp_path / "two", {1: other, 2: model})

    def scores(workdir: Path, *options: object) -> list[float]:
        status, out, _ = command("score", workdir, *files, *options)
        assert status == 0
        return [float(line) for line in out.splitlines()]

    mean = scores(one, "--average", 2)
    assert mean == pytest.approx(scores(two, "--average", 2), abs=1e-4)
    for workdir in (one, two):
        assert min(abs(np.subtract(mean, scores(workdir)))) > 1e-2


def test_a_workdir_works_wherever_it_is_moved(
    command, make_workdir, tmp_path: Path, model: Transformer
) -> None:
    source = write(tmp_path / "source", ["the man runs"])
    first = make_workdir(tmp_path / "first", {1: model})
    before = command("translate", first, "--input", source)
    shutil.copytree(first, tmp_path / "elsewhere" / "W")
    shutil.rmtree(first)
    assert before[0] == 0
    status, out, err = command("translate", tmp_path / "elsewhere" / "W", "--input", source)
    assert (status, out, warnings(err, count="1 line")) == (*before[:2], [])


def test_a_workdir_without_what_is_needed_is_refused(
    command, make_workdir, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """R12: and one with a vocabulary that is larger than the model's table."""
    source = write(tmp_path / "source", ["a"])
    empty, bare, strange = tmp_path / "empty", tmp_path / "bare", tmp_path / "strange"
    empty.mkdir()
    make_workdir(bare, {})
    shutil.copytree(workdir, strange)
    large = VocabularyConfig(size=330)
    train_vocabulary(
        [*sentences, "jumped over lazy quick boxes"],
        config=large,
        path=strange / "vocabulary.model",
    )
    (shutil.copytree(workdir, tmp_path / "none") / "vocabulary.model").unlink()
    for arguments, message in (
        ([tmp_path / "no"], f"{tmp_path}/no: not a workdir"),
        ([empty], f"{empty}: not a workdir"),
        ([bare], f"{bare}: holds no checkpoint"),
        ([workdir, "--step", 7], "no checkpoint of step 7; it has 1, 2, 3"),
        ([workdir, "--average", 4], "it has 1, 2, 3"),
        ([workdir, "--average", 0], "it has 1, 2, 3"),
        ([workdir, "--average", 2, "--step", 1], "exclude each other"),
        ([strange], "has 330 pieces, more than the model's 320"),
        ([tmp_path / "none"], f"{tmp_path}/none/vocabulary.model: cannot read"),
    ):
        status, out, err = command("translate", *arguments, "--input", source)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err


def test_an_ensemble_has_one_vocabulary(
    command, make_workdir, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """R16: both files are named; so is a workdir that is none, or has no such checkpoint."""
    source = write(tmp_path / "source", ["a"])
    strange = tmp_path / "strange"
    shutil.copytree(workdir, strange)
    config = VocabularyConfig(size=299)
    train_vocabulary(sentences, config=config, path=strange / "vocabulary.model")
    both = f"{strange}/vocabulary.model and {workdir}/vocabulary.model are different vocabularies"
    for arguments, message in (
        (["--ensemble", strange], both),
        (["--ensemble", workdir, strange], both),
        (["--ensemble", tmp_path / "no"], f"{tmp_path}/no: not a workdir"),
        (["--ensemble", make_workdir(tmp_path / "bare", {})], "holds no checkpoint"),
    ):
        for verb, files in (
            ("translate", ["--input", source]),
            ("score", ["--source", source, "--target", source]),
        ):
            status, out, err = command(verb, workdir, *files, *arguments)
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert message in err


def test_the_tables_of_an_ensemble_are_of_one_size(
    command, make_model, make_workdir, workdir: Path, tmp_path: Path, experiment: Experiment
) -> None:
    """R16: and both sizes are named."""
    model = replace(experiment.model, vocabulary_size=310)
    large = make_workdir(
        tmp_path / "large", {1: make_model(model)}, experiment=replace(experiment, model=model)
    )
    source = write(tmp_path / "source", ["a"])
    status, out, err = command("translate", workdir, "--input", source, "--ensemble", large)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "tables of one size, not of [310, 320] rows (model.vocabulary_size)" in err
