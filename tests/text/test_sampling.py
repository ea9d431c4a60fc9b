import math
import random
import subprocess
import sys
from collections import Counter
from typing import Literal

import numpy as np
import pytest

from transduce.config import VocabularyConfig
from transduce.text.sampling import UnigramSampler, sample_bpe
from transduce.text.vocabulary import Vocabulary, train_vocabulary

GENERATOR = random.Random(3)
WORDS = ["".join(GENERATOR.choices("abdeghimnorsu", k=length)) for length in range(2, 9)] * 3
SENTENCES = [" ".join(GENERATOR.choices(WORDS, k=9)) for _ in range(200)]
TEXTS = SENTENCES[:40] + ["".join(GENERATOR.choices("abde \t\u00e9\u4e16", k=k)) for k in range(30)]


@pytest.mark.parametrize("fallback", [True, False])
def test_nothing_left_out_gives_the_pieces_of_sentencepiece(tmp_path, fallback: bool) -> None:
    path = tmp_path / "model"
    config = VocabularyConfig(size=330 if fallback else 74, byte_fallback=fallback)
    train_vocabulary(SENTENCES, config=config, path=path)
    vocabulary = Vocabulary(path)
    for text in TEXTS:
        assert vocabulary.sample(text, np.random.default_rng(1), 1e-12) == vocabulary.encode(text)


def test_a_merge_that_is_left_out_leaves_its_parts() -> None:
    pieces = {"a": -9.0, "b": -9.0, "c": -9.0, "ab": -1.0, "bc": -2.0, "abc": -3.0}
    rate, count = 0.3, 20_000
    rng = np.random.default_rng(1)
    found = Counter(tuple(sample_bpe("abc", pieces, rng, rate)) for _ in range(count))
    # ab first, then abc; without ab, bc and then abc.
    ab, bc = 1 - rate, rate * (1 - rate)
    expected = {
        ("abc",): (ab + bc) * (1 - rate),
        ("ab", "c"): ab * rate,
        ("a", "bc"): bc * rate,
        ("a", "b", "c"): rate * rate,
    }
    assert found.keys() == expected.keys()
    for pieces_found, probability in expected.items():
        deviation = math.sqrt(count * probability * (1 - probability))
        assert abs(found[pieces_found] - count * probability) < 4 * deviation


def test_a_unigram_segmentation_is_drawn_by_its_smoothed_probability() -> None:
    probabilities = {"a": 0.5, "b": 0.2, "ab": 0.3}
    sampler = UnigramSampler({p: math.log(x) for p, x in probabilities.items()}, 2, -20.0)
    rng, count, alpha = np.random.default_rng(1), 20_000, 0.5
    found = Counter(tuple(sampler.sample("abab", rng, alpha)) for _ in range(count))
    together, apart = 0.3**alpha, (0.5 * 0.2) ** alpha
    weights = {
        ("ab", "ab"): together**2,
        ("ab", "a", "b"): together * apart,
        ("a", "b", "ab"): together * apart,
        ("a", "b", "a", "b"): apart**2,
    }
    assert found.keys() == weights.keys()
    for pieces, weight in weights.items():
        probability = weight / sum(weights.values())
        deviation = math.sqrt(count * probability * (1 - probability))
        assert abs(found[pieces] - count * probability) < 4 * deviation


PROGRAM = """
import sys
import numpy as np
from transduce.text.vocabulary import Vocabulary
vocabulary = Vocabulary(sys.argv[1])
for seed, text in enumerate(sys.argv[2:]):
    print(vocabulary.sample(text, np.random.default_rng(seed), 0.4))
"""


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_another_process_draws_the_same(tmp_path, kind: Literal["bpe", "unigram"]) -> None:
    """R4: else a run that goes on after a cut sees other batches."""
    path = str(tmp_path / "model")
    config = VocabularyConfig(size=320 if kind == "bpe" else 280, kind=kind)
    train_vocabulary(SENTENCES, config=config, path=path)
    command = [sys.executable, "-c", PROGRAM, path, *SENTENCES[:20]]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    vocabulary = Vocabulary(path)
    here = [
        vocabulary.sample(text, np.random.default_rng(seed), 0.4)
        for seed, text in enumerate(SENTENCES[:20])
    ]
    assert other.splitlines() == list(map(str, here))
