import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from transduce.config import RequestError
from transduce.evaluation.bleu import quality
from transduce.evaluation.significance import Comparison, compare_files

WORDS = ["der", "die", "das", "mann", "frau", "hund", "buch", "liest", "und", "nicht", "garten"]


def write(path: Path, lines: Sequence[str]) -> str:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def noisy(sentence: str, chance: float, generator: random.Random) -> str:
    """Some words exchanged for others or left out."""
    other = (generator.choice(["", generator.choice(WORDS)]) for _ in sentence)
    words = (next(other) if generator.random() < chance else word for word in sentence.split())
    return " ".join(word for word in words if word)


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """60 sentences, another reference for each, and three systems, the last of them worse."""
    generator = random.Random(5)
    sentences = [
        " ".join(generator.choice(WORDS) for _ in range(generator.randint(5, 12)))
        for _ in range(60)
    ]
    chances = {"reference2": 0.2, "one": 0.2, "two": 0.22, "three": 0.35}
    made = {
        name: [noisy(sentence, chance, generator) for sentence in sentences]
        for name, chance in chances.items()
    }
    return {"reference": sentences, **made}


@pytest.fixture(scope="module")
def paths(texts: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("texts")
    return {name: write(folder / name, lines) for name, lines in texts.items()}


def compared(paths: dict[str, str], *systems: str, samples: int = 200, seed: int = 9) -> Comparison:
    names = [paths[name] for name in systems]
    return compare_files(references=[paths["reference"]], systems=names, samples=samples, seed=seed)


# An independent implementation, for text of words of letters and single spaces.


def ngrams(units: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(units[at : at + order]) for at in range(len(units) - order + 1))


def bleu_counts(hypothesis: str, references: Sequence[str]) -> list[int]:
    """Right and all n-grams for n = 1 to 4, the length, and the closest reference's length."""
    words, others = hypothesis.split(), [reference.split() for reference in references]
    right, found = [], []
    for order in (1, 2, 3, 4):
        allowed = Counter[tuple[str, ...]]()
        for other in others:
            allowed |= ngrams(other, order)
        right.append((ngrams(words, order) & allowed).total())
        found.append(ngrams(words, order).total())
    closest = min((abs(len(other) - len(words)), len(other)) for other in others)[1]
    return [*right, *found, len(words), closest]


def bleu(counts: np.ndarray) -> np.ndarray:
    """[samples, 10] to [samples]."""
    right, found, length, wanted = counts[:, :4], counts[:, 4:8], counts[:, 8], counts[:, 9]
    assert (right > 0).all(), "no smoothing here"
    brevity = np.exp(np.minimum(0, 1 - wanted / length))
    return 100 * brevity * np.exp(np.log(right / found).mean(1))


def chrf_counts(hypothesis: str, references: Sequence[str]) -> list[int]:
    """Right, found and wanted n-grams of characters for n = 1 to 6, of the best reference."""
    possible = []
    for reference in references:
        ours, theirs = hypothesis.replace(" ", ""), reference.replace(" ", "")
        triples = []
        for order in range(1, 7):
            found, wanted = ngrams(ours, order), ngrams(theirs, order)
            triples += [(found & wanted).total(), found.total(), wanted.total()]
        possible.append(triples)
    return max(possible, key=lambda triples: chrf(np.array([triples]))[0])


def chrf(counts: np.ndarray) -> np.ndarray:
    """[samples, 18] to [samples]."""
    right, found, wanted = (counts[:, at::3].astype(float) for at in range(3))
    assert (found > 0).all()
    assert (wanted > 0).all()
    precision, recall = (right / found).mean(1), (right / wanted).mean(1)
    return 100 * 5 * precision * recall / (4 * precision + recall)


def bootstrap(statistics: list[np.ndarray], score, *, samples: int, seed: int):
    """Score, mean, half width and p of each system whose statistics are [sentences, counts]."""
    size = len(statistics[0])
    drawn = np.random.default_rng(seed).choice(size, size=(samples, size), replace=True)
    times = np.stack([np.bincount(row, minlength=size) for row in drawn])
    scores = [score(times @ counts) for counts in statistics]
    whole = [score(counts.sum(0)[None])[0] for counts in statistics]
    answers = []
    for ours, total in zip(scores, whole, strict=True):
        inner = np.sort(ours)[samples // 40 : samples - samples // 40]
        differences = np.abs(ours - scores[0])
        larger = differences - differences.mean() > abs(total - whole[0])
        p_value = (larger.sum() + 1) / (samples + 1)
        answers.append((total, ours.mean(), (inner[-1] - inner[0]) / 2, p_value))
    return answers


@pytest.mark.parametrize("count", [1, 2])
def test_the_bootstrap_is_that_of_an_independent_implementation(
    texts: dict[str, list[str]], paths: dict[str, str], count: int
) -> None:
    references = ["reference", "reference2"][:count]
    systems = ["one", "two", "three"]
    found = compare_files(
        references=[paths[name] for name in references],
        systems=[paths[name] for name in systems],
        samples=200,
        seed=9,
    )
    wanted = list(zip(*(texts[name] for name in references), strict=True))
    for metric, counts, score in (("bleu", bleu_counts, bleu), ("chrf", chrf_counts, chrf)):
        statistics = [
            np.array([counts(line, lines) for line, lines in zip(texts[name], wanted, strict=True)])
            for name in systems
        ]
        expected = bootstrap(statistics, score, samples=200, seed=9)
        answers = [getattr(system, metric) for system in found.systems]
        for answer, (whole, mean, half_width, p_value) in zip(answers, expected, strict=True):
            # sacreBLEU scores the samples in single precision.
            assert answer.score == pytest.approx(whole, abs=1e-9)
            assert answer.mean == pytest.approx(mean, abs=1e-4)
            assert answer.half_width == pytest.approx(half_width, abs=1e-4)
            if answer is not answers[0]:
                assert answer.p_value == pytest.approx(p_value, abs=1e-9)
        assert answers[0].p_value is None
        # The case is worth testing: the second system may be as good, the third is not.
        assert expected[1][3] > 0.05 > expected[2][3]
    assert [system.system for system in found.systems] == [paths[name] for name in systems]
    assert (found.sentences, found.samples, found.seed) == (60, 200, 9)


def test_two_sentences_are_drawn_in_three_ways(tmp_path: Path) -> None:
    """By hand: the baseline is right, the other system in its first sentence of two only.

    A sample is both sentences with probability 1/2, the first or the second twice with 1/4. The
    other scores 100 on the first, 0 on the second and on both d less than 100:
    BLEU 100 (10/15 x 9/13 x 8/11 x 7/9)^(1/4) = 71.48, chrF the mean of 10/15, 9/13, 8/11, 7/9,
    6/7 and 5/5, 78.69. So the differences are 0, d and 100, their mean is about d/2 + 25, and
    100 - (d/2 + 25) > d for both metrics: a sample counts when it is the second sentence twice.
    """
    right = write(tmp_path / "right", ["a b c d e f g h i j", "k l m n o"])
    half = write(tmp_path / "half", ["a b c d e f g h i j", "v w x y z"])
    found = compare_files(references=[right], systems=[right, half], samples=1000, seed=3)
    one, two = found.systems
    p_values = set()
    for baseline, other, score in ((one.bleu, two.bleu, 71.48), (one.chrf, two.chrf, 78.69)):
        assert baseline.score == pytest.approx(100)
        assert baseline.mean == pytest.approx(100, abs=1e-4)
        assert baseline.half_width == pytest.approx(0, abs=1e-4)
        assert other.score == pytest.approx(score, abs=0.01)
        # Four standard errors of 1,000 samples.
        assert other.mean == pytest.approx(25 + score / 2, abs=5)
        assert other.half_width == pytest.approx(50, abs=1e-4)
        assert other.p_value == pytest.approx(0.25, abs=0.055)
        p_values.add(other.p_value)
    # Both metrics see the same samples.
    assert len(p_values) == 1


def test_one_sentence_has_no_spread(tmp_path: Path) -> None:
    """Every sample is the sentence, so the mean is the score: 100 (4/5 3/4 2/3 1/2)^(1/4)."""
    reference = write(tmp_path / "reference", ["a b c d e"])
    system = write(tmp_path / "system", ["a b c d x"])
    found = compare_files(references=[reference], systems=[system, system], samples=50, seed=1)
    estimate = found.systems[0].bleu
    assert estimate.score == pytest.approx(100 * (0.8 * 0.75 * 2 / 3 * 0.5) ** 0.25)
    assert estimate.mean == pytest.approx(estimate.score, abs=1e-4)
    assert estimate.half_width == pytest.approx(0, abs=1e-4)


def test_a_system_does_not_differ_from_itself(paths: dict[str, str]) -> None:
    """E2: p is 1, not sacreBLEU's 1/201, which would call the difference significant."""
    found = compared(paths, "one", "one", "three")
    baseline, same, other = found.systems
    for metric in ("bleu", "chrf"):
        first, second = getattr(baseline, metric), getattr(same, metric)
        assert (first.p_value, second.p_value) == (None, 1)
        assert (first.score, first.mean, first.half_width) == (
            second.score,
            second.mean,
            second.half_width,
        )
        assert getattr(other, metric).p_value < 0.05


def test_texts_that_the_metrics_cannot_tell_apart_do_not_differ(
    tmp_path: Path, texts: dict[str, list[str]], paths: dict[str, str]
) -> None:
    """E2: neither metric counts blanks at the end of a line."""
    blanks = write(tmp_path / "blanks", [f"{line} " for line in texts["one"]])
    found = compared({**paths, "blanks": blanks}, "one", "blanks")
    assert (found.systems[1].bleu.p_value, found.systems[1].chrf.p_value) == (1, 1)


def test_systems_without_a_single_right_word_do_not_differ(tmp_path: Path) -> None:
    """E2: both score 0, in each sample too."""
    names = {name: write(tmp_path / name, [name * 5] * 4) for name in "abc"}
    found = compare_files(
        references=[names["a"]], systems=[names["b"], names["c"]], samples=50, seed=1
    )
    assert (found.systems[1].bleu.score, found.systems[1].bleu.p_value) == (0, 1)
    assert (found.systems[1].chrf.score, found.systems[1].chrf.p_value) == (0, 1)


def test_the_seed_alone_decides_the_samples(
    paths: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E2: repeatable, whatever sacreBLEU's variable says, which is left as it was."""
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    found = compared(paths, "one", "two")
    assert "SACREBLEU_SEED" not in os.environ
    for value in ("77", "none"):
        monkeypatch.setenv("SACREBLEU_SEED", value)
        assert compared(paths, "one", "two") == found
        assert os.environ["SACREBLEU_SEED"] == value
    other = compared(paths, "one", "two", seed=10)
    for ours, theirs in zip(found.systems, other.systems, strict=True):
        assert ours.bleu.score == theirs.bleu.score
        assert ours.bleu.mean != theirs.bleu.mean


def test_a_system_is_judged_whatever_its_company(paths: dict[str, str]) -> None:
    many = compared(paths, "one", "two", "three")
    assert compared(paths, "one", "three").systems == (many.systems[0], many.systems[2])


def test_scores_are_those_of_evaluate(texts: dict[str, list[str]], paths: dict[str, str]) -> None:
    for system, name in zip(compared(paths, "one", "three").systems, ("one", "three"), strict=True):
        expected = quality(texts[name], [texts["reference"]])
        assert (system.bleu.score, system.chrf.score) == (expected.bleu, expected.chrf)


def test_figures_are_those_of_the_sacrebleu_program(paths: dict[str, str]) -> None:
    """E1: of BLEU; the program cannot write a bootstrap's chrF as JSON."""
    names = [paths[name] for name in ("one", "two", "three")]
    command = [sys.executable, "-m", "sacrebleu", paths["reference"], "-i", *names, "-m", "bleu"]
    options = ["--paired-bs", "--paired-bs-n", "100", "-f", "json"]
    environment = {**os.environ, "SACREBLEU_SEED": "4"}
    answer = subprocess.run(
        [*command, *options], check=True, capture_output=True, text=True, env=environment
    )
    found = compared(paths, "one", "two", "three", samples=100, seed=4)
    for system, answered in zip(found.systems, json.loads(answer.stdout), strict=True):
        expected = answered["BLEU"]
        assert system.bleu.score == pytest.approx(expected["score"])
        assert system.bleu.mean == pytest.approx(expected["mean"])
        assert system.bleu.half_width == pytest.approx(expected["ci"])
        assert system.bleu.p_value == expected["p_value"]


def test_signatures_name_samples_and_seed(paths: dict[str, str]) -> None:
    found = compared(paths, "one", "two", samples=100, seed=4)
    start, end = "nrefs:1|bs:100|seed:4|case:mixed", f"version:{version('sacrebleu')}"
    assert found.bleu_signature == f"{start}|eff:no|tok:13a|smooth:exp|{end}"
    assert found.chrf_signature == f"{start}|eff:yes|nc:6|nw:0|space:no|{end}"


def test_the_verb_writes_json_and_nothing_else(tmp_path: Path) -> None:
    """T1: standard input, gzip, and characters that end lines elsewhere but not here."""
    lines = ["a b\rc d\u2028e\x85f .", "g h i\x0bj\x0ck ."] * 50
    reference = tmp_path / "reference.gz"
    reference.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    system = write(tmp_path / "system", ["a b c ."] * 100)
    program = (
        "import sys; from transduce.evaluation.verbs import compare;"
        "compare(references=[sys.argv[1]], systems=sys.argv[2:], samples=20, seed=5)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(reference), "-", system],
        input=Path(reference).read_bytes(),
        check=True,
        capture_output=True,
    )
    found = json.loads(answer.stdout)
    assert (found["sentences"], found["samples"], found["seed"]) == (100, 20, 5)
    assert [made["system"] for made in found["systems"]] == ["-", system]
    assert found["systems"][0]["bleu"] == {
        "score": pytest.approx(100),
        "mean": pytest.approx(100, abs=1e-4),
        "half_width": pytest.approx(0, abs=1e-4),
        "p_value": None,
    }
    assert found["bleu_signature"].startswith("nrefs:1|bs:20|seed:5|")
    assert found["chrf_signature"].startswith("nrefs:1|bs:20|seed:5|")
    # What sacreBLEU thinks of 100 lines that end in a blank and a full stop goes elsewhere.
    assert b"tokenized period" in answer.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"references": []}, "--reference must name at least one file"),
        ({"systems": []}, "at least two systems are needed, the baseline first; --system names 0"),
        (
            {"systems": ["missing"]},
            "at least two systems are needed, the baseline first; --system names 1",
        ),
        ({"systems": ["-", "missing", "-"]}, "- may be given once"),
        ({"references": ["-"], "systems": ["missing", "-"]}, "- may be given once"),
        ({"samples": 0}, "--samples must be positive, not 0"),
        ({"seed": 0}, "--seed must be positive, not 0"),
        ({"seed": -1}, "--seed must be positive, not -1"),
        ({}, "missing: cannot read"),
    ],
)
def test_a_wrong_request_is_refused_before_files_are_read(changes: dict, message: str) -> None:
    request = {
        "references": ["missing"],
        "systems": ["missing", "missing"],
        "samples": 100,
        "seed": 1,
    }
    with pytest.raises(RequestError, match=message):
        compare_files(**{**request, **changes})


@pytest.mark.parametrize(
    ("references", "systems", "message"),
    [
        (["two"], ["two", "three"], "three has 3 lines and .*two has 2: each sentence needs"),
        (["two", "three"], ["two", "two"], "three has 3 lines and .*two has 2: each sentence"),
        (["two"], ["empty", "two"], "empty has 0 lines and .*two has 2: each sentence needs"),
        (["empty"], ["empty", "empty"], "empty is empty: there must be at least one line"),
    ],
)
def test_files_of_other_lengths_and_empty_ones_are_refused(
    tmp_path: Path, references: list[str], systems: list[str], message: str
) -> None:
    """T7: both files and both counts are named; nothing is scored on a part of the text."""
    for name, count in (("empty", 0), ("two", 2), ("three", 3)):
        write(tmp_path / name, ["a b c d"] * count)
    with pytest.raises(RequestError, match=message):
        compare_files(
            references=[str(tmp_path / name) for name in references],
            systems=[str(tmp_path / name) for name in systems],
            samples=100,
            seed=1,
        )
