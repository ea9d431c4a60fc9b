"""A tiny model of random weights, its outputs of many kinds and lengths, and a workdir of it."""

import math
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from transduce.arrays import EOS
from transduce.checkpoints import Checkpoints
from transduce.cli import run
from transduce.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    SearchConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.decoding.translator import Translation, Translator
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary, train_vocabulary
from transduce.workdir import Workdir

WORDS = ["the", "a", "man", "woman", "dog", "runs", "sleeps", "house", "houses", "reader"]

EXPERIMENT = Experiment(
    name="tiny",
    model=ModelConfig(
        # More rows than the vocabulary has pieces.
        vocabulary_size=320,
        encoder_layers=1,
        decoder_layers=1,
        d_model=32,
        d_ff=64,
        heads=2,
        d_k=16,
        d_v=16,
    ),
    data=DataConfig(vocabulary=VocabularyConfig(size=300)),
    training=TrainingConfig(keep=3),
    # All sources are in blocks of 32, so that few shapes are compiled.
    search=SearchConfig(beam=3, block_rows=4, extra_length=6, max_source_length=28, devices=1),
)


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    return EXPERIMENT


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Forty sentences, of 1 to 9 words and at most 28 pieces."""
    generator = random.Random(1)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(40)]


@pytest.fixture(scope="session")
def short(sentences: list[str], vocabulary: Vocabulary) -> list[str]:
    """Those whose blocks are of width 16."""
    return [line for line in sentences if len(vocabulary.encode(line)) <= 16]


@pytest.fixture(scope="session")
def vocabulary_file(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    train_vocabulary(sentences, config=EXPERIMENT.data.vocabulary, path=path)
    return path


@pytest.fixture(scope="session")
def vocabulary(vocabulary_file: Path) -> Vocabulary:
    return Vocabulary(vocabulary_file)


def random_model(config: ModelConfig, *, seed: int = 4) -> Transformer:
    """A random model whose next piece depends on the source and on more than the piece before.

    As the table is tied, an ordinary random model writes one piece again and again. Drawn by
    numpy, since JAX would compile the making of each shape.
    """
    like = jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    generator, width = np.random.default_rng(seed), config.d_model
    table = generator.normal(scale=width**-0.5, size=(config.vocabulary_size, width))
    end = table[EOS] / np.linalg.norm(table[EOS])

    def draw(path: Any, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
        if name == "table":
            return 2 * table
        if name == "decoder.feed_forward.out_bias":
            return np.broadcast_to(1.5 * width**0.5 * end, leaf.shape)
        if name.endswith("bias"):
            return np.zeros(leaf.shape)
        if name.endswith("scale"):
            return np.ones(leaf.shape)
        if name == "position_table":
            return generator.normal(scale=width**-0.5, size=leaf.shape)
        # Of a stack of matrices from or to the width of the model: Glorot's bounds.
        bound = (6 / (width + math.prod(leaf.shape[1:]) / width)) ** 0.5
        strong = name in ("decoder.feed_forward.out", "decoder.cross_attention.out")
        return generator.uniform(-bound, bound, leaf.shape) * (6 if strong else 1)

    leaves = jax.tree_util.tree_map_with_path(draw, like)
    # Where a checkpoint's parameters are put, so that one compilation serves both.
    device = jax.local_devices()[0]
    return jax.tree.map(lambda leaf: jax.device_put(leaf.astype(np.float32), device), leaves)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Transformer]:
    return random_model


@pytest.fixture(scope="session")
def model() -> Transformer:
    return random_model(EXPERIMENT.model)


@dataclass(frozen=True)
class State:
    """What a checkpoint is made of, besides the pipeline's state and the progress."""

    model: Transformer
    optimizer: dict[str, np.ndarray]
    ema: None = None


@pytest.fixture(scope="session")
def make_workdir(
    vocabulary_file: Path,
) -> Callable[..., Path]:
    def make(
        path: Path, models: Mapping[int, Transformer], *, experiment: Experiment = EXPERIMENT
    ) -> Path:
        workdir = Workdir.of(str(path))
        with workdir.begin(experiment):
            shutil.copy(vocabulary_file, path / "vocabulary.model")
        with Checkpoints(workdir, keep=3) as checkpoints:
            for step, model in models.items():
                state = State(model, {"moments": np.ones(3)})
                checkpoints.save(step, state, pipeline={"readers": []}, progress={})
        return path

    return make


@pytest.fixture(scope="session")
def other(make_model, experiment: Experiment) -> Transformer:
    return make_model(experiment.model, seed=3)


@pytest.fixture(scope="session")
def deep(experiment: Experiment) -> Transformer:
    """With two layers in its decoder."""
    return random_model(replace(experiment.model, decoder_layers=2), seed=7)


@pytest.fixture(scope="session")
def workdir(make_workdir, tmp_path_factory, model: Transformer, other: Transformer) -> Path:
    """Checkpoints 1, 2 and 3, of which 2 and 3 are the same."""
    return make_workdir(tmp_path_factory.mktemp("run") / "W", {1: other, 2: model, 3: model})


@pytest.fixture(scope="session")
def second(make_workdir, tmp_path_factory, other: Transformer) -> Path:
    """Another workdir, of the same vocabulary."""
    return make_workdir(tmp_path_factory.mktemp("second run") / "W", {1: other})


@pytest.fixture(scope="session")
def translator(model: Transformer, vocabulary: Vocabulary) -> Translator:
    return Translator([model], vocabulary, EXPERIMENT.search, n_best=3)


@pytest.fixture(scope="session")
def alone(translator: Translator, sentences: list[str]) -> dict[str, Translation]:
    """Each sentence translated in a call of its own."""
    return {line: next(translator.translate([line])) for line in sentences}


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `transduce` here: its status, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return status, out, err

    return call
