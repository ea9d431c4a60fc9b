"""What a run says while it goes: metrics.jsonl, TensorBoard, and lines for its user."""

import json
import os
import secrets
import time
from types import TracebackType
from typing import Self

from etils import epath
from rich.console import Console
from rich.status import Status
from tensorboardX import SummaryWriter

from transduce.parallel import hosts
from transduce.workdir import Workdir


class Monitor:
    """Writes records to the workdir and to standard error; a context.

    Of several processes the first does, the others keep silent.
    """

    def __init__(self, workdir: Workdir):
        speaks = hosts.is_first()
        self._file = (workdir.metrics if speaks else epath.Path(os.devnull)).open("a")
        # The name of its file is otherwise that of any other begun in the same second.
        suffix = f".{secrets.token_hex(4)}"
        self._tensorboard = SummaryWriter(
            str(workdir.tensorboard), filename_suffix=suffix, write_to_disk=speaks
        )
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
        self._file.close()
        self._tensorboard.close()

    def record(self, kind: str, step: int, **values: float | str) -> None:
        """Adds {"kind", "step", "time", **values} to the records, numbers to TensorBoard too."""
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        for name, value in values.items():
            if not isinstance(value, str):
                self._tensorboard.add_scalar(f"{kind}/{name}", value, step)
        self._tensorboard.flush()

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
