"""A run that begins with what another one has learned."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from transduce.checkpoints import Checkpoints, load_model, named_arrays
from transduce.config import Experiment, RequestError
from transduce.text.vocabulary import Vocabulary
from transduce.training import loop
from transduce.training.step import abstract_state
from transduce.workdir import Workdir

from .examples import Update, make_mesh, metrics, state, steps
from .test_refusals import vocabulary

pytestmark = pytest.mark.usefixtures("one_device", "compiled")


def warm(experiment: Experiment, other: Path, **training: Any) -> Experiment:
    changes = {"steps": 1, "evaluate_every": 0, "warm_start": str(other)} | training
    return replace(experiment, training=replace(experiment.training, **changes))


def model(experiment: Experiment, workdir: Path, *, best: bool) -> dict[str, Any]:
    like = abstract_state(experiment, make_mesh(experiment.mesh, jax.devices()[:1])).model
    return named_arrays(load_model(Workdir.of(str(workdir)), like, best=best))


@pytest.mark.parametrize("best", [True, False])
def test_a_new_run_begins_with_the_best_parameters_or_the_newest(
    finished: Path, tmp_path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch, best: bool
) -> None:
    def compile_nothing(experiment, mesh, state, batch):
        """An update after which all is as it was."""
        return Update(lambda state, batch: (state, metrics()))

    monkeypatch.setattr(loop, "compile_train_step", compile_nothing)
    other, workdir = tmp_path / "other", tmp_path / "workdir"
    shutil.copytree(finished, other)
    if best:
        # Others than the newest, to tell them apart.
        like = abstract_state(experiment, make_mesh(experiment.mesh, jax.devices()[:1])).model
        newest = load_model(Workdir.of(str(other)), like)
        with Checkpoints(Workdir.of(str(other)), keep=9) as checkpoints:
            checkpoints.save_best(500, jax.tree.map(lambda x: x + 1, newest))
    else:
        shutil.rmtree(other / "best")
    loop.train(warm(experiment, other), Workdir.of(str(workdir)))
    assert steps(workdir) == [1]
    expected = model(experiment, other, best=best)
    arrays, _, progress = state(experiment, workdir, 1)
    for name, value in expected.items():
        for part in ("model", "ema"):
            np.testing.assert_array_equal(arrays[f"{part}.{name}"], value, err_msg=name)
    theirs, ours = (Vocabulary(path / "vocabulary.model") for path in (other, workdir))
    assert theirs.fingerprint == ours.fingerprint
    # What is counted begins anew.
    assert (progress["pairs"], progress["best_step"]) == (1, 1)
    # A run that goes on has its own; the other workdir may be gone.
    shutil.rmtree(other)
    loop.train(warm(experiment, other, steps=2), Workdir.of(str(workdir)))
    assert steps(workdir)[-1] == 2


def refusal(experiment: Experiment, workdir: Path) -> str:
    with pytest.raises(RequestError) as raised:
        loop.train(experiment, Workdir.of(str(workdir)))
    assert not workdir.exists()
    return str(raised.value)


def test_what_cannot_be_begun_with_is_refused(
    finished: Path, tmp_path, experiment: Experiment
) -> None:
    workdir = tmp_path / "workdir"
    assert "nowhere: not a workdir" in refusal(warm(experiment, tmp_path / "nowhere"), workdir)
    other = replace(experiment, model=replace(experiment.model, d_ff=48))
    message = refusal(warm(other, finished), workdir)
    assert "model: is of another model: decoder.feed_forward.into is (1, 32, 32) there" in message
    smaller = replace(experiment.data.vocabulary, size=290)
    other = replace(experiment, data=replace(experiment.data, vocabulary=smaller))
    message = refusal(warm(other, finished), workdir)
    theirs = Vocabulary(finished / "vocabulary.model").fingerprint
    assert f"vocabulary.model (296 pieces, fingerprint {theirs}) is not of" in message
    assert "data.vocabulary.size 290: set that to 296" in message
    mine = vocabulary(tmp_path / "mine", 290)
    given = replace(experiment.data.vocabulary, source_model=mine, target_model=mine)
    other = replace(experiment, data=replace(experiment.data, vocabulary=given))
    message = refusal(warm(other, finished), workdir)
    ours = Vocabulary(mine).fingerprint
    assert f"(296 pieces, fingerprint {theirs})" in message
    assert f"{mine} (290 pieces, fingerprint {ours}) are different vocabularies" in message
