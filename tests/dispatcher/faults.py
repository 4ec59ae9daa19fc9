"""Failpoints of a mongod that was started with enableTestCommands."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from linedesk.store.client import Client


@contextmanager
def failing(
    client: Client, commands: Sequence[str], *, times: int | None = None, **data: Any
) -> Iterator[Callable[[], bool]]:
    """While it is active, or this many times, the commands fail in the way that `data`
    describes. Returns whether one has failed.
    """
    point = {
        "configureFailPoint": "failCommand",
        "mode": "alwaysOn" if times is None else {"times": times},
        "data": {"failCommands": list(commands), **data},
    }
    off = {"configureFailPoint": "failCommand", "mode": "off"}
    before = client.admin.command(point)["count"]

    def has_failed() -> bool:
        found = client.admin.command("getParameter", 1, **{"failpoint.failCommand": 1})
        return bool(found["failpoint.failCommand"]["timesEntered"] > before)

    try:
        yield has_failed
    finally:
        client.admin.command(off)
