"""What `evaluate` and `compare` do."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from transduce.config import RequestError, SearchConfig
from transduce.decoding import verbs
from transduce.decoding.workdir import Trained
from transduce.evaluation.bleu import quality
from transduce.evaluation.significance import compare_files
from transduce.parallel import hosts
from transduce.text.lines import read_lines


def evaluate(
    trained: Trained, search: SearchConfig, *, source: str, references: Sequence[str]
) -> None:
    """Writes BLEU and chrF of the translations of `source`, with signatures, as JSON.

    Raises `RequestError` before translating when a reference is not as long as the source, there
    is none, or the source is empty.
    """
    if not references:
        raise RequestError("--reference must name at least one file")
    sources = list(read_lines(source))
    if not sources:
        raise RequestError(f"{source} is empty: there must be at least one line to score")
    texts = [list(read_lines(path)) for path in references]
    for path, text in zip(references, texts, strict=True):
        if len(text) != len(sources):
            raise RequestError(
                f"{path} has {len(text)} lines and {source} has {len(sources)}: "
                "each source line needs its reference"
            )
    found = verbs.hypotheses(trained, search, sources)
    if not hosts.is_first():
        return
    scores = quality(found, texts)
    print(json.dumps(asdict(scores), indent=2))


def compare(*, references: Sequence[str], systems: Sequence[str], samples: int, seed: int) -> None:
    """Writes what `compare_files` finds as JSON, and raises `RequestError` as it does."""
    found = compare_files(references=references, systems=systems, samples=samples, seed=seed)
    print(json.dumps(asdict(found), indent=2))
