"""The limits of MongoDB and LINE, and the difference between the two orders of recvq. Pure."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
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
# LINE's reference, "Rate limits": calls of most endpoints a second.
RATE = 2_000
# LINE's months and days are Japan's, which has no summer time.
TOKYO = timezone(timedelta(hours=9), "Asia/Tokyo")

# Answers whose reply token is too old (`jobworker.sending.late_replies`): the limit of paid calls a
# day of a conversation, and the share of the month's rest that all together may use a day.
A_DAY = 20
SHARE_A_DAY = 10


def allowed(left: int | None, paid: int) -> int | None:
    """How many more people the late answers of all conversations may reach today; None without a
    limit.

    `left` is the rest of the month. The rest of this morning contained the calls of today.
    """
    return None if left is None else max(0, (left + paid) // SHARE_A_DAY - paid)


def day_of(moment: datetime) -> date:
    """Return the day in Japan; `moment` is aware."""
    return moment.astimezone(TOKYO).date()


def midnight(now: datetime) -> datetime:
    """Return when the day began in Japan; `now` is aware."""
    return now.astimezone(TOKYO).replace(hour=0, minute=0, second=0, microsecond=0)


def sent_id(now: datetime) -> str:
    """Return the `_id` of the month's document in `leases`."""
    return f"sent/{now.astimezone(TOKYO):%Y-%m}"


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
