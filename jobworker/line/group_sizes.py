"""How many people a push to a group or room reaches: LINE's count, asked before the first push of
a day there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from jobworker.errors import LineError
from jobworker.latest import Latest
from jobworker.line.answer import LineAnswer
from jobworker.line.month import people_in
from linedesk.store.limits import midnight

log = logging.getLogger(__name__)

# By the first letter of the id.
PATHS = {"C": "/v2/bot/group/{}/members/count", "R": "/v2/bot/room/{}/members/count"}
# The push waits as long; without an answer the next push after the pause asks again.
ASK_SECONDS = 2.0
AGAIN_AFTER = timedelta(minutes=10)
MOST_KNOWN = 10_000


class GroupSizes:
    """The counts of this process, for any thread. Without an answer of today an older one stays."""

    def __init__(
        self,
        get: Callable[..., LineAnswer] | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._get = get
        self._now = now
        # The count, and until when LINE is not asked again.
        self._known = Latest[str, tuple[int | None, datetime]](MOST_KNOWN)

    def people(self, to: Any) -> int | None:
        """Return how many people a push to this chat reaches; None if it is not known."""
        found = self._known.get(to) if isinstance(to, str) else None
        return None if found is None else found[0]

    def is_due(self, to: Any) -> bool:
        """Whether LINE has to be asked before a push to this chat."""
        if self._get is None or not isinstance(to, str) or to[:1] not in PATHS:
            return False
        found = self._known.get(to)
        return found is None or self._now() >= found[1]

    def ask(self, to: str, **context: Any) -> None:
        """Ask LINE, with a turn at the gate; the caller's push is sent whatever LINE answers."""
        get, path = self._get, PATHS[to[:1]]
        self._known[to] = self.people(to), self._now() + AGAIN_AFTER
        assert get is not None, "asked only where it is due"
        try:
            answer = get(path, to, limit_seconds=ASK_SECONDS, **context)
            self._known[to] = people_in(answer), midnight(self._now()) + timedelta(days=1)
        except (LineError, ValueError) as error:
            log.info("size of a group not known key=%s error=%s", to, error)
