"""Runs work in a few threads, for embedders that wait for a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result], items: Sequence[Item], n_threads: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with its result as it is done; with one thread, in this one and in order.

    The first exception ends the run; work under way is not waited for. The threads are daemons:
    an executor's would keep an interrupted process until their calls have ended.
    """
    n_threads = min(n_threads, len(items))
    if n_threads <= 1:
        yield from ((item, work(item)) for item in items)
        return
    waiting: SimpleQueue[Item] = SimpleQueue()
    done: SimpleQueue[tuple[Item, Result] | BaseException] = SimpleQueue()
    stopped = threading.Event()
    for item in items:
        waiting.put(item)

    def run() -> None:
        try:
            while not stopped.is_set():
                item = waiting.get_nowait()
                done.put((item, work(item)))
        except Empty:
            return
        except BaseException as error:
            done.put(error)

    for _ in range(n_threads):
        threading.Thread(target=run, daemon=True).start()
    try:
        for _ in items:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stopped.set()
