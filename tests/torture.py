"""A run that is cut again and again, disks that fill, and lines of any bytes.

    python tests/torture.py --cuts 100

trains the phrasebook, in a small form, while SIGKILL, SIGTERM and SIGINT cut it at random moments:
while it starts, compiles, trains, saves and, for one cut in ten, evaluates at its end; each start
has another layout: 1, 2 or 4 devices, in 1 or 2 processes. Then a run without a cut goes through
the same layouts, each over the same updates, and must end with the same parameters, optimiser, data
state and count of sentence pairs, to the bit; it follows while the first is still cut. No
checkpoint that was there may be lost, and no process may end with a status after which the same
command would not go on. After that disks fill, and --lines random byte strings are translated.
Standard output has one JSON object, standard error what goes on; the status is 0 when all is well.
"""

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torture_runs import (
    GOES_ON,
    PATIENCE_SECONDS,
    RUN,
    Layout,
    Replay,
    Run,
    Wrong,
    environment,
    newest_record,
    phase,
    saves,
    size,
    steps,
    train,
)

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


LAYOUTS = [Layout(1, 1), Layout(1, 2), Layout(1, 4), Layout(2, 1), Layout(2, 2)]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def wait_for(run: Run, generator: random.Random, workdir: Path, aim: str, wanted: int) -> float:
    """Returns in the middle of what `aim` says, after update `wanted`, or when the run is over.

    Gives the seconds until the first record of an update.
    """
    since, began = size(workdir / "metrics.jsonl"), time.monotonic()
    first = 0.0
    while run.running():
        kind, step = newest_record(workdir, since)
        if kind not in ("", "start", "compile"):
            first = first or time.monotonic() - began
            # A save may be over before it is seen.
            if step >= wanted and (aim != "save" or saves(workdir) or step > wanted + 4):
                break
        time.sleep(0.005)
    time.sleep(generator.uniform(0, {"update": 0.05, "save": 0.15, "end": 4}[aim]))
    return first


def tortured(
    folder: Path,
    *,
    cuts: int,
    total: int,
    layouts: Sequence[Layout],
    generator: random.Random,
    replay: Replay,
) -> dict[str, Any]:
    """Cuts a run, which `replay` follows; gives what cut it and what became of it."""
    workdir = folder / "cut"
    schedule: list[tuple[Layout, int]] = []
    by: Counter[str] = Counter()
    during: Counter[str] = Counter()
    ended: Counter[int] = Counter()
    by_launcher, slowest = 0, 0.0
    patience = 5.0
    done = 0
    # The cuts before the last tenth come in the first nine tenths of the updates.
    early = cuts - cuts // 10
    while True:
        layout = generator.choice(layouts)
        there = steps(workdir)
        start = there[-1] if there else 0
        schedule.append((layout, start))
        since = size(workdir / "metrics.jsonl")
        replay.follow(schedule)
        run = Run(folder, "cut", layout, train(folder, "cut", total))
        if done == cuts:
            statuses = run.wait(PATIENCE_SECONDS)
            if statuses != [0] * layout.processes:
                raise Wrong(f"the last start ended with {statuses}: {run.error}")
            replay.follow(schedule, total=total)
            return {
                "cuts": by,
                "cut_while": during,
                "statuses": ended,
                "others_ended_by_the_launcher": by_launcher,
                "slowest_to_end_seconds": round(slowest, 1),
                "starts": len(schedule),
                "layouts": sorted({f"{one.processes} x {one.devices}" for one, _ in schedule}),
            }
        if done < early:
            # As many updates a start as end where the early cuts do.
            share = 2 * (total * 9 // 10 - start) / (early - done + 1)
            wanted = start + int(generator.uniform(0, max(0, share)))
            aim = generator.choice(["update", "save"])
            anywhere = generator.random() < 0.25
        else:
            wanted, aim = total, "end"
            anywhere = start == total
        if anywhere or wanted <= start < total:
            time.sleep(generator.uniform(0, patience))
        else:
            patience = wait_for(run, generator, workdir, aim, wanted) or patience
        seen = steps(workdir)
        number = generator.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        victim = generator.randrange(layout.processes)
        at = phase(workdir, since, total)
        run.processes[victim].send_signal(number)
        if number == signal.SIGKILL and generator.random() < 0.5:
            # A whole machine is lost; else one process of several.
            for process in run.processes:
                process.kill()
        cut = time.monotonic()
        if layout.processes > 1 and run.end_those_that_wait():
            by_launcher += 1
        statuses = run.wait(PATIENCE_SECONDS)
        seconds = time.monotonic() - cut
        after = steps(workdir)
        if seen and (not after or after[-1] < seen[-1]):
            raise Wrong(f"checkpoint {seen[-1]} was there, and {after} are after {number.name}")
        if told := re.search(r"stopped after update ([\d,]+), which is saved", run.error):
            reported = int(told[1].replace(",", ""))
            if after[-1] != reported:
                raise Wrong(f"update {reported} was reported as saved; there are {after}")
        what = (
            f"{number.name} to {victim + 1} of {layout.processes} x {layout.devices}, {at}, "
            f"went on from {start}, newest {after[-1] if after else 0}, statuses {statuses} "
            f"after {seconds:.1f} s"
        )
        if statuses == [0] * layout.processes:
            if at != "at the end":
                raise Wrong(f"not heard: {what}")
            say(f"not a cut: the run was at its end before {what}")
            continue
        if unknown := set(statuses) - GOES_ON - ({0} if at == "at the end" else set()):
            raise Wrong(f"{what}: {unknown}: {run.error}")
        by[number.name] += 1
        during[at] += 1
        ended.update(statuses)
        slowest = max(slowest, seconds)
        done += 1
        say(f"cut {done}: {what}")


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
        run = Run(folder, "disk", Layout(1, 1), arguments)
        (status,) = run.wait(PATIENCE_SECONDS)
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
    with Replay(folder, total) as replay:
        cut = tortured(
            folder, cuts=cuts, total=total, layouts=layouts, generator=generator, replay=replay
        )
        say("the same once more, without a cut, to its end")
        spans = replay.wait()
    left, right = reports(folder, "cut", "clean")
    for what in ("step", "arrays", "pipeline", "pairs"):
        if left[what] != right[what]:
            raise Wrong(f"{what} differ after {total} updates (seed {seed})")
    found = {
        **cut,
        "updates": total,
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
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--folder", default="", help="keep what is made; must not be there")
    asked = parser.parse_args()
    # A shell that starts this in the background lets it, and all that it starts, ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
