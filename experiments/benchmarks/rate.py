"""How fast something goes, and what memory it takes. No JAX at the top: the peers use it too."""

import resource
import time
from collections.abc import Callable


def per_second(work: Callable[[], int], seconds: float, *, warm: int = 1) -> float:
    """Items a second of `work`, which returns how many a call did; whole calls, at least one.

    So many calls as `warm` come before them.
    """
    for _ in range(warm):
        work()
    began, done = time.perf_counter(), 0
    while True:
        done += work()
        if (took := time.perf_counter() - began) >= seconds:
            return done / took


def measured(work: Callable[[], int], seconds: float, *, warm: int) -> dict[str, float]:
    """`per_second`, the same of a second of processor time, and peak resident bytes.

    So many calls as `warm` at least, and half of `seconds`, come before the measured ones.
    Processor time says less than time, which may be waited, but is the steadier on a machine that
    others use too.
    """
    per_second(work, seconds / 2, warm=warm - 1)
    total, began = 0, time.process_time()

    def counted() -> int:
        nonlocal total
        done = work()
        total += done
        return done

    rate = per_second(counted, seconds, warm=0)
    return {
        "per_second": rate,
        "per_processor_second": total / (time.process_time() - began),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def matrix_products(seconds: float, *, size: int = 2048) -> dict[str, float]:
    """`measured` floating-point operations of products of float32 matrices, by JAX."""
    import jax
    import jax.numpy as jnp

    left, right = jnp.ones((2, size, size))
    multiply = jax.jit(jnp.matmul)

    def work() -> int:
        jax.block_until_ready(multiply(left, right))
        return 2 * size**3

    return measured(work, seconds, warm=3)
