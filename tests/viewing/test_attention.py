"""What `attend` looks at, against the numpy Transformer in float64."""

from dataclasses import replace

import numpy as np
import pytest

from transduce.arrays import EOS
from transduce.config import RequestError
from transduce.model.transformer import Transformer, with_dtype
from transduce.text.vocabulary import Vocabulary
from transduce.viewing.attention import attention_of

from ..model.examples import named
from ..model.recording import Recording


def test_weights_tokens_and_sums_are_right(model: Transformer, vocabulary: Vocabulary) -> None:
    """D12: within 1e-5 of float64; a row for each documented token, a column for each too."""
    source = vocabulary.encode("the woman sleeps in a house")
    target = vocabulary.encode("a dog runs")
    found = attention_of(model, vocabulary, source, target)
    assert found.source == found.rows("encoder") == found.columns("cross")
    assert found.source == (*vocabulary.names(source[:-1]), "</s>")
    assert found.target == found.rows("decoder") == found.rows("cross")
    assert found.target == (*vocabulary.names(target[:-1]), "</s>")
    assert found.read == found.columns("decoder") == ("<s>", *found.target[:-1])
    parameters = {name: value.astype(np.float64) for name, value in named(model).items()}
    paper = Recording(parameters, positions="sinusoidal", norm="post")
    for kind, expected in paper.attention(source, target).items():
        weights = found.weights[kind]
        rows, columns = len(found.rows(kind)), len(found.columns(kind))
        assert weights.shape == expected.shape == (1, 2, rows, columns)
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=0, atol=1e-5)
    later = np.triu(np.ones((len(target), len(target)), bool), 1)
    assert not found.weights["decoder"][..., later].any()


def test_a_model_in_bfloat16_is_looked_at_in_float32(
    model: Transformer, vocabulary: Vocabulary
) -> None:
    """Its parameters are kept in float32, and attention is that of the parameters."""
    source, target = vocabulary.encode("the woman"), vocabulary.encode("a dog runs")
    narrow = with_dtype(with_dtype(model, "bfloat16"), "float32")
    found = attention_of(with_dtype(model, "bfloat16"), vocabulary, source, target)
    parameters = {name: value.astype(np.float64) for name, value in named(narrow).items()}
    paper = Recording(parameters, positions="sinusoidal", norm="post")
    for kind, expected in paper.attention(source, target).items():
        assert found.weights[kind].dtype == np.float32
        np.testing.assert_allclose(found.weights[kind], expected, rtol=0, atol=1e-5)


def test_more_tokens_than_learned_positions_are_refused(
    make_model, experiment, vocabulary: Vocabulary
) -> None:
    """D12: a position that is not there would be read as another one."""
    learned = replace(experiment.model, positions="learned", learned_positions=4)
    model = make_model(learned)
    with pytest.raises(RequestError, match=r"--source has 5 tokens .*learned_positions \(4\)"):
        attention_of(model, vocabulary, [4, 5, 6, 7, EOS], [EOS])
    with pytest.raises(RequestError, match="--target has 6 tokens"):
        attention_of(model, vocabulary, [EOS], [4, 5, 6, 7, 8, EOS])
