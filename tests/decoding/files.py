"""Files and standard streams as users of the verbs have them, and what the verbs write there."""

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

THROUGHPUT = r"transduce: {} in [0-9.,]+ s: [0-9.,]+ lines and [0-9,]+ pieces a second"


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def lines_of(text: str) -> list[str]:
    """Lines that end with a newline each, and with nothing else."""
    *lines, last = text.split("\n")
    assert last == ""
    return lines


def read(path: Path) -> list[str]:
    return lines_of(path.read_bytes().decode())


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(text)]


def warnings(err: str, *, count: str) -> list[str]:
    """What standard error has before its last line, which says that `count` were translated."""
    *others, last = lines_of(err)
    assert re.fullmatch(THROUGHPUT.format(count), last)
    return others


@contextmanager
def standard_input(data: bytes, *, folder: Path | None = None) -> Iterator[None]:
    """`data` in a file of `folder`, or in a pipe."""
    writer = None
    if folder is not None:
        (folder / "standard input").write_bytes(data)
        source = os.open(folder / "standard input", os.O_RDONLY)
    else:
        source, sink = os.pipe()

        def feed() -> None:
            with os.fdopen(sink, "wb") as pipe:
                pipe.write(data)

        writer = threading.Thread(target=feed)
        writer.start()
    ours = os.dup(0)
    os.dup2(source, 0)
    try:
        yield
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(source)
        if writer is not None:
            writer.join()
