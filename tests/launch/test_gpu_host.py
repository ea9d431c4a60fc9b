"""One host with several GPUs: what its script runs."""

import getpass
import shutil
import subprocess
from pathlib import Path

import pytest

from .scripts import LAUNCH, launch


def test_it_installs_and_runs_under_the_supervisor() -> None:
    assert launch("gpu_host.sh", "--dry-run", "install").stdout.splitlines() == [
        "make .venv/.ready",
        ".venv/bin/python -m pip install -c constraints.txt -e '.[cuda]'",
    ]
    variables = {"EXPERIMENT": "experiments/mine.py", "OPTIONS": "--mesh.fsdp=8 --training.keep 3"}
    assert launch("gpu_host.sh", "--dry-run", "run", **variables).stdout.splitlines() == [
        "mkdir -p runs",
        "env LOG=runs/mine.log launch/supervise.sh runs/mine .venv/bin/transduce train "
        "experiments/mine.py --workdir runs/mine --mesh.fsdp=8 --training.keep 3",
    ]


def test_its_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    variables = {"EXPERIMENT": "experiments/mine.py", "OPTIONS": "--mesh.fsdp=8 --training.keep 3"}
    unit = launch("gpu_host.sh", "unit", CUDA_VISIBLE_DEVICES="0,1", **variables).stdout
    assert f"\nUser={getpass.getuser()}\n" in unit
    assert f"\nExecStart={LAUNCH / 'gpu_host.sh'} run\n" in unit
    assert '"OPTIONS=--mesh.fsdp=8 --training.keep 3" "LOG=runs/mine.log"' in unit
    assert '"CUDA_VISIBLE_DEVICES=0,1"' in unit
    assert "RESTARTS" not in unit
    path = tmp_path / "transduce.service"
    path.write_text(unit)
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here: the unit was compared but not checked")
    command = ["systemd-analyze", "verify", path]
    said = subprocess.run(command, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


def test_without_a_verb_it_says_what_there_are() -> None:
    ended = launch("gpu_host.sh")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "usage: gpu_host.sh [--dry-run] install|run|unit\n"
