"""Live values: all viewers share one read of MongoDB a second; without viewers there are no reads.

A page never waits long for a reading. Where MongoDB does not answer, the page shows the last
reading, its age, and the reason. A reading is shared by viewers of all languages, so its texts are
English unless it belongs to one language.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar

import pymongo
from pymongo.errors import PyMongoError

from linedesk.runtime.language import DEFAULT, speaking
from linedesk.store.errors import QueueError, RecvqClosed, SetupError

log = logging.getLogger(__name__)

Value = TypeVar("Value")

# For eight people who open different pages at once.
THREADS = 8
READ_SECONDS = 4.0
# A page waits so long for a new reading, then shows the last one.
PATIENCE_SECONDS = 0.5
FIRST_SECONDS = 1.5
# The longest pause after a failed reading.
AGAIN_SECONDS = 1.0
AWAY = "MongoDB does not answer"


class Away(Exception):
    """MongoDB did not answer in time, or `refused`. The text is English; `known` translates it."""

    def __init__(self, words: str, *, refused: bool = False) -> None:
        super().__init__(words)
        self.refused = refused


class LiveReader:
    """Threads that wait for MongoDB, so that the event loop does not."""

    def __init__(self, *, seconds: float = READ_SECONDS, spare_seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._spare_seconds = spare_seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console")

    async def run(self, function: Callable[[], Value]) -> Value:
        """Run a function with bounded waits for MongoDB, in the caller's language. Raises Away."""
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._threads, copy_context().run, self._bounded, function)
        try:
            # All threads may wait for a MongoDB that hangs.
            return await asyncio.wait_for(asked, self._seconds + self._spare_seconds)
        except (SetupError, RecvqClosed) as error:
            raise Away(str(error), refused=True) from error
        except (QueueError, PyMongoError, TimeoutError) as error:
            raise Away(f"{AWAY} ({type(error).__name__})") from error

    def close(self, *, wait: bool = False) -> None:
        """Accept no more reads; running reads end by themselves, in time."""
        self._threads.shutdown(wait=wait, cancel_futures=True)

    def _bounded(self, function: Callable[[], Value]) -> Value:
        with pymongo.timeout(self._seconds):
            return function()


@dataclass(frozen=True)
class LiveReading(Generic[Value]):
    """The last reading, its time, and why there is no newer one."""

    value: Value | None = None
    at: datetime | None = None
    trouble: str | None = None


class LiveReadings(Generic[Value]):
    """One reading each `every_seconds` while there are viewers; belongs to the event loop.

    `language` is the language of texts in it.
    """

    def __init__(
        self,
        reader: LiveReader,
        read: Callable[[], Value],
        *,
        every_seconds: float = 1.0,
        language: str = DEFAULT,
    ) -> None:
        self._reader = reader
        self._read = read
        self._every_seconds = every_seconds
        self._language = language
        self._latest: LiveReading[Value] = LiveReading()
        self._began = float("-inf")
        self._look: asyncio.Task[None] | None = None

    async def latest(self) -> LiveReading[Value]:
        """Return the newest reading, after a short wait for one that is due."""
        every = min(self._every_seconds, AGAIN_SECONDS if self._latest.trouble else math.inf)
        if self._look is None and time.monotonic() - self._began >= every:
            self._began = time.monotonic()
            self._look = asyncio.create_task(self._take())
        look = self._look
        if look is not None:
            first = self._latest.value is None
            # While MongoDB does not answer, pages do not wait each time.
            wait = FIRST_SECONDS if first else PATIENCE_SECONDS
            await asyncio.wait({look}, timeout=0.0 if self._latest.trouble else wait)
            if look.done():
                look.result()
        if self._latest.value is None and self._latest.trouble is None:
            return LiveReading(trouble=f"{AWAY} yet")
        return self._latest

    async def _take(self) -> None:
        try:
            # The task has the context, and so the language, of the viewer that came first.
            with speaking(self._language):
                value = await self._reader.run(self._read)
        except Away as error:
            if self._latest.trouble is None:
                log.warning("console data not read, trying again error=%s", error)
            self._latest = replace(self._latest, trouble=str(error))
        else:
            self._latest = LiveReading(value, at=datetime.now(UTC))
        finally:
            self._look = None
