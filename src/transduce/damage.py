"""Checksums of a checkpoint's files, by which damage to them is found.

CRC-32 finds every run of up to 32 wrong bits and misses other damage once in four thousand million
times; it is no protection against somebody who wants a change to go unseen.
"""

import json
import logging
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from etils import epath

from transduce.config import RequestError

_log = logging.getLogger(__name__)

CHECKSUMS = "checksums.json"
_CHUNK = 1 << 20


class Damaged(RequestError):
    """A file of a checkpoint is not what was saved; the message names it."""


def write_checksums(checkpoint: epath.Path) -> None:
    """Into checksums.json: size and CRC-32 of each file of the checkpoint's items, by its path."""
    names = [
        f"{item.name}/{name}"
        for item in sorted(checkpoint.iterdir())
        if item.is_dir()
        for name in _files(item)
    ]
    with _threads() as threads:
        sums = threads.map(lambda name: _sum(checkpoint / name), names)
        content = dict(zip(names, sums, strict=True))
    (checkpoint / CHECKSUMS).write_text(json.dumps(content, indent=1) + "\n")


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, os.cpu_count() or 1))


def _files(folder: epath.Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from (f"{path.name}/{name}" for name in _files(path))
        else:
            yield path.name


def _sum(path: epath.Path) -> list[int]:
    """The size of a file, and its CRC-32."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return [size, crc]


def require_whole(checkpoint: epath.Path, *, item: str = "") -> None:
    """Raises `Damaged` when a file of the checkpoint, or of an item alone, is not what was saved.

    One that was made before checksums were written cannot be checked: a warning says so.
    """
    path = checkpoint / CHECKSUMS
    if not path.exists():
        _log.warning("%s: has no %s: it is used unchecked", checkpoint, CHECKSUMS)
        return
    try:
        saved = json.loads(path.read_bytes())
    except ValueError as error:
        raise Damaged(f"{path}: is damaged: {error}") from error
    if not isinstance(saved, dict):
        raise Damaged(f"{path}: is damaged: it holds no JSON object")
    names = [name for name in saved if name.startswith(f"{item}/" if item else "")]

    def fault(name: str) -> str:
        try:
            same = _sum(checkpoint / name) == saved[name]
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        return "" if same else "is damaged: it is not what was saved"

    with _threads() as threads:
        for name, what in zip(names, threads.map(fault, names), strict=True):
            if what:
                raise Damaged(f"{checkpoint / name}: {what}")
