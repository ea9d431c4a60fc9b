"""What `translate` and `score` do with files."""

import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Literal

from transduce.arrays import BOS, EOS, PAD
from transduce.config import RequestError, SearchConfig
from transduce.config_checks import require
from transduce.decoding.answers import Answer, answers
from transduce.decoding.formats import as_json, as_text
from transduce.decoding.scoring import score_pairs
from transduce.decoding.streams import arrivals, whole_lines
from transduce.decoding.throughput import Throughput
from transduce.decoding.translator import Translation, Translator
from transduce.decoding.workdir import Trained
from transduce.model.transformer import with_dtype
from transduce.parallel import hosts
from transduce.text.lines import read_lines, readable
from transduce.text.treebank import clean, parse_trees
from transduce.text.trees_as_text import Repairs, linearize


@dataclass(frozen=True, kw_only=True)
class Output:
    """How translations are written."""

    format: Literal["text", "jsonl"] = "text"
    n_best: int = 1
    scores: bool = False
    alignments: bool = False

    def __post_init__(self) -> None:
        require(
            self.format == "jsonl" or not self.alignments,
            "--alignments are written in JSON alone: add --format jsonl",
        )

    def lines(self, number: int, translation: Translation) -> list[str]:
        """What is written of line `number`."""
        if self.format == "jsonl":
            return as_json(number, translation, n_best=self.n_best)
        return as_text(number, translation, n_best=self.n_best, scores=self.scores)


def translate(
    trained: Trained,
    search: SearchConfig,
    *,
    source: str,
    output: str,
    prefix: str | None,
    batch_size: int,
    style: Output,
) -> None:
    """Writes the translations of the lines of `source`, in order, as they are ready.

    Lines that come through a pipe are taken as they come, at most `batch_size` at a time, and
    are answered as they come. A file is read whole before anything is written, and `batch_size` of
    its lines are sorted by length and searched together. So is a pipe whose lines have prefixes.
    Any bytes are answered: what is no text in a line is read as U+FFFD, with a warning.
    """
    require(batch_size > 0, f"--batch-size must be positive, not {batch_size}")
    translator = Translator(
        trained.models,
        trained.vocabulary,
        search,
        n_best=style.n_best,
        alignments=style.alignments,
        prefixes=prefix is not None,
        trees=bool(trained.vocabulary.symbols),
    )
    found = answers(translator, _parts(source, prefix, batch_size), style.lines)
    if not hosts.is_first():
        _work(found)
        return
    # Over what is typed on a terminal, or written there, nothing else is drawn.
    live = not any(
        path == "-" and os.isatty(number) for number, path in enumerate((source, output))
    )
    lines, repaired, repairs = 0, 0, Repairs()
    with whole_lines(output) as writer, Throughput(live=live) as throughput:
        for answer in found:
            _warn(answer)
            writer.write(answer.lines)
            throughput.add(answer.pieces)
            lines, repaired = lines + 1, repaired + bool(answer.repairs)
            repairs += Repairs(**answer.repairs)
    if trained.vocabulary.symbols:
        what = f": {repairs}" if repairs else ""
        print(f"transduce: {repaired:,} of {lines:,} trees repaired{what}", file=sys.stderr)


def _parts(source: str, prefix: str | None, batch_size: int) -> Iterator[Sequence[tuple[str, str]]]:
    """Lines with their prefixes, some at a time; those of a file are all read first."""
    if hosts.process()[1] > 1 and "-" in (source, prefix):
        raise RequestError("several processes cannot share standard input: give a file")
    lines = read_lines(source, any_bytes=True)
    if prefix is None and hosts.process()[1] == 1 and _arrives(source):
        return ([(line, "") for line in part] for part in arrivals(lines, most=batch_size))
    whole = list(lines)
    prefixes = [""] * len(whole) if prefix is None else list(read_lines(prefix))
    _require_parallel(source, whole, prefix or "", prefixes)
    return batched(zip(whole, prefixes, strict=True), batch_size)


def _arrives(path: str) -> bool:
    """Whether lines come from somebody who may be waiting for the answer."""
    try:
        mode = os.fstat(0).st_mode if path == "-" else os.stat(path).st_mode
    except OSError:
        # Who reads it says what is wrong with it.
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def score(trained: Trained, *, source: str, target: str, style: Literal["text", "jsonl"]) -> None:
    """Writes log P(target | source) of each pair of lines to standard output.

    Of "jsonl", what `translate` wrote in that format, the tokens are scored as they are; a text
    is cut into pieces, which need not be those that a search wrote. Of a parser, a text is a tree.
    Any bytes are scored: what is no text is read as U+FFFD, with a warning.
    Raises `RequestError` before anything is written when the files differ in length, such a line
    is no such object, or the line is not one tree.
    """
    sources, targets = _any_lines(source), _any_lines(target)
    _require_parallel(source, sources, target, targets)
    vocabulary = trained.vocabulary
    if style == "text":
        if vocabulary.symbols:
            targets = [_symbols(target, n, line) for n, line in enumerate(targets, start=1)]
        encoded = vocabulary.encode_targets(targets)
    else:
        encoded = [_ids(trained, target, n, line) for n, line in enumerate(targets, start=1)]
    pairs = zip(vocabulary.encode_many(sources), encoded, strict=True)
    search = trained.experiment.search
    models = [with_dtype(model, search.dtype or model.config.dtype) for model in trained.models]
    with whole_lines("-") as writer:
        for value in score_pairs(models, pairs, block_rows=search.block_rows):
            writer.write([f"{value:.6f}"])


def _any_lines(path: str) -> list[str]:
    """The lines of a file of any bytes; a warning names those in which some are no text."""
    lines = []
    for number, line in enumerate(read_lines(path, any_bytes=True), start=1):
        text, note = readable(line)
        if note:
            print(f"transduce: warning: {path}, line {number}: {note}", file=sys.stderr)
        lines.append(text)
    return lines


def hypotheses(trained: Trained, search: SearchConfig, sources: Sequence[str]) -> list[str]:
    """The best translation of each line; warnings about lines go to standard error.

    Of several processes the first has them all, the others none.
    """
    translator = Translator(trained.models, trained.vocabulary, search)
    part = [(source, "") for source in sources]
    texts = []
    for answer in answers(translator, [part], lambda _, found: [found.hypotheses[0].text]):
        _warn(answer)
        texts += answer.lines
    return texts


def _work(found: Iterator[Answer]) -> None:
    """Translates this process's share."""
    for answer in found:
        raise AssertionError(f"only the first process writes, but here is {answer}")


def _warn(answer: Answer) -> None:
    for note in answer.notes:
        print(f"transduce: warning: line {answer.number}: {note}", file=sys.stderr)


def _symbols(path: str, number: int, line: str) -> str:
    """The symbols of the tree in a line, if there is one."""
    trees = [clean(tree) for tree in parse_trees([line], name=f"{path}, line {number}")]
    if len(trees) > 1:
        raise RequestError(f"{path}, line {number}: holds {len(trees)} trees; it takes one")
    return " ".join(linearize(trees[0])) if trees else ""


def _ids(trained: Trained, path: str, number: int, line: str) -> list[int]:
    """The ids of the tokens in a JSON line."""
    where = f"{path}, line {number}"
    try:
        tokens = json.loads(line)["tokens"]
        ids = [trained.vocabulary.id_of(token) for token in tokens]
    except (ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f"{where}: no JSON object with tokens of this vocabulary, as translate --format jsonl "
            f"writes it: {error!r}"
        ) from error
    if EOS in ids[:-1] or PAD in ids or BOS in ids:
        raise RequestError(
            f"{where}: tokens have a control symbol before their end; a line that was split is no "
            "one hypothesis"
        )
    # A blank line is not searched, and has no tokens.
    return ids if ids[-1:] == [EOS] else [*ids, EOS]


def _require_parallel(one: str, ones: Sequence[str], other: str, others: Sequence[str]) -> None:
    if len(ones) != len(others):
        raise RequestError(
            f"{one} has {len(ones)} lines and {other} has {len(others)}: "
            "parallel files must have equally many"
        )
