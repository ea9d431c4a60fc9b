"""Variants trained here, one after the other, or handed to a launcher."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transduce.config import Interrupted, RequestError, VariantsFailed
from transduce.sweeping.states import state_of
from transduce.sweeping.variants import Planned

TRAIN = (sys.executable, "-c", "from transduce.cli import main; main()", "train")
"""`transduce train` in this environment."""

_PASSED_ON = {
    signal.SIGINT: signal.SIGINT,
    signal.SIGTERM: signal.SIGTERM,
    # Training knows no SIGHUP, and would end without a save.
    signal.SIGHUP: signal.SIGTERM,
}


def run_here(path: str, variants: Sequence[Planned], folder: str) -> None:
    """Trains each variant that is not done, in a process of its own.

    `path` is the experiment file and `folder` that of the workdirs. A variant that fails is
    reported, and the others go on. Raises `RequestError` before anything starts as `state_of`
    does; `Interrupted` when a signal ends it, or ends a variant that has saved all it did;
    `VariantsFailed` at the end when some have failed.
    """
    todo = _not_done(variants, folder)
    failures = []
    for number, variant in enumerate(todo, start=1):
        _say(f"{variant.name}, {number} of {len(todo)} to do: {variant.changes or 'as it is'}")
        status, asked = _train(arguments(path, variant, folder))
        if asked or status == os.EX_TEMPFAIL:
            raise Interrupted(
                f"the sweep stopped in variant {variant.name}, with {len(todo) - number} more to "
                "do after it; the same command goes on"
            )
        if status:
            failures.append(f"{variant.name} ({_in_words(status)})")
            _say(f"{variant.name} failed ({_in_words(status)})")
    _require_none("failed", failures, len(variants))
    _say(f"all {len(variants)} variants are done; --report compares them")


def write_commands(path: str, variants: Sequence[Planned], folder: str) -> None:
    """Writes the command that trains each variant that is not done, one a line."""
    for variant in _not_done(variants, folder):
        print(shlex.join(["transduce", "train", *arguments(path, variant, folder)]))


def submit(path: str, variants: Sequence[Planned], folder: str, *, launcher: str) -> None:
    """Runs `launcher`, a command, once for each variant that is not done.

    It gets the arguments of `transduce train` after its own, and in EXPERIMENT, WORKDIR and OPTIONS
    of its environment, where the files in launch/ look for them. What it starts is not waited for,
    so that a variant which is queued already is queued once more if this is asked for again; of two
    runs in one workdir the second ends at once. Raises `RequestError` when there is no such
    command or OPTIONS cannot hold a value, and `VariantsFailed` when the command fails for some.
    """
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise RequestError(f"--submit {launcher}: {error}") from error
    if not words:
        raise RequestError("--submit must be a command, such as 'sbatch launch/slurm.sbatch'")
    for variant in variants:
        if odd := [flag for flag in variant.flags if len(flag.split()) != 1]:
            raise RequestError(
                f"variant {variant.name}: a launcher's OPTIONS are words divided by spaces: "
                f"none may be empty or have a space, as {odd[0]!r}"
            )
    failures = []
    for variant in _not_done(variants, folder):
        command = [*words, *arguments(path, variant, folder)]
        environment = {
            **os.environ,
            "EXPERIMENT": path,
            "WORKDIR": f"{folder}/{variant.name}",
            "OPTIONS": " ".join(variant.flags),
        }
        try:
            status = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            raise RequestError(f"--submit {launcher}: {error.strerror}: {words[0]}") from error
        if status:
            failures.append(f"{variant.name} ({_in_words(status)})")
    _require_none("could not be submitted", failures, len(variants))


def arguments(path: str, variant: Planned, folder: str) -> list[str]:
    """What `transduce train` is given for a variant."""
    return [path, "--workdir", f"{folder}/{variant.name}", *variant.flags]


def _not_done(variants: Sequence[Planned], folder: str) -> list[Planned]:
    """Looks at all of them first, so that what is refused is refused before anything starts."""
    states = [state_of(variant, folder) for variant in variants]
    left = [variant for variant, state in zip(variants, states, strict=True) if not state.done]
    begun = sum(state.step > 0 and not state.done for state in states)
    done = len(variants) - len(left)
    _say(f"{len(variants)} variants in {folder}: {done} done, {begun} to go on")
    return left


def _train(words: Sequence[str]) -> tuple[int, bool]:
    """Runs `transduce train`; its status, and whether this process was asked to stop meanwhile."""
    with _signals() as heard:
        # In a group of its own, so that Ctrl-C reaches it once, through us: twice ends it at once.
        # Standard output is for results, and training has none.
        process = subprocess.Popen(
            [*TRAIN, *words], stdin=subprocess.DEVNULL, stdout=2, process_group=0
        )
        heard.pass_to(process)
        status = process.wait()
    return status, heard.any


class _Heard:
    """Signals, each passed on once, also those that came before there was whom to pass them to."""

    def __init__(self) -> None:
        self.any = False
        self._waiting: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def hear(self, number: int, _: object) -> None:
        self.any = True
        self._waiting.append(number)
        self._pass_on()

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pass_on()

    def _pass_on(self) -> None:
        while self._process and self._waiting:
            self._process.send_signal(_PASSED_ON[signal.Signals(self._waiting.pop())])


@contextmanager
def _signals() -> Iterator[_Heard]:
    """What `_PASSED_ON` names is heard; what is ignored, as by nohup, stays so."""
    heard = _Heard()
    before = {number: signal.getsignal(number) for number in _PASSED_ON}
    listened = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in listened:
        signal.signal(number, heard.hear)
    try:
        yield heard
    finally:
        for number in listened:
            signal.signal(number, before[number])


def _in_words(status: int) -> str:
    return f"status {status}" if status > 0 else signal.Signals(-status).name


def _require_none(what: str, failures: Sequence[str], count: int) -> None:
    if failures:
        raise VariantsFailed(
            f"{len(failures)} of {count} variants {what}: {', '.join(failures)}; "
            "the same command tries them again"
        )


def _say(text: str) -> None:
    print(f"Sweep     {text}", file=sys.stderr, flush=True)
