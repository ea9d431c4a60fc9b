"""A run that is cut again and again, disks that fill, and lines of any bytes.

    python tests/torture.py --cuts 100

trains the phrasebook, in a small form, while SIGKILL, SIGTERM and SIGINT cut it at random moments;
each start has another layout: 1, 2 or 4 devices, in 1 or 2 processes. Then a run without a cut goes
through the same layouts, each over the same updates, and must end with the same parameters,
optimiser, data state and count of sentence pairs, to the bit. No checkpoint that was there may be
lost. After that disks fill, and --lines random byte strings are translated. Standard output has one
JSON object, standard error what goes on; the status is 0 when all is well.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRAINING = {"save-every": 5, "keep": 3, "evaluate-every": 0, "log-every": 1, "samples": 0}
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
REPORT = """
import hashlib, json, sys
import jax, numpy as np
from transduce.checkpoints import Checkpoints, named_arrays
from transduce.parallel.mesh import make_mesh
from transduce.training.step import abstract_state
from transduce.workdir import Workdir

for name in sys.argv[1:]:
    workdir = Workdir.of(name)
    experiment = workdir.read_experiment()
    like = abstract_state(experiment, make_mesh(experiment.mesh, jax.devices()[:1]))
    step = max(int(path.name) for path in workdir.checkpoints.iterdir() if path.name.isdecimal())
    with Checkpoints(workdir, keep=99) as checkpoints:
        state, pipeline, progress = checkpoints.restore(step, like)
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(state).items()):
        digest.update(name.encode() + np.asarray(array).tobytes())
    found = {"step": step, "arrays": digest.hexdigest(), "pipeline": pipeline}
    print(json.dumps({**found, "pairs": progress["pairs"]}))
"""


@dataclass(frozen=True)
class Layout:
    """Processes, and devices in each."""

    processes: int
    devices: int


LAYOUTS = [Layout(1, 1), Layout(1, 2), Layout(1, 4), Layout(2, 1), Layout(2, 2)]


class Wrong(Exception):
    """Something that must not be; the message says what."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


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

    def __init__(self, folder: Path, layout: Layout, arguments: Sequence[str], program: str = RUN):
        address = f"127.0.0.1:{port()}"
        self.processes, self._errors = [], []
        for index in range(layout.processes):
            error = folder / f"error-{index}"
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

    @property
    def error(self) -> str:
        return "\n".join(path.read_text() for path in self._errors)


def steps(workdir: Path) -> list[int]:
    folder = workdir / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted(int(name) for name in names if name.isdecimal())


def newest_record(workdir: Path) -> tuple[str, int]:
    """The kind and the update of the last whole record."""
    path = workdir / "metrics.jsonl"
    if not path.exists():
        return "", 0
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().split(b"\n")
    if len(lines) < 2:
        return "", 0
    record = json.loads(lines[-2])
    return record["kind"], record["step"]


def train(folder: Path, name: str, total: int, **changes: int) -> list[str]:
    experiment = str(ROOT / "experiments" / "phrasebook.py")
    training = {**TRAINING, "steps": total, **changes}
    options = [f"--training.{field}={value}" for field, value in training.items()]
    return ["train", experiment, "--workdir", str(folder / name), *options, *OPTIONS]


def tortured(
    folder: Path, *, cuts: int, total: int, layouts: Sequence[Layout], generator: random.Random
) -> tuple[list[tuple[Layout, int]], dict[str, int]]:
    """Cuts a run; gives its layouts, each with the update it went on from, and what cut it."""
    workdir = folder / "cut"
    schedule: list[tuple[Layout, int]] = []
    by: dict[str, int] = {}
    patience = 1.0
    done = 0
    while True:
        layout = generator.choice(layouts)
        there = steps(workdir)
        start = there[-1] if there else 0
        schedule.append((layout, start))
        last = done == cuts
        run = Run(folder, layout, train(folder, "cut", total))
        if last:
            statuses = run.wait(1800)
            if statuses != [0] * layout.processes:
                raise Wrong(f"the last start ended with {statuses}: {run.error}")
            return schedule, by
        began = time.monotonic()
        # As many updates a start as end where the cuts end; some starts are cut before the first.
        share = 2 * (total - start) / (cuts - done + 1)
        wanted = min(start + int(generator.uniform(0, share)), total - 2)
        if generator.random() < 0.2 or wanted <= start:
            time.sleep(generator.uniform(0, patience))
        else:
            while run.running() and newest_record(workdir) < ("train", wanted):
                time.sleep(0.005)
            patience = max(patience, time.monotonic() - began)
            time.sleep(generator.uniform(0, 0.05))
        seen = steps(workdir)
        number = generator.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        victim = generator.randrange(layout.processes)
        run.processes[victim].send_signal(number)
        if number == signal.SIGKILL and generator.random() < 0.5:
            # A whole machine is lost; else one process of several.
            for process in run.processes:
                process.kill()
        statuses = run.wait(150)
        after = steps(workdir)
        if seen and (not after or after[-1] < seen[-1]):
            raise Wrong(f"checkpoint {seen[-1]} was there, and {after} are after {number.name}")
        if told := re.search(r"stopped after update ([\d,]+), which is saved", run.error):
            reported = int(told[1].replace(",", ""))
            if after[-1] != reported:
                raise Wrong(f"update {reported} was reported as saved; there are {after}")
        if statuses == [0] * layout.processes:
            raise Wrong("the run was at its end before all cuts: it needs more --updates")
        by[number.name] = by.get(number.name, 0) + 1
        done += 1
        say(
            f"cut {done}: {number.name} to {victim + 1} of {layout.processes} x {layout.devices}, "
            f"went on from {start}, newest {after[-1] if after else 0}, statuses {statuses}"
        )


def replayed(folder: Path, schedule: Sequence[tuple[Layout, int]], total: int) -> int:
    """The same layouts over the same updates, without a cut; gives the number of starts."""
    ends = [start for _, start in schedule[1:]] + [total]
    spans: list[tuple[Layout, int]] = []
    for (layout, start), end in zip(schedule, ends, strict=True):
        if end > start:
            if spans and spans[-1][0] == layout:
                spans.pop()
            spans.append((layout, end))
    start = 0
    for layout, end in spans:
        arguments, program, expected = train(folder, "clean", total), RUN, 0
        if end < total:
            arguments, program, expected = [*arguments, str(start), str(end)], UNTIL, 75
        run = Run(folder, layout, arguments, program)
        statuses = run.wait(1800)
        if statuses != [expected] * layout.processes or steps(folder / "clean")[-1] != end:
            raise Wrong(f"a run without a cut, to {end}, ended with {statuses}: {run.error}")
        start = end
    return len(spans)


def reports(folder: Path, *names: str) -> list[dict[str, Any]]:
    """What the newest checkpoint of each workdir holds."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REPORT, *(str(folder / name) for name in names)],
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise Wrong(f"a checkpoint cannot be read: {run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def full_disk(folder: Path) -> str:
    """A run on a disk that is too small for its checkpoints, in a line of what became of it."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)])
    if mounted.returncode:
        return "not tried: needs to be root, to mount a small disk"
    try:
        arguments = train(folder, "disk/run", 100_000, keep=50)
        run = Run(folder, Layout(1, 1), arguments)
        (status,) = run.wait(600)
        line = run.error.splitlines()[-1]
        if status not in (1, 2) or not line.startswith("transduce: "):
            raise Wrong(f"a full disk: status {status}: {run.error}")
        if there := steps(disk / "run"):
            reports(folder, "disk/run")
        return f"status {status}, {len(there)} whole checkpoints: {line}"
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def any_bytes(folder: Path, lines: int, generator: random.Random) -> int:
    """Translates so many random byte strings; gives the number of lines that came out."""
    made = [generator.randbytes(generator.randrange(40)).replace(b"\n", b"") for _ in range(lines)]
    source, output = folder / "bytes", folder / "answers"
    source.write_bytes(b"first\n" + b"".join(line + b"\n" for line in made))
    command = ["translate", str(folder / "clean"), "--input", str(source), "--output", str(output)]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, *command, "--search.beam=1"],
        env=environment(folder),
        capture_output=True,
    )
    answered = output.read_bytes().decode()
    if run.returncode or answered.count("\n") != lines + 1:
        raise Wrong(
            f"{lines + 1} lines of any bytes: status {run.returncode}: {run.stderr[-2000:]!r}"
        )
    return answered.count("\n") - 1


def torture(
    folder: Path, *, cuts: int, total: int, lines: int, seed: int, layouts: Sequence[Layout]
) -> dict[str, Any]:
    """All of it; raises `Wrong` when something is."""
    generator = random.Random(seed)
    began = time.monotonic()
    schedule, by = tortured(folder, cuts=cuts, total=total, layouts=layouts, generator=generator)
    say("the same once more, without a cut")
    spans = replayed(folder, schedule, total)
    left, right = reports(folder, "cut", "clean")
    for what in ("step", "arrays", "pipeline", "pairs"):
        if left[what] != right[what]:
            raise Wrong(f"{what} differ after {total} updates (seed {seed})")
    found = {
        "cuts": by,
        "updates": total,
        "starts": len(schedule),
        "layouts": sorted({f"{layout.processes} x {layout.devices}" for layout, _ in schedule}),
        "starts_of_the_run_without_a_cut": spans,
        "pairs": left["pairs"],
        "same_to_the_bit": True,
        "seed": seed,
    }
    say("a disk that fills")
    found["full_disk"] = full_disk(folder)
    say(f"{lines} lines of any bytes")
    found["lines_answered"] = any_bytes(folder, lines, generator)
    return {**found, "minutes": round((time.monotonic() - began) / 60, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--updates", type=int, default=1200)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--folder", default="", help="keep what is made; must not be there")
    asked = parser.parse_args()
    with ExitStack() as stack:
        if asked.folder:
            folder = Path(asked.folder).absolute()
            folder.mkdir(parents=True)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            found = torture(
                folder,
                cuts=asked.cuts,
                total=asked.updates,
                lines=asked.lines,
                seed=asked.seed,
                layouts=LAYOUTS,
            )
        except Wrong as wrong:
            print(f"torture: {wrong}", file=sys.stderr)
            sys.exit(1)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
