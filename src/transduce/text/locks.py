"""Files that several processes want to make, and one does."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock that the file at `path` stands for; it ends with the process at the latest."""
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
