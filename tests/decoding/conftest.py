"""A tiny model of random weights, its outputs of many kinds and lengths, and a workdir of it."""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
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
    # All sources are in blocks of 16 or 32, so that few shapes are compiled.
    search=SearchConfig(beam=3, block_rows=4, extra_length=6, max_source_length=28),
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
def vocabulary_file(tmp_path_factory: pytest.TempPathFactory, sentences: list[str]) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    train_vocabulary(sentences, config=EXPERIMENT.data.vocabulary, path=path)
    return path


@pytest.fixture(scope="session")
def vocabulary(vocabulary_file: Path) -> Vocabulary:
    return Vocabulary(vocabulary_file)


def random_model(config: ModelConfig, *, seed: int = 4) -> Transformer:
    """A random model whose next piece depends on the source and on more than the piece before.

    As the table is tied, an ordinary random model writes one piece again and again.
    """
    model = Transformer(config, rngs=nnx.Rngs(seed))
    decoder = model.decoder
    decoder.feed_forward.out[...] *= 6
    decoder.cross_attention.out[...] *= 6
    end = model.table[EOS] / jnp.linalg.norm(model.table[EOS])
    decoder.feed_forward.out_bias[...] += 1.5 * config.d_model**0.5 * end[None]
    model.table[...] *= 2
    # Where a checkpoint's parameters are put, so that one compilation serves both.
    return jax.device_put(model, jax.local_devices()[0])


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
    experiment: Experiment, vocabulary_file: Path
) -> Callable[[Path, Mapping[int, Transformer]], Path]:
    def make(path: Path, models: Mapping[int, Transformer]) -> Path:
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
def workdir(make_workdir, tmp_path_factory, model: Transformer, other: Transformer) -> Path:
    """Checkpoints 1, 2 and 3, of which 2 and 3 are the same."""
    return make_workdir(tmp_path_factory.mktemp("run") / "W", {1: other, 2: model, 3: model})


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `transduce` here: its status, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call
