"""A file to which lines are added, on a disk or in a cloud."""

import os
import time
from typing import BinaryIO, cast

from etils import epath

UPLOAD_SECONDS = 60.0
"""Between two writings of a file in a cloud, where it is written whole each time."""


class Records:
    """Adds lines to a file and keeps those that it has.

    An object in a cloud cannot be added to: there, all lines are kept here too, and written at
    the first, then once a minute at most, and at the end. A run that is killed there loses the
    records of its last minute. Methods raise `OSError` where the file cannot be written.
    """

    def __init__(self, path: epath.Path):
        self._path, self._file = path, None
        self._lines, self._written = b"", 0.0
        if "://" in os.fspath(path):
            self._lines = path.read_bytes() if path.exists() else b""
        else:
            _take_back_half_a_line(path)
            self._file = cast(BinaryIO, path.open("ab"))

    def add(self, line: str) -> None:
        """One more line, without its end."""
        data = line.encode() + b"\n"
        if self._file:
            self._file.write(data)
            self._file.flush()
            return
        self._lines += data
        if time.monotonic() - self._written >= UPLOAD_SECONDS:
            self._upload()

    def close(self) -> None:
        """Writes what is not written yet."""
        if self._file:
            self._file.close()
        elif self._lines:
            self._upload()

    def _upload(self) -> None:
        self._path.write_bytes(self._lines)
        self._written = time.monotonic()


def _take_back_half_a_line(path: epath.Path) -> None:
    """That is what a full disk leaves at the end of a file."""
    data = path.read_bytes() if path.exists() else b""
    if (whole := data.rfind(b"\n") + 1) < len(data):
        os.truncate(path, whole)
