"""What must be set before JAX and the C library start: allocator and compilation cache."""

import hashlib
import os
import platform
import sys
from pathlib import Path

ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""glibc otherwise gives a step's large arrays back and faults them in again at the next.

What is kept is sometimes too small for the next array of the same size by what was put beside it,
and another place is taken: two or three times. So arrays of a GiB and more are given back; to fault
them in took 4 to 17% of the processor time of such a step on a busy machine.
"""


def prepare() -> None:
    """Turns the compilation cache on, and starts the program anew, once, with ALLOCATOR.

    Compiled functions are kept in XDG_CACHE_HOME, else ~/.cache, in a folder for this kind of
    processor; JAX_COMPILATION_CACHE_DIR names another, JAX_ENABLE_COMPILATION_CACHE=0 turns the
    cache off. TRANSDUCE_MALLOC=0 leaves the allocator alone, and so does any of its settings.
    """
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_cache()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    wanted = os.environ.get("TRANSDUCE_MALLOC") != "0" and platform.libc_ver()[0] == "glibc"
    if wanted and not any(name in os.environ for name in ALLOCATOR):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | ALLOCATOR)


def _cache() -> Path:
    """Code for one processor may have instructions that another does not know."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cpu = Path("/proc/cpuinfo")
    features = (
        next(
            (
                line
                for line in cpu.read_text().splitlines()
                if line.startswith(("flags", "Features"))
            ),
            "",
        )
        if cpu.exists()
        else ""
    )
    kind = hashlib.sha256(features.encode()).hexdigest()[:8]
    return Path(home) / "transduce" / f"{platform.machine()}-{kind}"
