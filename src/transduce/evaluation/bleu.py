"""BLEU and chrF by sacreBLEU, on detokenised text and raw references."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transduce.config import RequestError


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Corpus scores, each with sacreBLEU's signature of how it was computed."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    sentences: int

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.2f} ({self.bleu_signature}), chrF {self.chrf:.2f}"


def quality(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Quality:
    """`references` holds one or more whole reference texts, each as long as `hypotheses`.

    Raises `RequestError` when they are not of the same length.
    """
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise RequestError(
                f"reference {number} has {len(reference)} lines, "
                f"but there are {len(hypotheses)} translations"
            )
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), references).score
    chrf_score = chrf.corpus_score(list(hypotheses), references).score
    return Quality(
        bleu=bleu_score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score,
        chrf_signature=str(chrf.get_signature()),
        sentences=len(hypotheses),
    )
