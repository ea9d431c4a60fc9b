"""Lines that come slowly, and outputs of every kind; test_cut_streams.py breaks them off."""

import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from transduce.config import RequestError
from transduce.decoding import streams
from transduce.decoding.streams import arrivals, whole_lines

PATIENCE = 20.0
"""Seconds until a test gives up; what it waits for takes much less."""


def start(
    program: str,
    *arguments: object,
    stdin: int | None = None,
    stdout: int | IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """A Python program of its own, after imports that it may use; killed if it hangs."""
    names = (
        "import os, signal, sys, time\n"
        "from transduce.decoding.streams import arrivals, whole_lines\n"
        "from transduce.text.lines import read_lines\n"
    )
    command = [sys.executable, "-c", names + program, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
    timer = threading.Timer(PATIENCE, process.kill)
    timer.daemon = True
    timer.start()
    return process


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The status and the last line of standard error."""
    assert process.stderr is not None
    with process:
        error = process.stderr.read()
        process.wait(PATIENCE)
    return process.returncode, error.decode().rstrip("\n").rpartition("\n")[2]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Source:
    """Lines that come when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        """How many lines were asked for; asking for one means to have those before it."""
        self.closed = False
        self._sent = 0
        self._lines: queue.Queue[str | None] = queue.Queue()

    def send(self, *lines: str | None) -> None:
        for line in lines:
            self._lines.put(line)
            self._sent += 1

    def is_read(self) -> bool:
        return self.asked > self._sent

    def __iter__(self) -> Iterator[str]:
        try:
            self.asked += 1
            while (line := self._lines.get(timeout=PATIENCE)) is not None:
                yield line
                self.asked += 1
        finally:
            self.closed = True


def test_all_lines_come_in_order() -> None:
    lines = [str(number) for number in range(1000)]
    lists = list(arrivals(iter(lines), most=7))
    assert [line for come in lists for line in come] == lines
    assert {len(come) for come in lists} <= set(range(1, 8))
    assert list(arrivals(iter([]), most=7)) == []


def test_what_has_come_is_given_at_once() -> None:
    """T10: a list is not waited for to be full."""
    source = Source()
    lists = arrivals(iter(source), most=3)
    source.send("a")
    assert next(lists) == ["a"]
    source.send("b", "c")
    until(source.is_read)
    assert next(lists) == ["b", "c"]
    source.send("d", "e", "f", "g")
    until(source.is_read)
    assert next(lists) == ["d", "e", "f"]
    source.send(None)
    assert list(lists) == [["g"]]


def test_a_line_is_answered_while_standard_input_is_open() -> None:
    """T10."""
    program = """
with whole_lines("-") as writer:
    for lines in arrivals(read_lines("-"), most=100):
        writer.write([line.upper() for line in lines])
"""
    process = start(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in ("eins\n", "zwei\u2028\r\n", "\n"):
        process.stdin.write(line.encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert ready
        assert os.read(process.stdout.fileno(), 100).decode() == line.upper()
    process.stdin.close()
    assert finish(process) == (0, "")


def test_reading_ahead_has_a_bound() -> None:
    source = Source()
    lists = arrivals(iter(source), most=5)
    source.send(*map(str, range(1000)))
    assert next(lists)
    # Up to five lines were given, four lists wait, and the thread holds one line more.
    until(lambda: source.asked > 20)
    time.sleep(0.05)
    assert source.asked <= 5 + 4 * 5 + 1
    lists.close()  # pyright: ignore[reportAttributeAccessIssue] a generator


def test_an_error_comes_after_the_lines_before_it() -> None:
    def lines() -> Iterator[str]:
        yield from map(str, range(10))
        raise RequestError("line 11: not UTF-8")

    come = []

    def collect() -> None:
        for part in arrivals(lines(), most=3):
            time.sleep(0.01)
            come.extend(part)

    with pytest.raises(RequestError, match="line 11: not UTF-8"):
        collect()
    assert come == [str(number) for number in range(10)]


def test_reading_ends_when_no_more_is_wanted() -> None:
    source = Source()
    before = set(threading.enumerate())
    lists = arrivals(iter(source), most=2)
    source.send(*map(str, range(100)))
    next(lists)
    (thread,) = set(threading.enumerate()) - before
    lists.close()  # pyright: ignore[reportAttributeAccessIssue] a generator
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert source.closed
    assert source.asked <= 2 + 4 * 2 + 1


def test_a_program_ends_while_standard_input_is_open() -> None:
    program = "for lines in arrivals(read_lines('-'), most=9): break"
    process = start(program, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"a\n")
    process.stdin.flush()
    process.wait(PATIENCE)
    assert finish(process) == (0, "")


def test_an_interrupt_ends_the_wait_for_a_line() -> None:
    program = """
print("ready", flush=True)
try:
    for lines in arrivals(read_lines("-"), most=9): print(lines, flush=True)
except KeyboardInterrupt:
    print(time.time(), flush=True)
"""
    process = start(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a\n")
    process.stdin.flush()
    assert [process.stdout.readline() for _ in range(2)] == [b"ready\n", b"['a']\n"]
    time.sleep(0.1)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    assert float(process.stdout.readline()) - sent < 2
    assert finish(process) == (0, "")


def test_lines_are_there_when_write_returns(tmp_path: Path) -> None:
    """T1: in UTF-8, and only "\\n" ends them."""
    path = tmp_path / "out"
    path.write_text("what was there before\n" * 9)
    with whole_lines(str(path)) as writer:
        assert path.read_bytes() == b""
        writer.write(["é\r\u2028", ""])
        assert path.read_bytes() == "é\r\u2028\n\n".encode()
        writer.write([])
        writer.write(["z" * 10_000, "b"])
        assert writer.count == 4
    assert path.read_bytes() == "é\r\u2028\n\n".encode() + b"z" * 10_000 + b"\nb\n"


def test_standard_output_takes_lines_after_what_was_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        print("before")
        with whole_lines("-") as writer:
            writer.write(["é", "b"])
            assert path.read_bytes() == "before\né\nb\n".encode()
        print("after")
    assert path.read_bytes() == "before\né\nb\nafter\n".encode()


def test_a_closed_standard_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # So it is for a program that a shell started with >&-.
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(RequestError, match=r"^standard output is closed"), whole_lines("-"):
        pass


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "out"
    for path, reason in (
        (str(missing), "No such file or directory"),
        (str(tmp_path), "Is a directory"),
    ):
        with (
            pytest.raises(RequestError, match=f"^{path}: cannot write: {reason}$"),
            whole_lines(path),
        ):
            pass


def test_outputs_that_are_no_files_are_written(tmp_path: Path) -> None:
    with whole_lines(os.devnull) as writer:
        writer.write(["a", "b"])
    assert writer.count == 2
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    come = []
    thread = threading.Thread(target=lambda: come.append(pipe.read_bytes()))
    thread.start()
    with whole_lines(str(pipe)) as writer:
        writer.write(["a", "b" * 200_000])
    thread.join(PATIENCE)
    assert come == [b"a\n" + b"b" * 200_000 + b"\n"]


def test_a_pipe_that_does_not_block_takes_all(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    come = []

    def read() -> None:
        with pipe.open("rb", buffering=0) as file:
            while data := file.read(3000):
                come.append(data)
                time.sleep(0.0005)

    thread = threading.Thread(target=read)
    thread.start()
    with pipe.open("wb", buffering=0) as file:
        os.set_blocking(file.fileno(), False)
        writer = streams.LineWriter(file.fileno(), "pipe")
        writer.write(["a" * 200_000, *["b"] * 3000])
    thread.join(PATIENCE)
    assert b"".join(come) == b"a" * 200_000 + b"\n" + b"b\n" * 3000
