"""The command line: one function a verb, no logic."""

import difflib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

import tyro

from transduce.config import Diverged, Experiment, RequestError, SearchConfig
from transduce.config_files import load_experiment

_ALLOCATOR = {
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
class TranslateArguments:
    """Translate text, one sentence a line."""

    workdir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKDIR")]
    """What transduce train made."""
    input: str = "-"
    """File to read, plain or gzip; - is standard input."""
    output: str = "-"
    """File to write; - is standard output."""
    scores: bool = False
    """Begin each line with its log-probability and a tab."""
    step: int | None = None
    """The checkpoint to use; the newest if not given."""
    average: int = 1
    """Use the mean of the newest K checkpoints."""
    search: SearchConfig


@dataclass(frozen=True, kw_only=True)
class ScoreArguments:
    """Write the log-probability of each target line given its source line."""

    workdir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKDIR")]
    """What transduce train made."""
    source: str
    target: str
    step: int | None = None
    """The checkpoint to use; the newest if not given."""
    average: int = 1
    """Use the mean of the newest K checkpoints."""


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments:
    """Translate a source file and score it against references, as JSON."""

    workdir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKDIR")]
    """What transduce train made."""
    source: str
    reference: tuple[str, ...]
    """One or more files, each with a line for each source line."""
    step: int | None = None
    """The checkpoint to use; the newest if not given."""
    average: int = 1
    """Use the mean of the newest K checkpoints."""
    search: SearchConfig


def train(arguments: Sequence[str]) -> None:
    """Train a model, or go on training it."""
    path = _first_positional(arguments)
    default = load_experiment(path) if path else Experiment(name="(given by EXPERIMENT)")
    asked = _parse(TrainArguments, "train", arguments, experiment=default)

    from transduce.checkpoints import Workdir
    from transduce.training.loop import train

    train(asked.experiment, Workdir.of(asked.workdir), profile=asked.profile)


def translate(arguments: Sequence[str]) -> None:
    """Translate text, one sentence a line."""
    asked = _parse(TranslateArguments, "translate", arguments, search=_search(arguments))

    from transduce.decoding import verbs, workdir

    trained = workdir.load(asked.workdir, step=asked.step, average=asked.average)
    verbs.translate(
        trained, asked.search, source=asked.input, output=asked.output, scores=asked.scores
    )


def score(arguments: Sequence[str]) -> None:
    """Write the log-probability of each target line given its source line."""
    asked = _parse(ScoreArguments, "score", arguments)

    from transduce.decoding import verbs, workdir

    trained = workdir.load(asked.workdir, step=asked.step, average=asked.average)
    verbs.score(trained, source=asked.source, target=asked.target)


def evaluate(arguments: Sequence[str]) -> None:
    """Translate a source file and score it against references, as JSON."""
    asked = _parse(EvaluateArguments, "evaluate", arguments, search=_search(arguments))

    from transduce.decoding import workdir
    from transduce.evaluation.verbs import evaluate

    trained = workdir.load(asked.workdir, step=asked.step, average=asked.average)
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
    """Runs one command; returns its exit status: 0 done, 1 failed, 2 the request was wrong."""
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
    except Diverged as error:
        print(f"transduce: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever reads the output wants no more, as `head` does. The rest of it must not fail
        # once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print("transduce: standard output was closed before all was written", file=sys.stderr)
        return 141
    except KeyboardInterrupt:
        print("transduce: interrupted", file=sys.stderr)
        return 130
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


def _search(arguments: Sequence[str]) -> SearchConfig:
    """The search that the workdir's experiment declares, the default of --search options."""
    path = _first_positional(arguments)
    if path is None:
        return SearchConfig()
    from transduce.checkpoints import Workdir

    return Workdir.of(path).read_experiment().search


def _first_positional(arguments: Sequence[str]) -> str | None:
    """The verb's first argument if it is no option; so it must come first."""
    return arguments[0] if arguments and not arguments[0].startswith("-") else None


def _tune_allocator() -> None:
    """Starts the program anew, once, with settings of glibc's that take a step's time down.

    TRANSDUCE_MALLOC=0 leaves the allocator alone, and so does any of the settings when set.
    """
    wanted = os.environ.get("TRANSDUCE_MALLOC") != "0" and platform.libc_ver()[0] == "glibc"
    if wanted and not any(name in os.environ for name in _ALLOCATOR):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | _ALLOCATOR)
