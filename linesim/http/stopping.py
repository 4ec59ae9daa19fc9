"""The stop of a served simulator: it interrupts waits, and does not wait for some threads.

Such threads do the slow work that a page or another process asks for: webhooks, moves of the clock,
questions to the console, saved states and verdicts.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

MOST_THREADS = 64

T = TypeVar("T")


class Stopped(Exception):
    """The simulator is stopping; the awaited event may still happen."""


class Stopping:
    """Belongs to the server's event loop, except `join`."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._places = asyncio.Semaphore(MOST_THREADS)
        self._threads: set[Thread] = set()

    def begin(self) -> None:
        self._begun.set()

    async def pause(self, seconds: float) -> None:
        """Waits that long, or until the simulator stops."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._begun.wait(), seconds)

    async def in_thread(self, job: Callable[[], T]) -> T:
        """The job's result, from a thread of its own; Stopped is raised at once when the simulator
        stops.
        """
        async with self._places:
            result: Future[T] = Future()
            thread = Thread(target=_work, args=(job, result), name="linesim-slow", daemon=True)
            self._threads.add(thread)
            thread.start()
            try:
                return await self._unless_stopped(asyncio.wrap_future(result))
            finally:
                if result.done():
                    self._threads.discard(thread)

    async def _unless_stopped(self, waited: asyncio.Future[T]) -> T:
        stop = asyncio.ensure_future(self._begun.wait())
        await asyncio.wait((waited, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if waited.done():
            return waited.result()
        raise Stopped

    def join(self, timeout_seconds: float) -> None:
        """Waits for the remaining threads, once the server has ended."""
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))


def _work(job: Callable[[], T], result: "Future[T]") -> None:
    if result.set_running_or_notify_cancel():
        try:
            result.set_result(job())
        except Exception as error:  # noqa: BLE001 (it belongs to the request that waits)
            result.set_exception(error)
