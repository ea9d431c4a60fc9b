import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.config import Diverged, Experiment
from transduce.model.transformer import parameter_count
from transduce.text.vocabulary import Vocabulary
from transduce.training import loop
from transduce.workdir import Workdir

from .examples import PAIRS, Update, files_in, metrics, records, steps

pytestmark = pytest.mark.usefixtures("one_device", "compiled")


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
        *[("start", 0), ("compile", 1)],
        *[("train", 30), ("train", 60), ("dev", 60)],
        *[("train", 90), ("train", 120), ("dev", 120), ("test", 120), ("end", 120)],
        ("over", 120),
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


def test_a_run_says_what_it_computes_and_what_its_time_and_memory_went_on(
    finished: Path, experiment: Experiment
) -> None:
    (start,), (end,) = records(finished, "start"), records(finished, "end")
    assert start["parameters"] == parameter_count(experiment.model)
    train = records(finished, "train")[-1]
    expected = start["flops_per_update"] * train["updates_per_second"]
    assert train["flops_per_second"] == pytest.approx(expected)
    apart = sum(
        end[f"seconds_{what}"] for what in ("starting", "compiling", "evaluating", "saving")
    )
    updates = sum(30 / record["updates_per_second"] for record in records(finished, "train"))
    # Moments between the parts are in none of them, and are long on a busy machine.
    assert end["seconds"] == pytest.approx(apart + updates, abs=0.5)
    good = updates - end["seconds_waiting"]
    assert end["goodput"] * end["seconds"] == pytest.approx(good, abs=0.5)
    assert end["process_peak_bytes"] > end["step_peak_bytes"] > 0


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
    # The last one, and the newest two of those that came in their turn.
    assert steps(workdir) == [90, 120, 130]
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


def test_a_run_that_diverges_leaves_the_last_good_checkpoint(
    tmp_path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R19."""

    def compile_diverging(experiment, mesh, state, batch):
        def update(state, batch):
            nonlocal step
            step += 1
            return state, metrics(loss=math.nan if step == 5 else 1.0)

        step = 0
        return Update(update)

    monkeypatch.setattr(loop, "compile_train_step", compile_diverging)
    training = replace(experiment.training, steps=9, save_every=2, evaluate_every=0)
    workdir = tmp_path / "workdir"
    with pytest.raises(Diverged, match="update 5"):
        loop.train(replace(experiment, training=training), Workdir.of(str(workdir)))
    assert steps(workdir) == [2, 4]
