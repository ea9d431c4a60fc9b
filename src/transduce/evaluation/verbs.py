"""What `evaluate` and `compare` do."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from transduce.config import RequestError, SearchConfig
from transduce.decoding import verbs
from transduce.decoding.workdir import Trained
from transduce.evaluation.bleu import quality
from transduce.evaluation.parses import parse_quality, require_same_words
from transduce.evaluation.significance import compare_files
from transduce.parallel import hosts
from transduce.text.lines import read_lines
from transduce.text.treebank import read_trees


def evaluate(
    trained: Trained, search: SearchConfig, *, source: str, references: Sequence[str]
) -> None:
    """Writes BLEU and chrF of the translations of `source`, with signatures, as JSON.

    Of a parser, `parse_quality` against the trees in the one reference; when `source` is the same
    file, their words are parsed. Raises `RequestError` before translating when a reference is not
    as long as the source, there is none, or the source is empty.
    """
    if not references:
        raise RequestError("--reference must name at least one file")
    if trained.vocabulary.symbols:
        _evaluate_parser(trained, search, source=source, references=references)
        return
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


def _evaluate_parser(
    trained: Trained, search: SearchConfig, *, source: str, references: Sequence[str]
) -> None:
    if len(references) > 1:
        raise RequestError(f"--reference is one file of trees to a parser, not {len(references)}")
    (reference,) = references
    gold = list(read_trees(reference))
    same = source == reference
    sources = [" ".join(tree.words()) for tree in gold] if same else list(read_lines(source))
    if len(gold) != len(sources):
        raise RequestError(
            f"{reference} has {len(gold)} trees and {source} has {len(sources)} lines: "
            "each source line needs its tree"
        )
    require_same_words(gold, sources, name=reference)
    found = verbs.hypotheses(trained, search, sources)
    if not hosts.is_first():
        return
    scores = parse_quality(found, sources, gold, known=trained.vocabulary.symbols)
    print(json.dumps(asdict(scores), indent=2))


def compare(*, references: Sequence[str], systems: Sequence[str], samples: int, seed: int) -> None:
    """Writes what `compare_files` finds as JSON, and raises `RequestError` as it does."""
    found = compare_files(references=references, systems=systems, samples=samples, seed=seed)
    print(json.dumps(asdict(found), indent=2))
