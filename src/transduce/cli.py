"""The command line: one function a verb, no logic."""

import difflib
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any

import tyro

from transduce import environment
from transduce.arguments import (
    AttendArguments,
    BracketsArguments,
    CompareArguments,
    EvaluateArguments,
    PlanArguments,
    ScoreArguments,
    SweepArguments,
    TrainArguments,
    TrainedArguments,
    TranslateArguments,
)
from transduce.config import (
    Diverged,
    Experiment,
    Interrupted,
    RequestError,
    SaveFailed,
    SearchConfig,
    VariantsFailed,
    WriteFailed,
)
from transduce.config_files import load_experiment


def train(arguments: Sequence[str]) -> None:
    """Train a model, or go on training it."""
    path = _first_positional(arguments)
    default = load_experiment(path) if path else Experiment(name="(given by EXPERIMENT)")
    asked = _parse(TrainArguments, "train", arguments, experiment=default)
    _require_first(asked.file, arguments)

    from transduce.parallel import hosts
    from transduce.training.loop import train
    from transduce.workdir import Workdir

    hosts.initialize()
    train(asked.experiment, Workdir.of(asked.workdir), profile=asked.profile)


def translate(arguments: Sequence[str]) -> None:
    """Translate text, one sentence a line."""
    asked = _parse(TranslateArguments, "translate", arguments, search=_search(arguments))
    _require_first(asked.workdir, arguments)

    from transduce.decoding import verbs

    style = verbs.Output(
        format=asked.format,
        n_best=asked.n_best,
        scores=asked.scores,
        alignments=asked.alignments,
    )
    verbs.translate(
        _load(asked),
        asked.search,
        source=asked.input,
        output=asked.output,
        prefix=asked.prefix,
        batch_size=asked.batch_size,
        style=style,
    )


def score(arguments: Sequence[str]) -> None:
    """Write the log-probability of each target line given its source line."""
    asked = _parse(ScoreArguments, "score", arguments)

    from transduce.decoding import verbs

    verbs.score(_load(asked), source=asked.source, target=asked.target, style=asked.format)


def evaluate(arguments: Sequence[str]) -> None:
    """Translate a source file and score it against references, as JSON."""
    asked = _parse(EvaluateArguments, "evaluate", arguments, search=_search(arguments))
    _require_first(asked.workdir, arguments)

    from transduce.evaluation.verbs import evaluate

    references = [path for paths in asked.reference for path in paths]
    evaluate(_load(asked), asked.search, source=asked.source, references=references)


def compare(arguments: Sequence[str]) -> None:
    """Compare systems' translations by paired bootstrap resampling, as JSON."""
    asked = _parse(CompareArguments, "compare", arguments)

    from transduce.evaluation.verbs import compare

    references = [path for paths in asked.reference for path in paths]
    compare(references=references, systems=asked.system, samples=asked.samples, seed=asked.seed)


def brackets(arguments: Sequence[str]) -> None:
    """Score trees against gold trees as EVALB does."""
    asked = _parse(BracketsArguments, "brackets", arguments)

    from transduce.evaluation.bracket_verb import brackets

    brackets(asked.gold, asked.test, asked.parameters, outer_s=not asked.without_outer_s)


def plan(arguments: Sequence[str]) -> None:
    """Say whether a run fits on other machines, how long it takes and what it costs."""
    path = _first_positional(arguments)
    default = load_experiment(path) if path else Experiment(name="(given by EXPERIMENT)")
    asked = _parse(PlanArguments, "plan", arguments, experiment=default)
    _require_first(asked.file, arguments)

    from transduce.planning.verb import plan

    plan(
        asked.experiment,
        on=asked.on,
        search_mesh=asked.search_mesh,
        price=asked.price,
        style=asked.format,
    )


def sweep(arguments: Sequence[str]) -> None:
    """Train variants of an experiment, and compare them."""
    asked = _parse(SweepArguments, "sweep", arguments)

    from transduce.sweeping.verb import sweep

    sweep(
        asked.file,
        asked.workdir,
        vary=asked.vary,
        commands=asked.print,
        launcher=asked.submit,
        report=asked.report,
    )


def attend(arguments: Sequence[str]) -> None:
    """Draw what the model attends to, as a page or a picture."""
    asked = _parse(AttendArguments, "attend", arguments, search=_search(arguments))
    _require_first(asked.workdir, arguments)

    from transduce.viewing.verb import attend, format_of
    from transduce.workdir import Workdir

    style = asked.format or format_of(asked.output)
    attend(
        _load(asked),
        asked.search,
        source=asked.source,
        target=asked.target,
        output=asked.output,
        style=style,
        show=asked.show,
        name=Workdir.of(asked.workdir).path.name,
    )


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "train": train,
    "translate": translate,
    "score": score,
    "evaluate": evaluate,
    "compare": compare,
    "brackets": brackets,
    "plan": plan,
    "sweep": sweep,
    "attend": attend,
}


def main() -> None:
    """The program `transduce`."""
    environment.prepare()
    status = run(sys.argv[1:])
    if status not in (0, os.EX_TEMPFAIL):
        from transduce.parallel import hosts

        hosts.leave(status)
    sys.exit(status)


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
    except (Diverged, SaveFailed, VariantsFailed, WriteFailed) as error:
        print(f"transduce: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        print(f"transduce: {error}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except BrokenPipeError:
        # Whoever reads the output wants no more, as `head` does. The rest of it must not fail
        # once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("transduce: the output was closed before all was written", file=sys.stderr)
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
    from transduce.parallel import hosts

    hosts.initialize()
    paths = [asked.workdir, *asked.ensemble]
    return workdir.load(
        paths,
        step=asked.step,
        average=asked.average,
        best=asked.best,
        mask_heads=asked.mask_head,
    )


def _search(arguments: Sequence[str]) -> SearchConfig:
    """The search that the workdir's experiment declares, the default of --search options."""
    path = _first_positional(arguments)
    if path is None:
        return SearchConfig()
    from transduce.workdir import Workdir

    return Workdir.of(path).read_experiment().search


def _first_positional(arguments: Sequence[str]) -> str | None:
    """The verb's first argument if it is no option."""
    return arguments[0] if arguments and not arguments[0].startswith("-") else None


def _require_first(path: str, arguments: Sequence[str]) -> None:
    """What `path` holds are the options' defaults, so it is looked for where it comes first."""
    if _first_positional(arguments) != path:
        raise RequestError(f"{path} must come before all options")
