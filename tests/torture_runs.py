"""Runs in layouts of processes and devices, and what can be seen of them, for torture.py."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
TRAINING = {"save-every": 2, "keep": 3, "evaluate-every": 0, "log-every": 1, "samples": 0}
OPTIONS = [
    *("--training.evaluation-sentences=16", "--model.d-model=32", "--model.d-ff=32"),
    *("--model.heads=2", "--model.d-k=16", "--model.d-v=16", "--data.row-length=32"),
    *("--model.encoder-layers=1", "--model.decoder-layers=1", "--search.beam=1"),
]
RUN = "from transduce.cli import main; main()"
UNTIL = """
import sys
from transduce.cli import main
from transduce.training import loop

until, number = int(sys.argv.pop()), int(sys.argv.pop())

class Agreement:
    # Asks for the end after an update, in all processes alike.
    def __call__(self, *numbers):
        global number
        number += 1
        return (15, 0) if number == until else (0, 0)

loop.Agreement = Agreement
main()
"""
PATIENCE_SECONDS = 1800
"""For a process to end: many times what it takes, so that a busy machine is not a fault."""

GOES_ON = {75, 130, 143, *(-number for number in (2, 6, 9, 15))}
"""The statuses of a process that was cut, or that lost another one. 134, of a process that JAX ends
because another is lost, is -6 here."""


@dataclass(frozen=True)
class Layout:
    """Processes, and devices in each."""

    processes: int
    devices: int


class Wrong(Exception):
    """Something that must not be; the message says what."""


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TRANSDUCE_CACHE": str(folder / "cache" / "data"),
        "TRANSDUCE_MALLOC": "0",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # What is compiled for several processes is kept for the first alone.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Run:
    """`transduce train` in the processes of a layout, each with its standard error in a file."""

    def __init__(
        self, folder: Path, name: str, layout: Layout, arguments: Sequence[str], program: str = RUN
    ):
        address = f"127.0.0.1:{port()}"
        self.processes, self._errors = [], []
        for index in range(layout.processes):
            error = folder / f"error-{name}-{index}"
            own = environment(folder) | {
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={layout.devices}"
            }
            if layout.processes > 1:
                own |= {
                    "JAX_COORDINATOR_ADDRESS": address,
                    "JAX_NUM_PROCESSES": str(layout.processes),
                    "JAX_PROCESS_ID": str(index),
                }
            self._errors.append(error)
            with open(error, "w") as file:
                command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
                process = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=file)
            self.processes.append(process)

    def running(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def wait(self, seconds: float) -> list[int]:
        """The statuses; raises `Wrong` when a process has not ended by then, after killing all."""
        end = time.monotonic() + seconds
        try:
            return [process.wait(max(1, end - time.monotonic())) for process in self.processes]
        except subprocess.TimeoutExpired:
            raise Wrong(f"a process still went on after {seconds} s: {self.error}") from None
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def end_those_that_wait(self) -> bool:
        """As a launcher does, where a process is lost that had not joined the others.

        They would wait for another in its place, for minutes. Says whether there were any.
        """
        if all("[Gloo]" in path.read_text() for path in self._errors):
            return False
        end = time.monotonic() + 5
        while self.running() and time.monotonic() < end:
            time.sleep(0.1)
        waiting = self.running()
        for process in self.processes:
            process.terminate()
        return waiting

    @property
    def error(self) -> str:
        return "\n".join(path.read_text() for path in self._errors)


def steps(workdir: Path) -> list[int]:
    folder = workdir / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted(int(name) for name in names if name.isdecimal())


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def newest_record(workdir: Path, since: int) -> tuple[str, int]:
    """The kind and the update of the last whole record that begins at byte `since` or later."""
    path = workdir / "metrics.jsonl"
    if size(path) <= since:
        return "", 0
    with open(path, "rb") as file:
        file.seek(max(since, size(path) - 4096))
        lines = file.read().split(b"\n")
    if len(lines) < 2 or not lines[-2].startswith(b"{"):
        return "", 0
    record = json.loads(lines[-2])
    return record["kind"], record["step"]


def saves(workdir: Path) -> bool:
    """Whether a checkpoint is being written, or one was left half-written."""
    folder = workdir / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return any(not name.isdecimal() for name in names)


def phase(workdir: Path, since: int, total: int) -> str:
    """What a run is at, whose records begin at byte `since`."""
    kind, step = newest_record(workdir, since)
    if not kind:
        return "starting"
    if step == total and kind not in ("start", "compile"):
        return "at the end"
    if kind in ("start", "compile"):
        return "restoring and compiling"
    return "saving" if saves(workdir) else "training"


def train(folder: Path, name: str, total: int, **changes: int) -> list[str]:
    experiment = str(ROOT / "experiments" / "phrasebook.py")
    training = {**TRAINING, "steps": total, **changes}
    options = [f"--training.{field}={value}" for field, value in training.items()]
    return ["train", experiment, "--workdir", str(folder / name), *options, *OPTIONS]


class Replay:
    """A run without a cut through the layouts of one that is cut, each over the same updates."""

    def __init__(self, folder: Path, total: int):
        self._folder, self._total = folder, total
        self._made = ThreadPoolExecutor(1)
        self._spans: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.shutdown(cancel_futures=True)

    def follow(self, schedule: Sequence[tuple[Layout, int]], *, total: int = 0) -> None:
        """Goes on to what is known: layouts with the update each went on from.

        With `total`, where the last ended; without, the last layout may yet go on.
        """
        ends = [start for _, start in schedule[1:]] + ([total] if total else [])
        spans: list[tuple[Layout, int, int]] = []
        for (layout, start), end in zip(schedule, ends, strict=False):
            if end > start:
                if spans and spans[-1][0] == layout:
                    start = spans.pop()[1]
                spans.append((layout, start, end))
        for span in (spans if total else spans[:-1])[len(self._spans) :]:
            self._spans.append(self._made.submit(self._go, *span))
        for made in self._spans:
            if made.done():
                made.result()

    def wait(self) -> int:
        """Returns when all is done: the number of starts."""
        for made in self._spans:
            made.result()
        return len(self._spans)

    def _go(self, layout: Layout, start: int, end: int) -> None:
        arguments, program, expected = train(self._folder, "clean", self._total), RUN, 0
        if end < self._total:
            arguments, program, expected = [*arguments, str(start), str(end)], UNTIL, 75
        run = Run(self._folder, "clean", layout, arguments, program)
        statuses = run.wait(PATIENCE_SECONDS)
        if statuses != [expected] * layout.processes or steps(self._folder / "clean")[-1] != end:
            raise Wrong(f"a run without a cut, to {end}, ended with {statuses}: {run.error}")
