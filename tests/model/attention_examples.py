"""Rows for attention, and the attention of them in numpy, that the tests of its kernels share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transduce.model.visibility import Visible

from .examples import QUICKLY
from .reference import softmax

HEADS, WIDTH, VALUE_WIDTH = 2, 4, 3


@dataclass(frozen=True)
class Rows:
    """Sequences packed in rows, with random queries, keys and values.

    `looking` and `looked_at` are the segments of queries and keys, one list a row.
    """

    looking: list[list[int]]
    looked_at: list[list[int]]
    causal: bool = False

    def visible(self) -> Visible:
        return Visible(
            queries=jnp.asarray(self.looking, jnp.int32),
            keys=jnp.asarray(self.looked_at, jnp.int32),
            causal=self.causal,
        )

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queries, keys and values, in float64."""
        generator = np.random.default_rng(0)
        looking, looked_at = np.shape(self.looking), np.shape(self.looked_at)
        return (
            2 * generator.standard_normal((*looking, HEADS, WIDTH)),
            2 * generator.standard_normal((*looked_at, HEADS, WIDTH)),
            generator.standard_normal((*looked_at, HEADS, VALUE_WIDTH)),
        )

    def seen(self, row: int, position: int) -> list[int]:
        """The positions that a query sees."""
        segment = self.looking[row][position]
        return [
            place
            for place, other in enumerate(self.looked_at[row])
            if other == segment != 0 and (place <= position or not self.causal)
        ]

    def seeing(self) -> np.ndarray:
        """[B, T, 1, 1]: 1 where a query sees something, else 0."""
        rows, length = np.shape(self.looking)
        sees = [[bool(self.seen(row, at)) for at in range(length)] for row in range(rows)]
        return np.asarray(sees, float)[:, :, None, None]

    def mixed(self, queries: Any, keys: Any, values: Any) -> np.ndarray:
        """Equation 1, a query at a time, given only what it sees; 0 where that is nothing.

        Also of complex numbers.
        """
        shape = (*queries.shape[:3], values.shape[-1])
        mixed = np.zeros(shape, np.result_type(queries, keys, values))
        for row, position, head in np.ndindex(*queries.shape[:3]):
            seen = self.seen(row, position)
            if seen:
                query = queries[row, position, head]
                weights = softmax(keys[row, seen, head] @ query / np.sqrt(len(query)))
                mixed[row, position, head] = weights @ values[row, seen, head]
        return mixed


def packed(*lengths: int, padding: int = 0) -> list[int]:
    """Segments 1, 2, ... of a row that holds sequences of `lengths`; 0 is no sequence."""
    segments = [number for number, length in enumerate(lengths, start=1) for _ in range(length)]
    return segments + [0] * padding


NOTHING = packed(padding=13)

EXAMPLES = {
    "one sequence": Rows([packed(13)], [packed(13)]),
    "one sequence, causal": Rows([packed(13)], [packed(13)], causal=True),
    "packed": Rows(
        [packed(5, 4, 2, padding=2), packed(13), NOTHING],
        [packed(5, 4, 2, padding=2), packed(13), NOTHING],
    ),
    "packed, causal": Rows(
        [packed(5, 4, 2, padding=2), packed(13), NOTHING],
        [packed(5, 4, 2, padding=2), packed(13), NOTHING],
        causal=True,
    ),
    "fewer keys than queries": Rows(
        [packed(5, 4, 2, padding=2), packed(6, 7), NOTHING],
        [packed(1, 3, 2, padding=1), packed(3, 4), packed(padding=7)],
    ),
    "more keys than queries, causal": Rows(
        [packed(2, 3), packed(5)], [packed(2, 3, padding=6), packed(11)], causal=True
    ),
    "a sequence without a partner": Rows([packed(3, 4)], [packed(5, padding=1)]),
}


def value_and_gradients(
    attention: Callable[..., jax.Array], rows: Rows, slopes: np.ndarray, dtype: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What `attention` gives, and the gradients of its sum times `slopes`."""

    def product(queries: Any, keys: Any, values: Any, visible: Visible) -> Any:
        mixed = attention(queries, keys, values, visible)
        return jnp.sum(mixed * jnp.asarray(slopes, mixed.dtype)), mixed

    arrays = [jnp.asarray(x, dtype) for x in rows.arrays()]
    gradient = jax.grad(product, argnums=(0, 1, 2), has_aux=True)
    function = jax.jit(gradient, compiler_options=QUICKLY)
    gradients, mixed = function(*arrays, rows.visible())
    return np.asarray(mixed), [np.asarray(gradient) for gradient in gradients]


def random_slopes(rows: Rows) -> np.ndarray:
    """Of the result, 0 where a query sees nothing."""
    shape = (*np.shape(rows.looking), HEADS, VALUE_WIDTH)
    return np.random.default_rng(1).standard_normal(shape) * rows.seeing()


def assert_agrees(
    attention: Callable[..., jax.Array], rows: Rows, *, dtype: Any, tolerance: float
) -> None:
    """Values and gradients are numpy's, along two directions, relative to the largest."""
    slopes = random_slopes(rows)
    mixed, gradients = value_and_gradients(attention, rows, slopes, dtype)
    assert mixed.dtype == dtype
    assert np.isfinite(mixed).all()
    np.testing.assert_allclose(
        mixed * rows.seeing(), rows.mixed(*rows.arrays()), rtol=0, atol=tolerance
    )
    generator = np.random.default_rng(2)
    for place, gradient in enumerate(gradients):
        assert np.isfinite(gradient).all()
        for _ in range(2):
            direction = generator.standard_normal(gradient.shape)
            moved: list[Any] = list(rows.arrays())
            moved[place] = moved[place] + 1e-30j * direction
            slope = (np.imag(rows.mixed(*moved)) / 1e-30 * slopes).sum()
            largest = np.abs(gradient).max()
            assert abs((gradient * direction).sum() - slope) < tolerance * max(largest, 1)
