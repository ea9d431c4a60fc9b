"""Programs that run in several processes on this machine."""

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass

LAUNCHER = re.compile("JAX_(COORDINATOR|NUM_PROCESSES|PROCESS_ID)|SLURM_|OMPI_|XLA_FLAGS$")
"""Variables of the environment that would tell such a program that it is another one."""


@dataclass(frozen=True)
class Ended:
    status: int
    """The exit status; of a process that a signal ended, its number times -1."""
    output: str
    error: str


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run_together(
    program: str,
    *arguments: str,
    count: int,
    devices: int = 1,
    seconds: float = 60,
    without: int | None = None,
) -> list[Ended]:
    """Runs `program` in `count` processes of `devices` devices each; any warning is an error.

    Raises `subprocess.TimeoutExpired` after `seconds`. No process outlives the call; that of
    number `without` is not waited for, but killed when the others have ended.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not LAUNCHER.match(name)},
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "JAX_NUM_PROCESSES": str(count),
    }
    with ExitStack() as stack:
        started = []
        for index in range(count):
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program, *arguments],
                env=environment | {"JAX_PROCESS_ID": str(index)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        ended = []
        for index, process in sorted(enumerate(started), key=lambda pair: pair[0] == without):
            if index == without:
                process.kill()
            output, error = process.communicate(timeout=seconds)
            ended.append((index, Ended(process.returncode, output, error)))
        return [process for _, process in sorted(ended, key=lambda pair: pair[0])]
