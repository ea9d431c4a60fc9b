"""Heads that a loaded model does without."""

from pathlib import Path

import numpy as np
import pytest

from transduce.config import RequestError
from transduce.decoding.workdir import load
from transduce.model.transformer import Transformer


def test_they_are_masked_in_the_loaded_parameters_alone(workdir: Path, model: Transformer) -> None:
    trained = load([str(workdir)], mask_heads=["cross.0.1", "encoder.0"])
    assert list(map(str, trained.masked)) == ["cross.0.1", "encoder.0.0", "encoder.0.1"]
    (masked,) = trained.models
    cross = np.asarray(masked.decoder.cross_attention.out[...])
    whole = np.asarray(model.decoder.cross_attention.out[...])
    assert not cross[0, 1].any()
    np.testing.assert_array_equal(cross[0, 0], whole[0, 0])
    assert not np.asarray(masked.encoder.attention.out[...]).any()
    np.testing.assert_array_equal(
        np.asarray(masked.decoder.attention.out[...]), np.asarray(model.decoder.attention.out[...])
    )
    again = load([str(workdir)])
    assert again.masked == ()
    np.testing.assert_array_equal(
        np.asarray(again.models[0].decoder.cross_attention.out[...]), whole
    )


def test_a_head_that_is_not_there_and_an_ensemble_are_refused(workdir: Path, second: Path) -> None:
    with pytest.raises(RequestError, match=r"encoder\.1\.0: encoder has layers 0 to 0"):
        load([str(workdir)], mask_heads=["encoder.1.0"])
    with pytest.raises(RequestError, match="leave out --ensemble"):
        load([str(workdir), str(second)], mask_heads=["encoder.0.0"])
