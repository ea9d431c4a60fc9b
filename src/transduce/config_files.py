"""Experiments in files: Python files that define them, and their resolved form in JSON."""

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from transduce.config import Experiment, RequestError


def to_json(experiment: Experiment) -> str:
    """The resolved configuration, every field, as indented JSON."""
    return json.dumps(dataclasses.asdict(experiment), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, *, origin: str) -> Experiment:
    """The experiment that `to_json` wrote; `origin` names the file in errors.

    Raises `RequestError` when the text is not JSON, or a field is unknown, missing, of another
    type or has a value that is refused.
    """
    try:
        return _build(Experiment, json.loads(text), "")
    except (RequestError, json.JSONDecodeError) as error:
        raise RequestError(f"{origin}: {error}") from error


def _build(kind: Any, value: Any, path: str) -> Any:
    """`value`, read from JSON, as the type `kind`; `path` is the dotted name for errors."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _build(typing.get_args(kind)[0], value, path)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind, include_extras=True)
        for name in value:
            if name not in hints:
                near = difflib.get_close_matches(name, hints, n=1)
                raise RequestError(
                    f"unknown field {path}{name}" + (f"; did you mean {near[0]}?" if near else "")
                )
        missing = [
            item.name
            for item in dataclasses.fields(kind)
            if item.name not in value
            and item.default is dataclasses.MISSING
            and item.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise RequestError(f"missing field {path}{', '.join(missing)}")
        made = {name: _build(hints[name], item, f"{path}{name}.") for name, item in value.items()}
        return typing.cast(Any, kind)(**made)
    if origin is tuple and isinstance(value, list):
        kinds = typing.get_args(kind)
        if kinds[-1] is Ellipsis:
            kinds = (kinds[0],) * len(value)
        if len(kinds) != len(value):
            raise RequestError(f"{path[:-1]} must have {len(kinds)} items, not {len(value)}")
        return tuple(
            _build(item_kind, item, f"{path[:-1]}[{index}].")
            for index, (item_kind, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise RequestError(f"{path[:-1]} must be one of {choices}, not {value!r}")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    expected = kind.__name__ if isinstance(kind, type) else str(kind)
    raise RequestError(f"{path[:-1]} must be of type {expected}, not {value!r}")


def flatten(experiment: Experiment) -> dict[str, object]:
    """Dotted name to value, for every field; the corpora are one value."""

    def walk(value: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
        for name, item in value.items():
            if isinstance(item, Mapping):
                yield from walk(item, f"{path}{name}.")
            else:
                yield f"{path}{name}", item

    return dict(walk(dataclasses.asdict(experiment), ""))


def override(experiment: Experiment, values: Mapping[str, object], *, origin: str) -> Experiment:
    """`experiment` with fields set by their dotted names; `origin` is named in errors.

    Raises `RequestError` when a field is unknown or is of the experiment file alone, a value is of
    another type or is refused, and when the fields do not go together.
    """
    content = json.loads(to_json(experiment))
    fields = flatten(experiment)
    try:
        for name, value in values.items():
            if name == "data.corpora":
                raise RequestError("data.corpora is set in the experiment file")
            if name not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                raise RequestError(
                    f"unknown field {name}" + (f"; did you mean {near[0]}?" if near else "")
                )
            *sections, last = name.split(".")
            place = content
            for section in sections:
                place = place[section]
            # As JSON has it, which knows lists for tuples.
            place[last] = list(value) if isinstance(value, tuple) else value
        return _build(Experiment, content, "")
    except RequestError as error:
        raise RequestError(f"{origin}: {error}") from error


def load_experiment(path: str) -> Experiment:
    """What `experiment()` of the Python file at `path` returns.

    Raises `RequestError` when there is no such file, it does not run, or has no `experiment`.
    """

    def made(defined: Mapping[str, Any]) -> Any:
        make = defined.get("experiment")
        if not callable(make):
            raise RequestError("must define a function experiment() -> Experiment")
        return make()

    found = _from_file(path, made)
    if not isinstance(found, Experiment):
        raise RequestError(f"{path}: experiment() must return an Experiment, not {found!r}")
    return found


def load_sweep(path: str) -> list[Any]:
    """What `sweep()` of the Python file at `path` yields, in order; nothing if there is none.

    Raises `RequestError` when there is no such file or it does not run.
    """

    def made(defined: Mapping[str, Any]) -> list[Any]:
        make = defined.get("sweep")
        return [] if make is None else list(make())

    return _from_file(path, made)


def _from_file[Made](path: str, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """What `make` makes of all that the Python file at `path` defines."""
    module = types.ModuleType("experiment")
    module.__file__ = path
    try:
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: cannot read the experiment: {error}") from error
    try:
        exec(code, module.__dict__)
        return make(module.__dict__)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from error
    except Exception as error:
        raise RequestError(f"{path}: does not run: {type(error).__name__}: {error}") from error
