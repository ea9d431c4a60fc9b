"""A short form of what `python tests/torture.py` does at length."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def torture(monkeypatch: pytest.MonkeyPatch) -> Any:
    path = Path(__file__).with_name("torture.py")
    spec = importlib.util.spec_from_file_location("torture", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torture", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_run_that_is_cut_over_changing_layouts_ends_as_one_that_is_not(
    torture: Any, tmp_path
) -> None:
    """R4, R9, R10, R18."""
    layouts = [torture.Layout(1, 1), torture.Layout(1, 2), torture.Layout(2, 1)]
    found = torture.torture(tmp_path, cuts=2, total=40, lines=100, seed=5, layouts=layouts)
    assert sum(found["cuts"].values()) == 2
    assert found["lines_answered"] == 100
    assert found["same_to_the_bit"]
