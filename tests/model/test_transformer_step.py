"""Decoding step by step, with a cache."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from transduce.arrays import BOS, EOS, Array, Batch
from transduce.model import stepping
from transduce.model.stepping import Stepper
from transduce.model.transformer import Transformer

from .examples import QUICKLY, filled, packed, random_pairs, tiny

SENTENCES, BEAMS, LENGTH, VOCABULARY = 2, 3, 6, 11


@functools.partial(jax.jit, static_argnames="recent", compiler_options=QUICKLY)
def step_by_step(
    model: Transformer, source: Batch, fed: Array, parents: Array, *, recent: int
) -> Array:
    """Logits [T, B, K, V] after each of `fed` [T, B, K]; then beams become those of `parents`.

    `recent` is what RECENT is while this is compiled.
    """
    assert recent == stepping.RECENT

    def step(cache: Any, inputs: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        position, ids, parents = inputs
        positions = jnp.full(SENTENCES, position)
        logits, _, cache = stepper.step(ids, positions, cache)
        return cache.reorder(parents), logits

    stepper = Stepper.of(model)
    cache = stepper.start(stepper.read(source.source), beams=BEAMS, length=LENGTH)
    return lax.scan(step, cache, (jnp.arange(LENGTH), fed, parents))[1]


@functools.partial(jax.jit, compiler_options=QUICKLY)
def teacher_forcing(model: Transformer, batch: Batch) -> Array:
    return model(batch)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    ("dtype", "tolerance", "recent"), [("float64", 1e-12, 2), ("float32", 1e-5, 32)]
)
def test_step_by_step_equals_teacher_forcing(
    positions: str,
    norm: str,
    dtype: str,
    tolerance: float,
    recent: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D10: at every position, for hypotheses that differ and change places on the way.

    Also where all but the two or fewer most recent pieces are old ones.
    """
    monkeypatch.setattr(stepping, "RECENT", recent)
    with jax.enable_x64(dtype == "float64"):
        model = filled(tiny(positions=positions, norm=norm, dtype=dtype))
        sources = [
            source for source, _ in random_pairs([(4, 1), (7, 1)], vocabulary=VOCABULARY, seed=5)
        ]
        generator = np.random.default_rng(6)
        fed = generator.integers(3, VOCABULARY, (LENGTH, SENTENCES, BEAMS))
        fed[0] = BOS
        parents = np.broadcast_to(np.arange(BEAMS), fed.shape).copy()
        parents[1] = [[0, 0, 2], [2, 1, 2]]
        parents[3] = [[1, 1, 2], [0, 0, 0]]

        # The pieces that each hypothesis has read at each step, kept as plain lists.
        histories = [[[] for _ in range(BEAMS)] for _ in range(SENTENCES)]
        pairs, places = [], []
        for position in range(LENGTH):
            for sentence, source in enumerate(sources):
                for beam in range(BEAMS):
                    read = [*histories[sentence][beam], int(fed[position, sentence, beam])]
                    histories[sentence][beam] = read
                    pairs.append((source, [*read[1:], EOS]))
                    places.append((position, sentence, beam))
                old = histories[sentence]
                histories[sentence] = [old[parent] for parent in parents[position, sentence]]

        start = packed([[(source, [])] for source in sources], source_length=8, target_length=1)
        stepped = step_by_step(model, start, jnp.asarray(fed), jnp.asarray(parents), recent=recent)
        batch = packed([[pair] for pair in pairs], source_length=8, target_length=LENGTH)
        forced = np.asarray(teacher_forcing(model, batch))
        assert stepped.dtype == forced.dtype == jnp.dtype(dtype)
        for row, place in enumerate(places):
            np.testing.assert_allclose(
                stepped[place], forced[row, place[0]], rtol=tolerance, atol=tolerance
            )
        # The check has teeth: hypotheses of a sentence differ.
        assert np.abs(np.diff(np.asarray(stepped)[1:], axis=2)).max(axis=(1, 2, 3)).min() > 0.1
