"""The limits of MongoDB and LINE, and the difference between the two orders of recvq. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

# MongoDB's limit of one document (its BSONObjMaxUserSize).
MOST_DOCUMENT_BYTES = 16 * 1024 * 1024
# A document inside another one: the event of a change stream, a row of `held`.
MOST_WRAPPED_BYTES = 15 * 1024 * 1024
# MongoDB refuses documents nested deeper than 180 levels. The documents around an event, or around
# the data of a conversation, need some of them.
MOST_LEVELS = 100

# With several writers a feed's order and recvq's natural order differed by up to 33 places in
# measurements. A document may therefore be unread although one up to this many places behind it in
# recvq was read.
ORDER_SLACK = 40
# Used where a larger difference would lose a document: twelve times that, since reading some
# documents again costs little. The measure of unread documents uses ORDER_SLACK: it counts those
# documents as unread, and they would fill a small recvq.
SAFE_ORDER_SLACK = 500

# LINE's reference, "Source user": ids of users begin with U, those of groups with C, those of rooms
# with R.
USER = "U"
# LINE's reference, "Reply token": valid for a minute from the webhook's arrival.
TOKEN_LIFE = timedelta(minutes=1)
# LINE's reference, "Send reply message": 1 to 5 message objects in one call.
MOST_MESSAGES = 5
# LINE's reference, "Send multicast message": 1 to 500 users in one call.
MOST_USERS = 500


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether a value has more than `levels` levels of objects and lists; checks no deeper."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    if levels == 0:
        return True
    # A generator takes twice as long, on the way of every decision.
    for part in value:  # noqa: SIM110
        if nests_deeper(part, levels - 1):
            return True
    return False
