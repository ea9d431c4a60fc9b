"""From a workdir to what decodes with it."""

from dataclasses import dataclass

import jax
from flax import nnx

from transduce.checkpoints import load_model
from transduce.config import Experiment, RequestError
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary
from transduce.workdir import Workdir


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model and what belongs to it."""

    experiment: Experiment
    vocabulary: Vocabulary
    model: Transformer


def load(path: str, *, step: int | None = None, average: int = 1, best: bool = False) -> Trained:
    """The model of a checkpoint in the workdir at `path`: see `load_model` for which.

    Raises `RequestError` when the workdir or its checkpoint cannot be used.
    """
    workdir = Workdir.of(path)
    experiment = workdir.read_experiment()
    vocabulary = Vocabulary(workdir.vocabulary)
    if len(vocabulary) > experiment.model.vocabulary_size:
        raise RequestError(
            f"{workdir.vocabulary}: has {len(vocabulary)} pieces, more than the model's "
            f"{experiment.model.vocabulary_size}: it is not the vocabulary of this workdir"
        )
    like = jax.eval_shape(lambda: Transformer(experiment.model, rngs=nnx.Rngs(0)))
    model = load_model(workdir, like, step=step, average=average, best=best)
    return Trained(experiment=experiment, vocabulary=vocabulary, model=model)
