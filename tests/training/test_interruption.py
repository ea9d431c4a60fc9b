import signal
import subprocess
import sys
import threading
import time

import pytest

from transduce.training.interruption import Interruption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_an_exception_until_there_is_something_to_save(number: int) -> None:
    before = signal.getsignal(number)
    with Interruption():
        with pytest.raises(KeyboardInterrupt) as raised:
            signal.raise_signal(number)
        assert raised.value.args == (number,)
    with (
        Interruption() as interruption,
        pytest.raises(KeyboardInterrupt),
        interruption.breaking_off(),
    ):
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_a_signal_is_noted_once_there_is_something_to_save() -> None:
    with Interruption() as interruption:
        interruption.begin()
        assert interruption.asked is None
        signal.raise_signal(signal.SIGTERM)
        assert interruption.asked == signal.SIGTERM


def test_a_signal_breaks_off_what_need_not_be_done_now() -> None:
    with Interruption() as interruption:
        interruption.begin()
        reached = []
        with interruption.breaking_off():
            reached.append("before")
            signal.raise_signal(signal.SIGINT)
            reached.append("after")
        assert reached == ["before"]
        assert interruption.asked == signal.SIGINT


def test_signals_that_come_together_are_one() -> None:
    """SLURM sends SIGTERM several times when it preempts; the run must have time to save."""
    with Interruption() as interruption:
        interruption.begin()
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.2)  # the listening thread would have ended the process
        assert interruption.asked == signal.SIGTERM


def test_outside_of_the_main_thread_nothing_is_heard() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def look() -> None:
        with Interruption():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


STUCK = """
import hashlib
from transduce.training import interruption

interruption.GRACE_SECONDS = 0.2
interruption.REPEAT_SECONDS = 0.3
with interruption.Interruption() as asked:
    {begin}
    print("ready", flush=True)
    # Minutes in C, in which no handler of Python's is called.
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("begin", "times"), [("pass", 1), ("asked.begin()", 2)])
def test_a_process_that_is_stuck_is_ended(number: int, begin: str, times: int) -> None:
    """By the first signal, some seconds later, before there is something to save; else by two."""
    command = [sys.executable, "-c", STUCK.format(begin=begin)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        for _ in range(times):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(number)
        _, error = process.communicate(timeout=10)
    assert process.returncode == 128 + number
    assert error == "transduce: ended at once; the same command goes on\n"
