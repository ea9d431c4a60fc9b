"""A run that dies or is stuck is started again, and one that cannot go on is not."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .scripts import LAUNCH, launch

# Plays the lines of the file `acts`, one each time that it is started: shell commands.
PLAYER = """
cd "$1" || exit 99
echo started >>starts
act=$(head -n 1 acts)
sed -i 1d acts
eval "$act"
"""

FAST = {"BACKOFF_SECONDS": "0", "STUCK_SECONDS": "60", "GRACE_SECONDS": "60"}


def play(folder: Path, *acts: str, workdir: str = "", **variables: str) -> tuple[int, int, str]:
    """The supervisor's status, how often it started the command, and what it said."""
    (folder / "acts").write_text("".join(f"{act}\n" for act in acts))
    (folder / "starts").write_text("")
    log = folder / "log"
    command = ["bash", "-c", PLAYER, "player", str(folder)]
    arguments = FAST | {"LOG": str(log)} | variables
    ended = launch("supervise.sh", workdir or str(folder), *command, **arguments)
    assert (ended.stdout, ended.stderr) == ("", "")
    return ended.returncode, (folder / "starts").read_text().count("\n"), log.read_text()


@pytest.mark.parametrize("status", [75, 134, 137, 139, 143])
def test_a_run_that_was_ended_from_outside_is_started_again(tmp_path: Path, status: int) -> None:
    assert play(tmp_path, f"exit {status}", "exit 0")[:2] == (0, 2)


@pytest.mark.parametrize("status", [0, 2, 127, 130])
def test_a_run_that_is_done_wrong_or_interrupted_by_hand_is_not(
    tmp_path: Path, status: int
) -> None:
    assert play(tmp_path, f"exit {status}", "exit 0")[:2] == (status, 1)


def test_killed_by_its_signal_counts_as_its_status(tmp_path: Path) -> None:
    assert play(tmp_path, "kill -ABRT $$", "kill -KILL $$", "exit 0")[:2] == (0, 3)


def test_a_failure_is_tried_again_a_few_times_only(tmp_path: Path) -> None:
    status, starts, log = play(tmp_path, *["exit 1"] * 9)
    assert (status, starts) == (1, 3)
    assert log.rstrip().endswith("gives up after 2 restarts without progress")


def test_only_restarts_without_a_newer_checkpoint_are_counted(tmp_path: Path) -> None:
    """A run that is preempted for weeks goes on; one that dies at the same place does not."""
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "100").mkdir(parents=True)
    acts = [
        *["exit 137"] * 2,
        f"mkdir {checkpoints}/900; exit 137",
        # Older, and one that was not finished.
        f"mkdir {checkpoints}/200 {checkpoints}/1000.orbax-checkpoint-tmp; exit 137",
        *["exit 137"] * 9,
    ]
    # Two restarts before there is a newer one; then three in all.
    assert play(tmp_path, *acts, RESTARTS="3")[:2] == (137, 6)


def test_without_restarts_it_says_how_the_run_ended(tmp_path: Path) -> None:
    status, starts, _ = play(tmp_path, "exit 134", RESTARTS="0", FAILURES="0")
    assert (status, starts) == (134, 1)


def test_each_restart_without_progress_waits_twice_as_long(tmp_path: Path) -> None:
    variables = {"BACKOFF_SECONDS": "1", "LONGEST_BACKOFF_SECONDS": "2", "RESTARTS": "3"}
    _, _, log = play(tmp_path, *["exit 137"] * 4, **variables)
    waits = [line.split("again in ")[1].split()[0] for line in log.splitlines() if "in " in line]
    assert waits == ["1", "2", "2"]


def test_a_run_whose_records_do_not_grow_is_stuck(tmp_path: Path) -> None:
    """The first saves when it is asked to; the second cannot, and has a child that goes too."""
    acts = [
        "echo {} >>metrics.jsonl; trap 'exit 75' TERM; sleep 60 & wait",
        "trap '' TERM; sleep 60 & echo $! >child; wait; sleep 60",
        "for i in 1 2 3 4 5; do sleep 1; echo {} >>metrics.jsonl; done",
    ]
    status, starts, log = play(tmp_path, *acts, STUCK_SECONDS="4", GRACE_SECONDS="1")
    assert (status, starts) == (0, 3)
    assert "ended with status 75; it was stuck" in log
    assert "ended with status 137; it was stuck" in log
    assert log.rstrip().endswith("ended with status 0")
    assert not Path(f"/proc/{(tmp_path / 'child').read_text().strip()}").exists()


def test_of_a_run_into_the_cloud_the_log_is_the_sign_of_life(tmp_path: Path) -> None:
    acts = ["for i in 1 2 3 4 5; do sleep 1; echo update $i; done; sleep 60", "exit 0"]
    status, starts, log = play(tmp_path, *acts, workdir="gs://bucket/run", STUCK_SECONDS="4")
    assert (status, starts) == (0, 2)
    assert "update 5\n" in log
    assert f"nothing new in {tmp_path / 'log'} for 4 s" in log


def test_a_silent_run_into_the_cloud_goes_on_and_has_made_progress_if_it_lasted(
    tmp_path: Path,
) -> None:
    """As on all hosts of a slice but the first: with STUCK_SECONDS 0 silence is no fault."""
    acts = ["sleep 3; exit 143", "sleep 3; exit 143", "sleep 3; exit 143", "exit 0"]
    given = {"STUCK_SECONDS": "0", "STEADY_SECONDS": "2", "RESTARTS": "1"}
    status, starts, _ = play(tmp_path, *acts, workdir="gs://bucket/run", **given)
    assert (status, starts) == (0, 4)


def wait_for(path: Path, text: str = "") -> None:
    """Until the file is there, and has the text in it."""
    deadline = time.monotonic() + 60
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def supervised(folder: Path, act: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """The supervisor, once `act` has made the file `ready`."""
    (folder / "acts").write_text(f"{act}\n" * 2)
    command = [LAUNCH / "supervise.sh", folder, "bash", "-c", PLAYER, "player", folder]
    environment = os.environ | FAST | {"LOG": str(folder / "log")} | variables
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            wait_for(folder / "ready")
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_handed_on_and_ends_it_all(tmp_path: Path, number: signal.Signals) -> None:
    """With the run's own status, so that whoever asked knows that it has saved."""
    act = "trap 'exit 75' TERM INT; touch ready; sleep 30 & wait"
    with supervised(tmp_path, act) as process:
        process.send_signal(number)
        assert process.wait(timeout=60) == 75
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_signal_while_it_waits_to_start_again_ends_it(tmp_path: Path) -> None:
    with supervised(tmp_path, "touch ready; exit 137", BACKOFF_SECONDS="60") as process:
        wait_for(tmp_path / "log", "again in 60 s")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 75
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_run_that_does_not_end_when_asked_to_is_killed(tmp_path: Path) -> None:
    act = "trap '' TERM; touch ready; while true; do sleep 1; done"
    with supervised(tmp_path, act, GRACE_SECONDS="1") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 137


def test_without_a_command_it_says_how_it_is_called(tmp_path: Path) -> None:
    ended = launch("supervise.sh", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "usage: supervise.sh WORKDIR COMMAND [ARGUMENT ...]\n"
