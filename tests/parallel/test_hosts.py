import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from transduce.config import RequestError
from transduce.parallel import hosts

from .processes import run_together

BY_HAND = {
    "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}

# ---- Real processes ----------------------------------------------------------------------------

GATHER = """
import hashlib, json, os
from transduce.parallel import hosts

hosts.initialize()
index, count = hosts.process()

import jax
import numpy as np
from jax.experimental import multihost_utils

# A collective: gloo says on standard output that it connects, where results alone belong.
collected = multihost_utils.process_allgather(np.int32(index + 10))
large = hosts.gather_bytes(bytes([index + 1]) * ((2 << 20) + index))
hosts.barrier("between")
result = {
    "first": hosts.is_first(),
    "devices": [len(jax.local_devices()), len(jax.devices())],
    "collected": collected.tolist(),
    "large": large and [[len(data), hashlib.sha256(data).hexdigest()] for data in large],
    "unequal": repr(hosts.gather_bytes(b"\\0\\xffab"[:index])),
    "flags": os.environ["XLA_FLAGS"].split(),
}
hosts.barrier("end")
print(json.dumps(result))
"""


@pytest.mark.parametrize(
    ("count", "devices"),
    [
        (2, 1),
        (2, 2),
        pytest.param(4, 1, marks=pytest.mark.slow),
        pytest.param(4, 2, marks=pytest.mark.slow),
    ],
)
def test_the_first_process_gets_the_bytes_of_all_in_their_order(count: int, devices: int) -> None:
    ended = run_together(GATHER, count=count, devices=devices)
    assert [process.status for process in ended] == [0] * count, ended
    large = [bytes([index + 1]) * (2 * 1024 * 1024 + index) for index in range(count)]
    at_first = {
        "large": [[len(data), hashlib.sha256(data).hexdigest()] for data in large],
        "unequal": repr([b"", b"\0", b"\0\xff", b"\0\xffa"][:count]),
    }
    for index, process in enumerate(ended):
        # The whole of standard output is this one line.
        assert json.loads(process.output) == {
            "first": index == 0,
            "devices": [devices, count * devices],
            "collected": [10, 11, 12, 13][:count],
            **(at_first if index == 0 else {"large": None, "unequal": "None"}),
            "flags": [
                f"--xla_force_host_platform_device_count={devices}",
                "--xla_cpu_collective_timeout_seconds=40",
            ],
        }


def test_one_process_gathers_without_touching_a_device() -> None:
    program = """
from transduce.parallel import hosts
hosts.initialize()
hosts.barrier("alone")
print(hosts.process(), hosts.is_first(), hosts.gather_bytes(b"x"))
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized())
"""
    (ended,) = run_together(program, count=1)
    assert ended.status == 0, ended.error
    assert ended.output == "(0, 1) True [b'x']\nFalse\n"


def test_sigterm_ends_a_process_that_has_joined_others() -> None:
    program = """
import os, signal, time
from transduce.parallel import hosts
hosts.initialize()
hosts.barrier("joined")
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
    ended = run_together(program, count=2, seconds=30)
    # The coordinator ends with the first process, and then the other may end by SIGABRT.
    assert ended[0].status == -signal.SIGTERM, ended[0].error
    assert ended[1].status in (-signal.SIGTERM, -signal.SIGABRT), ended[1].error


LOSE = """
import os, signal, sys, time
from transduce.parallel import hosts

hosts.COLLECTIVE_SECONDS, hosts.HEARTBEAT_SECONDS, hosts.SHUTDOWN_SECONDS = 4, 4, 2
hosts.initialize()
index, _ = hosts.process()

import numpy as np
from jax.experimental import multihost_utils

def collect():
    multihost_utils.process_allgather(np.zeros(1))

collect()
if index == 1:
    {fate}
{wait}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fate", "wait"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "hosts.gather_bytes(b'x')"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "hosts.barrier('never')"),
        ("raise ValueError('lost')", "hosts.barrier('never')"),
        ("time.sleep(20)", "collect()"),
    ],
)
def test_a_process_that_is_lost_ends_the_others_with_a_message(fate: str, wait: str) -> None:
    """R18: here with a patience of 4 and 2 seconds instead of 50 and 15.

    Where they wait for it at the coordinator, JAX may be quicker to end them.
    """
    began = time.monotonic()
    program = LOSE.format(fate=fate, wait=wait)
    first, lost = run_together(program, count=2, without=1 if "SIGSTOP" in fate else None)
    assert time.monotonic() - began < 55
    if first.status == 75:
        what = "process 1 of 2 is lost: killed, stopped or stuck; the same command goes on"
        assert f"transduce: {what}\n" in first.error
        assert "Traceback" not in first.error
        assert wait != "collect()"
    else:
        assert first.status == -signal.SIGABRT
        assert "another task died" in first.error
    assert lost.status != 0
    assert ("ValueError: lost" in lost.error) == ("lost" in fate)


# ---- What the environment says -----------------------------------------------------------------

Environment = dict[str, str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What JAX is asked to join, instead of joining it; no launcher has started this process."""
    for name in [*os.environ]:
        if name.startswith(("JAX_", "SLURM_", "OMPI_", "KUBERNETES_", "JOB_COMPLETION", "TPU_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XLA_FLAGS", "")
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **arguments: asked.append(arguments))
    # It moves the standard output of the tests themselves.
    monkeypatch.setattr(hosts, "_keep_standard_output", lambda: None)
    yield asked
    jax.config.update("jax_enable_preemption_service", True)


def set_all(monkeypatch: pytest.MonkeyPatch, environment: Environment) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


PATIENCE = {"heartbeat_timeout_seconds": 50, "shutdown_timeout_seconds": 15}


def test_processes_are_described_by_hand(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, BY_HAND)
    hosts.initialize()
    assert asked == [
        {
            "coordinator_address": "10.0.0.1:1234",
            "num_processes": 4,
            "process_id": 3,
            "cluster_detection_method": "deactivate",
            **PATIENCE,
        }
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "--xla_cpu_collective_timeout_seconds=40"),
        ("--xla_dump_to=/tmp/x", "--xla_dump_to=/tmp/x --xla_cpu_collective_timeout_seconds=40"),
        ("--xla_cpu_collective_timeout_seconds=600", "--xla_cpu_collective_timeout_seconds=600"),
        ("flags.txt", "flags.txt"),
    ],
)
def test_flags_that_the_user_has_set_stay(
    flags: str, expected: str, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_all(monkeypatch, {**BY_HAND, "XLA_FLAGS": flags})
    hosts.initialize()
    assert len(asked) == 1
    assert os.environ["XLA_FLAGS"] == expected


def step_of_srun(*, tasks: int, nodes: int) -> Environment:
    """What srun sets in a step of a job for which four tasks on two nodes were asked."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": str(tasks),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": str(nodes),
    }


SALLOC_SHELL = {**step_of_srun(tasks=1, nodes=1), "SLURM_NTASKS": "4"}
BATCH_SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}


def rank_of_mpirun(*, size: int, local_size: int) -> Environment:
    return {
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        (step_of_srun(tasks=2, nodes=2), {"local_device_ids": []}),
        (step_of_srun(tasks=4, nodes=2), {}),
        (step_of_srun(tasks=2, nodes=2) | {"JAX_LOCAL_DEVICE_IDS": "0,1"}, {}),
        (step_of_srun(tasks=2, nodes=2) | {"JAX_COORDINATOR_ADDRESS": "n1:99"}, None),
        (rank_of_mpirun(size=2, local_size=1), {"local_device_ids": []}),
        (rank_of_mpirun(size=2, local_size=2), {}),
    ],
)
def test_a_launcher_describes_processes_and_one_on_a_host_gets_all_devices(
    environment: Environment,
    arguments: dict[str, Any] | None,
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_all(monkeypatch, environment)
    hosts.initialize()
    assert asked == [{**({"local_device_ids": []} if arguments is None else arguments), **PATIENCE}]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"JAX_NUM_PROCESSES": "1"},
        BY_HAND | {"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"},
        step_of_srun(tasks=4, nodes=2) | {"JAX_NUM_PROCESSES": "1"},
        step_of_srun(tasks=1, nodes=1),
        SALLOC_SHELL,
        BATCH_SCRIPT,
        rank_of_mpirun(size=1, local_size=1),
        # Any pod of Kubernetes, and an indexed job's without the package that asks about it.
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"},
    ],
)
def test_nothing_is_done_for_a_run_of_one_process(
    environment: Environment, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "find_spec", lambda name: None)
    set_all(monkeypatch, environment)
    hosts.initialize()
    assert asked == []
    assert os.environ["XLA_FLAGS"] == ""
    assert hosts.process() == (0, 1)


def cluster(*, present: bool = True, count: int = 1) -> Any:
    return SimpleNamespace(is_env_present=lambda: present, get_process_count=lambda: count)


@pytest.mark.parametrize(
    ("platforms", "count", "joins"),
    [("tpu,cpu", 4, True), ("tpu,cpu", 1, False), ("cpu", 4, False), (None, 4, False)],
)
def test_hosts_of_a_tpu_slice_join_where_the_run_is_on_tpu(
    platforms: str | None,
    count: int,
    joins: bool,
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts.clusters, "GkeTpuCluster", cluster(present=False))
    monkeypatch.setattr(hosts.clusters, "GceTpuCluster", cluster(count=count))
    monkeypatch.setattr(hosts, "jax", SimpleNamespace(**vars(jax)))
    config = SimpleNamespace(jax_platforms=platforms, update=lambda name, value: None)
    monkeypatch.setattr(hosts.jax, "config", config)
    hosts.initialize()
    assert asked == ([{"local_device_ids": [], **PATIENCE}] if joins else [])


@pytest.mark.parametrize(("count", "joins"), [(4, True), (1, False)])
def test_pods_of_an_indexed_job_join(
    count: int, joins: bool, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "find_spec", lambda name: name == "kubernetes")
    monkeypatch.setattr(hosts.clusters, "K8sCluster", cluster(count=count))
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    hosts.initialize()
    assert asked == ([{"local_device_ids": [], **PATIENCE}] if joins else [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"JAX_COORDINATOR_ADDRESS": ""}, "JAX_COORDINATOR_ADDRESS not set: set all of .*"),
        ({"JAX_NUM_PROCESSES": ""}, "JAX_NUM_PROCESSES not set: set all of .*"),
        ({"JAX_PROCESS_ID": ""}, "JAX_PROCESS_ID not set: set all of .*"),
        (
            {"JAX_NUM_PROCESSES": "", "JAX_PROCESS_ID": ""},
            "JAX_NUM_PROCESSES and JAX_PROCESS_ID not set: set all of .*",
        ),
        ({"JAX_PROCESS_ID": "4"}, "JAX_PROCESS_ID is 4: .* less than JAX_NUM_PROCESSES, .* 4"),
        ({"JAX_NUM_PROCESSES": "1"}, "JAX_PROCESS_ID is 3: .* less than JAX_NUM_PROCESSES, .* 1"),
        ({"JAX_NUM_PROCESSES": "0"}, "JAX_NUM_PROCESSES is '0': .* whole number from 1 on"),
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES is 'two': .* whole number from 1 on"),
        ({"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID is '-1': .* whole number from 0 on"),
        ({"JAX_PROCESS_ID": "1.0"}, "JAX_PROCESS_ID is '1.0': .* whole number from 0 on"),
        ({"JAX_COORDINATOR_ADDRESS": "n1"}, "JAX_COORDINATOR_ADDRESS is 'n1': .* HOST:PORT .*"),
        ({"JAX_COORDINATOR_ADDRESS": ":80"}, "JAX_COORDINATOR_ADDRESS is ':80': .* HOST:PORT .*"),
        ({"JAX_COORDINATOR_ADDRESS": "n1:x"}, "JAX_COORDINATOR_ADDRESS is 'n1:x': .* HOST:PORT.*"),
    ],
)
def test_an_incomplete_or_wrong_description_is_refused_by_name(
    changes: Environment,
    message: str,
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_all(monkeypatch, BY_HAND | changes)
    with pytest.raises(RequestError) as raised:
        hosts.initialize()
    assert re.fullmatch(message, str(raised.value))
    assert asked == []
