"""Iterators that work at the same time."""

import queue
import threading
from collections.abc import Iterator, Sequence


def in_threads[T](workers: Sequence[Iterator[T]]) -> Iterator[T]:
    """What all `workers` give, as they give it, each in a thread of its own.

    Raises what a worker raises. Closed early, it waits for each to come to its next item: a
    thread that is still inside XLA when the program ends takes the program down.
    """
    if len(workers) == 1:
        yield from workers[0]
        return
    made: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()
    stopped = threading.Event()

    def work(worker: Iterator[T]) -> None:
        failure = None
        try:
            for item in worker:
                made.put(([item], None))
                if stopped.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 raised by the thread that asked
            failure = error
        made.put(([], failure))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        at_work = len(workers)
        while at_work:
            items, failure = made.get()
            if failure is not None:
                raise failure
            at_work -= not items
            yield from items
    finally:
        stopped.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
