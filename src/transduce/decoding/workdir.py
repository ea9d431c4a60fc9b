"""From a workdir to what decodes with it."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
from flax import nnx

from transduce.checkpoints import load_model
from transduce.config import Experiment, RequestError
from transduce.model.heads import Head, parse_heads, without_heads
from transduce.model.transformer import Transformer
from transduce.text.vocabulary import Vocabulary
from transduce.workdir import Workdir


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Trained models, several for an ensemble, and what belongs to them."""

    experiment: Experiment
    """Of the first."""
    vocabulary: Vocabulary
    """Which all of them share."""
    models: tuple[Transformer, ...]
    masked: tuple[Head, ...] = ()
    """Heads that the models do without."""


def load(
    paths: Sequence[str],
    *,
    step: int | None = None,
    average: int = 1,
    best: bool = False,
    mask_heads: Sequence[str] = (),
) -> Trained:
    """The model of a checkpoint in each workdir of `paths`: see `load_model` for which.

    It does without the heads that `mask_heads` names (see `without_heads`).

    Raises `RequestError` when a workdir or its checkpoint cannot be used, when vocabularies
    differ, and when the model has no head of such a name or there are several models to mask.
    """
    if mask_heads and len(paths) > 1:
        raise RequestError("--mask-head is for one model: leave out --ensemble")
    workdirs = [Workdir.of(path) for path in paths]
    experiments = [workdir.read_experiment() for workdir in workdirs]
    vocabularies = [Vocabulary(workdir.vocabulary) for workdir in workdirs]
    models = []
    for workdir, experiment, vocabulary in zip(workdirs, experiments, vocabularies, strict=True):
        if vocabulary.pieces() != vocabularies[0].pieces():
            raise RequestError(
                f"{workdir.vocabulary} and {workdirs[0].vocabulary} are different vocabularies: "
                "models of an ensemble must share one"
            )
        if len(vocabulary) > experiment.model.vocabulary_size:
            raise RequestError(
                f"{workdir.vocabulary}: has {len(vocabulary)} pieces, more than the model's "
                f"{experiment.model.vocabulary_size}: it is not the vocabulary of this workdir"
            )
        like = jax.eval_shape(
            lambda experiment=experiment: Transformer(experiment.model, rngs=nnx.Rngs(0))
        )
        models.append(load_model(workdir, like, step=step, average=average, best=best))
    sizes = {model.config.vocabulary_size for model in models}
    if len(sizes) > 1:
        raise RequestError(
            f"models of an ensemble must have tables of one size, not of {sorted(sizes)} rows "
            "(model.vocabulary_size)"
        )
    config = experiments[0].model
    masked = tuple(head for name in mask_heads for head in parse_heads(name, config))
    if masked:
        models = [without_heads(model, masked) for model in models]
    return Trained(
        experiment=experiments[0],
        vocabulary=vocabularies[0],
        models=tuple(models),
        masked=masked,
    )
