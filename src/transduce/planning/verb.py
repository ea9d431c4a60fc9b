"""The verb `plan`."""

import json
import math
import sys
from collections.abc import Sequence
from typing import Any, Literal

from transduce.config import Experiment, RequestError
from transduce.planning.compile import CompilerFailed, require_compiler
from transduce.planning.estimate import resolved
from transduce.planning.plans import Plan, quick, ranked, searched, thorough, worth_compiling
from transduce.planning.report import as_json, ranking, text
from transduce.planning.target import Target, parse_target


def plan(
    experiment: Experiment,
    *,
    on: Sequence[str],
    search_mesh: bool = False,
    price: float | None = None,
    style: Literal["table", "json"] = "table",
) -> None:
    """Writes plans to standard output: first by arithmetic, then compiled.

    JSON is one list, written at the end; what comes at once goes to standard error then, as how
    far compiling has come always does.
    Raises `RequestError` when a target's name, its compiler or its division of the experiment is
    wrong, before anything is compiled; ends with status 1 when a compiler failed.
    """
    if not on:
        raise RequestError("--on must name a machine, such as tpu-v5e:4x4, h200:8 or cpu")
    if price is not None and not 0 < price < math.inf:
        raise RequestError(f"--price must be positive, not {price:g}")
    targets = [parse_target(name) for name in on]
    for target in targets:
        require_compiler(target)
        if target.chip and experiment.model.dtype not in target.chip.rates:
            raise RequestError(
                f"--on {target.name}: it computes in {' and '.join(target.chip.rates)}, not in "
                f"model.dtype {experiment.model.dtype}"
            )
    wanted = [(target, _candidates(experiment, target, search_mesh)) for target in targets]
    results: list[dict[str, Any]] = []
    failed = False
    for target, plans in wanted:
        shown = f"{len(plans)} meshes by arithmetic\n{ranking(plans)}" if search_mesh else ""
        _show(shown or text(plans[0], price=price), style)
        chosen = worth_compiling(plans, _default(experiment, target)) if search_mesh else plans
        done: list[Plan] = []
        for candidate in chosen:
            try:
                done.append(thorough(candidate, say=_say))
            except CompilerFailed as error:
                _say(str(error))
                failed = True
        done = ranked(done)
        if style == "table":
            for item in done:
                print(text(item, price=price), flush=True)
            if search_mesh:
                print(f"{target.name}, compiled\n{ranking(done)}", flush=True)
        results += [as_json(item, price=price) for item in done]
    if style == "json":
        json.dump(results, sys.stdout, indent=2)
        print()
    if failed:
        sys.exit(1)


def _candidates(experiment: Experiment, target: Target, search_mesh: bool) -> list[Plan]:
    if not search_mesh:
        return [quick(experiment, target)]
    plans = searched(experiment, target)
    if not plans:
        # What is wrong with the experiment's own mesh is as wrong with all others.
        resolved(experiment, target)
        raise RequestError(f"--on {target.name}: no mesh of {target.chips} chips divides it")
    return plans


def _default(experiment: Experiment, target: Target) -> Any:
    """The experiment's own mesh, where the target has chips for it."""
    try:
        return resolved(experiment, target)
    except RequestError:
        return None


def _show(block: str, style: str) -> None:
    print(block, file=sys.stdout if style == "table" else sys.stderr, flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
