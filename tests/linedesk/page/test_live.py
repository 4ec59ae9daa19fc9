"""Readings that all viewers share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from linedesk.page import live
from linedesk.page.live import LiveReader, LiveReading, LiveReadings
from linedesk.store.errors import StoreUnavailable

NEVER_SECONDS = 3600.0


@pytest.fixture
def reader() -> Iterator[LiveReader]:
    reader = LiveReader()
    yield reader
    reader.close(wait=True)


def test_after_a_failed_reading_the_next_is_not_put_off(
    reader: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves are read each ten seconds, and are back with MongoDB as soon as the rest."""
    monkeypatch.setattr(live, "AGAIN_SECONDS", 0.0)
    is_back, asked = threading.Event(), []

    def read() -> str:
        asked.append("again")
        if not is_back.is_set():
            raise StoreUnavailable("away")
        return "curves"

    async def look() -> tuple[LiveReading[str], LiveReading[str], int]:
        readings = LiveReadings(reader, read, every_seconds=NEVER_SECONDS)
        away = await readings.latest()
        is_back.set()
        while (found := await readings.latest()).value is None:
            await reader.run(lambda: None)
        count = len(asked)
        await readings.latest()
        return away, found, len(asked) - count

    away, found, more = asyncio.run(look())
    assert away.trouble is not None
    assert (found.value, found.trouble) == ("curves", None)
    # Readings without trouble are read as seldom as before.
    assert more == 0
