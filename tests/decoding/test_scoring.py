"""score and evaluate agree with translate, for one model and for several."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transduce.config import Experiment
from transduce.decoding.scoring import score_pairs
from transduce.decoding.translator import Translator
from transduce.model.transformer import Transformer, with_dtype
from transduce.text.vocabulary import Vocabulary

from .files import lines_of, read, records, standard_input, write


@pytest.fixture
def scored(command, tmp_path: Path):
    """Each hypothesis that `translate` writes, with its line and what `score` says of it."""

    def call(lines: list[str], workdir: Path, *options: object) -> list[tuple[dict, str, float]]:
        path = write(tmp_path / "lines", lines)
        asked = ["--input", path, "--format", "jsonl", "--n-best", 3]
        status, out, _ = command("translate", workdir, *asked, *options)
        assert status == 0
        found = [
            (hypothesis, line)
            for record, line in zip(records(out), lines, strict=True)
            for hypothesis in [record, *record["alternatives"]]
        ]
        source = write(tmp_path / "source", [line for _, line in found])
        target = write(tmp_path / "target", [json.dumps(one) for one, _ in found])
        models = options[options.index("--ensemble") :] if "--ensemble" in options else []
        files = ["--source", source, "--target", target, "--format", "jsonl"]
        status, out, err = command("score", workdir, *models, *files)
        assert (status, err) == (0, "")
        values = map(float, lines_of(out))
        return [(*both, value) for both, value in zip(found, values, strict=True)]

    return call


def test_scores_of_translate_are_those_of_score(
    scored, workdir: Path, sentences: list[str]
) -> None:
    """D3: for every hypothesis, and they are the sums over its tokens."""
    found = scored(sentences, workdir)
    assert len(found) == 3 * len(sentences)
    for hypothesis, _, value in found:
        assert hypothesis["score"] == pytest.approx(value, abs=1e-4)
        logs = hypothesis["token_log_probabilities"]
        assert hypothesis["score"] == pytest.approx(sum(logs), abs=1e-4)
        assert hypothesis["length"] == len(logs) == len(hypothesis["tokens"])
        penalty = ((5 + len(logs)) / 6) ** 0.6
        assert hypothesis["penalized_score"] == pytest.approx(value / penalty, abs=1e-4)


def forced(model: Transformer, source: list[int], target: list[int]) -> np.ndarray:
    """log P of each id of `target`, in blocks of rows as `score` has them, one pair at a time.

    Of a sequence the log-probability up to each place is that of the sequence cut there.
    """
    whole = [0.0, *score_pairs([model], [(source, target[:n]) for n in cuts(target)], block_rows=4)]
    return np.diff(whole)


def cuts(target: list[int]) -> range:
    return range(1, len(target) + 1)


def test_an_ensemble_counts_the_mean_probability(
    scored,
    workdir: Path,
    second: Path,
    short: list[str],
    vocabulary: Vocabulary,
    model: Transformer,
    other: Transformer,
) -> None:
    """D3: of each token, worked out from what either model says by itself."""
    found = scored(short[:8], workdir, "--ensemble", second)
    alone = scored(short[:8], workdir)
    assert [one["tokens"] for one, _, _ in found] != [one["tokens"] for one, _, _ in alone]
    for hypothesis, line, value in found:
        assert hypothesis["score"] == pytest.approx(value, abs=1e-4)
        ids = [vocabulary.id_of(token) for token in hypothesis["tokens"]]
        each = [forced(one, vocabulary.encode(line), ids) for one in (model, other)]
        mean = np.log(np.mean(np.exp(each), axis=0))
        assert hypothesis["token_log_probabilities"] == pytest.approx(list(mean), abs=1e-4)


def test_models_of_an_ensemble_may_be_of_other_shapes(
    model: Transformer, deep: Transformer, vocabulary: Vocabulary, experiment: Experiment, short
) -> None:
    """D3: of one decoder layer and of two, each with a cache of its own."""
    lines, models = short[:4], [model, deep]
    translator = Translator(models, vocabulary, experiment.search, n_best=3)
    pairs = [
        (vocabulary.encode(line), hypothesis)
        for line, found in zip(lines, translator.translate(lines), strict=True)
        for hypothesis in found.hypotheses
    ]
    asked = [(source, hypothesis.ids) for source, hypothesis in pairs]
    scores = list(score_pairs(models, asked, block_rows=4))
    assert [one.log_probability for _, one in pairs] == pytest.approx(scores, abs=1e-4)


def test_a_model_twice_is_the_model(
    scored, workdir: Path, tmp_path: Path, short: list[str]
) -> None:
    one, two = scored(short[:8], workdir), scored(short[:8], workdir, "--ensemble", workdir)
    assert [item[0]["tokens"] for item in one] == [item[0]["tokens"] for item in two]
    for (alone, _, _), (both, _, value) in zip(one, two, strict=True):
        assert both["score"] == pytest.approx(alone["score"], abs=1e-4)
        assert both["score"] == pytest.approx(value, abs=1e-4)


def test_bfloat16_has_nearly_the_scores_of_float32(scored, workdir: Path, short: list[str]) -> None:
    """A number of it is right to 1/256; a token's log-probability was so to less than 0.1."""
    found = scored(short, workdir, "--search.dtype", "bfloat16")
    errors = [
        abs(hypothesis["score"] - value) / hypothesis["length"] for hypothesis, _, value in found
    ]
    assert 1e-5 < max(errors) < 0.1
    assert found[0][0]["tokens"][-1] == "</s>"


def test_bfloat16_is_what_matrices_are_stored_in(model: Transformer) -> None:
    """Gains and biases, of a layer's stack too, are float32."""
    cast = with_dtype(model, "bfloat16")
    assert cast.table.dtype == cast.decoder.attention.query.dtype == jnp.bfloat16
    assert cast.encoder.feed_forward.into.dtype == jnp.bfloat16
    assert cast.encoder.feed_forward.into_bias.dtype == jnp.float32
    norm = cast.decoder.around_attention.norm
    assert norm.scale is not None
    assert norm.scale.dtype == jnp.float32
    assert cast.config == replace(model.config, dtype="bfloat16")
    assert jax.tree.map(jnp.shape, jax.tree.leaves(cast)) == jax.tree.map(
        jnp.shape, jax.tree.leaves(model)
    )


def test_a_text_is_scored_as_its_pieces(
    command,
    workdir: Path,
    tmp_path: Path,
    sentences: list[str],
    vocabulary: Vocabulary,
    model: Transformer,
) -> None:
    """D8: an empty one as the end alone; "-" is standard input."""
    lines, targets = [*sentences[:6], "a", ""], [*sentences[6:12], "", ""]
    source, target = write(tmp_path / "source", lines), write(tmp_path / "target", targets)
    status, out, err = command("score", workdir, "--source", source, "--target", target)
    assert (status, err) == (0, "")
    pairs = zip(vocabulary.encode_many(lines), vocabulary.encode_many(targets), strict=True)
    found = [float(line) for line in lines_of(out)]
    for (source_ids, target_ids), value in zip(pairs, found, strict=True):
        assert value == pytest.approx(forced(model, source_ids, target_ids).sum(), abs=1e-4)
    with standard_input(source.read_bytes(), folder=tmp_path):
        assert command("score", workdir, "--source", "-", "--target", target) == (0, out, "")


def test_text_with_scores_has_the_log_probability_first(
    command, workdir: Path, tmp_path: Path, sentences: list[str], alone: dict
) -> None:
    source = write(tmp_path / "source", sentences[:6])
    status, out, _ = command("translate", workdir, "--input", source, "--scores")
    assert status == 0
    for line, made in zip(sentences, lines_of(out), strict=False):
        value, text = made.split("\t", 1)
        best = alone[line].hypotheses[0]
        assert text == best.text
        assert float(value) == pytest.approx(best.log_probability, abs=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        "the man",
        "[1]",
        "{}",
        '{"tokens": 7}',
        '{"tokens": ["no such piece", "</s>"]}',
        '{"tokens": ["</s>", "</s>"]}',
        '{"tokens": ["<s>", "</s>"]}',
        '{"tokens": ["<pad>", "</s>"]}',
    ],
)
def test_what_is_no_record_is_refused_with_file_and_line(
    command, workdir: Path, tmp_path: Path, line: str
) -> None:
    source = write(tmp_path / "source", ["a", "a"])
    target = write(tmp_path / "target", ['{"tokens": ["</s>"]}', line])
    files = ["--source", source, "--target", target]
    status, out, err = command("score", workdir, *files, "--format", "jsonl")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"transduce: {target}, line 2: ")


def test_evaluate_scores_what_translate_writes(
    command, workdir: Path, tmp_path: Path, sentences: list[str]
) -> None:
    """E1, T6: by the sacrebleu program's figures; a blank and an overlong line count."""
    lines = [*sentences[:20], "", " ".join(["man"] * 400)]
    source = write(tmp_path / "source", lines)
    command("translate", workdir, "--input", source, "--output", tmp_path / "out")
    made = read(tmp_path / "out")
    assert len(made) == 22
    assert not any("\r" in line for line in made)  # the sacrebleu program ends a line there
    one = write(tmp_path / "one", [line[1:] for line in made])
    two = write(tmp_path / "two", [*made[:10], *lines[10:]])
    status, out, err = command("evaluate", workdir, "--source", source, "--reference", one, two)
    assert status == 0
    assert err.count("\n") == 1
    assert "line 22" in err
    found = json.loads(out)
    program = [sys.executable, "-m", "sacrebleu", str(one), str(two), "-i", str(tmp_path / "out")]
    options = ["-m", "bleu", "chrf", "-w", "6"]
    answer = subprocess.run([*program, *options], check=True, capture_output=True, text=True)
    bleu, chrf = json.loads(answer.stdout)
    assert 5 < found["bleu"] < 95
    assert found["bleu"] == pytest.approx(bleu["score"], abs=0.01)
    assert found["chrf"] == pytest.approx(chrf["score"], abs=0.01)
    assert found["bleu_signature"] == bleu["signature"]
    assert found["chrf_signature"] == chrf["signature"]
    assert found["sentences"] == 22
    apart = ["--reference", one, "--reference", two]
    assert command("evaluate", workdir, "--source", source, *apart) == (0, out, err)
