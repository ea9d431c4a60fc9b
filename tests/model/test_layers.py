import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from transduce.model import layers, transformer
from transduce.model.layers import dropout, relu

from .examples import QUICKLY, filled, named, packed, random_pairs, tiny
from .reference import Reference

ONES = jnp.ones((8, 250, 1000))


@pytest.mark.parametrize(("rate", "kept"), [(0.1, 230), (0.2, 205), (0.3, 179)])
def test_dropout_keeps_its_share_and_the_mean(rate: float, kept: int) -> None:
    """The share kept is 1 - rate rounded to 1/256, and what is kept is scaled by its inverse."""
    dropped = np.asarray(dropout(ONES, rate, jax.random.key(0)))
    np.testing.assert_array_equal(np.unique(dropped), np.array([0, 256 / kept], np.float32))
    share = kept / 256
    deviation = (share * (1 - share) / ONES.size) ** 0.5
    assert abs((dropped > 0).mean() - share) < 4 * deviation
    assert abs(dropped.mean() - 1) < 4 * deviation / share


def test_dropout_scales_what_it_keeps() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 30, 20)), jnp.float32)
    dropped = np.asarray(dropout(x, 0.5, jax.random.key(0)))
    np.testing.assert_array_equal(dropped[dropped != 0], 2 * np.asarray(x)[dropped != 0])


def test_relu_by_hand() -> None:
    """At 0 there is no slope."""
    value, gradient = jax.vjp(relu, jnp.asarray([-2.0, 0.0, 3.0]))
    assert value.tolist() == [0, 0, 3]
    assert gradient(jnp.asarray([5.0, 7.0, 11.0]))[0].tolist() == [0, 0, 11]


def test_nothing_is_dropped_at_rate_0_or_without_a_key() -> None:
    assert dropout(ONES, 0.0, jax.random.key(0)) is ONES
    assert dropout(ONES, 0.1, None) is ONES


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.usefixtures("x64")
def test_dropout_is_where_section_5_4_puts_it(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On embeddings plus positions and on each sub-layer's output, nowhere else.

    The masks that the model draws are noted in the order in which they are drawn, and the
    independent implementation applies them at the paper's places in the paper's order.
    """
    masks: list[np.ndarray] = []

    def note(mask: np.ndarray) -> np.ndarray:
        masks.append(np.asarray(mask))
        return np.zeros((), np.int32)

    def noting(x: jax.Array, rate: float, key: Any) -> jax.Array:
        mask = dropout(jnp.ones_like(x), rate, key)
        io_callback(note, jax.ShapeDtypeStruct((), jnp.int32), mask > 0, ordered=True)
        return x * mask

    monkeypatch.setattr(layers, "dropout", noting)
    monkeypatch.setattr(transformer, "dropout", noting)
    pairs = random_pairs([(5, 7), (3, 4)], vocabulary=11, seed=1)
    batch = packed([[pair] for pair in pairs], source_length=5, target_length=7)
    config = tiny(norm=norm, dropout=0.4, encoder_layers=2)
    model = filled(config)
    run = jax.jit(lambda m: m(batch, key=jax.random.key(3)), compiler_options=QUICKLY)
    logits = run(model)
    jax.effects_barrier()
    # 1 + 2 x 2 on the source's side, 1 + 2 x 3 on the target's.
    assert [mask.shape for mask in masks] == [(2, 5, 6)] * 5 + [(2, 7, 6)] * 7
    for index, (source, target) in enumerate(pairs):
        drop = Masks(iter(masks), index)
        paper = Reference(named(model), positions=config.positions, norm=norm, drop=drop).logits(
            source, target
        )
        np.testing.assert_allclose(logits[index, : len(target)], paper, rtol=1e-9, atol=1e-9)
        assert next(drop.masks, None) is None
    for side in (masks[:5], masks[5:]):
        for number, mask in enumerate(side):
            assert all((mask != other).any() for other in side[:number])


@dataclasses.dataclass
class Masks:
    """Applies one mask after the other to a row: 0.6 is kept, which is 154 of 256 by rounding."""

    masks: Iterator[np.ndarray]
    row: int

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x * next(self.masks)[self.row, : len(x)] * 256 / 154
