"""A store's one thread for calls that block, and whether the call under way ever comes back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from frontdesk.errors import KeysHeld, NotStored

log = logging.getLogger(__name__)
Result = TypeVar("Result")

# Every call of a store ends by its own time-outs well before this.
HANGING_SECONDS = 15.0


class CallingThread:
    """Makes blocking calls one at a time for one event loop, to which its methods belong."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._called_at: float | None = None

    @property
    def hangs(self) -> bool:
        """Whether the call under way has taken longer than any may."""
        return self._called_at is not None and time.monotonic() - self._called_at > HANGING_SECONDS

    async def call(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """What the call returns; raises NotStored whatever goes wrong, and KeysHeld."""
        loop = asyncio.get_running_loop()
        self._called_at = time.monotonic()
        try:
            return await loop.run_in_executor(self._thread, call, *arguments)
        except (NotStored, KeysHeld):
            raise
        except Exception as error:
            # The one job of this room: whatever went wrong with one group, the next may do.
            log.exception("storing failed")
            raise NotStored("storing failed") from error
        finally:
            self._called_at = None

    def end(self, *, wait: bool) -> None:
        """Let the thread end, after the call under way."""
        self._thread.shutdown(wait=wait, cancel_futures=True)
