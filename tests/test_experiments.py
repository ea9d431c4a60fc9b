"""The experiments that come with the project.

A golden file holds the resolved configuration of each, so that a changed default shows in the
diff. After a change that is meant, write them anew and look at the difference:

    python -m pytest tests/test_experiments.py --write-goldens
"""

import ast
import re
from pathlib import Path

import pytest

from transduce.config import Experiment, ModelConfig, OptimizerConfig, SearchConfig
from transduce.config_files import load_experiment, to_json

GOLDENS = Path(__file__).resolve().parent / "goldens"
EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
FILES = sorted(EXPERIMENTS.glob("*.py"))
WMT14 = ["wmt14_ende_base", "wmt14_ende_big", "wmt14_enfr_base", "wmt14_enfr_big"]

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def load(name: str) -> Experiment:
    return load_experiment(str(EXPERIMENTS / f"{name}.py"))


@each_file
def test_the_resolved_configuration_is_the_golden_one(
    path: Path, request: pytest.FixtureRequest
) -> None:
    resolved = to_json(load_experiment(str(path)))
    golden = GOLDENS / f"{path.stem}.json"
    if request.config.getoption("--write-goldens"):
        golden.write_text(resolved, encoding="utf-8")
    assert resolved == golden.read_text(encoding="utf-8")


def test_each_golden_belongs_to_an_experiment() -> None:
    assert {path.stem for path in GOLDENS.iterdir()} == {path.stem for path in FILES}


@each_file
def test_an_experiment_is_named_as_its_file(path: Path) -> None:
    assert load_experiment(str(path)).name == path.stem


@each_file
def test_a_docstring_is_the_record_of_the_run_or_says_that_there_is_none(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert f"transduce train experiments/{path.name} --workdir " in text
    # A record has a score with sacreBLEU's signature, or EVALB's, and the time that the run took.
    measured = "nrefs:" in text or "EVALB" in text
    recorded = measured and re.search(r"\d+ (seconds|minutes|hours|days)", text)
    assert bool(recorded) != text.endswith("\nNot yet run."), "either a record or Not yet run."


def model(name: str) -> ModelConfig:
    return load(name).model


@pytest.mark.parametrize("name", ["wmt14_ende_base", "wmt14_enfr_base"])
def test_base_is_the_base_of_table_3(name: str) -> None:
    config = model(name)
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)
    assert (config.d_model, config.d_ff) == (512, 2048)
    assert (config.heads, config.d_k, config.d_v) == (8, 64, 64)
    assert config.dropout == 0.1
    assert load(name).training.steps == 100_000
    assert load(name).training.keep == 5  # section 6.1: the last 5 checkpoints are averaged


@pytest.mark.parametrize(("name", "dropout"), [("wmt14_ende_big", 0.3), ("wmt14_enfr_big", 0.1)])
def test_big_is_the_big_of_table_3(name: str, dropout: float) -> None:
    """Section 6.1: dropout is 0.1 instead of 0.3 for English to French."""
    config = model(name)
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)
    assert (config.d_model, config.d_ff) == (1024, 4096)
    assert (config.heads, config.d_k, config.d_v) == (16, 64, 64)
    assert config.dropout == dropout
    assert load(name).training.steps == 300_000
    assert load(name).training.keep == 20


@pytest.mark.parametrize("name", WMT14)
def test_everything_else_is_as_the_paper_says(name: str) -> None:
    """Sections 3.5, 5.1, 5.3, 5.4 and 6.1; nothing that is not in the paper is on."""
    made = load(name)
    assert (made.model.positions, made.model.norm) == ("sinusoidal", "post")
    # Section 5.1: 37,000 pieces for German, 32,000 for French.
    pieces = 37_000 if "ende" in name else 32_000
    assert made.model.vocabulary_size == made.data.vocabulary.size == pieces
    # About 25,000 source and target tokens a batch.
    assert made.data.rows * made.data.row_length == pytest.approx(25_000, rel=0.05)
    adam = OptimizerConfig(
        beta1=0.9,
        beta2=0.98,
        epsilon=1e-9,
        warmup_steps=4000,
        peak_learning_rate=0.0,
        clip_norm=0.0,
    )
    assert made.optimizer == adam
    assert made.training.label_smoothing == 0.1
    assert made.data.subword_sampling == 0.0
    search: SearchConfig = made.search
    assert (search.beam, search.alpha, search.extra_length) == (4, 0.6, 50)
    corpus = made.data.corpora[0]
    assert (corpus.source_language, corpus.target_language) == ("en", name[8:10])
    assert (corpus.builder, corpus.train) == ("wmt14", ("", ""))
