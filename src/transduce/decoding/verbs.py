"""What `translate`, `score` and `evaluate` do with files."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TextIO

from transduce.config import RequestError, SearchConfig
from transduce.decoding.scoring import score_pairs
from transduce.decoding.translator import Translation, Translator
from transduce.decoding.workdir import Trained
from transduce.text.lines import read_lines


def translate(
    trained: Trained, search: SearchConfig, *, source: str, output: str, scores: bool
) -> None:
    """Writes one line for each line of `source`, in order.

    With `scores`, each begins with the log-probability and a tab. The source is read whole
    before anything is written, so that a bad line leaves no output; only from standard input to
    standard output are lines taken as they come, some hundreds at a time.
    """
    lines = read_lines(source)
    if (source, output) != ("-", "-"):
        lines = list(lines)
    translations = _translations(trained, search, lines)
    with _written(output) as file:
        for translation in translations:
            best = translation.hypotheses[0]
            prefix = f"{best.log_probability:.6f}\t" if scores else ""
            file.write(prefix + best.text + "\n")


def score(trained: Trained, *, source: str, target: str) -> None:
    """Writes log P(target | source) of each pair of lines to standard output.

    Raises `RequestError` before anything is written when the files differ in length.
    """
    sources, targets = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(targets):
        raise RequestError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}: "
            "parallel files must have equally many"
        )
    rows = trained.experiment.search.block_rows
    pairs = zip(sources, targets, strict=True)
    for value in score_pairs(trained.model, trained.vocabulary, pairs, block_rows=rows):
        print(f"{value:.6f}")


def hypotheses(trained: Trained, search: SearchConfig, sources: Sequence[str]) -> list[str]:
    """The best translation of each line."""
    found = _translations(trained, search, sources)
    return [translation.hypotheses[0].text for translation in found]


def _translations(
    trained: Trained, search: SearchConfig, lines: Iterable[str]
) -> Iterator[Translation]:
    translator = Translator(trained.model, trained.vocabulary, search)
    return _reported(translator.translate(lines))


def _reported(translations: Iterator[Translation]) -> Iterator[Translation]:
    """The translations; notes on them go to standard error."""
    for number, translation in enumerate(translations, start=1):
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
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))
        except OSError as error:
            raise RequestError(f"{path}: cannot write: {error.strerror}") from error
        yield file
