"""The parts of a leader that its worker uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatcher.commit.committer import Committer
from dispatcher.conversations.conversations import Conversations


@dataclass(frozen=True)
class Leader:
    """Parts of the dispatcher that holds the lease."""

    committer: Committer
    """Makes the durable writes."""
    step: Callable[[Callable[[], None]], None]
    """Has a thread do something without a key, before any new job."""
    later: Callable[[float, Callable[[], None]], None]
    """Calls a function after so many seconds."""
    lease_is_fresh: Callable[[], bool]
    places: Callable[[int], None] = lambda jobs: None
    """Limits how many jobs run at a time."""
    known: Conversations = field(default_factory=Conversations)
