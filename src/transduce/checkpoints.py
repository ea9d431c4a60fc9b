"""What a workdir holds: its files, and its checkpoints, which are Orbax's.

config.json         the resolved experiment
vocabulary.model    the SentencePiece model
checkpoints/STEP    model, optimizer and pipeline after STEP updates
metrics.jsonl       one record a line
tensorboard/        the same for TensorBoard
translations/       what evaluations translated
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import SingleDeviceSharding
from orbax.checkpoint.checkpoint_managers import preservation_policy

from transduce.config import Experiment, RequestError
from transduce.config_files import flatten, from_json, to_json

MAY_CHANGE = frozenset(
    [
        "model.dtype",
        "model.unroll",
        "data.folder",
        "data.prefetch",
        "training.steps",
        "training.log_every",
        "training.evaluate_every",
        "training.evaluation_sentences",
        "training.save_every",
        "training.keep",
        "training.samples",
    ]
)
"""Fields, besides those of mesh and search, in which a run that goes on may differ."""


@dataclass(frozen=True)
class Workdir:
    """The places in a workdir, which may be a cloud path."""

    path: epath.Path

    @classmethod
    def of(cls, path: str) -> "Workdir":
        # Orbax takes absolute paths alone; a cloud path is one.
        return cls(epath.Path(path if "://" in path else os.path.abspath(os.path.expanduser(path))))

    @property
    def config(self) -> epath.Path:
        return self.path / "config.json"

    @property
    def vocabulary(self) -> epath.Path:
        return self.path / "vocabulary.model"

    @property
    def checkpoints(self) -> epath.Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> epath.Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> epath.Path:
        return self.path / "tensorboard"

    def translations(self, split: str, step: int) -> epath.Path:
        return self.path / "translations" / f"{split}-{step}.txt"

    def read_experiment(self) -> Experiment:
        """Raises `RequestError` when this is no workdir, or its configuration is not readable."""
        if not self.config.exists():
            raise RequestError(
                f"{self.path}: not a workdir of transduce train: it has no config.json"
            )
        try:
            text = self.config.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"{self.config}: not UTF-8: {error}") from error
        return from_json(text, origin=str(self.config))

    @contextlib.contextmanager
    def begin(self, experiment: Experiment) -> Iterator[None]:
        """Makes the workdir, or checks that the run in it is this one, and writes the config.

        A context, in which the data is made ready. When that fails, a workdir that was made here
        is taken back, so that the corrected request finds its place free.
        Raises `RequestError` that lists the fields in which another experiment differs.
        """
        new = not self.config.exists()
        if not new:
            self._require_same(experiment)
        made = not self.path.exists()
        temporary = self.path / ".config.json"
        try:
            if new and not made and any(self.path.iterdir()):
                raise RequestError(
                    f"{self.path}: neither empty nor a workdir (it has no config.json); "
                    "choose another --workdir"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(to_json(experiment).encode())
            temporary.replace(self.config)
        except OSError as error:
            raise RequestError(f"{self.path}: cannot write: {error.strerror}") from error
        try:
            yield
        except BaseException:
            if new:
                self.config.unlink()
                self.vocabulary.unlink(missing_ok=True)
            if made:
                self.path.rmdir()
            raise

    def _require_same(self, experiment: Experiment) -> None:
        old, new = flatten(self.read_experiment()), flatten(experiment)
        differing = [
            f"{name} is {old.get(name)!r} there and {new.get(name)!r} here"
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
            and name not in MAY_CHANGE
            and not name.startswith(("mesh.", "search."))
        ]
        if differing:
            raise RequestError(
                f"{self.path}: holds another experiment: {'; '.join(differing)}; "
                "choose another --workdir, or the values that are there"
            )


def named_arrays(tree: Any) -> dict[str, Any]:
    """The leaves of modules or of an optimiser's state, by dotted name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves}


def _with_arrays(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """`tree` with the leaves that `named_arrays` would name, taken from `arrays`."""
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[_name(path)], tree)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")


class Checkpoints:
    """The checkpoints of a run in progress; a context that waits for saves when it ends."""

    def __init__(self, workdir: Workdir, *, keep: int):
        self._manager = ocp.CheckpointManager(
            workdir.checkpoints,
            item_names=("model", "optimizer", "pipeline"),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=preservation_policy.LatestN(keep),
                cleanup_tmp_directories=True,
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.wait_until_finished()
        self._manager.close()

    def latest(self) -> int | None:
        """The newest complete checkpoint's step."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, pipeline: Any) -> None:
        """Begins to save and returns; the state's arrays may be overwritten at once.

        `state` has a model and an optimizer; `pipeline` is a JSON-like tree.
        """
        self._manager.save(
            step,
            args=ocp.args.Composite(
                model=ocp.args.StandardSave(named_arrays(state.model)),
                optimizer=ocp.args.StandardSave(named_arrays(state.optimizer)),
                pipeline=ocp.args.JsonSave(pipeline),
            ),
        )

    def restore(self, step: int, like: Any) -> tuple[Any, Any]:
        """The state and the pipeline's state after `step`.

        `like` is the state with `jax.ShapeDtypeStruct`s, shardings included, for arrays.
        """
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                model=ocp.args.StandardRestore(named_arrays(like.model)),
                optimizer=ocp.args.StandardRestore(named_arrays(like.optimizer)),
                pipeline=ocp.args.JsonRestore(),
            ),
        )
        state = replace(
            like,
            step=jax.device_put(np.int32(step), like.step.sharding),
            model=_with_arrays(like.model, restored["model"]),
            optimizer=_with_arrays(like.optimizer, restored["optimizer"]),
        )
        return state, restored["pipeline"]


def load_model(workdir: Workdir, like: Any, *, step: int | None = None, average: int = 1) -> Any:
    """The model of a checkpoint, on the first device, without the optimiser's state.

    `like` is the model's tree of `jax.ShapeDtypeStruct`. `step` None means the newest; with
    `average` K the parameters are the mean of the newest K (section 6.1), kept in float32 or
    wider. Raises `RequestError` when the workdir has no such checkpoint.
    """
    # Nothing is written without a save; read_only=True would log three warnings.
    options = ocp.CheckpointManagerOptions(create=False)
    if not workdir.checkpoints.exists():
        raise RequestError(f"{workdir.path}: holds no checkpoint yet")
    with ocp.CheckpointManager(
        workdir.checkpoints, item_names=("model",), options=options
    ) as manager:
        steps = _chosen(workdir, sorted(manager.all_steps()), step=step, average=average)
        sharding = SingleDeviceSharding(jax.local_devices()[0])
        targets = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
            for name, leaf in named_arrays(like).items()
        }

        def read(step: int) -> dict[str, Any]:
            model = ocp.args.StandardRestore(targets)
            return manager.restore(step, args=ocp.args.Composite(model=model))["model"]

        if len(steps) == 1:
            return _with_arrays(like, read(steps[0]))
        mean: dict[str, np.ndarray] = {}
        for count, number in enumerate(steps, start=1):
            for name, array in read(number).items():
                value = np.asarray(array, np.promote_types(array.dtype, np.float32))
                # The running mean of equal values is that value, to the bit.
                mean[name] = mean[name] + (value - mean[name]) / count if name in mean else value
        arrays = {name: jax.device_put(value, sharding) for name, value in mean.items()}
        return _with_arrays(like, arrays)


def _chosen(workdir: Workdir, steps: Sequence[int], *, step: int | None, average: int) -> list[int]:
    have = ", ".join(map(str, steps)) or "none"
    if not steps:
        raise RequestError(f"{workdir.path}: holds no checkpoint yet")
    if step is not None and average != 1:
        raise RequestError("--step and --average exclude each other")
    if step is not None and step not in steps:
        raise RequestError(f"{workdir.path}: has no checkpoint of step {step}; it has {have}")
    if not 1 <= average <= len(steps):
        raise RequestError(
            f"{workdir.path}: --average {average} needs that many checkpoints; it has {have}"
        )
    return [step] if step is not None else list(steps[-average:])
