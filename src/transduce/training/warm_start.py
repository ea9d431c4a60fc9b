"""A new run from the parameters and the vocabulary of another workdir."""

from transduce.checkpoints import load_model, saved_steps
from transduce.config import Experiment, RequestError
from transduce.model.transformer import Transformer
from transduce.parallel import hosts
from transduce.text.vocabulary import Vocabulary
from transduce.workdir import Workdir


def warm_start(experiment: Experiment, workdir: Workdir, like: Transformer) -> Transformer | None:
    """The parameters of training.warm_start, whose vocabulary is copied into `workdir`.

    Those are its best ones, or the newest when it has no best. None when nothing is asked for,
    and when the run has a checkpoint of its own. `like` has `jax.ShapeDtypeStruct`s, shardings
    included, for arrays. Raises `RequestError` when training.warm_start is no workdir or holds no
    checkpoint, when its model differs, with a list of the arrays in which it does, and when the
    experiment asks for another vocabulary.
    """
    if not experiment.training.warm_start or saved_steps(workdir.checkpoints):
        return None
    other = Workdir.of(experiment.training.warm_start)
    other.read_experiment()
    parameters = load_model(other, like, best=bool(saved_steps(other.best)))
    with hosts.first_ahead():
        if hosts.is_first() and not workdir.data.exists():
            _take_vocabulary(experiment, workdir, other)
    return parameters


def _take_vocabulary(experiment: Experiment, workdir: Workdir, other: Workdir) -> None:
    theirs, config = Vocabulary(other.vocabulary), experiment.data.vocabulary
    if config.source_model:
        own = Vocabulary(config.source_model)
        if own.pieces() != theirs.pieces():
            raise RequestError(
                f"training.warm_start: {other.vocabulary} ({_facts(theirs)}) and "
                f"data.vocabulary.source_model {config.source_model} ({_facts(own)}) are different "
                "vocabularies: leave source_model and target_model empty to take the former"
            )
    elif len(theirs) != config.size:
        raise RequestError(
            f"training.warm_start: {other.vocabulary} ({_facts(theirs)}) is not of "
            f"data.vocabulary.size {config.size:,}: set that to {len(theirs)}"
        )
    workdir.vocabulary.write_bytes(other.vocabulary.read_bytes())


def _facts(vocabulary: Vocabulary) -> str:
    return f"{len(vocabulary):,} pieces, fingerprint {vocabulary.fingerprint}"
