import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from transduce import cli
from transduce.checkpoints import Checkpoints, Workdir, named_arrays
from transduce.config import Experiment, RequestError
from transduce.parallel.mesh import make_mesh
from transduce.training import loop
from transduce.training.objective import Sums
from transduce.training.step import StepMetrics, abstract_state
from transduce.training.window import Diverged

from .examples import PAIRS, experiment_in, write_experiment


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory) -> Iterator[Path]:
    """What was compiled once, in this process or in one that a test starts, is kept on disk."""
    path = tmp_path_factory.mktemp("compiled")
    settings = {
        "jax_compilation_cache_dir": str(path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    with changed_settings(settings):
        yield path


@contextmanager
def changed_settings(settings: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The experiment's file, its corpus, and prepared corpora."""
    folder = tmp_path_factory.mktemp("corpus")
    write_experiment(folder / "experiment.py", experiment_in(folder))
    return folder


@pytest.fixture(scope="module")
def experiment(folder: Path) -> Experiment:
    return experiment_in(folder)


@contextmanager
def patched(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """One device, as in the processes that tests start, and prepared corpora in `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSDUCE_CACHE", str(folder / "cache"))
        patch.setattr(loop, "make_mesh", partial(make_mesh, devices=jax.devices()[:1]))
        yield patch


@pytest.fixture(autouse=True)
def patch(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    with patched(folder) as patch:
        yield patch


@pytest.fixture(scope="module")
def finished(compiled, folder: Path, experiment: Experiment) -> Path:
    """A workdir in which the experiment has run to its end; to look at only."""
    path = folder / "finished"
    with patched(folder):
        loop.train(experiment, Workdir.of(str(path)))
    return path


def records(workdir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def steps(workdir: Path) -> list[int]:
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


def state(experiment: Experiment, workdir: Path, step: int) -> tuple[dict[str, Any], Any]:
    """Parameters and optimiser of a checkpoint by name, and the pipeline's state."""
    like = abstract_state(experiment, make_mesh(experiment.mesh, jax.devices()[:1]))
    with Checkpoints(Workdir.of(str(workdir)), keep=9) as checkpoints:
        restored, pipeline = checkpoints.restore(step, like)
    return named_arrays(restored), pipeline


def assert_same_state(experiment: Experiment, left: Path, right: Path, step: int) -> None:
    (found, found_pipeline), (expected, expected_pipeline) = (
        state(experiment, workdir, step) for workdir in (left, right)
    )
    assert found_pipeline == expected_pipeline
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- What a run makes --------------------------------------------------------------------------


def test_a_workdir_holds_all_that_a_run_makes(finished: Path, experiment: Experiment) -> None:
    assert Workdir.of(str(finished)).read_experiment() == experiment
    assert (finished / "vocabulary.model").is_file()
    # Of 30, 60, 90 and 120 the newest two.
    assert steps(finished) == [90, 120]
    names = {path.name for path in (finished / "translations").iterdir()}
    assert names == {"dev-60.txt", "dev-120.txt", "test-120.txt"}
    assert len((finished / "translations" / "dev-120.txt").read_text().splitlines()) == 12
    (events,) = (finished / "tensorboard").iterdir()
    for tag in (b"train/loss", b"train/learning_rate", b"dev/bleu", b"test/perplexity"):
        assert tag in events.read_bytes()


def test_metrics_are_records_with_their_kind_and_step(finished: Path) -> None:
    lines = (finished / "metrics.jsonl").read_text().splitlines()
    kinds = [(record["kind"], record["step"]) for record in map(json.loads, lines)]
    assert kinds == [
        ("compile", 1),
        *[("train", 30), ("train", 60), ("dev", 60)],
        *[("train", 90), ("train", 120), ("dev", 120), ("test", 120)],
    ]
    train = records(finished, "train")
    assert all(record["loss"] > 0 for record in train)
    assert train[0]["loss"] > train[3]["loss"]
    # 0.01 at update 20, from there as step^-0.5.
    assert train[1]["learning_rate"] == pytest.approx(0.01 * (20 / 60) ** 0.5, rel=1e-6)
    dev = records(finished, "dev")[-1]
    # Without label smoothing the objective is the cross-entropy.
    assert dev["perplexity"] == pytest.approx(math.exp(dev["loss"]), rel=1e-6)
    assert dev["sentences"] == 12


def test_compiling_is_a_record_of_its_own(finished: Path) -> None:
    """R20."""
    (compiling,) = records(finished, "compile")
    first = records(finished, "train")[0]
    assert compiling["seconds"] > 30 / first["updates_per_second"] > 0


def test_bleu_in_the_records_is_that_of_the_sacrebleu_program(finished: Path, tmp_path) -> None:
    """E1: to 0.01, with the signature."""
    reference = tmp_path / "reference"
    reference.write_text("".join(f"{target}\n" for _, target in PAIRS[::5]))
    command = [str(Path(sys.executable).with_name("sacrebleu")), str(reference)]
    command += ["-i", str(finished / "translations" / "dev-120.txt")]
    command += ["-m", "bleu", "chrf", "-w", "6", "-f", "json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    bleu, chrf = json.loads(run.stdout)
    record = records(finished, "dev")[-1]
    assert record["bleu"] == pytest.approx(bleu["score"], abs=0.01)
    assert record["bleu"] > 1
    assert record["bleu_signature"] == bleu["signature"]
    assert record["chrf"] == pytest.approx(chrf["score"], abs=0.01)
    assert record["chrf_signature"] == chrf["signature"]


# ---- Going on ----------------------------------------------------------------------------------


def test_a_finished_run_trains_nothing_and_says_so(
    finished: Path, tmp_path, experiment: Experiment, capsys
) -> None:
    workdir = tmp_path / "workdir"
    shutil.copytree(finished, workdir)
    before = files(workdir / "checkpoints")
    loop.train(experiment, Workdir.of(str(workdir)))
    assert "Nothing to train: training.steps is 120" in capsys.readouterr().err
    assert files(workdir / "checkpoints") == before
    assert records(workdir, "train") == records(finished, "train")
    # Nor when it is asked for less; what is there is not called what it is not.
    less = replace(experiment, training=replace(experiment.training, steps=50))
    loop.train(less, Workdir.of(str(workdir)))
    assert [record["step"] for record in records(workdir, "dev")] == [60, 120, 120, 120]
    assert files(workdir / "checkpoints") == before


def test_a_run_with_more_steps_goes_on_and_can_be_profiled(
    finished: Path, tmp_path, experiment: Experiment, capsys
) -> None:
    workdir = tmp_path / "workdir"
    shutil.copytree(finished, workdir)
    longer = replace(experiment, training=replace(experiment.training, steps=130))
    loop.train(longer, Workdir.of(str(workdir)), profile=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert f"Continues after step 120 of {workdir}" in output.err
    assert steps(workdir) == [120, 130]
    assert [record["step"] for record in records(workdir, "train")] == [30, 60, 90, 120, 130]
    assert any((workdir / "profile").rglob("*.xplane.pb"))


@pytest.mark.parametrize(
    ("first", "final", "profiled"),
    [
        *[(0, 100, [10, 11, 12]), (500, 1000, [510, 511, 512]), (0, 11, [9, 10, 11])],
        *[(0, 3, [1, 2, 3]), (0, 2, [1, 2]), (7, 8, [8]), (8, 8, [])],
    ],
)
def test_three_updates_are_profiled_where_there_are_so_many(
    first: int, final: int, profiled: list[int]
) -> None:
    assert list(loop._profiled(first, final)) == profiled


SLOW = """
import sys, time
from transduce.cli import run
from transduce.training.window import Window

add = Window.add

def slowly(self, step, metrics):
    time.sleep(0.5 if step > 30 else 0)
    add(self, step, metrics)

Window.add = slowly
run(sys.argv[1:])
"""
RUN = "import sys; from transduce.cli import run; sys.exit(run(sys.argv[1:]))"


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(
    finished: Path, tmp_path, folder: Path, compiled: Path, experiment: Experiment
) -> None:
    """R4, R10: to the bit; and these programs write nothing but what they should."""
    workdir = tmp_path / "workdir"
    environment = {
        **os.environ,
        "TRANSDUCE_CACHE": str(tmp_path / "cache"),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    arguments = ["train", str(folder / "experiment.py"), "--workdir", str(workdir)]

    def start(program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", program, *arguments]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=environment, text=True, **pipes)

    with start(SLOW) as killed:
        waited = time.monotonic()
        while not (workdir / "checkpoints" / "30").exists():
            assert killed.poll() is None
            assert time.monotonic() - waited < 100
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        first_output, first_lines = killed.communicate()
    assert steps(workdir) == [30]
    assert records(workdir, "dev") == []

    with start(RUN) as second:
        second_output, second_lines = second.communicate()
    assert second.returncode == 0, second_lines
    assert f"Continues after step 30 of {workdir}" in second_lines
    assert_same_state(experiment, workdir, finished, 120)
    assert_same_state(experiment, workdir, finished, 90)
    name = "translations/test-120.txt"
    assert (workdir / name).read_bytes() == (finished / name).read_bytes()
    losses = {record["step"]: record["loss"] for record in records(workdir, "train")}
    assert losses == {record["step"]: record["loss"] for record in records(finished, "train")}

    assert (first_output, second_output) == ("", "")
    ours = r"(Data|Model|Continues|Compiled|Workdir|Next|dev|test|  \w+|[ \d,]+ of 120) .*|"
    for line in (first_lines + second_lines).split("\n"):
        assert re.fullmatch(ours, line), line


def test_a_run_that_diverges_leaves_the_last_good_checkpoint(
    tmp_path, experiment: Experiment, patch: pytest.MonkeyPatch
) -> None:
    """R19."""

    def compile_diverging(experiment, mesh, state, batch):
        def update(state, batch):
            nonlocal step
            step += 1
            loss: Any = math.nan if step == 5 else 1.0
            sums = Sums(loss=loss, log_loss=loss, tokens=loss, source_tokens=loss)
            return state, StepMetrics(sums=sums, gradient_norm=loss, learning_rate=loss)

        step = 0
        return update

    patch.setattr(loop, "compile_train_step", compile_diverging)
    training = replace(experiment.training, steps=9, save_every=2, evaluate_every=0)
    workdir = tmp_path / "workdir"
    with pytest.raises(Diverged, match="update 5"):
        loop.train(replace(experiment, training=training), Workdir.of(str(workdir)))
    assert steps(workdir) == [2, 4]


# ---- Requests that cannot be done --------------------------------------------------------------


def refusal(capsys, *arguments: str) -> str:
    """The one line that the program prints when it refuses."""
    assert cli.run(["train", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("transduce: ")
    (line,) = output.err.splitlines()
    return line


def test_a_workdir_of_another_experiment_is_refused(finished: Path, folder: Path, capsys) -> None:
    before = files(finished)
    other = ["--model.d-ff", "64", "--optimizer.warmup-steps", "7", "--training.steps", "9"]
    line = refusal(capsys, str(folder / "experiment.py"), "--workdir", str(finished), *other)
    assert "model.d_ff is 32 there and 64 here" in line
    assert "optimizer.warmup_steps is 20 there and 7 here" in line
    assert "training.steps" not in line
    assert files(finished) == before


def test_a_folder_that_is_no_workdir_is_refused(tmp_path, folder: Path, capsys) -> None:
    (tmp_path / "mine").write_text("keep")
    line = refusal(capsys, str(folder / "experiment.py"), "--workdir", str(tmp_path))
    assert f"{tmp_path}: neither empty nor a workdir" in line
    assert files(tmp_path) == {str(tmp_path / "mine"): b"keep"}


def test_a_vocabulary_larger_than_the_table_is_refused(
    finished: Path, tmp_path, folder: Path, capsys
) -> None:
    """R12: as the configuration has it, and as an existing vocabulary has it."""
    where = [str(folder / "experiment.py"), "--workdir", str(tmp_path / "workdir")]
    line = refusal(capsys, *where, "--data.vocabulary.size", "301")
    assert "data.vocabulary.size (301) is larger than model.vocabulary_size (300)" in line
    model = str(finished / "vocabulary.model")
    given = ["--data.vocabulary.source-model", model, "--data.vocabulary.target-model", model]
    sizes = ["--model.vocabulary-size", "280", "--data.vocabulary.size", "280"]
    line = refusal(capsys, *where, *given, *sizes)
    assert "has 296 pieces, more than model.vocabulary_size (280)" in line
    assert not (tmp_path / "workdir").exists()


def test_separate_vocabularies_are_refused(finished: Path, tmp_path, folder: Path, capsys) -> None:
    """R16: the table is shared, and the message names both sizes."""
    from transduce.config import VocabularyConfig
    from transduce.text.vocabulary import train_vocabulary

    other = tmp_path / "other.model"
    texts = [target for _, target in PAIRS]
    train_vocabulary(texts, config=VocabularyConfig(size=285), path=other)
    models = ["--data.vocabulary.source-model", str(finished / "vocabulary.model")]
    models += ["--data.vocabulary.target-model", str(other)]
    where = [str(folder / "experiment.py"), "--workdir", str(tmp_path / "workdir")]
    line = refusal(capsys, *where, *models)
    assert "vocabulary.model (296 pieces)" in line
    assert "other.model (285 pieces)" in line
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
    tmp_path, capsys, patch: pytest.MonkeyPatch, fault: str, split: str
) -> None:
    """T7, T11."""
    cache, corpus, workdir = (tmp_path / name for name in ("cache", "corpus", "workdir"))
    patch.setenv("TRANSDUCE_CACHE", str(cache))
    corpus.mkdir()
    write_experiment(corpus / "experiment.py", experiment_in(corpus))
    bad, (content, message) = corpus / f"{split}.de", BROKEN[fault]
    bad.unlink() if content is None else bad.write_bytes(content)
    line = refusal(capsys, str(corpus / "experiment.py"), "--workdir", str(workdir))
    assert message in line
    assert str(bad) in line
    assert not workdir.exists()
    assert not [path for path in cache.rglob("*") if path.suffix != ".lock"]


def test_an_empty_corpus_is_refused(tmp_path, capsys, patch: pytest.MonkeyPatch) -> None:
    corpus, workdir = tmp_path / "corpus", tmp_path / "workdir"
    patch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    corpus.mkdir()
    write_experiment(corpus / "experiment.py", experiment_in(corpus))
    for language in ("en", "de"):
        (corpus / f"train.{language}").write_text("")
    line = refusal(capsys, str(corpus / "experiment.py"), "--workdir", str(workdir))
    assert f"{corpus / 'train.en'} and {corpus / 'train.de'} are empty" in line
    assert not workdir.exists()


def test_rows_that_do_not_divide_over_the_devices_are_refused_at_the_start(
    tmp_path, experiment: Experiment, patch: pytest.MonkeyPatch
) -> None:
    patch.setattr(loop, "make_mesh", make_mesh)
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
