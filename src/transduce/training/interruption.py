"""What SIGTERM and SIGINT do to a run."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 5.0
REPEAT_SECONDS = 2.0
"""What comes so soon after a signal is the same request: SLURM, for one, sends each several
times."""


class BrokenOff(Exception):
    """An evaluation was broken off by a signal, in all processes alike."""

    def __init__(self, number: int):
        self.signal = signal.Signals(number)


class Interruption:
    """A context in which a signal ends a run without loss, and a second one ends it at once.

    At first there is nothing to lose: a signal raises KeyboardInterrupt, with its number, in the
    main thread, and ends the process when that does not come to it within some seconds, as while
    it compiles. After `begin` the signal is noted in `asked`, for the run to look at.

    Outside of the main thread, which alone hears signals, it does nothing. Of several processes
    each hears signals of its own: what `asked` says is for the run to agree on.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._begun = False
        self._breaks_off = False

    def begin(self) -> None:
        """From now on there is something to save."""
        self._begun = True

    @contextlib.contextmanager
    def breaking_off(self) -> Iterator[None]:
        """What is done inside is broken off by a signal, which is noted all the same.

        It must be something that no other process waits for.
        """
        self._breaks_off = True
        try:
            yield
        except KeyboardInterrupt:
            if not self._begun:
                raise
        finally:
            self._breaks_off = False

    def __enter__(self) -> Self:
        self._in_force = threading.current_thread() is threading.main_thread()
        if self._in_force:
            # Python calls a handler in the main thread, once that is back in Python: too late for
            # whoever asks again because it is stuck. So another thread reads what was heard.
            self._heard, self._hear = os.pipe()
            os.set_blocking(self._hear, False)
            self._wakeup = signal.set_wakeup_fd(self._hear, warn_on_full_buffer=False)
            self._handlers = {number: signal.signal(number, self._handle) for number in SIGNALS}
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_force:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._hear)
            self._listener.join()
            os.close(self._heard)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number)
        if not self._begun or self._breaks_off:
            raise KeyboardInterrupt(number)

    def _listen(self) -> None:
        first, since = 0, 0.0
        while True:
            patience = GRACE_SECONDS if first and not self._begun else None
            ready, _, _ = select.select([self._heard], [], [], patience)
            heard = os.read(self._heard, 1) if ready else bytes([first])
            if not heard:
                return
            (number,) = heard
            if number not in SIGNALS:
                continue
            if not first:
                first, since = number, time.monotonic()
            elif not ready or time.monotonic() - since > REPEAT_SECONDS:
                os.write(2, b"transduce: ended at once; the same command goes on\n")
                os._exit(128 + number)
