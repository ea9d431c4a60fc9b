"""Small disks that fill, or that can no longer be written to."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, *, kib: int) -> Iterator[Path]:
    """A disk of `kib` KiB in memory, at `path`. Skips the test where none can be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs to be root, to mount a small disk: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_read_only(path: Path) -> None:
    """From now on nothing on the disk at `path` can be changed."""
    # Files that are open for writing are in the way of a remount; a new mount over it is not.
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)


def fill(path: Path) -> Path:
    """A file that takes all the room that is left on the disk at `path`."""
    filler = path / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass
    return filler
