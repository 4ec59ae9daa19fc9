"""`batches`: one document for each multicast with sends of several conversations.

It has `{_id, at, state, members}`: the retry key, the time, and for each member the conversation's
`_id` and the `places` of its sends. The dispatcher inserts it with the claims of its members before
the call, and deletes it with them after LINE's verdict.
"""

from __future__ import annotations

from typing import Any, Final

STATE: Final = "state"
READY = "ready"
"""A call may have been made: its members count as tried."""


def ready(id_: str) -> dict[str, Any]:
    """A filter that matches this document while its members count as tried."""
    return {"_id": id_, STATE: READY}
