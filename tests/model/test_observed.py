"""Attention weights out of the model, against the numpy Transformer's."""

import functools

import jax
import numpy as np
import pytest

from transduce.config import ModelConfig
from transduce.model.observed import observe

from .examples import QUICKLY, filled, named, packed, random_pairs, tiny
from .recording import Recording

# Two sequences and padding; one sequence and padding on both sides.
PAIRS = random_pairs([(3, 2), (2, 4), (4, 6)], vocabulary=11, seed=1)
ROWS = [PAIRS[:2], PAIRS[2:]]
CHOICES = [
    tiny(norm="post", positions="sinusoidal"),
    tiny(norm="pre", positions="rotary", encoder_layers=2, attention="chunked"),
]
observed = functools.partial(jax.jit, compiler_options=QUICKLY)(observe)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("config", CHOICES, ids=lambda c: f"{c.norm}-{c.positions}")
def test_weights_are_the_papers_and_0_at_padding(config: ModelConfig) -> None:
    """D12: also of sequences that share a row."""
    model = filled(config)
    batch = packed(ROWS, source_length=7, target_length=8)
    found = observed(model, batch)
    paper = Recording(named(model), positions=config.positions, norm=config.norm)
    for row, pairs in enumerate(ROWS):
        starts = [0, 0]
        for source, target in pairs:
            expected = paper.attention(source, target)
            s = slice(starts[0], starts[0] + len(source))
            t = slice(starts[1], starts[1] + len(target))
            starts = [s.stop, t.stop]
            for kind, rows, columns in (("encoder", s, s), ("decoder", t, t), ("cross", t, s)):
                weights = np.asarray(getattr(found, kind))[:, row, :, rows]
                np.testing.assert_allclose(weights[..., columns], expected[kind], atol=1e-9)
                # All else is exactly 0: other sequences, padding, what comes later.
                outside = np.delete(weights, np.arange(columns.start, columns.stop), axis=-1)
                assert not outside.any()
                assert not weights[..., columns][expected[kind] == 0].any()
