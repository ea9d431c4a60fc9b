"""What the attention of first heads misses, against the numpy Transformer's attention."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from transduce.arrays import Batch
from transduce.config import ModelConfig
from transduce.model.transformer import Remat

from .examples import QUICKLY, filled, named, packed, random_pairs, tiny
from .recording import Recording

PAIRS = random_pairs([(3, 2), (5, 4), (4, 6)], vocabulary=11, seed=1)
ROWS = [PAIRS[:2], PAIRS[2:]]
SOURCE_WORDS = {3: [1, 2, 2], 5: [1, 1, 2, 3, 3], 4: [1, 2, 3, 3]}
TARGET_WORDS = {2: [2, 0], 4: [0, 3, 1, 0], 6: [1, 0, 2, 9, 3, 0]}
"""By the lengths of PAIRS; the 9 has no piece in its source."""
CHOICES = [
    tiny(norm="post", positions="sinusoidal"),
    tiny(norm="pre", positions="rotary", attention="chunked"),
]


def with_words(batch: Batch) -> Batch:
    """Where there is no sequence, numbers that must not count."""
    sides: dict[str, Any] = {"source": np.full((2, 9), 2), "target": np.full((2, 8), 2)}
    for row, pairs in enumerate(ROWS):
        start = [0, 0]
        for source, target in pairs:
            sides["source"][row, start[0] : start[0] + len(source)] = SOURCE_WORDS[len(source)]
            sides["target"][row, start[1] : start[1] + len(target)] = TARGET_WORDS[len(target)]
            start = [start[0] + len(source), start[1] + len(target)]
    return Batch(
        source=replace(batch.source, words=sides["source"]),
        target=replace(batch.target, words=sides["target"]),
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("remat", ["none", "layer"])
@pytest.mark.parametrize("config", CHOICES, ids=lambda c: f"{c.norm}-{c.positions}")
def test_it_is_the_attention_to_other_words(config: ModelConfig, remat: Remat) -> None:
    model = filled(config)
    batch = with_words(packed(ROWS, source_length=9, target_length=8))
    paper = Recording(named(model), positions=config.positions, norm=config.norm)
    expected, counted = 0.0, 0
    for pairs in ROWS:
        for source, target in pairs:
            weights = paper.attention(source, target)["cross"]
            for t, word in enumerate(TARGET_WORDS[len(target)]):
                pieces = np.array(SOURCE_WORDS[len(source)]) == word
                if pieces.any():
                    expected -= np.log(weights[:, 0, t, pieces].sum(axis=-1)).mean()
                    counted += 1
    assert counted == 1 + 2 + 3

    @jax.jit
    def both(model, batch: Batch) -> Any:
        guided = model.hidden_and_missed(batch, remat=remat, guided=True)
        return guided, model.hidden_and_missed(batch)

    (hidden, missed), (plain, nothing) = both.lower(model, batch).compile(QUICKLY)(model, batch)
    assert float(missed) == pytest.approx(expected, rel=1e-9)
    assert float(nothing) == 0
    np.testing.assert_allclose(hidden, plain, atol=1e-12)
