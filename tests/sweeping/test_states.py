"""Which variants are done, as their workdirs say."""

from pathlib import Path

import pytest

from tests.sweeping.examples import FILE, leave, variants, write_file
from transduce.config import RequestError
from transduce.sweeping.states import state_of
from transduce.sweeping.variants import plan


def test_what_has_no_workdir_is_not_begun(tmp_path: Path) -> None:
    state = state_of(variants(tmp_path)[0], str(tmp_path))
    assert (state.step, state.done, state.records) == (0, False, ())


def test_a_run_that_came_to_its_end_is_done(tmp_path: Path) -> None:
    base = variants(tmp_path)[0]
    leave(base, tmp_path, step=20)
    state = state_of(base, str(tmp_path))
    assert (state.step, state.done) == (20, True)
    assert state.last("dev")["perplexity"] == 5.0
    assert state.last("absent") == {}


def test_a_run_that_was_cut_is_not(tmp_path: Path) -> None:
    base, one_head, _ = variants(tmp_path)
    leave(base, tmp_path, step=10, over=False)
    assert not state_of(base, str(tmp_path)).done
    # Cut after the last checkpoint, before test was translated.
    leave(one_head, tmp_path, step=20, over=False)
    assert not state_of(one_head, str(tmp_path)).done


def test_a_run_that_ended_early_is_done_until_its_limits_change(tmp_path: Path) -> None:
    """Patience, minutes or epochs ended it."""
    base = variants(tmp_path)[0]
    leave(base, tmp_path, step=10)
    assert state_of(base, str(tmp_path)).done
    text = FILE.replace("steps=20", "steps=30")
    assert not state_of(plan(write_file(tmp_path, text))[0], str(tmp_path)).done
    text = FILE.replace("steps=20", "steps=5")
    assert state_of(plan(write_file(tmp_path, text))[0], str(tmp_path)).done


def test_another_experiment_in_its_place_is_refused(tmp_path: Path) -> None:
    base = variants(tmp_path)[0]
    leave(base, tmp_path, step=20)
    changed = plan(write_file(tmp_path, FILE.replace("d_ff=32", "d_ff=64")))[0]
    with pytest.raises(RequestError, match=r"base: holds another.*model.d_ff is 32 there and 64"):
        state_of(changed, str(tmp_path))


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    base = variants(tmp_path)[0]
    workdir = leave(base, tmp_path, step=20)
    whole = workdir.metrics.read_text()
    workdir.metrics.write_text(whole + '{"kind": "tr')
    assert state_of(base, str(tmp_path)).done  # it is being written
    workdir.metrics.write_text('{"kind": "tr\n' + whole)
    with pytest.raises(RequestError, match=r"metrics.jsonl, line 1: not a record"):
        state_of(base, str(tmp_path))
    workdir.metrics.write_bytes(b'{"kind": "\xff", "step": 1}\n' + whole.encode())
    with pytest.raises(RequestError, match=r"metrics.jsonl, line 1: not a record"):
        state_of(base, str(tmp_path))
