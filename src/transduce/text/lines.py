"""Lines of text files.

Text is UTF-8 and only "\\n" ends a line: "\\r", U+2028, U+0085, form feed and vertical tab are
ordinary characters inside one. Files are therefore read as bytes and divided at b"\\n".
"""

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator

from transduce.config import RequestError

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def read_lines(path: str | os.PathLike[str], *, any_bytes: bool = False) -> Iterator[str]:
    """The lines of a text file, plain or gzip, without their "\\n"; "-" is standard input.

    Memory does not grow with the file, and a line that comes through a pipe is there as soon as
    its "\\n" is. Raises `RequestError`, while the lines are read, when the file cannot be read,
    its gzip data is damaged or cut short, or a line is not UTF-8 or has a NUL byte. With
    `any_bytes` no line is refused: it holds what `readable` makes text of.
    """
    name = "standard input" if path == "-" else os.fspath(path)
    number = 0
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, start=1):
                if b"\0" in line and not any_bytes:
                    raise RequestError(f"{name}, line {number}: has a NUL byte; text has none")
                errors = "surrogateescape" if any_bytes else "strict"
                yield line.removesuffix(b"\n").decode(errors=errors)
    except UnicodeDecodeError as error:
        raise RequestError(f"{name}, line {number}: not UTF-8: {error}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RequestError(f"{name}, after line {number}: broken gzip data: {error}") from error
    except OSError as error:
        raise RequestError(f"{name}: cannot read: {error.strerror or error}") from error


def readable(line: str) -> tuple[str, str]:
    """A line of `read_lines` with `any_bytes` as text, and a note on it, empty if nothing changed.

    NUL and each byte that is not UTF-8 (a lone surrogate in `line`) become U+FFFD.
    """
    text, count = _NO_TEXT.subn("\ufffd", line)
    bytes_are = "byte that is" if count == 1 else "bytes that are"
    return text, f"{count} {bytes_are} NUL or not UTF-8 read as U+FFFD" if count else ""


@contextlib.contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[Iterable[bytes]]:
    """The lines in bytes, "\n" included; gzip is known by its first two bytes."""
    with open(0 if path == "-" else path, "rb", closefd=path != "-") as raw:
        yield gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw


def count_parallel(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """How many sentence pairs two parallel files hold, after reading both to their ends.

    Raises `RequestError` when a file cannot be read as `read_lines` reads it, when the files
    differ in length, and when they are empty.
    """
    sources, targets = (sum(1 for _ in read_lines(path)) for path in (source, target))
    if sources != targets:
        raise RequestError(
            f"{source} has {sources} lines and {target} has {targets}: "
            "parallel files must have equally many"
        )
    if not sources:
        raise RequestError(f"{source} and {target} are empty: there must be at least one line")
    return sources
