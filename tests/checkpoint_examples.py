"""Training states with random arrays, saved and loaded."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transduce.checkpoints import Checkpoints, load_model, named_arrays
from transduce.config import (
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    TrainingConfig,
    VocabularyConfig,
)
from transduce.parallel.mesh import make_mesh
from transduce.training.step import TrainState, abstract_state
from transduce.workdir import Workdir

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
AVERAGED = replace(EXPERIMENT, training=TrainingConfig(ema_decay=0.9))
PIPELINE = {"parents": [{"next_row": 3, "parent": {"next_index": 2**40}}, {"parent": None}]}
PROGRESS = {"pairs": 2**40, "seconds": 0.1, "best": None}
JSON = {"pipeline": PIPELINE, "progress": PROGRESS}


def mesh(**axes: int) -> Mesh:
    config = MeshConfig(**axes)
    return make_mesh(config, jax.devices()[: max(config.data, 1) * config.fsdp * config.tensor])


def abstract(where: Mesh, experiment: Experiment = EXPERIMENT) -> TrainState:
    return abstract_state(experiment, where)


def state(where: Mesh, *, step: int, experiment: Experiment = EXPERIMENT) -> TrainState:
    """Arrays of random numbers that depend on `step`, on a mesh."""
    generator = np.random.default_rng(step)

    def filled(leaf: Any) -> Any:
        if not leaf.ndim:
            return jax.device_put(np.asarray(step, leaf.dtype), leaf.sharding)
        value = generator.normal(size=leaf.shape).astype(leaf.dtype)
        return jax.device_put(value, leaf.sharding)

    return jax.tree.map(filled, abstract(where, experiment))


def assert_equal(found: Any, expected: Any) -> None:
    left, right = named_arrays(found), named_arrays(expected)
    assert left.keys() == right.keys()
    for name, value in right.items():
        np.testing.assert_array_equal(np.asarray(left[name]), np.asarray(value), err_msg=name)


def saved(workdir: Workdir, *steps: int, keep: int = 9, where: Mesh | None = None) -> None:
    with Checkpoints(workdir, keep=keep) as checkpoints:
        for step in steps:
            checkpoints.save(step, state(where or mesh(), step=step), **JSON)


def loaded(workdir: Workdir, **which: Any) -> Any:
    return load_model(workdir, abstract(mesh()).model, **which)
