"""Words and their tags in packed rows are numbered."""

import numpy as np
import pytest

from transduce.config import DataConfig, VocabularyConfig
from transduce.pipeline.batches import TrainingBatches, evaluation_batches
from transduce.pipeline.readers import Corpus
from transduce.text.vocabulary import Vocabulary, train_vocabulary

PAIRS = [
    ("cells grow", "(S (NP NNS )NP (VP VB )VP )S"),
    ("the cell grows Ö", "(S (NP DT NN )NP (VP VB (NP NN )NP )VP )S"),
]
SYMBOLS = ["(NP", "(S", "(VP", ")NP", ")S", ")VP", "DT", "NN", "NNS", "VB"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = tmp_path_factory.mktemp("vocabulary") / "model"
    # Characters and few merges: words are several pieces.
    train_vocabulary(
        ["the cells grow", "the cell grows"] * 40,
        config=VocabularyConfig(size=285),
        path=path,
        symbols=SYMBOLS,
    )
    return Vocabulary(path)


def test_pieces_have_the_numbers_of_words_and_tags_those_of_theirs(vocabulary: Vocabulary) -> None:
    """Worked out from the pieces' spelling; two pairs share a row, which ends in padding."""
    config = DataConfig(rows=8, row_length=40, readers=8)
    (batch,) = evaluation_batches(PAIRS, vocabulary, config, rows=8)
    assert batch.target.words is not None
    assert batch.source.words is not None
    found = {}
    for segment in (1, 2):
        here = np.asarray(batch.source.segments)[0] == segment
        names = vocabulary.names(np.asarray(batch.source.ids)[0][here].tolist())
        words = "".join(names[:-1]).replace("▁", " ").split(" ")[1:]
        expected = [sum(name.startswith("▁") for name in names[: i + 1]) for i in range(len(names))]
        assert np.asarray(batch.source.words)[0][here].tolist() == expected
        assert max(expected) == len(words) < len(names)
        there = np.asarray(batch.target.segments)[0] == segment
        found[len(words)] = np.asarray(batch.target.words)[0][there].tolist()
    assert found == {
        #   (S (NP NNS )NP (VP VB )VP )S </s>
        2: [0, 0, 1, 0, 0, 2, 0, 0, 0],
        #   (S (NP DT NN )NP (VP VB (NP NN )NP )VP )S </s>
        4: [0, 0, 1, 2, 0, 0, 3, 0, 4, 0, 0, 0, 0],
    }
    for side in (batch.source, batch.target):
        assert side.words is not None
        assert not np.asarray(side.words)[np.asarray(side.segments) == 0].any()


def test_text_has_no_such_numbers_and_training_has_them(vocabulary: Vocabulary, tmp_path) -> None:
    config = DataConfig(rows=2, row_length=40, readers=2, subword_sampling=0.5)
    corpus = Corpus(source=PAIRS, kept=np.arange(2))
    batches = TrainingBatches([corpus], vocabulary, config, place=lambda batch: batch)
    batch = next(batches)
    batches.close()
    assert batch.source.words is not None
    assert batch.target.words is not None
    for row in range(2):
        for segment in range(1, batch.source.segments[row].max() + 1):
            here = batch.source.segments[row] == segment
            there = batch.target.segments[row] == segment
            words = batch.source.words[row][here].max()
            assert words == batch.target.words[row][there].max()
            assert words in (2, 4)
    path = tmp_path / "text"
    train_vocabulary(["the cells grow"] * 40, config=VocabularyConfig(size=275), path=path)
    (text,) = evaluation_batches(
        [("the", "cells")], Vocabulary(path), DataConfig(rows=16, row_length=16), rows=8
    )
    assert text.source.words is text.target.words is None
