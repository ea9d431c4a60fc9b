"""What `translate`, `score` and `evaluate` do with files."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from transduce.config import RequestError, SearchConfig
from transduce.decoding.scoring import score_pairs
from transduce.decoding.translator import Translation, Translator
from transduce.decoding.workdir import Trained
from transduce.text.lines import count_parallel, read_lines


def translate(
    trained: Trained, search: SearchConfig, *, source: str, output: str, scores: bool
) -> None:
    """Writes one line for each line of `source`, in order.

    With `scores`, each begins with the log-probability and a tab. A file is read whole before
    anything is written; standard input is read as it comes.
    """
    lines = read_lines(source) if source == "-" else list(read_lines(source))
    with _written(output) as file:
        for translation in _translations(trained, search, lines):
            best = translation.hypotheses[0]
            prefix = f"{best.log_probability:.6f}\t" if scores else ""
            # The output has one line for each line, also where a vocabulary could spell "\n".
            file.write(prefix + best.text.replace("\n", " ") + "\n")


def score(trained: Trained, *, source: str, target: str) -> None:
    """Writes log P(target | source) of each pair of lines to standard output."""
    count_parallel(source, target)
    pairs = zip(read_lines(source), read_lines(target), strict=True)
    rows = trained.experiment.search.block_rows
    for value in score_pairs(trained.model, trained.vocabulary, pairs, block_rows=rows):
        print(f"{value:.6f}")


def hypotheses(trained: Trained, search: SearchConfig, sources: Sequence[str]) -> list[str]:
    """The best translation of each line."""
    found = _translations(trained, search, sources)
    return [translation.hypotheses[0].text.replace("\n", " ") for translation in found]


def _translations(
    trained: Trained, search: SearchConfig, lines: Iterable[str]
) -> Iterator[Translation]:
    translator = Translator(trained.model, trained.vocabulary, search)
    for number, translation in enumerate(translator.translate(lines), start=1):
        for note in translation.notes:
            print(f"transduce: warning: line {number}: {note}", file=sys.stderr)
        yield translation


@contextmanager
def _written(path: str) -> Iterator[TextIO]:
    """The file to write, or standard output for "-"; only "\\n" ends its lines."""
    if path == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # pyright: ignore[reportAttributeAccessIssue] a TextIOWrapper
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        file = open(path, "w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise RequestError(f"{path}: cannot write: {error.strerror}") from error
    with file:
        yield file
