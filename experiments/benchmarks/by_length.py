"""BLEU and perplexity by length of sentence, also beyond what was trained on.

    python -m experiments.benchmarks.by_length W/sinusoidal W/learned W/rotary

Sentences are those of the test split, and training pairs that were left out because they do not
fit a row. The length of a pair is that of its longer side, in tokens, EOS included: what
data.row_length limits.
"""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from transduce.config import DataConfig, RequestError
from transduce.decoding.scoring import score_pairs
from transduce.decoding.verbs import hypotheses
from transduce.decoding.workdir import Trained, load
from transduce.evaluation.bleu import quality
from transduce.text.corpora import prepare
from transduce.text.vocabulary import Vocabulary


@dataclass
class Arguments:
    """Compare workdirs of one vocabulary by length."""

    workdirs: tyro.conf.Positional[tuple[str, ...]]
    bounds: tuple[int, ...] = (10, 13, 16, 19, 22, 26, 32)
    """Longest lengths of all groups but the last, which has the rest."""
    most: int = 300
    """Pairs of a group, the first ones: those of test come first."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pairs of about the same length."""

    name: str
    trained: bool
    """All its lengths fit a row of training."""
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A model on a group."""

    bleu: float
    perplexity: float


def main() -> None:
    asked = tyro.cli(Arguments)
    loaded = [load([workdir]) for workdir in asked.workdirs]
    first = loaded[0]
    for workdir, other in zip(asked.workdirs, loaded, strict=True):
        if other.vocabulary.pieces() != first.vocabulary.pieces():
            raise RequestError(f"{workdir} has another vocabulary than {asked.workdirs[0]}")
    data = first.experiment.data
    groups = grouped(
        held_out(data, first.vocabulary),
        first.vocabulary,
        bounds=asked.bounds,
        most=asked.most,
        trained=data.row_length,
    )
    table = []
    for workdir, trained in zip(asked.workdirs, loaded, strict=True):
        print(f"{workdir}", file=sys.stderr, flush=True)
        table.append([measure(trained, group) for group in groups])
    print(as_markdown([Path(workdir).name for workdir in asked.workdirs], groups, table))


def held_out(data: DataConfig, vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """The pairs of test, then those of training that are too long for a row."""
    splits = [prepare(corpus, folder=data.folder) for corpus in data.corpora]
    for corpus in splits:
        yield from corpus.get("test", ())
    for corpus in splits:
        for part in itertools.batched(corpus["train"], 8192):
            for pair, length in zip(part, lengths(part, vocabulary), strict=True):
                if length > data.row_length and all(side.strip() for side in pair):
                    yield pair


def lengths(pairs: Sequence[tuple[str, str]], vocabulary: Vocabulary) -> list[int]:
    """Tokens of the longer side, EOS included."""
    sides = [vocabulary.encode_many(side) for side in zip(*pairs, strict=True)]
    return [max(map(len, both)) for both in zip(*sides, strict=True)]


def grouped(
    pairs: Iterator[tuple[str, str]],
    vocabulary: Vocabulary,
    *,
    bounds: Sequence[int],
    most: int,
    trained: int,
) -> list[Group]:
    """The first `most` pairs of each range of lengths; a range without any is left out."""
    known = list(pairs)
    measured = lengths(known, vocabulary)
    groups = []
    for low, high in itertools.pairwise([0, *bounds, max([*bounds, *measured])]):
        inside = [pair for pair, n in zip(known, measured, strict=True) if low < n <= high]
        if inside:
            groups.append(
                Group(name=f"{low + 1} to {high}", trained=high <= trained, pairs=inside[:most])
            )
    return groups


def measure(trained: Trained, group: Group) -> Measured:
    """BLEU by the experiment's search, and perplexity per token of the references."""
    sources, targets = (list(side) for side in zip(*group.pairs, strict=True))
    search, vocabulary = trained.experiment.search, trained.vocabulary
    found = hypotheses(trained, search, sources)
    encoded = vocabulary.encode_many(targets)
    pairs = zip(vocabulary.encode_many(sources), encoded, strict=True)
    total = sum(score_pairs(trained.models, pairs, block_rows=search.block_rows))
    return Measured(
        bleu=quality(found, [targets]).bleu,
        perplexity=math.exp(-total / sum(map(len, encoded))),
    )


def as_markdown(
    names: Sequence[str], groups: Sequence[Group], table: Sequence[Sequence[Measured]]
) -> str:
    """A line for each group, with BLEU and perplexity of each workdir."""
    columns = [f"{name} {what}" for what in ("BLEU", "perplexity") for name in names]
    lines = [["tokens", "pairs", *columns], ["---"] * (2 + len(columns))]
    for number, group in enumerate(groups):
        here = [row[number] for row in table]
        beyond = "" if group.trained else ", beyond training"
        lines.append(
            [
                *(f"{group.name}{beyond}", f"{len(group.pairs):,}"),
                *(f"{one.bleu:.2f}" for one in here),
                *(f"{one.perplexity:.2f}" for one in here),
            ]
        )
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
