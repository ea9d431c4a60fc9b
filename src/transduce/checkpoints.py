"""Checkpoints: all of Orbax.

A checkpoint holds the items model and optimizer (arrays by dotted name), ema when there is a moving
average, pipeline and progress (JSON), and checksums.json, with size and CRC-32 of their files. The
folder appears under its name when all of it is written.
"""

import contextlib
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import SingleDeviceSharding
from orbax.checkpoint.checkpoint_managers import preservation_policy

from transduce.config import RequestError, SaveFailed
from transduce.damage import Damaged, require_whole, write_checksums
from transduce.parallel import hosts
from transduce.workdir import Workdir

_log = logging.getLogger(__name__)

_LOST = re.compile("gloo|nccl|collective|rendezvous|barrier|heartbeat", re.IGNORECASE)
"""In what a failed collective or barrier says, and storage that is unavailable does not."""


def named_arrays(tree: Any) -> dict[str, Any]:
    """The leaves of modules or of an optimiser's state, by dotted name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves}


def _with_arrays(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """`tree` with the leaves that `named_arrays` would name, taken from `arrays`."""
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[_name(path)], tree)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")


def saved_steps(folder: epath.Path) -> list[int]:
    """The complete checkpoints in a workdir's `checkpoints` or `best`, ascending."""
    return sorted(ocp.utils.checkpoint_steps(folder))


def newest_whole(workdir: Workdir, *, on_damage: Literal["stop", "previous"]) -> int:
    """The step of the newest checkpoint, every file of which is as it was saved; 0: there is none.

    When it is damaged, "stop" raises `RequestError`; "previous" takes the one before it, if any
    is whole, and moves the damaged one to damaged/STEP in the workdir, with a warning.
    """
    damaged: list[tuple[epath.Path, Damaged]] = []
    for number in reversed(saved_steps(workdir.checkpoints)):
        try:
            require_whole(workdir.checkpoints / str(number))
        except Damaged as error:
            if on_damage == "stop":
                raise RequestError(
                    f"{error}; --training.on-damage previous goes on from the one before it"
                ) from error
            damaged.append((workdir.checkpoints / str(number), error))
            continue
        for path, error in damaged:
            aside = workdir.damaged / path.name
            if aside.exists():
                aside.rmtree()
            workdir.damaged.mkdir(exist_ok=True)
            path.rename(aside)
            _log.warning("%s; moved to %s", error, aside)
        return number
    if damaged:
        raise RequestError(f"{damaged[0][1]}; no other checkpoint is whole")
    return 0


class Checkpoints:
    """The checkpoints of a run in progress; a context that waits for saves when it ends.

    Of several processes each makes one, and all call the same methods in the same order.
    Any method may raise `SaveFailed`, of a save that was begun before; where another process was
    lost meanwhile, it raises what JAX does.
    """

    def __init__(self, workdir: Workdir, *, keep: int, every: int = 1):
        """Keeps the newest `keep` of those after a multiple of `every` updates, and the newest.

        So what a run was cut at is gone once it has gone on.
        """
        newest = preservation_policy.LatestN(1)
        regular = preservation_policy.EveryNSteps(every, max_to_keep=keep)
        both = preservation_policy.AnyPreservationPolicy([newest, regular])
        self._path = workdir.path
        # Of what is being saved; one at a time is.
        self._saving: dict[epath.Path, int] = {}
        self._manager = self._managing(workdir.checkpoints, both)
        self._best = self._managing(workdir.best, newest)

    def _managing(self, path: epath.Path, policy: Any) -> ocp.CheckpointManager:
        def all_written() -> None:
            # Where a folder cannot be renamed as a whole, as in a cloud, it has its name by then.
            named = path / str(self._saving[path])
            temporary = path / f"{named.name}{ocp.path.atomicity.TMP_DIR_SUFFIX}"
            write_checksums(temporary if temporary.exists() else named)

        return _manager(path, policy, all_written)

    def __enter__(self) -> Self:
        self._unraisablehook = sys.unraisablehook
        sys.unraisablehook = self._report
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, sys, "unraisablehook", self._unraisablehook)
            for manager in (self._best, self._manager):
                # Where several writes failed, waiting raised the first and closing the next.
                stack.enter_context(self._failing_plainly())
                stack.callback(manager.close)
            self.wait()

    def _report(self, what: Any) -> None:
        if str(what.exc_value) != "Event loop is closed":
            self._unraisablehook(what)

    def save(self, step: int, state: Any, *, pipeline: Any, progress: Any) -> None:
        """Begins to save and returns; the state's arrays may be overwritten at once.

        `state` has a model, an optimizer and an ema, which may be None; `pipeline` and `progress`
        are JSON-like trees, of which those of the first process are saved.
        """
        items: dict[str, Any] = {
            item: ocp.args.StandardSave(named_arrays(tree)) for item, tree in _trees(state).items()
        }
        items["pipeline"] = ocp.args.JsonSave(pipeline)
        items["progress"] = ocp.args.JsonSave(progress)
        with self._failing_plainly():
            # The progress to be saved may speak of a best that must be there by then.
            self._best.wait_until_finished()
            self._manager.wait_until_finished()
            self._saving[self._manager.directory] = step
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def save_best(self, step: int, model: Any) -> None:
        """Begins to save the parameters that are the best so far; then the last best ones go."""
        if step in self._best.all_steps():
            # The run had come further before it was cut, and found the same.
            return
        items = ocp.args.Composite(model=ocp.args.StandardSave(named_arrays(model)))
        with self._failing_plainly():
            self._best.wait_until_finished()
            self._saving[self._best.directory] = step
            self._best.save(step, args=items, force=True)

    def wait(self) -> None:
        """Returns when all that was begun is saved."""
        with self._failing_plainly():
            self._best.wait_until_finished()
            self._manager.wait_until_finished()

    def check(self) -> None:
        """Does not wait for a save that is going on."""
        with self._failing_plainly():
            for manager in (self._best, self._manager):
                if not manager.is_saving_in_progress():
                    manager.wait_until_finished()

    @contextlib.contextmanager
    def _failing_plainly(self) -> Iterator[None]:
        try:
            yield
        except SaveFailed:
            raise
        except Exception as error:
            if hosts.process()[1] > 1 and _LOST.search(str(error)):
                raise  # It is another process that failed; `hosts.ending_together` says which.
            reason = " ".join(str(error).split()) or type(error).__name__
            raise SaveFailed(
                f"{self._path}: a checkpoint could not be saved: {reason}; those saved before are "
                "as they were"
            ) from error

    def restore(self, step: int, like: Any) -> tuple[Any, Any, Any]:
        """The state, the pipeline's state and the progress after `step`.

        `like` is the state with `jax.ShapeDtypeStruct`s, shardings included, for arrays. Raises
        `RequestError` that lists the arrays in which a checkpoint of another model differs.
        """
        require_same_arrays(self._manager.directory / str(step), like)
        trees = _trees(like)
        items: dict[str, Any] = {
            item: ocp.args.StandardRestore(named_arrays(tree)) for item, tree in trees.items()
        }
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                **items, pipeline=ocp.args.JsonRestore(), progress=ocp.args.JsonRestore()
            ),
        )
        filled = {item: _with_arrays(tree, restored[item]) for item, tree in trees.items()}
        number = jax.make_array_from_callback((), like.step.sharding, lambda _: np.int32(step))
        state = replace(like, step=number, **filled)
        return state, restored["pipeline"], restored["progress"]


def _manager(
    path: epath.Path, policy: Any, all_written: Callable[[], None]
) -> ocp.CheckpointManager:
    """`all_written` is called, at the first process, when all of a checkpoint is written."""
    return ocp.CheckpointManager(
        path,
        item_names=("model", "optimizer", "ema", "pipeline", "progress"),
        options=ocp.CheckpointManagerOptions(
            preservation_policy=policy,
            # Else processes would take what one manager waits for to be what the other does.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                barrier_sync_key_prefix=path.name
            ),
            cleanup_tmp_directories=True,
            # Else a folder that cannot be made is waited for, for minutes.
            async_options=ocp.AsyncOptions(
                create_directories_asynchronously=False, post_finalization_callback=all_written
            ),
        ),
    )


# When a save fails, Orbax raises what failed, and besides prints some hundred tracebacks: in the
# logs of two libraries and from TensorStore's threads, which want to report to a closed loop.


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    frames = traceback.walk_tb(record.exc_info[2] if record.exc_info else None)
    # A run says itself how long its saves take.
    waiting = str(record.msg).startswith("Waiting for previous save to complete")
    return not waiting and not any("orbax" in frame.f_code.co_filename for frame, _ in frames)


logging.getLogger("absl").addFilter(_is_not_of_orbax)
logging.getLogger("asyncio").addFilter(_is_not_of_orbax)


def _trees(state: Any) -> dict[str, Any]:
    """A state's items that are trees of arrays, by their names in a checkpoint."""
    trees = {"model": state.model, "optimizer": state.optimizer}
    return trees if state.ema is None else {**trees, "ema": state.ema}


def require_same_arrays(checkpoint: epath.Path, like: Any) -> None:
    """Raises `RequestError` when the checkpoint is not of the state `like`.

    It lists the arrays that are missing, not of the model or of another shape. Types may differ:
    parameters are float32 or float64.
    """
    for item, tree in _trees(like).items():
        _require_same_item(checkpoint / item, named_arrays(tree))


def _require_same_item(path: epath.Path, arrays: Mapping[str, Any]) -> None:
    if not path.exists():
        raise RequestError(f"{path}: is missing: the checkpoint is of another model")
    there = ocp.StandardCheckpointHandler().metadata(path).tree
    differences = [
        *(f"{name} is missing" for name in arrays if name not in there),
        *(f"{name} is not of this model" for name in there if name not in arrays),
        *(
            f"{name} is {tuple(there[name].shape)} there and {array.shape} here"
            for name, array in arrays.items()
            if name in there and tuple(there[name].shape) != array.shape
        ),
    ]
    if differences:
        raise RequestError(f"{path}: is of another model: {'; '.join(differences)}")


def load_model(
    workdir: Workdir,
    like: Any,
    *,
    step: int | None = None,
    average: int = 1,
    best: bool = False,
) -> Any:
    """The parameters to decode with: a checkpoint's moving average if it has one, else its model.

    `like` is the model's tree of `jax.ShapeDtypeStruct`; where it has no shardings, the parameters
    are on the first device. `step` None means the newest; with `average` K the parameters are the
    mean of the newest K (section 6.1), kept in float32 or wider; `best` means those that did best
    on dev. Raises `RequestError` when the workdir has no such checkpoint, or it is of another
    model, with a list of the arrays in which they differ.
    """
    if best and (step is not None or average != 1):
        raise RequestError("--best excludes --step and --average")
    folder = workdir.best if best else workdir.checkpoints
    have = saved_steps(folder)
    if not have:
        raise RequestError(f"{workdir.path}: holds no {'best ' if best else ''}checkpoint yet")
    steps = _chosen(workdir, have, step=step, average=average)
    # Nothing is written without a save; read_only=True would log three warnings.
    options = ocp.CheckpointManagerOptions(create=False)
    with ocp.CheckpointManager(folder, item_names=("model", "ema"), options=options) as manager:
        here = SingleDeviceSharding(jax.local_devices()[0])
        targets = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding or here)
            for name, leaf in named_arrays(like).items()
        }

        def read(step: int) -> dict[str, Any]:
            item = "ema" if (folder / str(step) / "ema").exists() else "model"
            try:
                require_whole(folder / str(step), item=item)
            except Damaged as error:
                raise RequestError(f"{error}; choose another checkpoint with --step") from error
            _require_same_item(folder / str(step) / item, targets)
            arrays = ocp.args.StandardRestore(targets)
            return manager.restore(step, args=ocp.args.Composite(**{item: arrays}))[item]

        if len(steps) == 1:
            return _with_arrays(like, read(steps[0]))
        mean: dict[str, np.ndarray] = {}
        for count, number in enumerate(steps, start=1):
            for name, array in read(number).items():
                value = np.asarray(array, np.promote_types(array.dtype, np.float32))
                # The running mean of equal values is that value, to the bit.
                mean[name] = mean[name] + (value - mean[name]) / count if name in mean else value
        arrays = {
            name: jax.device_put(value, targets[name].sharding) for name, value in mean.items()
        }
        return _with_arrays(like, arrays)


def _chosen(workdir: Workdir, steps: Sequence[int], *, step: int | None, average: int) -> list[int]:
    have = ", ".join(map(str, steps))
    if step is not None and average != 1:
        raise RequestError("--step and --average exclude each other")
    if step is not None and step not in steps:
        raise RequestError(f"{workdir.path}: has no checkpoint of step {step}; it has {have}")
    if not 1 <= average <= len(steps):
        raise RequestError(
            f"{workdir.path}: --average {average} needs that many checkpoints; it has {have}"
        )
    return [step] if step is not None else list(steps[-average:])
