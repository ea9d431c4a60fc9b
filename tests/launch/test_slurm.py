"""slurm.sbatch in a real SLURM of two nodes on this machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from transduce.workdir import Workdir

from ..training.examples import assert_same_state, steps
from .scripts import LAUNCH

HERE = Path(__file__).parent
PROGRAM = LAUNCH.parent / ".venv" / "bin" / "transduce"


def unavailable() -> str:
    """What a real SLURM lacks here; empty if nothing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    needed = ("slurmctld", "slurmd", "sbatch", "munged")
    lacking = [name for name in needed if not shutil.which(name, path=path)]
    if lacking:
        return f"{', '.join(lacking)} not here: Debian's slurmctld slurmd slurm-client munge"
    if os.geteuid() != 0:
        return "slurmd wants to be root"
    return "" if PROGRAM.exists() else f"{PROGRAM} is not here"


@pytest.mark.slow
@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
def test_a_job_of_two_nodes_goes_on_exactly_after_preemption(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """R4, R9: preempted by another job, asked to stop, queued again by hand; equal to the bit."""
    folder = tmp_path_factory.mktemp("slurm")  # a short name: a socket's may have 107 characters
    command = [HERE / "slurm_cluster.sh", folder / "cluster", HERE / "slurm_demo.sh", folder]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=500)
        finally:
            process.terminate()  # where time was not enough: it takes its daemons along
    print(said)
    assert process.returncode == 0
    whole, cut = folder / "whole", folder / "cut"
    assert "JobState=COMPLETED Restarts=0 ExitCode=0:0" in said
    assert said.splitlines()[-1].endswith("JobState=COMPLETED Restarts=3 ExitCode=0:0")
    log = (folder / "cut.log").read_text()
    assert log.count("Continues after step") >= 2
    assert "in 2 processes" in log
    assert steps(whole) == steps(cut) == [150]
    assert_same_state(Workdir.of(str(whole)).read_experiment(), cut, whole, 150)
