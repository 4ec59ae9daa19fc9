"""The pause of everything; the events that wait in a paused scope, and the cost of their answers.

An event that waits longer than its reply token lives is answered by a counted push, by the rule of
`jobworker.sending.late_replies`. Further answers become dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.operate.conversation import channels_of
from linedesk.operate.processes import ProcessRow, present_leader
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import Control, Pause, Scope
from linedesk.store.documents import CONVERSATIONS, HELD, Document
from linedesk.store.errors import translated
from linedesk.store.limits import A_DAY, TOKEN_LIFE, USER, allowed, day_of
from linedesk.store.records.events import ACCEPT_TIME

MOST_EVENTS = 10_000
# An open page counts every two seconds.
MOST_ON_PAGE = 1_000
READ_SECONDS = 10.0

COST_OF_PAUSE = mark(
    "answers to events that wait for over a minute become counted pushes, as LATE_REPLIES_A_DAY "
    "allows for each conversation, and up to a tenth of the month's rest for all together. "
    "Further answers become dead letters"
)


@dataclass(frozen=True)
class Waiting:
    """The held events of a scope, and the fate of their answers if each is answered once."""

    events: int
    is_more: bool
    """Whether more may wait: not all were counted, or the dispatcher has not read all."""
    pushes: int
    """The most pushes that they cost."""
    letters: int
    """The most answers that become dead letters: a push can carry five."""

    def __str__(self) -> str:
        count = f"{self.events:,}"
        told = _("at least {count}").format(count=count) if self.is_more else count
        if not self.pushes and not self.letters:
            return _("waiting events: {count}").format(count=told)
        words = _(
            "waiting events: {count}; if each is answered, up to {pushes} counted pushes go out, "
            "and up to {letters} answers become dead letters"
        )
        return words.format(count=told, pushes=f"{self.pushes:,}", letters=f"{self.letters:,}")


def read_waiting(database: Database[Any], scope: Scope, *, most: int = MOST_EVENTS) -> Waiting:
    """Count what waits in a scope and in no other pause; at most `most` events are read.

    Raises StoreUnavailable.
    """
    now = datetime.now(UTC)
    has_token = {"$gt": ["$document.event.replyToken", ""]}
    is_late = {"$and": [has_token, {"$lt": [f"$document.{ACCEPT_TIME}", now - TOKEN_LIFE]}]}
    group = {
        "_id": {"channel": "$channel", "key": "$key"},
        "events": {"$sum": 1},
        "late": {"$sum": {"$cond": [is_late, 1, 0]}},
    }
    whose = {name: value for name, value in vars(scope).items() if value is not None}
    with translated(), pymongo.timeout(READ_SECONDS):
        leader = present_leader(database)
        others = [one.scope for one in Control(database).read().rows if one.scope != scope]
        stages: list[Document] = [{"$match": whose}, {"$limit": most + 1}, {"$group": group}]
        found = list(database[HELD].aggregate(stages))
        groups = {
            f"{channel}/{key}": one
            for one in found
            for channel, key in [(one["_id"].get("channel"), one["_id"].get("key"))]
            if not any(other.covers(channel, key) for other in others)
        }
        today = {"_id": {"$in": list(groups)}, "late.day": day_of(now).isoformat()}
        rows = database[CONVERSATIONS].find(today, {"late.calls": 1})
        paid = {row["_id"]: row["late"].get("calls", 0) for row in rows}
    figures = ProcessRow(figures=dict((leader or {}).get("figures") or {}))
    told = figures.number("lateRepliesADay")
    a_day = A_DAY if told is None else int(told)
    late = {id_: one["late"] for id_, one in groups.items() if one["late"]}
    pushes = sum(min(count, max(0, a_day - paid.get(id_, 0))) for id_, count in late.items())
    in_all = _allowed(figures)
    # A push to a group costs one for each member, so fewer pushes may use up what is allowed.
    is_sure = in_all is None or all(f"/{USER}" in id_ for id_ in late)
    pushes = pushes if in_all is None else min(pushes, in_all)
    letters = sum(late.values()) - (pushes if is_sure else 0)
    count = sum(one["events"] for one in groups.values())
    is_cut = sum(one["events"] for one in found) > most
    is_more = leader is None or is_cut or bool(figures.number("lagDocuments"))
    return Waiting(min(most, count), is_more, pushes, letters)


def _allowed(figures: ProcessRow) -> int | None:
    """Return how many late answers all conversations may cost now; None without a limit."""
    if figures.number("quotaClosedSinceSeconds") is not None:
        return 0
    most, used = figures.number("quotaMessages"), figures.number("quotaUsedMessages")
    if most is None or used is None:
        return None
    return allowed(max(0, int(most - used)), int(figures.number("lateRepliesToday") or 0))


def pause_of_everything(database: Database[Any], *, own: str) -> Pause | None:
    """Return the pause of everything, or of the only channel, which is the same.

    `own` is the channel of the settings. Raises StoreUnavailable.
    """
    pauses = Control(database).read()
    wide = [one for one in pauses.rows if one.scope.key is None]
    if not wide:
        return None
    channels = channels_of(database, own=own, pauses=pauses)
    covering = (one for one in wide if one.scope.channel is None or channels == [one.scope.channel])
    return next(covering, None)
