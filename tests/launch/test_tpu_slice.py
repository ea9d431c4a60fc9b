"""What tpu_slice.sh asks of Google Cloud, in words and in order."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from .scripts import launch

SET = {"PROJECT": "mine", "ZONE": "us-west4-a", "WORKDIR": "gs://bucket/run"}
PLACE = "--project=mine --zone=us-west4-a"


def commands(*arguments: str, **variables: str) -> list[list[str]]:
    """The commands that a dry run prints."""
    ended = launch("tpu_slice.sh", "--dry-run", *arguments, **SET | variables)
    assert (ended.returncode, ended.stderr) == (0, "")
    return [shlex.split(line) for line in ended.stdout.splitlines()]


def test_a_slice_is_asked_for_as_a_queued_resource() -> None:
    assert commands("create") == [
        f"gcloud compute tpus queued-resources create transduce --node-id=transduce {PLACE} "
        "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --spot "
        "--scopes=https://www.googleapis.com/auth/cloud-platform".split()
    ]


@pytest.mark.parametrize(
    ("accelerator", "runtime"),
    [
        ("v5p-32", "v2-alpha-tpuv5"),
        ("v6e-16", "v2-alpha-tpuv6e"),
        ("v4-8", "tpu-ubuntu2204-base"),
    ],
)
def test_the_software_is_that_of_the_accelerator(accelerator: str, runtime: str) -> None:
    (command,) = commands("create", ACCELERATOR=accelerator)
    assert f"--accelerator-type={accelerator}" in command
    assert f"--runtime-version={runtime}" in command


def test_what_is_paid_for_can_be_chosen() -> None:
    (command,) = commands("create", TIER="on-demand", VALID_FOR="12h", SERVICE_ACCOUNT="me@x")
    assert "--spot" not in command
    assert {"--valid-until-duration=12h", "--service-account=me@x"} <= set(command)
    (command,) = commands("create", TIER="reserved")
    assert "--reserved" in command


def test_what_is_committed_is_installed_on_every_worker() -> None:
    archive, copy, remove, install, data = commands("install", DATA="gs://bucket/data", TMPDIR="/t")
    name = "/t/transduce-transduce.tar.gz"
    assert archive == ["git", "archive", "--format=tar.gz", f"--output={name}", "HEAD"]
    assert copy == [
        *f"gcloud compute tpus tpu-vm scp {name} transduce:transduce.tar.gz {PLACE}".split(),
        *("--quiet", "--worker=all"),
    ]
    assert remove == ["rm", name]
    ssh = f"gcloud compute tpus tpu-vm ssh transduce {PLACE} --quiet --worker=all".split()
    assert install[:-1] == data[:-1] == ssh
    steps = install[-1].removeprefix("--command=").split("; ")
    assert steps == [
        "set -e",
        "rm -rf transduce",
        "mkdir transduce",
        "tar -xzf transduce.tar.gz -C transduce",
        "cd transduce",
        "python3 -m pip install --quiet --user uv",
        "~/.local/bin/uv venv --quiet --python=3.12",
        "~/.local/bin/uv pip install --quiet --constraints=constraints.txt "
        '--editable=".[tpu]" gcsfs',
    ]
    assert data[-1] == (
        "--command=mkdir -p data && gcloud storage rsync --recursive 'gs://bucket/data' data"
    )


@pytest.mark.parametrize(("worker", "stuck"), [("0", "1800"), ("3", "0")])
def test_the_run_is_a_service_on_every_worker(tmp_path: Path, worker: str, stuck: str) -> None:
    """A worker's shell makes of the command what it should; only the first one's log grows."""
    options = {"EXPERIMENT": "experiments/my own.py", "OPTIONS": "--mesh.fsdp=16"}
    (command,) = commands("start", **options)
    assert "--worker=all" in command
    remote = command[-1].removeprefix("--command=")
    echo = tmp_path / "sudo"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@" -\n')
    echo.chmod(0o755)
    number = tmp_path / "curl"
    number.write_text(f'#!/bin/sh\ncase "$*" in */agent-worker-number) echo {worker};; esac\n')
    number.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/h"}
    said = subprocess.run(["sh", "-c", remote], env=environment, capture_output=True, text=True)
    stopped, reset, run, _ = said.stdout.split("\n-\n")
    assert stopped.split("\n") == ["systemctl", "stop", "transduce"]
    assert reset.split("\n") == ["systemctl", "reset-failed", "transduce"]
    assert run.split("\n") == [
        *("systemd-run", "--unit=transduce", "--remain-after-exit", f"--uid={os.getuid()}"),
        *("--working-directory=/h/transduce", "--setenv=TRANSDUCE_DATA=/h/data"),
        f"--setenv=STUCK_SECONDS={stuck}",
        *("--property=KillMode=mixed", "--property=TimeoutStopSec=240"),
        *("/h/transduce/launch/supervise.sh", "gs://bucket/run"),
        *(".venv/bin/transduce", "train", "experiments/my own.py"),
        *("--workdir", "gs://bucket/run", "--mesh.fsdp=16"),
    ]


def test_the_slice_is_given_back_with_its_request() -> None:
    assert commands("delete") == [
        f"gcloud compute tpus queued-resources delete transduce {PLACE} --force --quiet".split()
    ]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ZONE": "", "WORKDIR": ""}, "tpu_slice.sh: not set: ZONE WORKDIR\n"),
        (
            {"WORKDIR": "runs/base"},
            "tpu_slice.sh: WORKDIR is runs/base: it must be gs://BUCKET/FOLDER, which outlives "
            "slices\n",
        ),
        (
            {"TIER": "cheap"},
            "tpu_slice.sh: TIER is cheap: it must be spot, on-demand or reserved\n",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_said(variables: dict[str, str], message: str) -> None:
    ended = launch("tpu_slice.sh", "create", **SET | variables)
    assert (ended.returncode, ended.stderr) == (2, message)


def test_without_a_verb_it_says_what_there_are() -> None:
    ended = launch("tpu_slice.sh")
    assert ended.returncode == 2
    assert "    delete    gives the slice back\n" in ended.stderr


# ---- keep, with a cloud that plays a part ------------------------------------------------------

GCLOUD = """#!/bin/bash
# Says the next line of the file `states` or `outcomes` when it is asked for either.
cd "$(dirname "$0")"
printf '%s\\n' "$*" >>calls
case "$*" in
    *queued-resources\\ list*) file=states ;;
    *SubState*) file=outcomes ;;
    *) exit 0 ;;
esac
line=$(head -n 1 $file)
sed -i 1d $file
[ "$line" = error ] && exit 1
# Of several workers, a word each.
printf '%s\n' $line
"""


def keep(
    folder: Path,
    *,
    states: list[str],
    outcomes: list[str],
    gcloud: str = GCLOUD,
    **variables: str,
) -> tuple[int, list[str]]:
    """The status of `keep`, and what it has done in order."""
    (folder / "gcloud").write_text(gcloud)
    (folder / "gcloud").chmod(0o755)
    (folder / "states").write_text("".join(f"{line}\n" for line in states))
    (folder / "outcomes").write_text("".join(f"{line}\n" for line in outcomes))
    path = f"{folder}:{os.environ['PATH']}"
    variables |= SET | {"PATH": path, "POLL_SECONDS": "0", "TMPDIR": str(folder)}
    ended = launch("tpu_slice.sh", "keep", **variables)
    assert (folder / "states").read_text() == (folder / "outcomes").read_text() == ""
    done = []
    signs = {
        "create": "queued-resources create",
        "delete": "queued-resources delete",
        "install": "uv pip install",
        "start": "systemd-run",
        "log": "tail -n 100",
    }
    for call in (folder / "calls").read_text().splitlines():
        done += [name for name, sign in signs.items() if sign in call]
    return ended.returncode, done


def test_a_run_is_kept_going_over_preemptions_until_its_end(tmp_path: Path) -> None:
    waiting = ["", "WAITING_FOR_RESOURCES", "error", "PROVISIONING"]
    states = [*waiting, "ACTIVE", "ACTIVE", "SUSPENDING", "SUSPENDED"]
    states += [*waiting, "ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE"]
    outcomes = ["dead dead", "running running", "running dead", "error", "running exited"]
    outcomes.append("exited exited")
    status, done = keep(tmp_path, states=states, outcomes=outcomes)
    assert status == 0
    until_preempted = ["create", "install", "start", "delete"]
    assert done == [*until_preempted, "create", "install", "start", "log", "delete"]


def test_a_run_that_fails_for_good_leaves_no_slice_behind(tmp_path: Path) -> None:
    status, done = keep(tmp_path, states=["ACTIVE"], outcomes=["running failed"])
    assert (status, done) == (1, ["log", "delete"])


def test_a_run_that_cannot_be_started_or_reached_leaves_no_slice_behind(tmp_path: Path) -> None:
    outcomes = ["dead", "error", "running", "error", "dead", "error"]
    status, done = keep(tmp_path, states=["ACTIVE"] * 6, outcomes=outcomes, ATTEMPTS="3")
    assert (status, done) == (1, ["install", "start", "install", "start", "log", "delete"])


def test_a_log_that_is_not_to_be_had_keeps_no_slice(tmp_path: Path) -> None:
    broken = GCLOUD.replace("*) exit 0", "*tail*) exit 255 ;;\n    *) exit 0")
    status, done = keep(tmp_path, states=["ACTIVE"], outcomes=["failed"], gcloud=broken)
    assert (status, done) == (1, ["log", "delete"])


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud, which knows its flags, is not here")
def test_gcloud_knows_every_flag(tmp_path: Path) -> None:
    """It looks at the flags before it finds that nobody is logged in."""
    printed = commands("keep", VALID_FOR="12h", SERVICE_ACCOUNT="me@x", DATA="gs://bucket/data")
    printed = [command for command in printed if command[0] == "gcloud"]
    assert len(printed) > 7
    environment = os.environ | {"CLOUDSDK_CONFIG": str(tmp_path)}
    for command in {json.dumps(command): command for command in printed}.values():
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert "You do not currently have an active account selected" in ended.stderr, ended.stderr
