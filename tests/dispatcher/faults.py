"""Failpoints of a mongod that was started with enableTestCommands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from linedesk.store.client import Client


@contextmanager
def failing(
    client: Client, commands: Sequence[str], *, times: int | None = None, **data: Any
) -> Iterator[None]:
    """While it is active, or this many times, the commands fail in the way that `data`
    describes.
    """
    point = {
        "configureFailPoint": "failCommand",
        "mode": "alwaysOn" if times is None else {"times": times},
        "data": {"failCommands": list(commands), **data},
    }
    client.admin.command(point)
    try:
        yield
    finally:
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
