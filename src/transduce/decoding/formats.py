"""What is written of a translated line; `number` is that line's, counted from 1."""

import json
import re
from typing import Any

from transduce.decoding.translator import Hypothesis, Translation

_DIGITS = 6

# Beyond what JSON escapes anyway: the other ends of lines that str.splitlines knows, and halves
# of surrogate pairs, which UTF-8 cannot hold.
_UNSAFE = re.compile("[\x85\u2028\u2029\ud800-\udfff]")


def as_text(number: int, translation: Translation, *, n_best: int, scores: bool) -> list[str]:
    """The best text as one line; with `scores`, after its log-probability and a tab.

    With an `n_best` above 1, as many lines as there are hypotheses, at most `n_best`, each in the
    format of Moses: the number of the source line counted from 0, the text, the log-probability
    and the score that ranks, with " ||| " between them. Texts are as they are, so that one with
    " ||| " inside is found between the first of them in a line and the last but one.
    """
    hypotheses = translation.hypotheses[:n_best]
    if n_best > 1:
        return [
            f"{number - 1} ||| {hypothesis.text} ||| {_decimals(hypothesis.log_probability)} "
            f"||| {_decimals(hypothesis.penalized_score)}"
            for hypothesis in hypotheses
        ]
    (best,) = hypotheses
    return [f"{_decimals(best.log_probability)}\t{best.text}" if scores else best.text]


def as_json(number: int, translation: Translation, *, n_best: int) -> list[str]:
    """One line: a JSON object of the best hypothesis, and of the alternatives to it.

    It has "line" (the number), "text", "tokens" with the end of sentence, "score" (the
    log-probability, as `transduce score` gives it), "penalized_score" (what ranks), "length" (of
    the tokens), "token_log_probabilities", and "notes" on the line. Where there is an alignment
    it has "alignment", a row of weights over "source_tokens" for each token. With an `n_best`
    above 1 it has "alternatives", a list of the hypotheses from the second to the last of
    `n_best`, with what the best one has but for "line", "source_tokens" and "notes".

    Readers that take U+2028 and the like for ends of lines find one line too. Raises `ValueError`
    for a number that is not finite, which JSON cannot hold.
    """
    best, *others = translation.hypotheses[:n_best]
    record = {"line": number, **_fields(best)}
    if best.alignment is not None:
        record["source_tokens"] = translation.source_tokens
    record["notes"] = translation.notes
    if n_best > 1:
        record["alternatives"] = [_fields(hypothesis) for hypothesis in others]
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return [_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)]


def _fields(hypothesis: Hypothesis) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "text": hypothesis.text,
        "tokens": hypothesis.tokens,
        "score": _rounded(hypothesis.log_probability),
        "penalized_score": _rounded(hypothesis.penalized_score),
        "length": len(hypothesis.tokens),
        "token_log_probabilities": [_rounded(x) for x in hypothesis.token_log_probabilities],
    }
    if hypothesis.alignment is not None:
        fields["alignment"] = [[_rounded(x) for x in row] for row in hypothesis.alignment]
    return fields


def _rounded(value: float) -> float:
    # Adding 0 makes 0 of -0.
    return round(value, _DIGITS) + 0.0


def _decimals(value: float) -> str:
    return f"{value:z.{_DIGITS}f}"
