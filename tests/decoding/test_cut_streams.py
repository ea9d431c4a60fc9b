"""Outputs that break off: a full disk, a closed pipe, an interrupt at any time."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from transduce.config import WriteFailed
from transduce.decoding import streams
from transduce.decoding.streams import whole_lines

PATIENCE = 20.0
"""Seconds until a test gives up; what it waits for takes much less."""


def start(
    program: str,
    *arguments: object,
    stdout: int | IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """A Python program of its own, after imports that it may use; killed if it hangs."""
    names = "import resource, sys, time\nfrom transduce.decoding.streams import whole_lines\n"
    command = [sys.executable, "-c", names + program, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)
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


def test_a_full_device_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WriteFailed) as failed, whole_lines("/dev/full") as writer:
        writer.write(["a"])
    message = "/dev/full: cannot write: No space left on device; its first 0 lines are whole"
    assert str(failed.value) == message
    assert capfd.readouterr() == ("", "")


def test_a_full_standard_output_is_reported() -> None:
    program = 'with whole_lines("-") as writer: writer.write(["a"])'
    with open("/dev/full", "wb") as full:
        status, error = finish(start(program, stdout=full))
    assert status == 1
    assert error.endswith(
        "WriteFailed: standard output: cannot write: No space left on device; "
        "its first 0 lines are whole"
    )


# The process may not write beyond byte 5000 of a file.
LIMITED = """
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, most))
path, at_once = sys.argv[1], int(sys.argv[2])
lines = [f"{number:06}" for number in range(1000)]
with whole_lines(path) as writer:
    for start in range(0, 1000, at_once): writer.write(lines[start : start + at_once])
"""


@pytest.mark.parametrize("at_once", [1, 9, 1000])
def test_a_file_that_can_grow_no_more_ends_with_a_whole_line(tmp_path: Path, at_once: int) -> None:
    path = tmp_path / "out"
    status, error = finish(start(LIMITED, path, at_once))
    assert status == 1
    # Of the lines of 7 bytes, 714 have 4998.
    assert error.endswith(
        f"WriteFailed: {path}: cannot write: File too large; its first 714 lines are whole"
    )
    assert path.read_bytes() == b"".join(b"%06d\n" % number for number in range(714))


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_file_as_standard_output_ends_with_a_whole_line(tmp_path: Path, mode: str) -> None:
    """What was there before stays, and what other programs write next stands after it."""
    path = tmp_path / "out"
    path.write_bytes(b"earlier\n")
    with path.open(mode) as out:
        if mode == "wb":
            out.write(b"earlier\n")
            out.flush()
        status, error = finish(start(LIMITED, "-", 9, stdout=out))
        subprocess.run([sys.executable, "-c", "print('later')"], stdout=out, check=True)
    assert status == 1
    # 8 + 713 * 7 = 4999.
    assert error.endswith("cannot write: File too large; its first 713 lines are whole")
    lines = b"".join(b"%06d\n" % number for number in range(713))
    assert path.read_bytes() == b"earlier\n" + lines + b"later\n"


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()

    def fill(writer: streams.LineWriter) -> None:
        for number in range(20_000):
            writer.write([f"{number:06}"])

    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"]
    try:
        mounted = subprocess.run(["mount", *options, disk], capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"no small disk can be made: {error}")
    if mounted.returncode:
        pytest.skip(f"no small disk can be made: {mounted.stderr.strip()}")
    try:
        path = disk / "out"
        with pytest.raises(WriteFailed) as failed, whole_lines(str(path)) as writer:
            fill(writer)
        data = path.read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)
    # 64 KiB hold 9362 lines of 7 bytes.
    assert data == b"".join(b"%06d\n" % number for number in range(9362))
    assert str(failed.value) == (
        f"{path}: cannot write: No space left on device; its first 9362 lines are whole"
    )


def test_a_closed_pipe_is_counted_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    path = f"/dev/fd/{write}"

    def use() -> None:
        with whole_lines(path) as writer:
            writer.write(["a"])
            assert os.read(read, 9) == b"a\n"
            os.close(read)
            os.close(write)
            writer.write(["b", "c"])

    with pytest.raises(BrokenPipeError):
        use()
    assert capfd.readouterr() == ("", f"transduce: 1 line was written to {path}\n")


def test_an_interrupt_between_writes_is_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out"

    def use() -> None:
        with whole_lines(str(path)) as writer:
            writer.write(["a"] * 37)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        use()
    assert path.read_bytes() == b"a\n" * 37
    assert capfd.readouterr() == ("", f"transduce: 37 lines were written to {path}\n")


@pytest.mark.parametrize("kind", ["file", "pipe"])
@pytest.mark.parametrize("lines", [["aaa", "bbb"], ["a" * 5000]], ids=["short", "long"])
def test_an_interrupt_in_a_write_waits_for_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd, kind: str, lines: list[str]
) -> None:
    """The system writes a part of what it is given, and the signal comes just then."""
    path, come = tmp_path / "out", []
    thread = threading.Thread(target=lambda: come.append(path.read_bytes()))
    if kind == "pipe":
        os.mkfifo(path)
        thread.start()
    parts = 0
    system_write = os.write

    def write(descriptor: int, data: bytes) -> int:
        nonlocal parts
        parts += 1
        done = system_write(descriptor, data[:2])
        if parts == 2:
            signal.raise_signal(signal.SIGINT)
        return done

    def use() -> None:
        with whole_lines(str(path)) as writer:
            writer.write(lines)
            reached.append("another write")

    reached = []
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(streams.os, "write", write)
    with pytest.raises(KeyboardInterrupt):
        use()
    assert signal.getsignal(signal.SIGINT) is handler
    assert reached == []
    if kind == "file":
        thread.start()
    thread.join(PATIENCE)
    assert come == ["".join(f"{line}\n" for line in lines).encode()]
    error = capfd.readouterr().err
    assert error.startswith(f"transduce: {len(lines)} line")


# Says that it begins, and writes lines of the size asked for.
ENDLESS = """
path, size = sys.argv[1], int(sys.argv[2])
lines = ["x" * (size - 1)] * (10_000 // size + 2)
with whole_lines(path) as writer:
    print("ready", file=sys.stderr, flush=True)
    for _ in range(5000): writer.write(lines)
    time.sleep(60)
"""


def interrupted(process: subprocess.Popen[bytes], *, after: float) -> tuple[int, str]:
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    error = process.stderr.read().decode()
    process.wait(PATIENCE)
    process.stderr.close()
    (line,) = [line for line in error.splitlines() if line.startswith("transduce: ")]
    return process.returncode, line


@pytest.mark.parametrize("size", [50, 9000])
@pytest.mark.parametrize("after", [0.001, 0.013, 0.031])
def test_an_interrupt_at_any_time_leaves_whole_lines(
    tmp_path: Path, size: int, after: float
) -> None:
    path = tmp_path / "out"
    status, line = interrupted(start(ENDLESS, path, size), after=after)
    data = path.read_bytes()
    lines, rest = divmod(len(data), size)
    assert rest == 0
    assert data == (b"x" * (size - 1) + b"\n") * lines
    assert (status, line) == (-signal.SIGINT, f"transduce: {lines} lines were written to {path}")


def test_an_interrupt_ends_the_wait_for_whoever_reads() -> None:
    process = start(ENDLESS, "-", 50, stdout=subprocess.PIPE)
    # By then the pipe is full.
    status, line = interrupted(process, after=0.2)
    assert process.stdout is not None
    with process.stdout:
        data = process.stdout.read()
    lines, rest = divmod(len(data), 50)
    assert rest == 0
    assert lines > 80
    assert (status, line) == (
        -signal.SIGINT,
        f"transduce: {lines} lines were written to standard output",
    )


def test_a_second_interrupt_ends_a_line_that_nobody_reads() -> None:
    process = start(ENDLESS, "-", 2_000_000, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    # As soon as some of it is in the pipe, which is too small for all of it.
    assert select.select([process.stdout], [], [], PATIENCE)[0]
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGINT)
    error = process.stderr.read()
    assert b"\ntransduce: 0 lines were written to standard output\n" in error
    with process:
        assert process.stdout.read().count(b"\n") == 0
    assert process.returncode == -signal.SIGINT
