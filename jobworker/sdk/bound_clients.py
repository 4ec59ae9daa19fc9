"""Through which worker's clients the process calls LINE, where a bot uses line-bot-sdk.

Apart from the clients themselves, since the SDK takes most of a second to import: a process whose
bot never asks for it does without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobworker.errors import NotRunning

if TYPE_CHECKING:
    from jobworker.sdk.gated_client import SdkClients

# A process has one worker; where a test has several, the newest counts.
_bound: list[Callable[[], SdkClients]] = []


def bind(clients: Callable[[], SdkClients]) -> None:
    """From now on every ApiClient of the process calls through these; harmless a second time."""
    release(clients)
    _bound.append(clients)


def release(clients: Callable[[], SdkClients]) -> None:
    """Call through these no more; harmless if they were never bound."""
    if clients in _bound:
        _bound.remove(clients)


def bound() -> SdkClients:
    """The clients to call through. Raises NotRunning where there is no worker."""
    if not _bound:
        raise NotRunning(
            "LINE can be called only while linedesk runs the bot: in handlers, and in threads "
            "that wait for it, but not while the module is imported"
        )
    return _bound[-1]()
