"""`batches`: one document for each multicast with sends of several conversations.

It has `{_id, epoch, at, state, members}`: the retry key, the leader's epoch, the time, and for each
member the conversation's `_id` and the `places` of its sends. The dispatcher inserts it open before
it claims the members, makes it ready before the call, and deletes it once the members have left.
"""

from __future__ import annotations

from typing import Any, Final

STATE: Final = "state"
OPEN = "open"
"""No call has been made: the claims of its members have no effect."""
READY = "ready"
"""A call may have been made: its members count as tried."""


def ready(id_: str) -> dict[str, Any]:
    """A filter that matches this document while its members count as tried."""
    return {"_id": id_, STATE: READY}
