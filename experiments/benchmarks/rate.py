"""How fast something goes. No JAX here: the peers use it too."""

import time
from collections.abc import Callable


def per_second(work: Callable[[], int], seconds: float) -> float:
    """Items a second of `work`, which returns how many a call did; whole calls, at least one.

    One call before them warms up.
    """
    work()
    began, done = time.perf_counter(), 0
    while True:
        done += work()
        if (took := time.perf_counter() - began) >= seconds:
            return done / took
