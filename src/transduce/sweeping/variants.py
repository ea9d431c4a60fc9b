"""The variants of a sweep, from an experiment file or from the command line."""

import ast
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from transduce.config import Experiment, RequestError
from transduce.config_files import flatten, load_experiment, load_sweep, override

REPORT = "report"
"""The folder beside the variants' that holds the report."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,119}")


@dataclass(frozen=True)
class Variant:
    """What `sweep()` of an experiment file yields: a name, and what is different."""

    name: str
    """Its workdir in the sweep's folder."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Values of fields by their dotted names."""
    beside: Mapping[str, float | str] = field(default_factory=dict)
    """Columns of the report that are not measured, such as a paper's figures."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A variant that was checked."""

    name: str
    experiment: Experiment
    flags: tuple[str, ...]
    """Of `transduce train`, which turn the file's experiment into this one."""
    changes: str
    """The same for the report: "model.heads=1 model.d_k=512"."""
    beside: Mapping[str, float | str]


def plan(path: str, vary: Sequence[Sequence[str]] = ()) -> list[Planned]:
    """The variants of the experiment file at `path`, all checked, in order.

    They are what its `sweep()` yields, or without one the experiment alone, each with every
    combination of `vary`: a field's dotted name and its values, as text.

    Raises `RequestError` when there is neither, a name is no name for a folder or comes twice, a
    field or a value is refused, and when two variants are the same experiment.
    """
    base = load_experiment(path)
    defined = load_sweep(path)
    for item in defined:
        if not _is_variant(item):
            raise RequestError(
                f"{path}: sweep() must yield Variant(name, overrides), a text and a dictionary of "
                f"fields, not {item!r}"
            )
    if not defined and not vary:
        raise RequestError(
            f"{path}: has no function sweep() that yields variants; define it, or name a field "
            "and its values: --vary training.seed 1 2 3"
        )
    combined = [
        Variant(
            name="-".join(part for part in (one.name, other.name) if part),
            overrides={**one.overrides, **other.overrides},
            beside=one.beside,
        )
        for one in defined or [Variant("")]
        for other in combinations(base, vary)
    ]
    _require_names(path, [variant.name for variant in combined])
    planned = [_planned(base, variant, path) for variant in combined]
    for one, other in itertools.combinations(planned, 2):
        if one.experiment == other.experiment:
            raise RequestError(f"{path}: variants {one.name} and {other.name} are the same")
    return planned


def _is_variant(item: object) -> bool:
    return (
        isinstance(item, Variant)
        and isinstance(item.name, str)
        and all(isinstance(each, Mapping) for each in (item.overrides, item.beside))
        and all(isinstance(name, str) for name in (*item.overrides, *item.beside))
    )


def combinations(base: Experiment, vary: Sequence[Sequence[str]]) -> list[Variant]:
    """Every combination of the values; of no `vary`, one variant without a name."""
    fields = flatten(base)
    choices: list[list[tuple[str, str, object]]] = []
    for words in vary:
        if len(words) < 2:
            raise RequestError(
                f"--vary {' '.join(words)}: name a field and its values, such as "
                "--vary training.seed 1 2 3"
            )
        name = words[0].removeprefix("--").replace("-", "_")
        # The kind of a field that does not exist is as good as any: it is refused later.
        is_text = isinstance(fields.get(name), str)
        choices.append([(name, text, text if is_text else _value(text)) for text in words[1:]])
    names = [choice[0][0] for choice in choices]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"--vary {name}: is given twice; give all its values at once")
    return [
        Variant(
            name=",".join(f"{name}={_as_name(text)}" for name, text, _ in chosen),
            overrides={name: value for name, _, value in chosen},
        )
        for chosen in itertools.product(*choices)
    ]


def _value(text: str) -> object:
    """A number, True or False, a tuple; all else is text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _as_name(text: str) -> str:
    """What a folder's name has of a value; what it cannot have becomes a plus sign."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "+", text)


def _require_names(path: str, names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name) or name.lower() == REPORT:
            raise RequestError(
                f"{path}: a variant's name becomes that of its workdir: at most 120 letters, "
                f"digits and . _ = , + -, a letter or digit first, and not {REPORT}; it is {name!r}"
            )
        # Some file systems do not tell capitals from small letters.
        if name.lower() in seen:
            raise RequestError(
                f"{path}: variants {seen[name.lower()]} and {name} would share a workdir: "
                "give them different names"
            )
        seen[name.lower()] = name


def _planned(base: Experiment, variant: Variant, path: str) -> Planned:
    origin = f"{path}, variant {variant.name}"
    made = override(base, variant.overrides, origin=origin)
    old, new = flatten(base), flatten(made)
    differing = [name for name in new if new[name] != old[name]]
    return Planned(
        name=variant.name,
        experiment=made,
        flags=tuple(word for name in differing for word in _flag(name, new[name], origin)),
        changes=" ".join(f"{name}={new[name]}" for name in differing),
        beside=variant.beside,
    )


def _flag(name: str, value: object, origin: str) -> list[str]:
    """A field's words on the command line of `transduce train`."""
    *sections, last = name.replace("_", "-").split(".")
    if isinstance(value, bool):
        return [f"--{'.'.join([*sections, last if value else f'no-{last}'])}"]
    option = f"--{'.'.join([*sections, last])}"
    if isinstance(value, tuple):
        words = [str(item) for item in value]
        if any(word.startswith("-") for word in words):
            raise RequestError(f"{origin}: {name}: nothing in it may begin with a dash: {words}")
        return [option, *words]
    # A value that begins with a dash would be taken for an option.
    return [f"{option}={value}"] if str(value).startswith("-") else [option, str(value)]
