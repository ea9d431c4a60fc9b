"""Lines in as they come, and lines out that are whole however the program ends."""

import os
import select
import signal
import stat
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from transduce.config import RequestError, WriteFailed

_AHEAD = 4
"""Lists of lines that are read before they are asked for."""


def arrivals(lines: Iterator[str], *, most: int) -> Iterator[list[str]]:
    """All lines that have come and were not yet given: at least one, at most `most`, in order.

    Waits for a line when there is none. A thread reads `lines`, some lists of `most` ahead, so
    lines may come while those before them are worked on. An exception of `lines` is raised after
    all lines before it. Closed early, this leaves the thread to end with the next line or, where
    none comes, with the program, which does not wait for it.
    """
    reader = _Reader(lines, limit=_AHEAD * most)
    threading.Thread(target=reader.run, daemon=True).start()
    try:
        while come := reader.take(most):
            yield come
    finally:
        reader.stop()
    if reader.failure is not None:
        raise reader.failure


class _Reader:
    """A queue that a thread fills, up to `limit` lines."""

    def __init__(self, source: Iterator[str], *, limit: int) -> None:
        self.failure: Exception | None = None
        self._source, self._limit = source, limit
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._ended = self._stopped = False

    def run(self) -> None:
        """Reads to the end, to a failure, or until `stop`."""
        try:
            for line in self._source:
                with self._changed:
                    self._changed.wait_for(self._has_room)
                    if self._stopped:
                        return
                    self._lines.append(line)
                    self._changed.notify()
        except Exception as error:  # noqa: BLE001 raised in the thread that takes the lines
            self.failure = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify()

    def _has_room(self) -> bool:
        return self._stopped or len(self._lines) < self._limit

    def take(self, most: int) -> list[str]:
        """What is there, waiting for it; nothing when all lines were taken."""
        with self._changed:
            while not self._lines and not self._ended:
                # Ctrl-C ends the wait at once where the system gives the signal to the main
                # thread, as Linux does; elsewhere it is seen when the time is up.
                self._changed.wait(timeout=0.1)
            come = [self._lines.popleft() for _ in range(min(most, len(self._lines)))]
            self._changed.notify()
        return come

    def stop(self) -> None:
        """No more lines are wanted."""
        with self._changed:
            self._stopped = True
            self._changed.notify()


class LineWriter:
    """Writes lines to a descriptor such that only whole ones are there in the end."""

    def __init__(self, descriptor: int, name: str) -> None:
        """Errors call the descriptor by `name`."""
        self.count = 0
        """Lines that are written whole."""
        self._descriptor, self._name = descriptor, name
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)

    def write(self, lines: Sequence[str]) -> None:
        """Writes lines, which have no newline, in UTF-8; the system has them on return.

        Raises `WriteFailed` when it cannot, and `BrokenPipeError` when nobody reads any more. An
        interrupt takes effect between lines. Only a second one leaves a line cut: in a pipe whose
        reader has stopped, and one that is longer than PIPE_BUF.
        """
        for data in _pieces(lines):
            # While a pipe is full an interrupt may come at once: nothing of `data` is out yet.
            self._room.poll()
            try:
                with _interrupts_held():
                    self._put(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                lines_are = _counted(self.count, "line is", "lines are")
                raise WriteFailed(
                    f"{self._name}: cannot write: {error.strerror}; its first {lines_are} whole"
                ) from error

    def _put(self, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                # A terminal or a pipe may be set not to block, and then fails when it is full.
                self._room.poll()
                done += os.write(self._descriptor, data[done:])
        finally:
            whole = data.rfind(b"\n", 0, done) + 1
            self.count += data.count(b"\n", 0, whole)
            self._take_back(done - whole)

    def _take_back(self, size: int) -> None:
        """The last `size` bytes written, if it is a file and nothing else was added since."""
        if size and self._is_file:
            end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            if os.fstat(self._descriptor).st_size == end:
                os.ftruncate(self._descriptor, end - size)
                os.lseek(self._descriptor, end - size, os.SEEK_SET)


@contextmanager
def whole_lines(path: str) -> Iterator[LineWriter]:
    """A writer to a new file at `path`, or to standard output for "-".

    Whatever ends the body, all lines that were written are whole. When an interrupt or a closed
    pipe ends it, a line on standard error says how many they are. Raises `RequestError` when the
    file cannot be opened.
    """
    name = "standard output" if path == "-" else path
    with ExitStack() as stack:
        if path != "-":
            try:
                file = stack.enter_context(open(path, "wb", buffering=0))
            except OSError as error:
                raise RequestError(f"{path}: cannot write: {error.strerror}") from error
        elif sys.stdout is None:
            raise RequestError("standard output is closed: give a file with --output")
        else:
            file = sys.stdout
            file.flush()
        writer = LineWriter(file.fileno(), name)
        try:
            yield writer
        except (KeyboardInterrupt, BrokenPipeError):
            lines = _counted(writer.count, "line was", "lines were")
            print(f"transduce: {lines} written to {name}", file=sys.stderr)
            raise


def _pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines together up to PIPE_BUF bytes, which a pipe takes all at once or not at all."""
    piece = b""
    for line in lines:
        data = line.encode() + b"\n"
        if piece and len(piece) + len(data) > select.PIPE_BUF:
            yield piece
            piece = b""
        piece += data
    if piece:
        yield piece


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """SIGINT takes effect after the body; a second one does so at once.

    Otherwise the KeyboardInterrupt could come between a write and the count of its bytes.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        # Then a signal raises nothing here.
        yield
        return
    came = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(number, handler)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
