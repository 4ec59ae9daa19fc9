"""The worker's clients by which the process calls LINE, for bots that use line-bot-sdk.

Separate from the clients themselves, since importing the SDK takes most of a second: a process
whose bot never uses it does without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobworker.errors import NotRunning

if TYPE_CHECKING:
    from jobworker.sdk.gated_client import SdkClients

# A process has one worker; in a test with several, the newest counts.
_bound: list[Callable[[], SdkClients]] = []


def bind(clients: Callable[[], SdkClients]) -> None:
    """Make every ApiClient of the process use these from now on; harmless a second time."""
    release(clients)
    _bound.append(clients)


def release(clients: Callable[[], SdkClients]) -> None:
    """Use these no more; harmless if they were never bound."""
    if clients in _bound:
        _bound.remove(clients)


def bound() -> SdkClients:
    """Return the clients to call through. Raises NotRunning if there is no worker."""
    if not _bound:
        raise NotRunning(
            "LINE can be called only while linedesk runs the bot: in handlers, and in threads "
            "that wait for it, but not while the module is imported"
        )
    return _bound[-1]()
