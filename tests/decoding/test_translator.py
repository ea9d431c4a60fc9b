import math
import random
from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.arrays import EOS, Batch, Tokens
from transduce.config import Experiment, RequestError, SearchConfig, VocabularyConfig
from transduce.decoding.scoring import score_pairs
from transduce.decoding.translator import Translation, Translator
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary, train_vocabulary

BLANKS = ["", " ", "\u00a0", "\t\t", " \u3000\u2028 "]


def test_the_translations_are_worth_comparing(
    alone: dict[str, Translation], vocabulary: Vocabulary
) -> None:
    """They are different, of different lengths and end by themselves or at the limit."""
    ids = {line: found.hypotheses[0].ids for line, found in alone.items()}
    limits = {line: len(vocabulary.encode(line)) - 1 + 6 for line in alone}
    at_limit = sum(len(ids[line]) == limits[line] + 1 for line in alone)
    assert 5 < at_limit < 35
    assert len(set(ids.values())) > 25
    assert len(Counter(map(len, ids.values()))) > 12
    assert all(len(ids[line]) <= limits[line] + 1 for line in alone)


@pytest.mark.parametrize("size", [1, 3, 9, 40])
def test_a_line_does_not_depend_on_what_is_translated_with_it(
    translator: Translator, alone: dict[str, Translation], size: int
) -> None:
    """D1, D2, D11: to the bit, in any order and in parts of any size (the last may have one)."""
    lines = list(alone)
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        for start in range(0, len(lines), size):
            part = lines[start : start + size]
            assert list(translator.translate(part)) == [alone[line] for line in part]


def test_a_line_does_not_depend_on_a_far_longer_one(
    model: Transformer, vocabulary: Vocabulary, experiment: Experiment, alone, short: list[str]
) -> None:
    """D2: to the bit; 200 pieces are read and answered as a whole."""
    search = replace(experiment.search, max_source_length=256)
    translator = Translator([model], vocabulary, search, n_best=3)
    long = " ".join(["man"] * 200)
    first, beside, last = translator.translate([short[0], long, short[1]])
    assert [first, last] == [alone[line] for line in short[:2]]
    assert (len(beside.source_tokens), beside.notes) == (201, ())
    assert beside == next(translator.translate([long]))


def test_blank_lines_stay_where_they_were(
    translator: Translator, alone: dict[str, Translation]
) -> None:
    """T2, T3: a thousand lines, a quarter of them blank in one way or another."""
    generator = random.Random(0)
    pool = list(alone)
    lines = [generator.choice(BLANKS if index % 4 == 1 else pool) for index in range(1000)]
    found = list(translator.translate(lines))
    assert len(found) == 1000
    for line, translation in zip(lines, found, strict=True):
        if line in BLANKS:
            assert [(item.text, item.ids) for item in translation.hypotheses] == [("", ())]
        else:
            assert translation == alone[line]


def test_a_line_that_the_vocabulary_reads_as_blank_is_blank(
    model: Transformer, experiment: Experiment, sentences: list[str], tmp_path
) -> None:
    """T3: NFKC makes nothing of a control character, and a space of a zero-width one."""
    config = VocabularyConfig(size=300, normalization="nmt_nfkc")
    train_vocabulary(sentences, config=config, path=tmp_path / "model")
    translator = Translator([model], Vocabulary(tmp_path / "model"), experiment.search)
    found = translator.translate(["\x01", "\u200b", "\ufeff"])
    assert [translation.hypotheses[0].text for translation in found] == ["", "", ""]


def test_an_overlong_line_is_cut_and_noted(
    translator: Translator, alone: dict[str, Translation], vocabulary: Vocabulary
) -> None:
    """T4: the fifth of ten lines; the others are as ever."""
    short, long = " ".join(["man"] * 28), " ".join(["man"] * 400)
    assert [len(vocabulary.encode(line)) - 1 for line in (short, long)] == [28, 400]
    lines = list(alone)[:10]
    lines[4] = long
    found = list(translator.translate(lines))
    assert found[4].notes == ("source of 400 pieces cut to 28 (search.max_source_length)",)
    cut = next(translator.translate([short]))
    assert cut.notes == ()
    assert found[4].hypotheses == cut.hypotheses
    del lines[4], found[4]
    assert found == [alone[line] for line in lines]
    assert all(translation.notes == () for translation in found)


def test_scores_are_those_of_forced_scoring(
    model: Transformer, vocabulary: Vocabulary, alone: dict[str, Translation]
) -> None:
    """D3, D4: log-probabilities add up, and the score divides by ((5 + |Y|) / 6)^0.6."""
    pairs = [(line, item) for line, found in alone.items() for item in found.hypotheses]
    sources = [vocabulary.encode(line) for line, _ in pairs]
    asked = zip(sources, [item.ids for _, item in pairs], strict=True)
    scores = score_pairs([model], asked, block_rows=4)
    for (_, item), value in zip(pairs, scores, strict=True):
        assert item.log_probability == pytest.approx(value, abs=1e-4)
        penalty = ((5 + len(item.ids)) / 6) ** 0.6
        assert item.penalized_score == pytest.approx(value / penalty, abs=1e-4)


def test_one_beam_takes_the_most_probable_piece_and_says_its_score(
    model: Transformer, vocabulary: Vocabulary, experiment: Experiment, sentences: list[str]
) -> None:
    """D3, D10: the same as teacher forcing over the same pieces, at every position."""
    lines = [line for line in sentences if len(vocabulary.encode(line)) <= 9][:4]
    search = replace(experiment.search, beam=1)
    for line, found in zip(
        lines, Translator([model], vocabulary, search).translate(lines), strict=True
    ):
        (item,) = found.hypotheses
        values = forced(model, vocabulary.encode(line), list(item.ids))
        chosen = values[np.arange(len(item.ids)), list(item.ids)]
        assert item.log_probability == pytest.approx(chosen.sum(), abs=1e-4)
        # Padding, BOS and rows of the table that name no piece are never written.
        values[:, [0, 1, *range(300, 320)]] = -np.inf
        free = len(item.ids) - (len(item.ids) == len(vocabulary.encode(line)) + 6)
        assert list(values.argmax(axis=1)[:free]) == list(item.ids[:free])


@jax.jit
def logits_of(model: Transformer, source, target):
    return model(Batch(source=Tokens.single(source), target=Tokens.single(target)))


def forced(model: Transformer, source: list[int], target: list[int]) -> np.ndarray:
    """Log-probabilities of every piece at every position of `target`, in float64."""
    rows = [np.zeros((1, 16), np.int32), np.zeros((1, 16), np.int32)]
    for row, ids in zip(rows, (source, target), strict=True):
        row[0, : len(ids)] = ids
    logits = np.asarray(logits_of(model, *map(jnp.asarray, rows)), np.float64)[0, : len(target)]
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_an_empty_target_scores_as_its_end(model: Transformer, vocabulary: Vocabulary) -> None:
    """D8: and an empty source is a source."""
    pairs = [("the man", ""), ("", "dog"), ("", "")]
    encoded = [(vocabulary.encode(source), vocabulary.encode(target)) for source, target in pairs]
    found = list(score_pairs([model], encoded, block_rows=4))
    for (source, target), value in zip(pairs, found, strict=True):
        ids = vocabulary.encode(target)
        values = forced(model, vocabulary.encode(source), ids)
        assert value == pytest.approx(values[np.arange(len(ids)), ids].sum(), abs=1e-4)
        assert math.isfinite(value)


def test_several_hypotheses_are_different_and_best_first(
    alone: dict[str, Translation], vocabulary: Vocabulary
) -> None:
    """D6."""
    for found in alone.values():
        assert len({item.ids for item in found.hypotheses}) == 3
        scores = [item.penalized_score for item in found.hypotheses]
        assert scores == sorted(scores, reverse=True)
        for item in found.hypotheses:
            assert item.ids[-1] == EOS
            assert item.text == vocabulary.decode(item.ids)
            assert "\n" not in item.text


def test_rows_of_the_table_that_name_no_piece_are_not_written(
    model: Transformer, vocabulary: Vocabulary, experiment: Experiment, sentences: list[str]
) -> None:
    """The model's table has 320 rows, the vocabulary 300 pieces."""
    assert len(vocabulary) == 300
    tempted = jax.tree.map(lambda leaf: leaf, model)
    tempted.table[...] = tempted.table[...].at[300:].multiply(4)
    lines = [line for line in sentences if len(vocabulary.encode(line)) <= 16][:8]
    for found in Translator([tempted], vocabulary, experiment.search, n_best=3).translate(lines):
        assert max(max(item.ids) for item in found.hypotheses) < 300


def test_learned_positions_limit_the_source(
    make_model, vocabulary: Vocabulary, experiment: Experiment
) -> None:
    """24 positions hold a source of 17 pieces and EOS, and an output of 17 + 6 and EOS.

    So they hold a prefix of 23.
    """
    config = replace(experiment.model, positions="learned", learned_positions=24)
    model = make_model(config)
    search = replace(experiment.search, beam=2)
    line = " ".join(["man"] * 40)
    translator = Translator([model], vocabulary, search, prefixes=True)
    found, begun = translator.translate([line, line], prefixes=["", line])
    cut = "source of 40 pieces cut to 17 (model.learned_positions, search.extra_length)"
    assert found.notes == (cut,)
    assert begun.notes == (cut, "prefix of 40 pieces cut to 23 (model.learned_positions)")
    source = [*vocabulary.encode(line)[:17], EOS]
    ids = [item.ids for item in (*found.hypotheses, *begun.hypotheses)]
    assert max(map(len, ids)) <= 24
    assert list(ids[-1]) == [*vocabulary.encode(line)[:23], EOS]
    scores = score_pairs([model], [(source, each) for each in ids], block_rows=4)
    for item, value in zip((*found.hypotheses, *begun.hypotheses), scores, strict=True):
        assert item.log_probability == pytest.approx(value, abs=1e-4)

    pairs = [([3, EOS], [3, EOS])] * 299 + [([3, EOS], vocabulary.encode(line))]
    with pytest.raises(RequestError, match=r"line 300: 41 .* model\.learned_positions \(24\)"):
        list(score_pairs([model], pairs, block_rows=4))
    with pytest.raises(RequestError, match=r"search.extra_length \(23\) leaves no room"):
        Translator([model], vocabulary, replace(experiment.search, extra_length=23))


def test_a_model_that_diverged_is_refused(
    model: Transformer, vocabulary: Vocabulary, experiment: Experiment
) -> None:
    broken = jax.tree.map(lambda leaf: leaf * np.float32(np.nan), model)
    with pytest.raises(RequestError, match="no finite scores"):
        list(Translator([broken], vocabulary, experiment.search).translate(["the man"]))


def test_the_search_configuration_is_checked() -> None:
    with pytest.raises(RequestError, match=r"search\.beam must be positive, not 0"):
        SearchConfig(beam=0)
