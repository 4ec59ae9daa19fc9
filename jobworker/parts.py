"""What a worker is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from jobworker.around import no_content
from jobworker.conversations import Conversations
from jobworker.outbox import Outbox
from jobworker.profiles import LaterProfiles, ProfileFetch
from jobworker.running import Runs
from jobworker.schedule import Schedule
from jobworker.unsend import Unsends


@dataclass(frozen=True)
class Parts:
    """Handed over by whoever puts the worker together (`jobworker.assembly`)."""

    conversations: Conversations
    outbox: Outbox
    unsends: Unsends
    schedule: Schedule
    fetch: Callable[..., ProfileFetch]
    """Makes the fetch of a profile: `fetch(document, user_id, done=…)`."""
    names: LaterProfiles
    """Asks for what no answer waits for."""
    api: Callable[[], Any]
    """The SDK's MessagingApi, made when a handler asks for it."""
    later: Callable[[float, Callable[[], None]], None]
    lease_is_fresh: Callable[[], bool]
    runs: Runs
    """Counts and notes each run of a job."""
    content: Callable[..., Any] = no_content
    """Fetches what a user sent: `content(message, to)` (see `jobworker.content`)."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The bot's own settings."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The bot's own secrets."""
    masked: Callable[[str], str] = str
    """Takes every secret out of a text that is stored."""
