"""What the variants of a sweep came to: one table."""

import csv
import io
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import DataConfig
from transduce.config_checks import require
from transduce.evaluation.significance import Comparison, Estimate, compare_files
from transduce.model.arithmetic import parameters
from transduce.sweeping.states import State, state_of
from transduce.sweeping.variants import Planned
from transduce.text.corpora import prepare

SAMPLES, SEED = 1000, 12345
"""Of the bootstrap, as `transduce compare` has them."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A variant; what a run has not come to yet is None."""

    variant: Planned
    parameters: int
    step: int
    """Updates up to now."""
    done: bool
    perplexity: float | None
    """Of dev, per piece."""
    bleu: Estimate | None
    """Of dev."""
    test_bleu: Estimate | None
    f1: float | None
    """Of dev, where it is of trees."""
    seconds: float | None
    """Of the run in all."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """All variants, and how their BLEU was computed: for each split, as far as one has any."""

    rows: Sequence[Row]
    comparisons: dict[str, Comparison]
    baseline: str
    """The variant that the p-values are against: the first that is done."""


def make_table(variants: Sequence[Planned], folder: str) -> Table:
    """Of each variant whose run is over: what its records and its translations say.

    Everything is of the last parameters, without averaging checkpoints, as in the paper's Table 3.
    BLEU is that of the translations that the run left, with a confidence interval and a p-value
    against the first variant that is done, by paired bootstrap resampling.
    Raises `RequestError` as `state_of` does, when the corpora or translations cannot be read, and
    when variants have translated different numbers of sentences.
    """
    states = [state_of(variant, folder) for variant in variants]
    done = [(v, s) for v, s in zip(variants, states, strict=True) if s.done]
    comparisons: dict[str, Comparison] = {}
    estimates: dict[tuple[str, str], Estimate] = {}
    for split in ("dev", "test"):
        systems = [(v.name, s) for v, s in done if "bleu" in _at_the_end(s, split)]
        if systems:
            data = done[0][0].experiment.data
            comparisons[split] = found = _compare(split, systems, data)
            for (name, _), system in zip(systems, found.systems, strict=False):
                estimates[split, name] = system.bleu
    return Table(
        rows=[
            _row(variant, state, estimates) for variant, state in zip(variants, states, strict=True)
        ],
        comparisons=comparisons,
        baseline=done[0][0].name if done else "",
    )


def _row(variant: Planned, state: State, estimates: dict[tuple[str, str], Estimate]) -> Row:
    dev = _at_the_end(state, "dev") if state.done else {}
    return Row(
        variant=variant,
        parameters=parameters(variant.experiment.model).total,
        step=state.step,
        done=state.done,
        perplexity=dev.get("perplexity"),
        bleu=estimates.get(("dev", variant.name)),
        test_bleu=estimates.get(("test", variant.name)),
        f1=dev.get("f1"),
        seconds=state.last("end").get("seconds") if state.done else None,
    )


def _at_the_end(state: State, split: str) -> Mapping[str, Any]:
    """The record of an evaluation after the last update; an empty one if there was none."""
    record = state.last(split)
    return record if record.get("step") == state.step else {}


def _compare(split: str, systems: Sequence[tuple[str, State]], data: DataConfig) -> Comparison:
    """The systems' stored translations of `split` against its targets."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        counts: dict[str, int] = {}
        for name, state in systems:
            stored = state.workdir.translations(split, state.step)
            require(stored.is_file(), f"{stored}: is not there: the run of {name} had left it")
            paths.append(Path(folder) / name)
            paths[-1].write_bytes(stored.read_bytes())
            counts[name] = paths[-1].read_bytes().count(b"\n")
        (first, count), *others = counts.items()
        for name, other in others:
            require(
                other == count,
                f"variants {first} and {name} have translated {count:,} and {other:,} sentences of "
                f"{split}: their BLEU cannot be compared; give all the same "
                "training.evaluation_sentences",
            )
        reference = Path(folder) / f"{split}.reference"
        targets = itertools.islice(_targets(split, data), count)
        reference.write_bytes("".join(f"{line}\n" for line in targets).encode())
        # A comparison is of at least two.
        names = [str(path) for path in paths] * (2 if len(paths) == 1 else 1)
        return compare_files(references=[str(reference)], systems=names, samples=SAMPLES, seed=SEED)


def _targets(split: str, data: DataConfig) -> Iterator[str]:
    for corpus in data.corpora:
        for _, target in prepare(corpus, folder=data.folder).get(split, ()):
            yield target


# ---- As text ---------------------------------------------------------------------------------


def as_markdown(table: Table) -> str:
    """The table and, below it, what it was made with."""
    columns = _columns(table)
    lines = [[name for name, _ in columns]]
    lines += [["---" for _ in columns]]
    lines += [[show(row) for _, show in columns] for row in table.rows]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    for split, found in table.comparisons.items():
        text += (
            f"\n{split} BLEU: sacreBLEU, {found.sentences:,} sentences, {found.bleu_signature}; "
            "± is half of the 95% interval of the bootstrap samples, p that of the difference to "
            f"{table.baseline}, one tail, not corrected for the number of variants.\n"
        )
    return text


def as_csv(table: Table) -> str:
    """The same with all digits, and with what is different in each variant."""
    beside = _beside(table)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        [
            *("variant", "changes", "parameters", "steps", "done", "dev_perplexity", "dev_f1"),
            *("dev_bleu", "dev_bleu_half_width", "dev_bleu_p"),
            *("test_bleu", "test_bleu_half_width", "test_bleu_p", "seconds", *beside),
        ]
    )
    for row in table.rows:
        values = [
            *(row.variant.name, row.variant.changes, row.parameters, row.step, row.done),
            *(row.perplexity, row.f1),
            *_numbers(row.bleu),
            *_numbers(row.test_bleu),
            row.seconds,
            *(row.variant.beside.get(name) for name in beside),
        ]
        writer.writerow(["" if value is None else value for value in values])
    return file.getvalue()


def _columns(table: Table) -> list[tuple[str, Callable[[Row], str]]]:
    """Heading, and what stands below it; measures that no variant has are left out."""
    rows = table.rows
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("variant", lambda row: row.variant.name),
        ("parameters", lambda row: f"{row.parameters:,}"),
        ("steps", _steps),
        ("dev perplexity", lambda row: _number(row.perplexity)),
    ]
    if any(row.f1 is not None for row in rows):
        columns.append(("dev F1", lambda row: _number(row.f1)))
    if any(row.bleu for row in rows):
        columns.append(("dev BLEU", lambda row: _interval(row.bleu)))
        columns.append(("p", lambda row: _probability(row.bleu)))
    if any(row.test_bleu for row in rows):
        columns.append(("test BLEU", lambda row: _interval(row.test_bleu)))
    columns.append(("minutes", lambda row: _number(row.seconds and row.seconds / 60, places=1)))
    for name in _beside(table):
        columns.append((name, lambda row, name=name: str(row.variant.beside.get(name, ""))))
    return columns


def _beside(table: Table) -> list[str]:
    """Columns that the variants bring along, in order."""
    return list(dict.fromkeys(name for row in table.rows for name in row.variant.beside))


def _steps(row: Row) -> str:
    limit = row.variant.experiment.training.steps
    if row.done:
        return f"{row.step:,}"
    return f"{row.step:,} of {limit:,}" if row.step else "not begun"


def _number(value: float | None, *, places: int = 2) -> str:
    return "" if value is None else f"{value:,.{places}f}"


def _interval(estimate: Estimate | None) -> str:
    return f"{estimate.score:.2f} ± {estimate.half_width:.2f}" if estimate else ""


def _probability(estimate: Estimate | None) -> str:
    return "" if estimate is None or estimate.p_value is None else f"{estimate.p_value:.3f}"


def _numbers(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    if estimate is None:
        return None, None, None
    return estimate.score, estimate.half_width, estimate.p_value
