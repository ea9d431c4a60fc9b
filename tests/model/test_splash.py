"""On the CPU, where Pallas interprets the kernel for TPUs."""

from functools import partial

import numpy as np
import pytest

from transduce.model.splash import attend_by_splash

from .attention_examples import EXAMPLES, Rows, assert_agrees, packed, value_and_gradients

interpreted = partial(attend_by_splash, interpret=True)


@pytest.mark.parametrize("rows", EXAMPLES.values(), ids=EXAMPLES)
def test_values_and_gradients_are_attentions(rows: Rows) -> None:
    """R14 in part: rows that are all padding, too. In float32, to 1e-5."""
    assert_agrees(interpreted, rows, dtype=np.float32, tolerance=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_longer_than_a_block(causal: bool) -> None:
    """520 queries and 600 keys are two blocks each."""
    rows = Rows([packed(300, 200, padding=20)], [packed(310, 250, padding=40)], causal=causal)
    assert_agrees(interpreted, rows, dtype=np.float32, tolerance=2e-5)


def test_a_query_that_sees_nothing_gets_what_is_finite() -> None:
    """R14: a row that is all padding, whatever the gradient that comes to it."""
    rows = Rows([packed(padding=6)], [packed(padding=6)])
    slopes = np.full((1, 6, 2, 3), 9.0)
    mixed, gradients = value_and_gradients(interpreted, rows, slopes, np.float32)
    assert np.isfinite(mixed).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)
