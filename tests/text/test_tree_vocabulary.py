"""A vocabulary in which the symbols of trees are pieces."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from transduce.arrays import BOS, EOS, PAD
from transduce.config import RequestError, VocabularyConfig
from transduce.text.vocabulary import Vocabulary, open_vocabulary, train_vocabulary

SYMBOLS = ["(NP", "(S", ")NP", ")S", '"', ",", ".", "NN", "``"]
SENTENCES = ["the cell grows , and (NP NN -LRB- .", "NN cells <tree:NN> grow INside , NN", "a , b"]
CONFIG = VocabularyConfig(size=320)
TARGET = "(S (NP NN NN )NP `` , . )S"


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabulary(request, tmp_path_factory) -> Vocabulary:
    path = tmp_path_factory.mktemp("vocabulary") / "model"
    sentences = SENTENCES * (60 if request.param == "bpe" else 200)
    size = 320 if request.param == "bpe" else 300
    config = VocabularyConfig(size=size, kind=request.param)
    train_vocabulary(sentences, config=config, path=path, symbols=SYMBOLS)
    return Vocabulary(path)


def test_each_symbol_of_a_target_is_one_piece(vocabulary: Vocabulary) -> None:
    assert list(vocabulary.symbols) == SYMBOLS
    ids = vocabulary.encode_target(TARGET)
    assert ids == [*(vocabulary.symbols[symbol] for symbol in TARGET.split()), EOS]
    assert vocabulary.names(ids[:2]) == ("<tree:(S>", "<tree:(NP>")
    assert vocabulary.id_of("<tree:(S>") == ids[0]
    assert vocabulary.encode_targets([TARGET, ""]) == [ids, [EOS]]
    assert pickle.loads(pickle.dumps(vocabulary)).encode_target(TARGET) == ids


@pytest.mark.parametrize(
    "text",
    [TARGET, "(S", "(NP NN", "(S ODD (NEW NN ,) . )S", "INside", "a  b", "", "<tree:(S>"],
)
def test_decoding_inverts_the_encoding_of_targets(vocabulary: Vocabulary, text: str) -> None:
    """A symbol that the vocabulary does not have is text between symbols."""
    assert vocabulary.decode([BOS, *vocabulary.encode_target(text), PAD]) == text


@pytest.mark.parametrize(
    "text", ["NN", "(NP NN )NP", ', . `` "', "<tree:NN>", "\u2581NN", "<tree:(S> <tree:NN>", TARGET]
)
def test_a_source_is_text_whatever_is_in_it(vocabulary: Vocabulary, text: str) -> None:
    """Nobody can write a symbol into a source."""
    rng = np.random.default_rng(1)
    symbols = set(vocabulary.symbols.values())
    for ids in (
        vocabulary.encode(text),
        vocabulary.encode_many([text])[0],
        vocabulary.sample(text, rng, 0.3),
    ):
        assert not symbols & set(ids)
        assert vocabulary.decode(ids) == text


def test_a_vocabulary_of_text_has_no_symbols_and_targets_are_like_sources(tmp_path: Path) -> None:
    train_vocabulary(SENTENCES * 60, config=CONFIG, path=tmp_path / "model")
    text = Vocabulary(tmp_path / "model")
    assert not text.symbols
    assert text.encode_target(TARGET) == text.encode(TARGET)
    assert text.encode_targets([TARGET]) == text.encode_many([TARGET])


def test_a_vocabulary_must_have_the_symbols_of_the_corpora(tmp_path: Path) -> None:
    def sentences() -> list[str]:
        return SENTENCES * 60

    path, text = tmp_path / "trees", tmp_path / "text"
    made = open_vocabulary(path, config=CONFIG, sentences=sentences, symbols=SYMBOLS)
    assert list(made.symbols) == SYMBOLS
    open_vocabulary(path, config=CONFIG, sentences=sentences, symbols=SYMBOLS[1:])
    with pytest.raises(RequestError, match=r"trees: has no piece for 2 symbols .* such as \(X: "):
        open_vocabulary(path, config=CONFIG, sentences=sentences, symbols=["NN", "(X", ")X"])
    with pytest.raises(RequestError, match="trees: is a vocabulary of trees, and no corpus is"):
        open_vocabulary(path, config=CONFIG, sentences=sentences)
    open_vocabulary(text, config=CONFIG, sentences=sentences)
    with pytest.raises(RequestError, match="text: has no piece for 9 symbols"):
        open_vocabulary(text, config=CONFIG, sentences=sentences, symbols=SYMBOLS)
