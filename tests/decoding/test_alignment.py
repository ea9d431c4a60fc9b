"""Attention as it is written beside translations, against attention from the model's modules."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from transduce.arrays import EOS, Array, Batch, Tokens
from transduce.decoding.alignment import align
from transduce.model.kernels import attention_weights
from transduce.model.transformer import Transformer
from transduce.model.visibility import Visible, among
from transduce.text.vocabulary import Vocabulary

from .files import records, write


@jax.jit
def attention(model: Transformer, source: Array, target: Array) -> Array:
    """[layer, head, target, source] of the decoder, by teacher forcing."""
    batch = Batch(source=Tokens.single(source), target=Tokens.single(target))
    inputs, memory = batch.decoder_inputs(), model.encode(batch.source)
    visible = among(inputs, causal=True)
    memory_visible = Visible(queries=inputs.segments, keys=batch.source.segments)
    x, found = model.embed(inputs.ids, inputs.positions), []
    for number in range(model.config.decoder_layers):
        layer = jax.tree.map(lambda leaf, number=number: leaf[number], model.decoder)

        def to_written(y: Array, layer=layer) -> Array:
            return layer.attention(y, y, visible, positions=inputs.positions)

        y = layer.around_attention(x, to_written, None)
        keys, _ = layer.cross_attention.keys_values(memory, positions=batch.source.positions)
        queries = layer.cross_attention.queries(y, positions=inputs.positions)
        found.append(attention_weights(queries, keys, memory_visible)[0])
        x, _ = layer(
            x,
            memory,
            visible=visible,
            memory_visible=memory_visible,
            positions=inputs.positions,
            key=None,
        )
    return jnp.stack(found)


def averaged(model: Transformer, source: list[int], target: list[int]) -> np.ndarray:
    """[layer, target, source], over the heads; no sequence is padded."""
    found = attention(model, jnp.asarray([source]), jnp.asarray([target]))
    return np.asarray(found).mean(axis=1)


PAIRS = [([4, 5, 6, EOS], [7, 8, EOS]), ([9, EOS], [EOS]), ([5] * 15 + [EOS], [4, 9] * 7 + [EOS])]
PAIRS += [([number, 30, 8, EOS], [number, 9, EOS]) for number in range(4, 10)]


def test_it_is_that_of_the_last_layer_but_one_averaged_over_heads(deep: Transformer) -> None:
    """D12: row j is that with which token j was chosen; no row has any on padding."""
    found = align([deep], PAIRS, rows=4)
    for (source, target), weights in zip(PAIRS, found, strict=True):
        assert weights.shape == (len(target), len(source))
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
        layers = averaged(deep, source, target)
        np.testing.assert_allclose(weights, layers[-2], atol=1e-5)
        assert len(layers) == 2
        if len(source) > 2:
            assert np.abs(weights - layers[-1]).max() > 0.01


def test_that_of_an_only_layer_and_of_several_models_is_averaged(
    deep: Transformer, model: Transformer
) -> None:
    """D12."""
    for (source, target), weights in zip(PAIRS, align([model, deep], PAIRS, rows=4), strict=True):
        expected = (averaged(model, source, target)[-1] + averaged(deep, source, target)[-2]) / 2
        np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_a_pair_does_not_depend_on_the_others(model: Transformer) -> None:
    """D12: to the bit."""
    together = align([model], PAIRS, rows=4)
    for pair, weights in zip(PAIRS, together, strict=True):
        np.testing.assert_array_equal(align([model], [pair], rows=4)[0], weights)


def test_it_is_written_with_its_rows_and_columns(
    command, workdir: Path, tmp_path: Path, short: list[str], model, vocabulary: Vocabulary
) -> None:
    """D12: a row for each token, EOS included, a column for each token of the source."""
    lines = [*short[:3], "", short[3]]
    options = ["--format", "jsonl", "--n-best", 2]
    source = write(tmp_path / "source", lines)
    status, out, _ = command("translate", workdir, "--input", source, *options, "--alignments")
    assert status == 0
    for line, record in zip(lines, records(out), strict=True):
        if not line:
            assert (record["alignment"], record["source_tokens"]) == ([], [])
            continue
        ids = vocabulary.encode(line)
        assert record["source_tokens"] == list(vocabulary.names(ids))
        assert record["source_tokens"][-1] == "</s>"
        for one in (record, *record["alternatives"]):
            target = [vocabulary.id_of(token) for token in one["tokens"]]
            (expected,) = align([model], [(ids, target)], rows=4)
            np.testing.assert_allclose(one["alignment"], expected, atol=1e-5)
    without = records(command("translate", workdir, "--input", source, *options)[1])
    assert not any("alignment" in record or "source_tokens" in record for record in without)
