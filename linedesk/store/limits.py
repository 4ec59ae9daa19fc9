"""What MongoDB and LINE allow, and how far two orders of recvq differ: each fact once. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

# MongoDB's limit of one document (its BSONObjMaxUserSize).
MOST_DOCUMENT_BYTES = 16 * 1024 * 1024
# The server's own documents may be 16 KB larger (its BSONObjMaxInternalSize).
MOST_INTERNAL_BYTES = MOST_DOCUMENT_BYTES + 16 * 1024
# A document that another one wraps: the event of a change stream, a row of `held`.
MOST_WRAPPED_BYTES = 15 * 1024 * 1024
# MongoDB refuses documents nested deeper than 180 levels. What wraps an event, or the data of a
# conversation, needs some of them.
MOST_LEVELS = 100

# With several writers a feed's order and recvq's natural order were seen to differ by up to 33
# places. So a document may be unread although one that stands up to so many places behind it in
# recvq was read.
ORDER_SLACK = 40
# Where a document would be lost if they ever differed by more: twelve times that, since reading
# some documents again costs little. The measure of what is unread takes ORDER_SLACK: it counts
# those documents as unread, and a small recvq would be full of them.
SAFE_ORDER_SLACK = 500

# LINE's reference, "Source user": ids of users begin with it, those of groups with C, rooms with R.
USER = "U"
# LINE's reference, "Reply token": good for a minute from the webhook's arrival.
TOKEN_LIFE = timedelta(minutes=1)
# LINE's reference, "Send reply message": 1 to 5 message objects in one call.
MOST_MESSAGES = 5
# LINE's reference, "Send multicast message": 1 to 500 users in one call.
MOST_USERS = 500


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether a value has more levels of objects and lists; looks no deeper than these."""
    if not isinstance(value, (Mapping, list, tuple)):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(nests_deeper(part, levels - 1) for part in parts)
