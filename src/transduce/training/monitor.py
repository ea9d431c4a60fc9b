"""What a run says while it goes: metrics.jsonl, TensorBoard, and lines for its user."""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import (
    Event,  # pyright: ignore[reportAttributeAccessIssue] no stubs: generated
)

from transduce.config import WriteFailed
from transduce.parallel import hosts
from transduce.training.records import Records
from transduce.workdir import Workdir


class Monitor:
    """Writes records to the workdir and to standard error; a context.

    Of several processes the first does, the others keep silent.
    """

    def __init__(self, workdir: Workdir):
        speaks = hosts.is_first()
        self._path, self._files = workdir.path, None
        if speaks:
            with self._failing_plainly():
                workdir.tensorboard.mkdir(exist_ok=True)
                # The name of its file is otherwise that of any other begun in the same second.
                suffix = f".{secrets.token_hex(4)}"
                # SummaryWriter's thread would end on a full disk, and be waited for without end.
                events = EventsWriter(str(workdir.tensorboard / "events"), suffix)
                self._files = Records(workdir.metrics), events
        self._console = Console(stderr=True, soft_wrap=True, highlight=False, quiet=not speaks)
        self._live: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        if self._files:
            records, events = self._files
            with self._failing_plainly(), contextlib.closing(records), contextlib.closing(events):
                pass

    @contextlib.contextmanager
    def _failing_plainly(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteFailed(
                f"{self._path}: records cannot be written: {error.strerror}; checkpoints saved "
                "before are as they were"
            ) from error

    def record(self, kind: str, step: int, **values: float | str) -> None:
        """Adds {"kind", "step", "time", **values} to the records, numbers to TensorBoard too.

        Raises `WriteFailed` when the disk is full, for instance.
        """
        if not self._files:
            return
        records, events = self._files
        now = time.time()
        record = {"kind": kind, "step": step, "time": round(now, 3), **values}
        with self._failing_plainly():
            records.add(json.dumps(record))
            for name, value in values.items():
                if not isinstance(value, str):
                    scalar = summary.scalar(f"{kind}/{name}", value)
                    events.write_event(Event(wall_time=now, step=step, summary=scalar))
            events.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False)

    def progress(self, text: str) -> None:
        """The line that is replaced by the next one, on a terminal; else a line that stays."""
        if not self._console.is_terminal:
            return self.say(text)
        if self._live is None:
            self._live = self._console.status(text)
            self._live.start()
        self._live.update(text)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
