"""What the tests of launch/ share."""

import os
import subprocess
from pathlib import Path

LAUNCH = Path(__file__).resolve().parent.parent.parent / "launch"


def launch(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of launch/ to its end, with `variables` added to the environment."""
    environment = os.environ | variables
    return subprocess.run(
        [LAUNCH / name, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
