"""No GPU here: plain XLA in place of cuDNN, refusing what cuDNN refuses."""

from typing import Any

import jax
import numpy as np
import pytest

from transduce.model import cudnn

from .attention_examples import EXAMPLES, Rows, assert_agrees, value_and_gradients

original = jax.nn.dot_product_attention
masks: list[tuple[int, ...]] = []


def stand_in(query: Any, key: Any, value: Any, *, implementation: str, **arguments: Any) -> Any:
    """Of cuDNN: even lengths, one width that is a multiple of 8."""
    assert implementation == "cudnn"
    assert query.shape[1] % 2 == key.shape[1] % 2 == query.shape[-1] % 8 == 0
    assert value.shape == key.shape
    masks.append(arguments["mask"].shape)
    return original(query, key, value, implementation="xla", **arguments)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    masks.clear()
    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)


@pytest.mark.parametrize("rows", EXAMPLES.values(), ids=EXAMPLES)
def test_values_and_gradients_are_attentions(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    """R14 in part: rows that are all padding, too. In two parts of 8 queries."""
    monkeypatch.setattr(cudnn, "ROWS", 8)
    assert_agrees(cudnn.attend_by_cudnn, rows, dtype=np.float32, tolerance=1e-5)


def test_short_rows_are_one_part() -> None:
    rows = EXAMPLES["packed, causal"]
    assert_agrees(cudnn.attend_by_cudnn, rows, dtype=np.float32, tolerance=1e-5)
    assert set(masks) == {(3, 1, 16, 16)}


def test_a_mask_is_of_some_queries_and_of_no_key_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cudnn, "ROWS", 8)
    rows = EXAMPLES["packed, causal"]
    value_and_gradients(cudnn.attend_by_cudnn, rows, np.zeros((3, 13, 2, 3)), np.float32)
    assert set(masks) == {(3, 1, 8, 8), (3, 1, 8, 16)}
