"""Translations in order, whichever process made them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain

from transduce.decoding.translator import Translation, Translator
from transduce.parallel import hosts


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is said of a line."""

    number: int
    """Of the line, counted from 1."""
    lines: list[str]
    """To be written."""
    notes: tuple[str, ...]
    pieces: int
    """Of the best hypothesis."""
    repairs: dict[str, int] = field(default_factory=dict)
    """Of the best hypothesis, where it is a tree: how often what was done."""


def answers(
    translator: Translator,
    parts: Iterable[Sequence[tuple[str, str]]],
    write: Callable[[int, Translation], list[str]],
) -> Iterator[Answer]:
    """An answer for each (line, prefix), in order, as they are ready; `parts` are searched apart.

    Of several processes, which all must have the same `parts`, each translates its share of each
    part. The first has all the answers, the others none; they return when the first is done.
    """
    index, count = hosts.process()
    first = 1
    for part in parts:
        share = range(index, len(part), count)
        found = translator.translate(
            [part[place][0] for place in share],
            prefixes=[part[place][1] for place in share],
            numbers=[first + place for place in share],
        )
        made = (
            Answer(
                number=first + place,
                lines=write(first + place, translation),
                notes=translation.notes,
                pieces=len(translation.hypotheses[0].ids),
                repairs={n: count for n, count in asdict(translation.repairs).items() if count},
            )
            for place, translation in zip(share, found, strict=True)
        )
        yield from made if count == 1 else _gathered(made)
        first += len(part)
    hosts.barrier("all lines are translated")


def _gathered(made: Iterator[Answer]) -> Iterator[Answer]:
    """The answers of all processes, at the first."""
    parts = hosts.gather_bytes(json.dumps([asdict(answer) for answer in made]).encode()) or []
    records = chain.from_iterable(map(json.loads, parts))
    for record in sorted(records, key=lambda record: record["number"]):
        yield Answer(**record)
