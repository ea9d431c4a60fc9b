"""A short form of what `python tests/torture.py` does at length."""

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def torture(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("torture")


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


def test_the_run_without_a_cut_goes_over_the_same_updates_with_each_layout(
    torture: Any, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, four = (torture.Layout(1, devices) for devices in (1, 2, 4))
    made: list[tuple[Any, int, int]] = []
    monkeypatch.setattr(torture.Replay, "_go", lambda self, *span: made.append(span))
    # Each with the update that it went on from; a start that saved nothing leaves no trace.
    schedule = [(one, 0), (two, 4), (one, 4), (one, 6), (four, 9)]
    with torture.Replay(tmp_path, 20) as replay:
        for known in range(1, 6):
            replay.follow(schedule[:known])
        assert replay.wait() == 0
        replay.follow([*schedule, (two, 12)])
        assert replay.wait() == 1
        replay.follow([*schedule, (two, 12)], total=20)
        assert replay.wait() == 3
    assert made == [(one, 0, 9), (four, 9, 12), (two, 12, 20)]
