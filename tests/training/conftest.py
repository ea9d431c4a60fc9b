"""A small experiment on disk, for the tests that run it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.config import Experiment

from .examples import experiment_in, on_one_device, write_experiment


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds experiment.py and its corpus; for prepared corpora, cache."""
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
