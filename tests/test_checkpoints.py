import logging
import shutil
import time
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint._src.checkpointers import async_checkpointer

from transduce.checkpoints import Checkpoints, load_model, named_arrays, saved_steps
from transduce.config import RequestError
from transduce.training.step import TrainState
from transduce.workdir import Workdir

from .checkpoint_examples import (
    AVERAGED,
    EXPERIMENT,
    JSON,
    PIPELINE,
    PROGRESS,
    abstract,
    assert_equal,
    loaded,
    mesh,
    saved,
    state,
)


@pytest.fixture
def workdir(tmp_path, monkeypatch) -> Workdir:
    """A workdir given by a relative path, which Orbax does not take."""
    monkeypatch.chdir(tmp_path)
    return Workdir.of("workdir")


@pytest.fixture(autouse=True)
def no_noise(caplog, capfd):
    """Orbax writes nothing to the terminal in normal use: no output, no warnings."""
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    assert [record.getMessage() for record in records if record.levelno >= logging.WARNING] == []
    assert tuple(capfd.readouterr()) == ("", "")


ONE, EIGHT = {}, {"data": 2, "fsdp": 2, "tensor": 2}


@pytest.mark.parametrize(("there", "here"), [(ONE, ONE), (EIGHT, ONE), (ONE, EIGHT)])
def test_what_was_saved_on_some_devices_is_restored_on_others(
    workdir: Workdir, there: dict[str, int], here: dict[str, int]
) -> None:
    """R9: from 8 devices to 1, and back."""
    with Checkpoints(workdir, keep=9) as checkpoints:
        checkpoints.save(7, state(mesh(**there), step=7, experiment=AVERAGED), **JSON)
    like = abstract(mesh(**here), AVERAGED)
    assert saved_steps(workdir.checkpoints) == [7]
    with Checkpoints(workdir, keep=9) as checkpoints:
        restored, pipeline, progress = checkpoints.restore(7, like)
    assert (pipeline, progress) == (PIPELINE, PROGRESS)
    expected = state(mesh(), step=7, experiment=AVERAGED)
    assert_equal(restored, expected)
    for name, leaf in named_arrays(like).items():
        assert named_arrays(restored)[name].sharding == leaf.sharding, name
    assert len(restored.model.table[...].sharding.device_set) == (8 if here else 1)
    # What decodes needs one device, whatever the checkpoint was made on, and takes the average.
    assert_equal(loaded(workdir), expected.ema)


def test_the_state_may_be_overwritten_once_save_returns(workdir: Workdir) -> None:
    values = {"a": 1.0, "b": 2.0}

    def large() -> Any:
        return {name: jnp.full((8, 1024, 1024), value) for name, value in values.items()}

    begun = TrainState(step=jnp.int32(1), model=large(), optimizer=large())
    overwrite = jax.jit(partial(jax.tree.map, lambda x: x * 100), donate_argnums=0)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), begun
    )
    now = begun
    with Checkpoints(workdir, keep=9) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, now, **JSON)
            for _ in range(3):
                now = overwrite(now)
    with Checkpoints(workdir, keep=9) as checkpoints:
        first, _, _ = checkpoints.restore(1, like)
        second, _, _ = checkpoints.restore(2, like)
    for name, value in values.items():
        for part in ("model", "optimizer"):
            assert np.unique(getattr(first, part)[name]).tolist() == [value]
            assert np.unique(getattr(second, part)[name]).tolist() == [value * 100**3]


def test_the_newest_are_kept(workdir: Workdir) -> None:
    saved(workdir, 1, 2, 3, 4, keep=2)
    assert sorted(path.name for path in workdir.checkpoints.iterdir()) == ["3", "4"]
    assert_equal(loaded(workdir, step=3), state(mesh(), step=3).model)


def test_where_a_run_was_cut_is_kept_until_it_has_gone_on(workdir: Workdir) -> None:
    """As if there had been no cut: the mean of the newest is that of the same ones."""
    with Checkpoints(workdir, keep=2, every=10) as checkpoints:
        kept = []
        for step in (10, 20, 30, 33, 37, 40):
            checkpoints.save(step, state(mesh(), step=step), **JSON)
            checkpoints.wait()
            kept.append(saved_steps(workdir.checkpoints))
    assert kept == [[10], [10, 20], [20, 30], [20, 30, 33], [20, 30, 37], [30, 40]]


def test_the_best_parameters_are_kept_beside_the_newest(workdir: Workdir) -> None:
    with Checkpoints(workdir, keep=1) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(mesh(), step=step), **JSON)
            if step < 3:
                checkpoints.save_best(step, state(mesh(), step=10 * step).model)
        # The run was cut and comes by again: what is there stays.
        checkpoints.save_best(2, state(mesh(), step=5).model)
    assert (saved_steps(workdir.checkpoints), saved_steps(workdir.best)) == ([3], [2])
    assert_equal(loaded(workdir, best=True), state(mesh(), step=20).model)
    assert_equal(loaded(workdir), state(mesh(), step=3).model)


def test_best_parameters_are_there_before_a_checkpoint_that_speaks_of_them(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(temporary: Any, *arguments: Any) -> None:
        final = temporary.get_final()
        order.append(f"{final.parent.name}/{final.name}")
        if final.parent.name == "best":
            time.sleep(0.2)
        committed(temporary, *arguments)
        order.append("done")

    order, committed = [], async_checkpointer._on_commit_callback
    monkeypatch.setattr(async_checkpointer, "_on_commit_callback", commit)
    with Checkpoints(workdir, keep=1) as checkpoints:
        checkpoints.save_best(2, state(mesh(), step=2).model)
        checkpoints.save(2, state(mesh(), step=2), **JSON)
    assert order == ["best/2", "done", "checkpoints/2", "done"]


def test_a_checkpoint_of_another_model_is_refused_with_all_that_differs(
    workdir: Workdir, tmp_path
) -> None:
    """As when it is copied from elsewhere."""
    other = replace(EXPERIMENT, model=replace(EXPERIMENT.model, d_ff=6, positions="learned"))
    with Checkpoints(workdir, keep=1) as checkpoints:
        checkpoints.save(1, state(mesh(), step=1, experiment=other), **JSON)
        checkpoints.save_best(1, state(mesh(), step=1, experiment=other).model)
    expected = [
        "position_table is not of this model",
        *(
            f"{stack}.feed_forward.{name} is {there} there and {here} here"
            for stack, layers in (("decoder", 2), ("encoder", 1))
            for name, there, here in (
                ("into", (layers, 8, 6), (layers, 8, 4)),
                ("into_bias", (layers, 6), (layers, 4)),
                ("out", (layers, 6, 8), (layers, 4, 8)),
            )
        ),
    ]
    with Checkpoints(workdir, keep=1) as checkpoints:
        refusals = [
            lambda: checkpoints.restore(1, abstract(mesh())),
            lambda: loaded(workdir),
            lambda: loaded(workdir, best=True),
        ]
        for refuse in refusals:
            with pytest.raises(RequestError) as raised:
                refuse()
            path, verdict, differences = str(raised.value).split(": ", 2)
            assert (path.rsplit("/", 2)[1:], verdict) == (["1", "model"], "is of another model")
            assert differences.split("; ") == expected
    # The other way round, and one without a moving average.
    workdir = Workdir.of(str(tmp_path / "other"))
    saved(workdir, 1)
    like = abstract(mesh(), other)
    with pytest.raises(RequestError, match=r"model: is of another model: position_table is missin"):
        load_model(workdir, like.model)
    with (
        Checkpoints(workdir, keep=1) as checkpoints,
        pytest.raises(RequestError, match=r"checkpoints/1/ema: is missing: the checkpoint is of"),
    ):
        checkpoints.restore(1, abstract(mesh(), AVERAGED))


def test_a_workdir_works_where_it_was_copied_to(workdir: Workdir, tmp_path) -> None:
    saved(workdir, 1, 2)
    shutil.copytree(workdir.path, tmp_path / "elsewhere")
    shutil.rmtree(workdir.path)
    elsewhere = Workdir.of(str(tmp_path / "elsewhere"))
    assert_equal(loaded(elsewhere, step=1), state(mesh(), step=1).model)


def test_a_model_is_that_of_the_step_asked_for_or_the_mean_of_the_newest(
    workdir: Workdir,
) -> None:
    saved(workdir, 10, 20, 30)
    ten, twenty, thirty = (named_arrays(state(mesh(), step=n).model) for n in (10, 20, 30))
    assert_equal(loaded(workdir), state(mesh(), step=30).model)
    assert_equal(loaded(workdir, step=10), state(mesh(), step=10).model)
    for name, value in named_arrays(loaded(workdir, average=2)).items():
        expected = (np.float64(twenty[name]) + np.float64(thirty[name])) / 2
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)
    for name, value in named_arrays(loaded(workdir, average=3)).items():
        total = sum(np.float64(arrays[name]) for arrays in (ten, twenty, thirty))
        np.testing.assert_allclose(value, total / 3, rtol=1e-6, atol=1e-6)


def test_the_mean_of_equal_models_is_that_model(workdir: Workdir) -> None:
    """R11: to the bit, and without the optimiser's state."""
    with Checkpoints(workdir, keep=9) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(mesh(), step=1), **JSON)
    for step in "123":
        shutil.rmtree(workdir.checkpoints / step / "optimizer")
    assert_equal(loaded(workdir, average=3), state(mesh(), step=1).model)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ({"step": 4}, "has no checkpoint of step 4; it has 1, 2"),
        ({"average": 3}, "--average 3 needs that many checkpoints; it has 1, 2"),
        ({"average": 0}, "--average 0 needs that many"),
        ({"step": 1, "average": 2}, "--step and --average exclude each other"),
        ({"step": 1, "best": True}, "--best excludes --step and --average"),
        ({"average": 2, "best": True}, "--best excludes --step and --average"),
        ({"best": True}, "holds no best checkpoint yet"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(
    workdir: Workdir, which: dict[str, Any], message: str
) -> None:
    saved(workdir, 1, 2)
    with pytest.raises(RequestError, match=message):
        loaded(workdir, **which)


def test_a_workdir_without_checkpoints_is_refused(workdir: Workdir) -> None:
    with pytest.raises(RequestError, match="holds no checkpoint yet"):
        loaded(workdir)
    assert not workdir.path.exists()
    workdir.checkpoints.mkdir(parents=True)
    with pytest.raises(RequestError, match="holds no checkpoint yet"):
        loaded(workdir)
