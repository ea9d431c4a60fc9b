"""What becomes of a run of several processes when one of them is lost."""

import signal

import pytest

from transduce.parallel import hosts

from .processes import run_together

LOST_IN_WORK = """
import os, signal, sys, time
from transduce.parallel import hosts

hosts.COLLECTIVE_SECONDS, hosts.HEARTBEAT_SECONDS, hosts.ROLL_CALL_SECONDS = 8, 30, 2
hosts.initialize()
index, _ = hosts.process()

import numpy as np
from jax.experimental import multihost_utils

def collect():
    multihost_utils.process_allgather(np.zeros(1))

collect()
print(os.getpid(), flush=True)
with hosts.ending_together():
    if index == {lost}:
        {fate}
    while True:
        collect()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "fate", "named"),
    [
        (1, "os.kill(os.getpid(), signal.SIGKILL)", "process 1 of 3 is lost"),
        (0, "os.kill(os.getpid(), signal.SIGKILL)", "process 0, which the others meet at, is lost"),
        (1, "os.kill(os.getpid(), signal.SIGSTOP)", "process 1 of 3 is lost"),
        (2, "time.sleep(100)", "process 2 of 3 is lost"),
    ],
)
def test_who_is_lost_in_common_work_is_named_and_the_others_can_be_started_again(
    lost: int, fate: str, named: str
) -> None:
    """R18: killed, stopped and stuck; here with a patience of 8 seconds instead of 40.

    Where the first process is lost, JAX may end another before it can say so itself.
    """
    ended = run_together(
        LOST_IN_WORK.format(lost=lost, fate=fate), count=3, seconds=120, without=lost
    )
    others = [process for number, process in enumerate(ended) if number != lost]
    for process in others:
        if lost == 0 and process.status == -signal.SIGABRT:
            continue
        assert process.status == 75, process.error
        (line,) = [text for text in process.error.splitlines() if text.startswith("transduce: ")]
        assert line.startswith(f"transduce: {named}")
        assert line.endswith("; the same command goes on")


def test_a_fault_that_is_not_of_a_lost_process_stays_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "process", lambda: (0, 2))
    with pytest.raises(ValueError, match="shapes"), hosts.ending_together():
        raise ValueError("shapes do not fit")
    monkeypatch.setattr(hosts, "process", lambda: (0, 1))
    with pytest.raises(ValueError, match="Gloo"), hosts.ending_together():
        raise ValueError("Gloo: alone")
