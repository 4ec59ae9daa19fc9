"""Inserting under a guard that looks only when something is inserted, or is about to be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from recvq.guard import EVERY_SECONDS, Guard

# An insert within this time goes by a look that was taken for it.
SOON_SECONDS = 0.2


class Guarded:
    """Of one thread. A scheduler may be quiet for days, and then has nothing to look for."""

    def __init__(self, database: Database[Any]) -> None:
        self._guard = Guard(database)
        self._look_at = 0.0

    def look_ahead(self) -> None:
        """Look now rather than at the next insert, if that comes soon; raises as the guard does."""
        if time.monotonic() + SOON_SECONDS >= self._look_at:
            self._look()

    @contextmanager
    def inserting(self, size_bytes: int) -> Iterator[None]:
        """As the guard's own; raises RecvqClosed, and StoreUnavailable if it cannot look."""
        if time.monotonic() >= self._look_at:
            self._look()
        with self._guard.inserting(size_bytes):
            yield

    def _look(self) -> None:
        self._guard.look()
        self._look_at = time.monotonic() + EVERY_SECONDS
