"""How far a translation has come, and how fast, on standard error."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console


class Throughput:
    """A context: a line that is renewed on a terminal, if `live`, and one that stays at the end."""

    def __init__(self, *, live: bool) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._status = self._console.status("Translating")
        self._live = live and self._console.is_terminal
        self._lines = self._pieces = 0
        self._began = self._shown = time.perf_counter()

    def __enter__(self) -> Self:
        if self._live:
            self._status.start()
        return self

    def add(self, pieces: int) -> None:
        """One more line is written, of so many."""
        self._lines += 1
        self._pieces += pieces
        now = time.perf_counter()
        if self._live and now - self._shown > 0.5:
            self._status.update(self._text(now))
            self._shown = now

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()
        if kind is None:
            self._console.print(f"transduce: {self._text(time.perf_counter())}", markup=False)

    def _text(self, now: float) -> str:
        seconds = now - self._began
        line = "line" if self._lines == 1 else "lines"
        return (
            f"{self._lines:,} {line} in {seconds:,.1f} s: {self._lines / seconds:,.1f} lines and "
            f"{self._pieces / seconds:,.0f} pieces a second"
        )
