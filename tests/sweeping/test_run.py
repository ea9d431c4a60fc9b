"""Variants run one after the other, whatever becomes of one of them."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweeping.examples import leave, variants, write_file
from tests.training.examples import experiment_in, write_experiment
from transduce.config import Interrupted, RequestError, VariantsFailed
from transduce.sweeping import run
from transduce.sweeping.run import run_here, submit, write_commands
from transduce.sweeping.variants import plan
from transduce.sweeping.verb import sweep

FAKE = """
import sys
from pathlib import Path
workdir = Path(sys.argv[sys.argv.index("--workdir") + 1])
with open(workdir.parent / "log", "a") as log:
    log.write(" ".join([workdir.name, *sys.argv[4:]]) + "\\n")
print("to be seen")
status = workdir.parent / f"{workdir.name}.status"
sys.exit(int(status.read_text()) if status.exists() else 0)
"""
"""In place of `transduce train`: notes what it is asked for, and ends as it is told."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "TRAIN", (sys.executable, "-c", FAKE))
    return tmp_path


def log(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_each_is_trained_with_its_flags(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_here("small.py", variants(folder), str(folder))
    assert log(folder) == [
        "base",
        "A-h1 --model.heads 1 --model.d-k 16",
        "D-dropout0 --model.dropout 0.0",
    ]
    out, err = capfd.readouterr()
    assert out == ""
    assert "Sweep     A-h1, 2 of 3 to do: model.heads=1 model.d_k=16\n" in err
    assert err.count("to be seen") == 3
    assert err.endswith("all 3 variants are done; --report compares them\n")


def test_what_is_done_is_left_out(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base, one_head, _ = planned = variants(folder)
    leave(base, folder, step=20)
    leave(one_head, folder, step=10, over=False)
    run_here("small.py", planned, str(folder))
    assert [line.split()[0] for line in log(folder)] == ["A-h1", "D-dropout0"]
    assert "3 variants in" in capfd.readouterr().err


def test_the_others_go_on_when_one_fails(folder: Path) -> None:
    (folder / "base.status").write_text("1")
    (folder / "A-h1.status").write_text("2")
    with pytest.raises(
        VariantsFailed, match=r"2 of 3 variants failed: base \(status 1\), A-h1 \(st"
    ):
        run_here("small.py", variants(folder), str(folder))
    assert len(log(folder)) == 3


def test_one_that_was_told_to_stop_and_has_saved_stops_the_sweep(folder: Path) -> None:
    (folder / "A-h1.status").write_text("75")
    with pytest.raises(Interrupted, match="in variant A-h1, with 1 more to do after it; the same"):
        run_here("small.py", variants(folder), str(folder))
    assert len(log(folder)) == 2


def test_nothing_starts_when_one_workdir_is_another_experiments(folder: Path) -> None:
    planned = variants(folder)
    leave(planned[0], folder, step=20)
    (folder / "base").rename(folder / "D-dropout0")
    with pytest.raises(RequestError, match="D-dropout0: holds another experiment"):
        run_here("small.py", planned, str(folder))
    assert log(folder) == []


PROGRAM = """
import signal, sys
from transduce.config import Interrupted
from transduce.sweeping import run
from transduce.sweeping.variants import plan
run.TRAIN = (sys.executable, "-c", '''
import pathlib, signal, sys, time
heard = []
signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
pathlib.Path("ready").touch()
while not heard:
    time.sleep(0.01)
time.sleep(0.5)
pathlib.Path("heard").write_text(" ".join(str(int(number)) for number in heard))
sys.exit(75)
''')
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_DFL)  # a shell may have them ignored
try:
    run.run_here("small.py", plan("small.py"), "sweep")
except Interrupted as error:
    print(error)
    sys.exit(75)
"""


@pytest.mark.parametrize(
    ("sent", "group", "passed"),
    [
        (signal.SIGTERM, False, signal.SIGTERM),
        (signal.SIGHUP, False, signal.SIGTERM),
        (signal.SIGINT, True, signal.SIGINT),  # as by Ctrl-C
    ],
)
def test_a_signal_reaches_the_run_once(
    tmp_path: Path, sent: signal.Signals, group: bool, passed: signal.Signals
) -> None:
    """Twice would end it without a save."""
    write_file(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.02)
    (os.killpg if group else os.kill)(process.pid, sent)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "stopped in variant base, with 2 more" in out
    assert (tmp_path / "heard").read_text() == str(int(passed))


def test_the_commands_can_be_pasted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = variants(folder)
    leave(planned[0], folder, step=20)
    write_commands("my file.py", planned, str(folder))
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line) for line in lines] == [
        words.split("|")
        for words in (
            f"transduce|train|my file.py|--workdir|{folder}/A-h1|--model.heads|1|--model.d-k|16",
            f"transduce|train|my file.py|--workdir|{folder}/D-dropout0|--model.dropout|0.0",
        )
    ]


def test_a_launcher_gets_the_arguments_of_train(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As words after its own, and as the files in launch/ look for them."""
    program = folder / "launch.sh"
    program.write_text(
        'echo "$@" >> "$LOG"\n'
        'echo "$EXPERIMENT|$WORKDIR|$OPTIONS" >> "$LOG"\n'
        '[ "$4" != "$FOLDER/A-h1" ]\n'
    )
    monkeypatch.setenv("LOG", str(folder / "log"))
    monkeypatch.setenv("FOLDER", str(folder))
    with pytest.raises(VariantsFailed, match="1 of 3 variants could not be submitted: A-h1"):
        submit("small.py", variants(folder), str(folder), launcher=f"sh {program} --array=1")
    assert len(log(folder)) == 6
    options = "--model.heads 1 --model.d-k 16"
    assert log(folder)[2] == f"--array=1 small.py --workdir {folder}/A-h1 {options}"
    assert log(folder)[3] == f"small.py|{folder}/A-h1|{options}"


def test_a_value_with_a_space_is_not_for_a_launcher(folder: Path) -> None:
    path = write_file(folder)
    planned = plan(path, [["data.folder", "my data"]])
    with pytest.raises(RequestError, match="none may be empty or have a space, as 'my data'"):
        submit(path, planned, str(folder), launcher="true")


def test_a_launcher_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(RequestError, match=r"--submit sh -c ': No closing quotation"):
        submit("x.py", variants(folder), str(folder), launcher="sh -c '")
    with pytest.raises(RequestError, match="--submit no-such-thing x: No such file"):
        submit("small.py", variants(folder), str(folder), launcher="no-such-thing x")
    with pytest.raises(RequestError, match="must be a command"):
        submit("small.py", variants(folder), str(folder), launcher=" ")


@pytest.mark.slow
def test_a_sweep_trains_and_reports_its_variants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    small = experiment_in(tmp_path)
    write_experiment(tmp_path / "small.py", small)
    path, folder = str(tmp_path / "small.py"), str(tmp_path / "sweep")
    vary = [["training.steps", "20"], ["training.seed", "1", "2"]]
    sweep(path, folder, vary=vary)
    sweep(path, folder, vary=vary)
    err = capfd.readouterr().err
    assert err.count("Ended     after update 20: training.steps is 20") == 2
    assert "2 variants in" in err
    assert "2 done, 0 to go on" in err
    sweep(path, folder, vary=vary, report=True)
    lines = capfd.readouterr().out.splitlines()
    names = ("training.steps=20,training.seed=1", "training.steps=20,training.seed=2")
    for line, name in zip(lines[2:4], names, strict=True):
        assert re.fullmatch(
            rf"\| {name} \| [\d,]+ \| 20 \| \d+\.\d\d \| \d+\.\d\d ± \d+\.\d\d \|.*\|", line
        )
