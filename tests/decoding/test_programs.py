"""translate as a program of its own, whose streams stay open, close or are a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from .files import THROUGHPUT, write

PROGRAM = [sys.executable, "-c", "from transduce.cli import main; main()", "translate"]
PATIENCE = 120.0
"""Seconds until a test gives up; what it waits for takes a few."""


def start(
    *arguments: object,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)


def answer(process: subprocess.Popen[bytes], data: bytes) -> bytes:
    """What comes for `data` while the input stays open."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(data)
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    assert ready
    return os.read(process.stdout.fileno(), 1 << 16)


def expected(command, workdir: Path, folder: Path, lines: list[str]) -> list[bytes]:
    out = command("translate", workdir, "--input", write(folder / "lines", lines))[1]
    return out.encode().splitlines(keepends=True)


def whole(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.read().decode()


def test_a_line_is_answered_while_standard_input_is_open(
    command, workdir: Path, tmp_path: Path
) -> None:
    """T10, T11: at once, and so is the next one; a warning comes with its line."""
    made = expected(command, workdir, tmp_path, ["the man", "a dog", "caf\ufffd"])
    with start(workdir, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert answer(process, b"the man\n") == made[0]
        assert answer(process, b"a dog\n") == made[1]
        assert process.stdin is not None
        assert answer(process, b"caf\xe9\n") == made[2]
        process.stdin.close()
        message = whole(process.stderr)
        assert process.wait(PATIENCE) == 0
    assert message.startswith("transduce: warning: line 3: 1 byte that is NUL or not UTF-8 read as")


def test_an_interrupt_says_how_many_lines_were_written(
    command, workdir: Path, tmp_path: Path
) -> None:
    """The status is 128 and the number of SIGINT."""
    made = expected(command, workdir, tmp_path, ["the man"])
    with start(workdir, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert answer(process, b"the man\n") == made[0]
        process.send_signal(signal.SIGINT)
        message = whole(process.stderr)
        assert process.wait(PATIENCE) == 130
        assert whole(process.stdout) == ""
    assert message == ("transduce: 1 line was written to standard output\ntransduce: interrupted\n")


def test_a_closed_output_pipe_ends_it_quietly(workdir: Path, tmp_path: Path) -> None:
    """As `transduce translate W | head -1` does; the status is 128 and the number of SIGPIPE."""
    source = write(tmp_path / "source", ["", ""])
    with start(workdir, "--input", source, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        message = whole(process.stderr)
        assert process.wait(PATIENCE) == 141
    assert message == (
        "transduce: 0 lines were written to standard output\n"
        "transduce: the output was closed before all was written\n"
    )


def test_nothing_is_drawn_over_what_is_typed_on_a_terminal(
    command, workdir: Path, tmp_path: Path
) -> None:
    """T10: a terminal shows what is typed, its answer, and at the end how long it took."""
    made = expected(command, workdir, tmp_path, ["the man"])
    ours, theirs = pty.openpty()
    process = start(workdir, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""

    def show(until: bytes) -> None:
        nonlocal shown
        while until not in shown:
            ready, _, _ = select.select([ours], [], [], PATIENCE)
            assert ready, shown
            shown += os.read(ours, 1 << 16)

    typed = b"the man\n"
    os.write(ours, typed)
    both = (typed + made[0]).replace(b"\n", b"\r\n")
    show(both)
    os.write(ours, b"\x04")
    show(b"a second\r\n")
    assert process.wait(PATIENCE) == 0
    os.close(ours)
    last = THROUGHPUT.format("1 line").encode()
    assert re.fullmatch(re.escape(both) + last + b"\r\n", shown)
