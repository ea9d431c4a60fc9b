"""The processes of a run: how they come together, and what they hand each other.

A run is one process, or one on each host (or several there), all started with the same command.
What goes over from one to another here goes by JAX's coordinator, as bytes, and touches no
device: so nobody's patience is that of a collective (45 seconds), and any process may take its
time.
"""

import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

import jax

# JAX's store of keys and values, and its barriers, have no public name; Orbax takes them from
# here too. So have the clusters that it detects.
from jax._src import clusters, distributed

from transduce.config import RequestError

ADDRESS, COUNT, INDEX = BY_HAND = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
)

COLLECTIVE_SECONDS = 40
HEARTBEAT_SECONDS = 50
SHUTDOWN_SECONDS = 15
COLLECTIVE_FLAG = "--xla_cpu_collective_timeout_seconds"
"""What bounds to a minute how long a run goes on with a process that is dead or stuck."""

DAY_MILLISECONDS = 24 * 60 * 60 * 1000
FAREWELL_MILLISECONDS = 5 * 1000
ROLL_CALL_SECONDS = 4

_LOST = re.compile("gloo|nccl|collective|rendezvous|deadline|unavailable|heartbeat", re.IGNORECASE)
"""In what a collective that failed says; those of TPUs end the process by themselves."""

_calls = itertools.count()


def initialize() -> None:
    """Joins the processes of the run, once, before any device is touched.

    Does nothing for a run of one process. Several are joined

    - by hand, when JAX_COORDINATOR_ADDRESS (process 0's HOST:PORT), JAX_NUM_PROCESSES and
      JAX_PROCESS_ID are set;
    - else as their launcher says: srun, mpirun, a Cloud TPU slice, or an indexed Kubernetes job
      or JobSet where the package `kubernetes` is installed. JAX_COORDINATOR_ADDRESS alone
      corrects the launcher's address. A process that is alone on its host gets all its devices.

    JAX_NUM_PROCESSES=1 keeps processes apart that one launcher started.
    A process should not end more than 15 seconds before another: see `barrier`.
    Raises `RequestError` that names the variable which is missing or wrong.
    """
    arguments = _arguments()
    if arguments is None:
        return
    _keep_standard_output()
    flags = os.environ.get("XLA_FLAGS", "")
    # Flags that do not begin with a dash are the name of a file that holds them.
    if COLLECTIVE_FLAG not in flags and (not flags or flags.lstrip().startswith("-")):
        os.environ["XLA_FLAGS"] = f"{flags} {COLLECTIVE_FLAG}={COLLECTIVE_SECONDS}".lstrip()
    # It would take SIGTERM for itself, so that no process could be ended by it.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        **arguments,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=SHUTDOWN_SECONDS,
    )
    # All learn of each other's devices now: JAX waits five minutes for the slowest, and later a
    # process may be slower than that.
    jax.devices()


def process() -> tuple[int, int]:
    """This process's index and the number of processes."""
    if not jax.distributed.is_initialized():
        return 0, 1
    return jax.process_index(), jax.process_count()


def is_first() -> bool:
    """Whether this is the process that writes what is written once."""
    return process()[0] == 0


def barrier(name: str) -> None:
    """Returns when every process has come here; `name` is for messages.

    All processes come to the same barriers and gatherings in the same order. A process that dies
    on the way ends the others too, with a line that says which and the status 75, or by SIGABRT
    where JAX is quicker.
    """
    if process()[1] > 1:
        _wait(f"transduce/{next(_calls)}/{name}")


def gather_bytes(data: bytes) -> list[bytes] | None:
    """Every process's `data`, in the order of the processes, at the first; None at the others.

    It is a `barrier` too.
    """
    index, count = process()
    if count == 1:
        return [data]
    place = f"transduce/{next(_calls)}/gather"
    client = _client()
    client.key_value_set_bytes(f"{place}/{index}", data)
    _wait(place)
    if index:
        return None
    gathered = [client.key_value_try_get_bytes(f"{place}/{other}") for other in range(count)]
    client.key_value_delete(place)
    return gathered


def from_first(data: bytes) -> bytes:
    """The first process's `data`, at every process; the first does not wait for the others.

    What it gave stays with the coordinator: this is for a few bytes.
    """
    index, count = process()
    if count == 1:
        return data
    place = f"transduce/{next(_calls)}/first"
    if index:
        return _client().blocking_key_value_get_bytes(place, DAY_MILLISECONDS)
    _client().key_value_set_bytes(place, data)
    return data


@contextlib.contextmanager
def first_ahead() -> Iterator[None]:
    """A context that the other processes enter when the first has left it.

    A `RequestError` that ends it at the first is raised at the others in its place.
    """
    if not is_first():
        if error := from_first(b"").decode():
            raise RequestError(error)
        yield
        return
    try:
        yield
    except RequestError as error:
        from_first(str(error).encode())
        raise
    from_first(b"")


def leave(status: int) -> None:
    """Ends this process with `status` if the others do not end too within some seconds.

    For a process that failed. The others may wait for it in a collective, and would do so for as
    long as it waits for them to leave in order.
    """
    if process()[1] == 1:
        return
    try:
        _client().wait_at_barrier("transduce/leave", FAREWELL_MILLISECONDS)
    except jax.errors.JaxRuntimeError:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """A context for work by collectives, which ends this process when another is lost in it.

    Lost is one that was killed, stopped or is stuck. A line on standard error says which, as far
    as can be known, and the status is 75: the run can be started again. It leaves at once, since
    whatever is still to be done in order would wait for the one that is lost.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if process()[1] > 1 and _LOST.search(str(error)):
            _end_if_told(error)
            _end(_roll_call())
        raise


def _end_if_told(error: Exception) -> None:
    """Ends this process when a barrier's `error` says which others are lost.

    There is no time to ask: JAX is about to end it, with fifty lines and SIGABRT.
    """
    if silent := set(re.findall(r"Task (\d+) heartbeat timeout", str(error))):
        _end(_are_lost(sorted(silent, key=int)))


def _end(lost: str) -> NoReturn:
    """Ends this process at once, to be started again; `lost` says why."""
    # In one piece, and not as `print` does: JAX's threads are writing too.
    sys.stderr.write(f"transduce: {lost}; the same command goes on\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(os.EX_TEMPFAIL)


def _roll_call() -> str:
    """Which process was lost: those that are left say at the coordinator that they are here."""
    own, count = process()
    place = "transduce/here"
    try:
        _client().key_value_set(f"{place}/{own}", "", allow_overwrite=True)
        time.sleep(ROLL_CALL_SECONDS)
        found = _client().key_value_dir_get(place)
        if own == 0:
            # The coordinator ends with this process: the others must have looked by then.
            time.sleep(ROLL_CALL_SECONDS / 2)
    except (jax.errors.JaxRuntimeError, ValueError):
        return "process 0, which the others meet at, is lost"
    here = {int(name.rsplit("/", 1)[1]) for name, _ in found}
    missing = [str(number) for number in range(count) if number not in here]
    if not missing:
        return "a process did not come to a collective operation in time; all are there again"
    return _are_lost(missing)


def _are_lost(numbers: Sequence[str]) -> str:
    return f"process {' and '.join(numbers)} of {process()[1]} is lost: killed, stopped or stuck"


def _client() -> Any:
    return distributed.global_state.client


def _wait(name: str) -> None:
    try:
        _client().wait_at_barrier(name, DAY_MILLISECONDS)
    except jax.errors.JaxRuntimeError as error:
        _end_if_told(error)
        raise


def _keep_standard_output() -> None:
    """What this program prints still goes to standard output; what gloo prints goes elsewhere.

    gloo reports each connection on file descriptor 1.
    """
    sys.stdout.flush()
    results = os.dup(1)
    os.dup2(2, 1)
    # Like Python's own it is never closed, and so open(...) needs no `with`.
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    sys.stdout = open(results, "w", encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115


def _arguments() -> dict[str, Any] | None:
    """What JAX needs to join the processes; None where there is one process."""
    address, count, index = os.environ.get(ADDRESS), _number(COUNT, least=1), _number(INDEX)
    if count is not None and index is not None and index >= count:
        raise RequestError(f"{INDEX} is {index}: it must be less than {COUNT}, which is {count}")
    if count == 1:
        return None
    if address and not re.fullmatch(r".+:[0-9]+", address):
        raise RequestError(f"{ADDRESS} is {address!r}: it must be HOST:PORT of process 0")
    if count is None and index is None and _launched():
        if _alone_on_host() and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
            # Else JAX would take one device for each process that srun or mpirun starts.
            return {"local_device_ids": []}
        return {}
    missing = [name for name in BY_HAND if not os.environ.get(name)]
    if len(missing) == len(BY_HAND):
        return None
    if missing:
        raise RequestError(
            f"{' and '.join(missing)} not set: set all of {', '.join(BY_HAND)}, or none of them"
        )
    return {
        "coordinator_address": address,
        "num_processes": count,
        "process_id": index,
        "cluster_detection_method": "deactivate",
    }


def _number(name: str, *, least: int = 0) -> int | None:
    value = os.environ.get(name)
    if not value:
        return None
    if not re.fullmatch("[0-9]+", value) or int(value) < least:
        raise RequestError(f"{name} is {value!r}: it must be a whole number from {least} on")
    return int(value)


def _launched() -> bool:
    """Whether what started this process started others of its run.

    Decided without waiting for a network where there is none: a launcher's variables say so, or
    there are TPU chips, whose hosts have a metadata server.
    """
    # Not SLURM_NTASKS: in a shell of salloc's that counts the tasks that the job might have.
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        if int(os.environ.get(name, "1")) > 1:
            return True
    candidates = []
    # JAX sets the platforms to "tpu,cpu" where there are chips, if the user has set none.
    if "tpu" in (jax.config.jax_platforms or ""):
        candidates += [clusters.GkeTpuCluster, clusters.GceTpuCluster]
    if "JOB_COMPLETION_INDEX" in os.environ and find_spec("kubernetes"):
        candidates.append(clusters.K8sCluster)
    present = next((cluster for cluster in candidates if cluster.is_env_present()), None)
    return present is not None and present.get_process_count() > 1


def _alone_on_host() -> bool:
    """Of those that `_launched` found; Cloud TPU and Kubernetes start one on each host."""
    environment = os.environ
    if "OMPI_COMM_WORLD_LOCAL_SIZE" in environment:
        return environment["OMPI_COMM_WORLD_LOCAL_SIZE"] == "1"
    tasks, nodes = (environment.get(f"SLURM_STEP_NUM_{what}") for what in ("TASKS", "NODES"))
    return tasks == nodes
