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
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from transduce.checkpoints import Checkpoints, Workdir, named_arrays
from transduce.config import Diverged, Experiment
from transduce.parallel.mesh import make_mesh
from transduce.text.vocabulary import Vocabulary
from transduce.training import loop
from transduce.training.objective import Sums
from transduce.training.step import StepMetrics, abstract_state

from .examples import PAIRS, files_in, on_one_device

pytestmark = pytest.mark.usefixtures("one_device")


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
def finished(compiled, folder: Path, experiment: Experiment) -> Path:
    """A workdir in which the experiment has run to its end; to look at only."""
    path = folder / "finished"
    with on_one_device(folder / "cache"):
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
    before = files_in(workdir / "checkpoints")
    loop.train(experiment, Workdir.of(str(workdir)))
    assert "Nothing to train: training.steps is 120" in capsys.readouterr().err
    assert files_in(workdir / "checkpoints") == before
    assert records(workdir, "train") == records(finished, "train")
    # Nor when it is asked for less; what is there is not called what it is not.
    training = replace(experiment.training, steps=50, samples=50)
    search = replace(experiment.search, max_source_length=9)
    loop.train(replace(experiment, training=training, search=search), Workdir.of(str(workdir)))
    assert [record["step"] for record in records(workdir, "dev")] == [60, 120, 120, 120]
    assert files_in(workdir / "checkpoints") == before
    lines = capsys.readouterr().err.splitlines()
    # No sample is shown twice, and what was done to long sources is said.
    dev = [source for source, _ in PAIRS[::5]]
    shown = [line.removeprefix("  source       ") for line in lines if "  source  " in line]
    assert shown == [*dev, *dev[:6]]
    vocabulary = Vocabulary(workdir / "vocabulary.model")
    too_long = [n for n, text in enumerate(dev, start=1) if len(vocabulary.encode(text)) > 10]
    noted = [int(line.split(":")[0].split()[-1]) for line in lines if line.startswith("  dev line")]
    assert noted == too_long != []


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
        **{name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
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
    ours = r"(Run|Data|Model|Continues|Compiled|Workdir|Next|dev|test|  \w+|[ \d,]+ of 120) .*|"
    for line in (first_lines + second_lines).split("\n"):
        assert re.fullmatch(ours, line), line


def test_a_run_that_diverges_leaves_the_last_good_checkpoint(
    tmp_path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
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

    monkeypatch.setattr(loop, "compile_train_step", compile_diverging)
    training = replace(experiment.training, steps=9, save_every=2, evaluate_every=0)
    workdir = tmp_path / "workdir"
    with pytest.raises(Diverged, match="update 5"):
        loop.train(replace(experiment, training=training), Workdir.of(str(workdir)))
    assert steps(workdir) == [2, 4]
