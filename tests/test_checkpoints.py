import json
import logging
import shutil
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from transduce.checkpoints import Checkpoints, Workdir, load_model, named_arrays
from transduce.config import (
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    RequestError,
    VocabularyConfig,
)
from transduce.config_files import from_json, to_json
from transduce.parallel.mesh import make_mesh
from transduce.training.step import TrainState, abstract_state

EXPERIMENT = Experiment(
    name="checkpoints",
    model=ModelConfig(
        vocabulary_size=12,
        encoder_layers=1,
        decoder_layers=2,
        d_model=8,
        d_ff=4,
        heads=2,
        d_k=4,
        d_v=2,
    ),
    data=DataConfig(vocabulary=VocabularyConfig(size=12)),
)
PIPELINE = {"parents": [{"next_row": 3, "parent": {"next_index": 2**40}}, {"parent": None}]}


@pytest.fixture
def workdir(tmp_path, monkeypatch) -> Workdir:
    """A workdir given by a relative path, which Orbax does not take."""
    monkeypatch.chdir(tmp_path)
    return Workdir.of("workdir")


def test_a_workdir_may_be_relative_in_the_home_folder_or_in_a_cloud(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/someone")
    places = {
        "runs/one": f"{tmp_path}/runs/one",
        "~/one": "/someone/one",
        "gs://bucket/one": "gs://bucket/one",
    }
    for given, path in places.items():
        assert str(Workdir.of(given).path) == path


@pytest.fixture(autouse=True)
def no_noise(caplog, capfd):
    """Orbax writes nothing to the terminal in normal use: no output, no warnings."""
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    assert [record.getMessage() for record in records if record.levelno >= logging.WARNING] == []
    assert tuple(capfd.readouterr()) == ("", "")


def mesh(**axes: int) -> Mesh:
    config = MeshConfig(**axes)
    return make_mesh(config, jax.devices()[: max(config.data, 1) * config.fsdp * config.tensor])


def abstract(where: Mesh) -> TrainState:
    return abstract_state(EXPERIMENT, where)


def state(where: Mesh, *, step: int) -> TrainState:
    """Arrays of random numbers that depend on `step`, on a mesh."""
    generator = np.random.default_rng(step)

    def filled(leaf: Any) -> Any:
        if not leaf.ndim:
            return jax.device_put(np.asarray(step, leaf.dtype), leaf.sharding)
        value = generator.normal(size=leaf.shape).astype(leaf.dtype)
        return jax.device_put(value, leaf.sharding)

    return jax.tree.map(filled, abstract(where))


def assert_equal(found: Any, expected: Any) -> None:
    left, right = named_arrays(found), named_arrays(expected)
    assert left.keys() == right.keys()
    for name, value in right.items():
        np.testing.assert_array_equal(np.asarray(left[name]), np.asarray(value), err_msg=name)


def saved(workdir: Workdir, *steps: int, keep: int = 9, where: Mesh | None = None) -> None:
    with Checkpoints(workdir, keep=keep) as checkpoints:
        for step in steps:
            checkpoints.save(step, state(where or mesh(), step=step), PIPELINE)


def loaded(workdir: Workdir, **which: int) -> Any:
    return load_model(workdir, abstract(mesh()).model, **which)


ONE, EIGHT = {}, {"data": 2, "fsdp": 2, "tensor": 2}


@pytest.mark.parametrize(("there", "here"), [(ONE, ONE), (EIGHT, ONE), (ONE, EIGHT)])
def test_what_was_saved_on_some_devices_is_restored_on_others(
    workdir: Workdir, there: dict[str, int], here: dict[str, int]
) -> None:
    """R9: from 8 devices to 1, and back."""
    saved(workdir, 7, where=mesh(**there))
    like = abstract(mesh(**here))
    with Checkpoints(workdir, keep=9) as checkpoints:
        assert checkpoints.latest() == 7
        restored, pipeline = checkpoints.restore(7, like)
    assert pipeline == PIPELINE
    assert_equal(restored, state(mesh(), step=7))
    for name, leaf in named_arrays(like).items():
        assert named_arrays(restored)[name].sharding == leaf.sharding, name
    assert len(restored.model.table[...].sharding.device_set) == (8 if here else 1)
    # What decodes needs one device, whatever the checkpoint was made on.
    assert_equal(loaded(workdir), state(mesh(), step=7).model)


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
            checkpoints.save(step, now, PIPELINE)
            for _ in range(3):
                now = overwrite(now)
    with Checkpoints(workdir, keep=9) as checkpoints:
        first, _ = checkpoints.restore(1, like)
        second, _ = checkpoints.restore(2, like)
    for name, value in values.items():
        for part in ("model", "optimizer"):
            assert np.unique(getattr(first, part)[name]).tolist() == [value]
            assert np.unique(getattr(second, part)[name]).tolist() == [value * 100**3]


def test_the_newest_are_kept(workdir: Workdir) -> None:
    saved(workdir, 1, 2, 3, 4, keep=2)
    assert sorted(path.name for path in workdir.checkpoints.iterdir()) == ["3", "4"]
    assert_equal(loaded(workdir, step=3), state(mesh(), step=3).model)


def test_what_a_cut_save_left_is_cleaned_away_and_in_nobodys_way(workdir: Workdir) -> None:
    """R10."""
    saved(workdir, 3)
    cut = workdir.checkpoints / "5.orbax-checkpoint-tmp"
    shutil.copytree(workdir.checkpoints / "3", cut)
    (cut / "model" / "manifest.ocdbt").unlink()
    # Decoding looks at it from outside, and touches nothing.
    assert_equal(loaded(workdir), state(mesh(), step=3).model)
    assert cut.exists()
    with Checkpoints(workdir, keep=9) as checkpoints:
        assert checkpoints.latest() == 3
        restored, _ = checkpoints.restore(3, abstract(mesh()))
        assert_equal(restored, state(mesh(), step=3))
        checkpoints.save(5, state(mesh(), step=5), PIPELINE)
    assert sorted(path.name for path in workdir.checkpoints.iterdir()) == ["3", "5"]
    assert_equal(loaded(workdir), state(mesh(), step=5).model)


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
            checkpoints.save(step, state(mesh(), step=1), PIPELINE)
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
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(
    workdir: Workdir, which: dict[str, int], message: str
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


# ---- The workdir -------------------------------------------------------------------------------


def changed(section: str, **changes: Any) -> Experiment:
    part: Any = replace(getattr(EXPERIMENT, section), **changes)
    return replace(EXPERIMENT, **{section: part})


def begin(workdir: Workdir, experiment: Experiment = EXPERIMENT) -> None:
    with workdir.begin(experiment):
        pass


def test_a_new_workdir_holds_the_resolved_configuration(workdir: Workdir) -> None:
    begin(workdir)
    assert [path.name for path in workdir.path.iterdir()] == ["config.json"]
    assert workdir.read_experiment() == EXPERIMENT
    assert json.loads(workdir.config.read_bytes())["model"]["d_ff"] == 4


def test_a_run_that_goes_on_may_be_longer_and_on_other_devices(workdir: Workdir) -> None:
    begin(workdir)
    for other in (
        changed("training", steps=7, save_every=2, keep=3),
        changed("mesh", tensor=2),
        changed("search", beam=9),
        changed("data", folder="/elsewhere"),
    ):
        begin(workdir, other)
        assert workdir.read_experiment() == other


def test_another_experiment_is_refused_with_all_that_differs(workdir: Workdir) -> None:
    begin(workdir)
    before = workdir.config.read_bytes()
    other = replace(changed("model", d_ff=6, dropout=0.3), name="other")
    other = replace(other, training=replace(other.training, steps=5))
    with pytest.raises(RequestError) as raised:
        begin(workdir, other)
    message = str(raised.value)
    assert "holds another experiment" in message
    for difference in (
        "model.d_ff is 4 there and 6 here",
        "model.dropout is 0.1 there and 0.3 here",
        "name is 'checkpoints' there and 'other' here",
    ):
        assert difference in message
    assert "training.steps" not in message
    assert workdir.config.read_bytes() == before


def test_a_folder_that_holds_something_else_stays_as_it_is(workdir: Workdir) -> None:
    workdir.path.mkdir()
    (workdir.path / "notes").write_text("mine")
    with pytest.raises(RequestError, match="neither empty nor a workdir"):
        begin(workdir)
    assert [path.name for path in workdir.path.iterdir()] == ["notes"]


def test_a_place_that_cannot_be_a_folder_is_refused(workdir: Workdir) -> None:
    workdir.path.write_text("a file")
    for place in (workdir, Workdir(workdir.path / "below")):
        with pytest.raises(RequestError, match=r"workdir.*: cannot write: "):
            begin(place)
    assert workdir.path.read_text() == "a file"


@pytest.mark.parametrize("error", [RequestError("no such corpus"), KeyboardInterrupt()])
def test_a_workdir_whose_data_cannot_be_made_ready_is_taken_back(
    workdir: Workdir, error: BaseException
) -> None:
    def fail() -> None:
        with workdir.begin(EXPERIMENT):
            workdir.vocabulary.write_bytes(b"made already")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert not workdir.path.exists()
    workdir.path.mkdir()
    with pytest.raises(type(error)):
        fail()
    assert not any(workdir.path.iterdir())
    # The corrected request finds its place free.
    begin(workdir, changed("model", d_ff=6))


def test_a_workdir_that_was_there_before_is_never_taken_back(workdir: Workdir) -> None:
    begin(workdir)
    workdir.vocabulary.write_bytes(b"old")

    def fail() -> None:
        with workdir.begin(EXPERIMENT):
            raise RequestError("no such corpus")

    with pytest.raises(RequestError, match="no such corpus"):
        fail()
    assert workdir.read_experiment() == EXPERIMENT
    assert workdir.vocabulary.read_bytes() == b"old"


@pytest.mark.parametrize("text", [b"", b"\xff", b"{", b"[]", b'{"name": "a", "modle": {}}'])
def test_a_configuration_that_is_not_ours_is_refused(workdir: Workdir, text: bytes) -> None:
    workdir.path.mkdir()
    workdir.config.write_bytes(text)
    with pytest.raises(RequestError, match=r"config\.json: "):
        workdir.read_experiment()
    with pytest.raises(RequestError, match=r"config\.json: "):
        begin(workdir)


def test_a_folder_that_is_no_workdir_has_no_experiment(workdir: Workdir) -> None:
    with pytest.raises(RequestError, match="not a workdir of transduce train"):
        workdir.read_experiment()


def test_names_in_other_scripts_survive(workdir: Workdir) -> None:
    experiment = replace(EXPERIMENT, name="Übersetzung ☃")
    begin(workdir, experiment)
    assert workdir.read_experiment() == experiment == from_json(to_json(experiment), origin="x")
