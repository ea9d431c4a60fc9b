"""What the first process does for the others, and how one leaves them."""

import json
import signal

import pytest

from transduce.config import RequestError
from transduce.parallel import hosts

from .processes import run_together

AHEAD = """
import json, sys
from pathlib import Path
from transduce.config import RequestError
from transduce.parallel import hosts

hosts.initialize()
index, count = hosts.process()
told = [hosts.from_first(f"{place} of {index}".encode()).decode() for place in range(2)]
file = Path(sys.argv[1])
with hosts.first_ahead():
    seen = file.exists()
    file.write_text("made")
refused = ""
try:
    with hosts.first_ahead():
        if index == 0:
            raise RequestError("not so")
        raise AssertionError("entered all the same")
except RequestError as error:
    refused = str(error)
hosts.barrier("end")
print(json.dumps([told, seen, refused]))
"""


def test_the_others_follow_the_first_and_hear_what_it_says(tmp_path) -> None:
    ended = run_together(AHEAD, str(tmp_path / "file"), count=2)
    assert [process.status for process in ended] == [0, 0], ended
    found = [json.loads(process.output) for process in ended]
    assert found == [[["0 of 0", "1 of 0"], seen, "not so"] for seen in (False, True)]


def test_a_single_process_is_the_first() -> None:
    assert hosts.from_first(b"x") == b"x"
    with hosts.first_ahead():
        pass
    with pytest.raises(RequestError, match=r"^so$"), hosts.first_ahead():
        raise RequestError("so")
    hosts.leave(3)


LEAVE = """
import sys
from transduce.parallel import hosts

hosts.HEARTBEAT_SECONDS, hosts.SHUTDOWN_SECONDS, hosts.FAREWELL_MILLISECONDS = 4, 2, {farewell}
hosts.initialize()
index, _ = hosts.process()
{first}
print("left", index)
hosts.leave(3 + index)
sys.exit(3 + index)
"""


def test_processes_that_all_fail_leave_in_order() -> None:
    ended = run_together(LEAVE.format(farewell=30_000, first=""), count=2)
    assert [process.status for process in ended] == [3, 4], ended
    assert [process.output for process in ended] == ["left 0\n", "left 1\n"]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_fails_alone_ends_with_its_own_status(lost: int) -> None:
    """R18: and the others end too; here with a patience of seconds.

    JAX ends one whose coordinator is gone; it may be quicker to where another is, too.
    """
    first = f"if index != {lost}: hosts.barrier('never')"
    ended = run_together(LEAVE.format(farewell=500, first=first), count=2)
    assert ended[lost].status == 3 + lost, ended[lost].error
    assert ended[lost].output == f"left {lost}\n"
    assert ended[1 - lost].status in ([-signal.SIGABRT] if lost == 0 else [75, -signal.SIGABRT])
