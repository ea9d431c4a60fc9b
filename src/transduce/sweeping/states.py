"""How far a variant has come, as its workdir says."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transduce.checkpoints import saved_steps
from transduce.config import Experiment, RequestError
from transduce.config_files import flatten
from transduce.sweeping.variants import Planned
from transduce.workdir import MAY_CHANGE, Workdir

_LIMITS = ("steps", "epochs", "minutes", "patience")
"""Fields of training that end a run."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What a workdir holds of a variant."""

    workdir: Workdir
    step: int = 0
    """Of the newest checkpoint; 0: there is none."""
    done: bool = False
    """The run came to its end, and what it made was evaluated."""
    records: Sequence[Mapping[str, Any]] = ()
    """Of metrics.jsonl."""

    def last(self, kind: str) -> Mapping[str, Any]:
        """The newest record of a kind; an empty one if there is none."""
        return next((r for r in reversed(self.records) if r["kind"] == kind), {})


def state_of(variant: Planned, folder: str) -> State:
    """The state of a variant whose workdir is in `folder`.

    Raises `RequestError` when its workdir is no workdir, holds another experiment, or has a record
    that cannot be read.
    """
    workdir = Workdir.of(f"{folder}/{variant.name}")
    if not workdir.config.exists():
        return State(workdir=workdir)
    held = workdir.read_experiment()
    _require_same(workdir, held, variant.experiment)
    step = max(saved_steps(workdir.checkpoints), default=0)
    records = _records(workdir)
    return State(
        workdir=workdir,
        step=step,
        done=step > 0 and _is_over(held, variant.experiment, step, records),
        records=records,
    )


def _is_over(
    held: Experiment, wanted: Experiment, step: int, records: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a limit ended the run at its newest checkpoint, and would end it there now."""
    kinds = {record["kind"] for record in records if record["step"] == step}
    same = all(getattr(held.training, x) == getattr(wanted.training, x) for x in _LIMITS)
    return "over" in kinds and (same or step >= wanted.training.steps)


def _require_same(workdir: Workdir, held: Experiment, wanted: Experiment) -> None:
    old, new = flatten(held), flatten(wanted)
    differing = [
        f"{name} is {old[name]!r} there and {new[name]!r} here"
        for name in new
        if old[name] != new[name]
        and name not in MAY_CHANGE
        and not name.startswith(("mesh.", "search."))
    ]
    if differing:
        raise RequestError(
            f"{workdir.path}: holds another experiment: {'; '.join(differing)}; "
            "choose another --workdir, or the values that are there"
        )


def _records(workdir: Workdir) -> list[Mapping[str, Any]]:
    if not workdir.metrics.exists():
        return []
    found = []
    lines = workdir.metrics.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line.decode())
            found.append({"kind": record["kind"], "step": record["step"], **record})
        except (ValueError, TypeError, KeyError) as error:
            raise RequestError(
                f"{workdir.metrics}, line {number}: not a record: {error!r}; delete the line"
            ) from error
    # What comes after the last newline is being written, or was when the run was killed.
    return found
