"""What the processes of a run must all know at the same place of it."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.parallel import hosts


class Agreement:
    """The largest numbers that any process of the run gives, at the same call in all of them.

    They go by the devices, behind the work that is under way there: several processes learn at a
    call what was given at the call before, and so wait for nothing. One process learns at once.
    """

    def __init__(self) -> None:
        self._under_way: jax.Array | None = None

    def __call__(self, *numbers: int) -> tuple[int, ...]:
        """Every call has as many `numbers`, from 0 on; before anything is known they are 0."""
        if hosts.process()[1] == 1:
            return numbers
        before, self._under_way = self._under_way, _largest(len(numbers))(numbers)
        return (0,) * len(numbers) if before is None else tuple(np.asarray(before).tolist())


@functools.cache
def _largest(count: int) -> Callable[[tuple[int, ...]], jax.Array]:
    """Of `count` numbers of each process the largest, whole on every device."""
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    given = NamedSharding(mesh, P("devices"))
    largest = jax.jit(lambda x: jnp.max(x, axis=0), out_shardings=NamedSharding(mesh, P()))

    def put(numbers: tuple[int, ...]) -> jax.Array:
        rows = np.tile(np.asarray(numbers, np.int32), (jax.local_device_count(), 1))
        shape = jax.device_count(), count
        with jax.set_mesh(mesh):
            return largest(jax.make_array_from_process_local_data(given, rows, shape))

    return put
