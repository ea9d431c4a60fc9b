"""The command line: one function a verb, no logic."""

import difflib
import importlib.metadata
import os
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

import tyro

from transduce.config import (
    Diverged,
    Experiment,
    Interrupted,
    RequestError,
    SaveFailed,
    SearchConfig,
)
from transduce.config_files import load_experiment

ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 34),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""glibc otherwise gives a step's large arrays back and faults them in again at the next."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """Train a model, or go on training it."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """Python file that defines experiment() -> Experiment."""
    workdir: str
    """Folder for all that the run makes; a run that is there already is continued."""
    profile: bool = False
    """Write a profiler trace of three updates to WORKDIR/profile."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class TrainedArguments:
    """Which parameters to decode with."""

    workdir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKDIR")]
    """What transduce train made."""
    step: int | None = None
    """The checkpoint to use; the newest if not given."""
    average: int = 1
    """Use the mean of the newest K checkpoints."""
    best: bool = False
    """Use the parameters that did best on dev."""


@dataclass(frozen=True, kw_only=True)
class TranslateArguments(TrainedArguments):
    """Translate text, one sentence a line."""

    input: str = "-"
    """File to read, plain or gzip; - is standard input."""
    output: str = "-"
    """File to write; - is standard output."""
    scores: bool = False
    """Begin each line with its log-probability and a tab."""
    search: SearchConfig


@dataclass(frozen=True, kw_only=True)
class ScoreArguments(TrainedArguments):
    """Write the log-probability of each target line given its source line."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments(TrainedArguments):
    """Translate a source file and score it against references, as JSON."""

    source: str
    reference: tuple[str, ...]
    """One or more files, each with a line for each source line."""
    search: SearchConfig


def train(arguments: Sequence[str]) -> None:
    """Train a model, or go on training it."""
    path = _first_positional(arguments)
    default = load_experiment(path) if path else Experiment(name="(given by EXPERIMENT)")
    asked = _parse(TrainArguments, "train", arguments, experiment=default)

    from transduce.training.loop import train
    from transduce.workdir import Workdir

    train(asked.experiment, Workdir.of(asked.workdir), profile=asked.profile)


def translate(arguments: Sequence[str]) -> None:
    """Translate text, one sentence a line."""
    asked = _parse(TranslateArguments, "translate", arguments, search=_search(arguments))

    from transduce.decoding import verbs

    trained = _load(asked)
    verbs.translate(
        trained, asked.search, source=asked.input, output=asked.output, scores=asked.scores
    )


def score(arguments: Sequence[str]) -> None:
    """Write the log-probability of each target line given its source line."""
    asked = _parse(ScoreArguments, "score", arguments)

    from transduce.decoding import verbs

    trained = _load(asked)
    verbs.score(trained, source=asked.source, target=asked.target)


def evaluate(arguments: Sequence[str]) -> None:
    """Translate a source file and score it against references, as JSON."""
    asked = _parse(EvaluateArguments, "evaluate", arguments, search=_search(arguments))

    from transduce.evaluation.verbs import evaluate

    trained = _load(asked)
    evaluate(trained, asked.search, source=asked.source, references=asked.reference)


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "train": train,
    "translate": translate,
    "score": score,
    "evaluate": evaluate,
}


def main() -> None:
    """The program `transduce`."""
    _tune_allocator()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit status.

    0: all that was asked for was done. 1: it failed. 2: the request was wrong. 75, of train: it
    was asked to stop by SIGTERM or SIGINT and has saved all it did; the same command goes on.
    130 and 143: SIGINT and SIGTERM ended it where there was nothing to save, or came twice.
    141: whoever read the output wanted no more.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<11}{(verb.__doc__ or '').strip()}" for name, verb in VERBS.items()]
        usage = "\n".join(["usage: transduce VERB ...", "", *lines, "", "Every verb has --help."])
        print(usage, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(importlib.metadata.version("transduce"))
        return 0
    try:
        if arguments[0] not in VERBS:
            near = difflib.get_close_matches(arguments[0], VERBS, n=1)
            raise RequestError(
                f"no verb {arguments[0]!r}" + (f"; did you mean {near[0]}?" if near else "")
            )
        VERBS[arguments[0]](arguments[1:])
        sys.stdout.flush()
    except RequestError as error:
        print(f"transduce: {error}", file=sys.stderr)
        return 2
    except (Diverged, SaveFailed) as error:
        print(f"transduce: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"transduce: {error}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except BrokenPipeError:
        # Whoever reads the output wants no more, as `head` does. The rest of it must not fail
        # once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print("transduce: standard output was closed before all was written", file=sys.stderr)
        return 141
    except KeyboardInterrupt as error:
        # Training says by which signal; Python's own handler is that of SIGINT.
        print("transduce: interrupted", file=sys.stderr)
        return 128 + (error.args[0] if error.args else signal.SIGINT)
    return 0


def _parse(kind: Any, verb: str, arguments: Sequence[str], **defaults: Any) -> Any:
    """The command line as a `kind`; tyro reports what is wrong with it and exits with 2."""
    given = {
        field.name: tyro.MISSING if field.default is MISSING else field.default
        for field in fields(kind)
    }
    return tyro.cli(
        kind,
        prog=f"transduce {verb}",
        args=list(arguments),
        default=kind(**given | defaults),
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def _load(asked: TrainedArguments) -> Any:
    from transduce.decoding import workdir

    return workdir.load(asked.workdir, step=asked.step, average=asked.average, best=asked.best)


def _search(arguments: Sequence[str]) -> SearchConfig:
    """The search that the workdir's experiment declares, the default of --search options."""
    path = _first_positional(arguments)
    if path is None:
        return SearchConfig()
    from transduce.workdir import Workdir

    return Workdir.of(path).read_experiment().search


def _first_positional(arguments: Sequence[str]) -> str | None:
    """The verb's first argument if it is no option; so it must come first."""
    return arguments[0] if arguments and not arguments[0].startswith("-") else None


def _tune_allocator() -> None:
    """Starts the program anew, once, with settings of glibc's that take a step's time down.

    TRANSDUCE_MALLOC=0 leaves the allocator alone, and so does any of the settings when set.
    """
    wanted = os.environ.get("TRANSDUCE_MALLOC") != "0" and platform.libc_ver()[0] == "glibc"
    if wanted and not any(name in os.environ for name in ALLOCATOR):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | ALLOCATOR)
