"""What a workdir holds, and how a run takes possession of one.

config.json         the workdir's version and the resolved experiment
vocabulary.model    the SentencePiece model
data.json           fingerprints of the corpora and of the vocabulary
checkpoints/STEP    all that training carries, after STEP updates
best/STEP           the parameters that did best on dev
nonfinite/STEP.json the sentence pairs of an update whose loss was no finite number
damaged/STEP        checkpoints that were found damaged, and are not used
metrics.jsonl       one record a line
tensorboard/        the same for TensorBoard
translations/       what evaluations translated
.lock               held by the run in progress
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from etils import epath

from transduce.config import Experiment, RequestError, WriteFailed
from transduce.config_files import flatten, from_json
from transduce.parallel import hosts

VERSION = 1
"""Of what a workdir holds. It changes when an older program could not read it, or misread it."""

MAY_CHANGE = frozenset(
    [
        "model.dtype",
        "model.unroll",
        "data.folder",
        "data.prefetch",
        "data.workers",
        "training.steps",
        "training.epochs",
        "training.minutes",
        "training.patience",
        "training.log_every",
        "training.evaluate_every",
        "training.evaluation_sentences",
        "training.save_every",
        "training.keep",
        "training.loss_chunks",
        "training.samples",
        "training.nonfinite",
        "training.nonfinite_limit",
        "training.skip_steps",
        "training.on_damage",
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
    def data(self) -> epath.Path:
        return self.path / "data.json"

    @property
    def checkpoints(self) -> epath.Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> epath.Path:
        return self.path / "best"

    @property
    def damaged(self) -> epath.Path:
        return self.path / "damaged"

    @property
    def metrics(self) -> epath.Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> epath.Path:
        return self.path / "tensorboard"

    @property
    def lock(self) -> epath.Path:
        return self.path / ".lock"

    def nonfinite(self, step: int) -> epath.Path:
        return self.path / "nonfinite" / f"{step}.json"

    def translations(self, split: str, step: int) -> epath.Path:
        return self.path / "translations" / f"{split}-{step}.txt"

    def read_experiment(self) -> Experiment:
        """Raises `RequestError` when this is no workdir, is of another version or not readable."""
        if not self.config.exists():
            raise RequestError(
                f"{self.path}: not a workdir of transduce train: it has no config.json"
            )
        content = _read_json(self.config)
        if "workdir_version" not in content:
            raise RequestError(
                f"{self.config}: has no workdir_version: it is of transduce before 0.1.0, and what "
                "made it reads it"
            )
        version = content["workdir_version"]
        if version != VERSION:
            raise RequestError(
                f"{self.config}: is of workdir version {version!r}, and this transduce reads "
                f"version {VERSION}: CHANGELOG.md says which transduce reads which"
            )
        return from_json(json.dumps(content.get("experiment")), origin=str(self.config))

    @contextlib.contextmanager
    def begin(self, experiment: Experiment) -> Iterator[None]:
        """A context for the length of a run, which keeps other runs out of the workdir.

        Makes the workdir, or checks that the run in it is this one. If it ends with an error
        before `settle`, a workdir that was made here is taken back, so that the corrected request
        finds its place free. Of several processes the first does all this before the others go on.
        Raises `RequestError` when another run is going on in it, when it belongs to something
        else, with a list of the fields in which another experiment differs, and when it is not
        the same folder to all processes; `WriteFailed` when a file cannot be read or written later.
        """
        with contextlib.ExitStack() as run:
            with hosts.first_ahead():
                if hosts.is_first():
                    run.enter_context(self._taken(experiment))
                elif not self.config.exists():
                    raise RequestError(
                        f"{self.path}: process {hosts.process()[0]} does not see what the first "
                        "one wrote there: --workdir must be a folder that all processes share"
                    )
            try:
                yield
            except BrokenPipeError:
                raise  # of those who watch
            except OSError as error:
                raise WriteFailed(
                    f"{error.filename or self.path}: {error.strerror or error}; checkpoints saved "
                    "before are as they were"
                ) from error

    @contextlib.contextmanager
    def _taken(self, experiment: Experiment) -> Iterator[None]:
        made, new = not self.path.exists(), not self.config.exists()
        with _writing(self.path):
            if not new:
                self._require_same(experiment)
            elif not made:
                self._require_empty()
            self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            try:
                if new:
                    self._write_config(experiment)
                yield
            except BaseException:
                if new and not self.data.exists():
                    for path in (self.config, self.vocabulary, self.lock):
                        path.unlink(missing_ok=True)
                    if made and not any(self.path.iterdir()):
                        self.path.rmdir()
                raise

    def settle(
        self, experiment: Experiment, *, corpora: Mapping[str, str], vocabulary: str
    ) -> None:
        """The run is ready to begin or to go on, and says in the workdir what it is now.

        `corpora` are fingerprints of the splits, by "corpus/split", and `vocabulary` is its own.
        Raises `RequestError` that names which of them have changed, or are others in another
        process.
        """
        data = {"corpora": dict(corpora), "vocabulary": vocabulary}
        parts = hosts.gather_bytes(json.dumps(data).encode())
        with hosts.first_ahead():
            if parts is None:
                return
            for number, part in enumerate(parts):
                if differing := self._differing(data, json.loads(part)):
                    raise RequestError(
                        f"process {number} reads other data than the first: {differing}; "
                        "all must find the same files"
                    )
            if not self.data.exists():
                _write_json(self.data, data)
            elif changed := self._differing(_read_json(self.data), data):
                raise RequestError(
                    f"{self.path}: not what it was when this run began: {changed}; bring that "
                    "back, or choose another --workdir"
                )
            self._write_config(experiment)

    def _write_config(self, experiment: Experiment) -> None:
        content = {"workdir_version": VERSION, "experiment": asdict(experiment)}
        _write_json(self.config, content)

    def _differing(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
        """What of the data is not the same, by name; empty if all is."""
        ones, others = one.get("corpora", {}), other.get("corpora", {})
        names = [
            f"corpus split {name}"
            for name in sorted(ones.keys() | others.keys())
            if ones.get(name) != others.get(name)
        ]
        if one.get("vocabulary") != other.get("vocabulary"):
            names.append(str(self.vocabulary))
        return ", ".join(names)

    def _require_empty(self) -> None:
        if any(path != self.lock for path in self.path.iterdir()):
            raise RequestError(
                f"{self.path}: neither empty nor a workdir (it has no config.json); "
                "choose another --workdir"
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock; it ends with the process at the latest. A cloud path has none."""
        if "://" in str(self.path):
            yield
            return
        with contextlib.ExitStack() as stack:
            with _writing(self.path):
                file = stack.enter_context(open(self.lock, "a+", encoding="utf-8"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.seek(0)
                    raise RequestError(
                        f"{self.path}: another run is going on in it ({file.read()}); wait for "
                        "it, or choose another --workdir"
                    ) from None
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
            yield

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


@contextlib.contextmanager
def _writing(path: epath.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(f"{path}: cannot write: {error.strerror}") from error


def _write_json(path: epath.Path, content: Mapping[str, Any]) -> None:
    """Writes the whole file or nothing."""
    temporary = path.parent / f".{path.name}"
    with _writing(path):
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        try:
            temporary.write_bytes(text.encode())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _read_json(path: epath.Path) -> dict[str, Any]:
    """Raises `RequestError` when the file does not hold a JSON object."""
    try:
        content = json.loads(path.read_bytes().decode())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RequestError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise RequestError(f"{path}: must hold a JSON object, not {content!r}")
    return content
