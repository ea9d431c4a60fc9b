"""Pairs of words and symbols on their way to batches."""

from pathlib import Path

import numpy as np
import pytest

from transduce.config import FilterConfig, VocabularyConfig
from transduce.pipeline.readers import Tokenize
from transduce.pipeline.selection import select
from transduce.text.vocabulary import Vocabulary, train_vocabulary

PAIR = ("cells grow NN", "(S (NP NNS )NP (VP VB NN )VP )S")
SYMBOLS = ["(NP", "(S", "(VP", ")NP", ")S", ")VP", "NN", "NNS", "VB"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path: Path = tmp_path_factory.mktemp("vocabulary") / "model"
    config = VocabularyConfig(size=300)
    sentences = ["cells grow NN", "the cells grow", "grow the cell"] * 40
    train_vocabulary(sentences, config=config, path=path, symbols=SYMBOLS)
    return Vocabulary(path)


def test_words_are_segmented_at_random_and_symbols_are_whole(vocabulary: Vocabulary) -> None:
    """T9: in training."""
    rng = np.random.default_rng(1)
    found = [Tokenize(vocabulary, 0.5, 64)(PAIR, rng) for _ in range(8)]
    assert len({tuple(each["source"]) for each in found}) > 1
    wanted = vocabulary.encode_target(PAIR[1])
    assert len(wanted) == 10
    for each in found:
        assert each["target"].tolist() == wanted
        assert vocabulary.decode(each["source"].tolist()) == PAIR[0]


def test_a_tree_is_as_long_as_its_symbols_and_its_end(vocabulary: Vocabulary) -> None:
    """The second one does not fit, and is counted."""
    pairs = [PAIR, ("cells grow", "(S (S (NP NNS )NP (VP VB )VP )S )S"), ("", "")]
    (selection,) = select(
        {"trees": pairs}, vocabulary, row_length=10, filters=FilterConfig()
    ).values()
    assert selection.kept.tolist() == [0]
    assert selection.target_tokens == 10
    assert selection.left_out == {"with a blank side": 1, "too long for a row": 1}
