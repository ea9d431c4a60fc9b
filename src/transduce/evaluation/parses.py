"""How good parses are: EVALB's figures over sentences, with and without an outer S."""

from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass

from transduce.config import RequestError
from transduce.evaluation.bracket_parameters import PENN_TREEBANK, Parameters
from transduce.evaluation.brackets import Totals, percent, score, total
from transduce.text.treebank import Tree, same_words
from transduce.text.trees_as_text import Repairs, restore


@dataclass(frozen=True, kw_only=True)
class ParseQuality:
    """Rates are in percent. Totals leave out sentences in error and skipped ones, as EVALB's do.

    F1 and what belongs to it are of `Parameters`, by default the usual ones.
    """

    f1: float
    """0 when not one constituent is right, where EVALB has NaN."""
    recall: float
    precision: float
    f1_without_outer_s: float
    """The same after `without_outer_s` of both trees: some treebanks have one S more around
    nearly every sentence, which is easy to get right."""
    recall_without_outer_s: float
    precision_without_outer_s: float
    complete_match: float
    tagging_accuracy: float
    sentences: int
    errors: int
    skipped: int
    repaired: int
    """Outputs that were changed to be trees over their sentences' words."""
    repairs: dict[str, int]
    """How often what was changed, of what was."""

    @property
    def over_all(self) -> float:
        """F1 times the share of sentences that are not in error: few easy ones do not make a best.

        EVALB has an error where a parser takes a word for punctuation, or punctuation for a word.
        """
        return self.f1 * (1 - self.errors / max(1, self.sentences))

    def __str__(self) -> str:
        return (
            f"F1 {self.f1:.2f} ({self.f1_without_outer_s:.2f} without the outer S), tags "
            f"{self.tagging_accuracy:.2f}, {self.repaired:,} repaired, {self.errors:,} in error"
        )


def without_outer_s(tree: Tree) -> Tree:
    """The tree without its outermost bracket if that is an S with one constituent and no more.

    In the GENIA treebank it is in nearly all trees, `(S (S (NP ...) (VP ...) (. .)))`.
    """
    if tree.label == "S" and len(tree.children) == 1 and tree.children[0].word is None:
        return tree.children[0]
    return tree


def parse_quality(
    outputs: Sequence[str],
    sentences: Sequence[str],
    gold: Sequence[Tree],
    *,
    known: Container[str] | None = None,
    parameters: Parameters = PENN_TREEBANK,
) -> ParseQuality:
    """Scores the symbols that a parser wrote for each of `sentences`, after `restore`.

    `gold` has a cleaned tree for each sentence, over the same words.
    """
    restored = [
        restore(output, sentence, known=known)
        for output, sentence in zip(outputs, sentences, strict=True)
    ]
    trees = [tree for tree, _ in restored]
    whole = _total(gold, trees, parameters)
    bare = _total(
        [without_outer_s(tree) for tree in gold],
        [without_outer_s(tree) for tree in trees],
        parameters,
    )
    repairs = sum((each for _, each in restored), Repairs())
    return ParseQuality(
        f1=whole.f_measure if whole.matched else 0.0,
        recall=whole.recall,
        precision=whole.precision,
        f1_without_outer_s=bare.f_measure if bare.matched else 0.0,
        recall_without_outer_s=bare.recall,
        precision_without_outer_s=bare.precision,
        complete_match=percent(whole.complete, whole.valid),
        tagging_accuracy=percent(whole.tags, whole.words),
        sentences=whole.sentences,
        errors=whole.errors,
        skipped=whole.skipped,
        repaired=sum(bool(each) for _, each in restored),
        repairs={name: count for name, count in asdict(repairs).items() if count},
    )


def require_same_words(gold: Sequence[Tree], sentences: Sequence[str], *, name: str) -> None:
    """Raises `RequestError` with the number of the first tree of file `name` over other words."""
    for number, (tree, sentence) in enumerate(zip(gold, sentences, strict=True), start=1):
        if not same_words(tree, sentence):
            raise RequestError(
                f"{name}, tree {number}: is over the words {' '.join(tree.words())!r}, "
                f"not {sentence!r}"
            )


def _total(gold: Sequence[Tree], trees: Sequence[Tree], parameters: Parameters) -> Totals:
    return total(
        score(str(one), str(other), parameters) for one, other in zip(gold, trees, strict=True)
    )
