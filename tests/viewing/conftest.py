"""The workdir of the tests of decoding, and attention that is made up."""

from typing import Any

import numpy as np
import pytest

from transduce.viewing.attention import Attention

# Fixtures are shared by importing them; they are used by their names alone.
from ..decoding.conftest import (  # noqa: F401 used by their names alone
    experiment,
    make_model,
    make_workdir,
    model,
    other,
    second,
    sentences,
    vocabulary,
    vocabulary_file,
    workdir,
)

NASTY = "</script><script>alert(1)</script>"
SOURCE = ("\u2581the", "\u2581dog", "\u2581dog", NASTY, "\u2028&amp;'\"", "</s>")
TARGET = ("(S", "NN", "\u2581<b>", ")S", "</s>")


def made_up(*, layers: int = 2, heads: int = 3, seed: int = 0) -> Attention:
    """Random weights over texts that try to get out of the page."""
    generator = np.random.default_rng(seed)

    def weights(rows: int, columns: int, *, causal: bool = False) -> Any:
        drawn = generator.random((layers, heads, rows, columns)) ** 6
        drawn *= np.tril(np.ones((rows, columns))) if causal else 1
        return (drawn / drawn.sum(axis=-1, keepdims=True)).astype(np.float32)

    sizes = (len(SOURCE), len(TARGET))
    return Attention(
        source=SOURCE,
        read=("<s>", *TARGET[:-1]),
        target=TARGET,
        weights={
            "encoder": weights(sizes[0], sizes[0]),
            "decoder": weights(sizes[1], sizes[1], causal=True),
            "cross": weights(sizes[1], sizes[0]),
        },
    )


@pytest.fixture(scope="session")
def attention() -> Attention:
    return made_up()
