import json
import math
import random
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from transduce.config import RequestError
from transduce.evaluation.bleu import quality

SENTENCES = [
    "Der Mann liest ein Buch, und die Frau schläft.",
    '"Wohin?", fragte sie: um 8.30 Uhr!',
    "Zwei Hunde laufen über die Wiese (sehr schnell).",
    "",
    "Er hat 1,234.5 Euro & 20% verloren.",
    "Ein kleines Mädchen spielt im Garten mit einem Ball .",
    "日本語 の 文 です。",
]


def noisy(sentence: str, generator: random.Random) -> str:
    """Some words left out, said twice or written small."""
    words = []
    for word in sentence.split():
        words += generator.choice([[word], [word], [word], [word, word], [word.lower()], []])
    return " ".join(words)


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[list[str]]]:
    """70 translations and three references for each."""
    generator = random.Random(3)
    originals = SENTENCES * 10
    made = [[noisy(line, generator) for line in originals] for _ in range(3)]
    return made[0], [originals, *made[1:]]


def program(folder: Path, hypotheses: list[str], references: list[list[str]]) -> list[dict]:
    """What the sacrebleu program says about the same texts in files."""
    paths = []
    for number, lines in enumerate([hypotheses, *references]):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *map(str, paths[1:]), "-i", str(paths[0])]
    options = ["-m", "bleu", "chrf", "-w", "6"]
    found = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize("count", [1, 3])
def test_scores_are_those_of_the_sacrebleu_program(
    tmp_path: Path, texts: tuple[list[str], list[list[str]]], count: int
) -> None:
    """E1: with one reference and with several; the signature says how, and is stored."""
    hypotheses, references = texts[0], texts[1][:count]
    bleu, chrf = program(tmp_path, hypotheses, references)
    found = quality(hypotheses, references)
    assert 20 < found.bleu < 95
    assert found.bleu == pytest.approx(bleu["score"], abs=0.005)
    assert found.chrf == pytest.approx(chrf["score"], abs=0.005)
    assert found.bleu_signature == bleu["signature"]
    assert found.chrf_signature == chrf["signature"]
    assert found.sentences == 70
    assert found.bleu_signature == (
        f"nrefs:{count}|case:mixed|eff:no|tok:13a|smooth:exp|version:{version('sacrebleu')}"
    )


def test_a_text_scores_100_against_itself() -> None:
    assert quality(SENTENCES, [SENTENCES]).bleu == pytest.approx(100)
    assert quality(SENTENCES, [SENTENCES]).chrf == pytest.approx(100)


def test_bleu_is_that_of_the_whole_text() -> None:
    """By hand: 9 of 10 words, 7 of 8 pairs, 5 of 6 triples and 3 of 4 quadruples are right.

    Lengths are equal, so 100 (9/10 x 7/8 x 5/6 x 3/4)^(1/4) = 83.76. The mean over sentences, of
    100 and 100 (4/5 x 3/4 x 2/3 x 1/2)^(1/4) = 66.87, is 83.44.
    """
    references = ["a b c d e", "f g h i j"]
    found = quality(["a b c d e", "f g h i x"], [references])
    assert found.bleu == pytest.approx(100 * (0.9 * 0.875 * 5 / 6 * 0.75) ** 0.25, abs=1e-6)


def test_an_empty_translation_counts() -> None:
    """T6: the brevity penalty e^(1 - 10/5) sees the line that is missing."""
    references = ["a b c d e", "f g h i j"]
    found = quality(["a b c d e", ""], [references])
    assert found.bleu == pytest.approx(100 * math.exp(-1))
    assert found.sentences == 2


@pytest.mark.parametrize("lines", [1, 3])
def test_another_number_of_lines_is_refused(lines: int) -> None:
    """T7: nothing is scored on a part of the text."""
    message = f"reference 2 has {lines} lines, but there are 2 translations"
    with pytest.raises(RequestError, match=message):
        quality(["a", "b"], [["a", "b"], ["a"] * lines])
