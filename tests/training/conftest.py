"""A small experiment on disk, for the tests that run it, and a workdir in which it has run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from transduce.config import Experiment
from transduce.training import loop
from transduce.workdir import Workdir

from .examples import COMPILED, experiment_in, on_one_device, write_experiment


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds experiment.py and its corpus; for prepared corpora, cache; for programs, compiled."""
    folder = tmp_path_factory.mktemp("corpus")
    write_experiment(folder / "experiment.py", experiment_in(folder))
    return folder


@pytest.fixture(scope="session")
def experiment(folder: Path) -> Experiment:
    return experiment_in(folder)


@pytest.fixture
def one_device(folder: Path) -> Iterator[None]:
    with on_one_device(folder / "cache"):
        yield


@contextmanager
def kept_programs(path: Path) -> Iterator[None]:
    """What was compiled once, in this process or in one that a test starts, is kept on disk."""
    settings = {"jax_compilation_cache_dir": str(path), **COMPILED}
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def compiled(folder: Path) -> Iterator[None]:
    with kept_programs(folder / "compiled"):
        yield


@pytest.fixture(scope="session")
def finished(folder: Path, experiment: Experiment) -> Path:
    """A workdir in which the experiment has run to its end; to look at only."""
    path = folder / "finished"
    with on_one_device(folder / "cache"), kept_programs(folder / "compiled"):
        loop.train(experiment, Workdir.of(str(path)))
    return path
