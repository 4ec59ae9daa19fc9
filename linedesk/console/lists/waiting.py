"""The events that wait in a paused scope, and the cost of their answers.

An event that waits longer than its reply token lives is answered by a counted push, by the rule of
`jobworker.sending.late_replies`. Further answers become dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pymongo
from pymongo.database import Database

from jobworker.line.today import day_of
from jobworker.sending.late_replies import A_DAY, allowed
from linedesk.console.facts import present_leader
from linedesk.console.processes import ProcessRow
from linedesk.runtime.language import gettext as _
from linedesk.store.control import Control, Scope
from linedesk.store.documents import CONVERSATIONS, HELD, Document
from linedesk.store.errors import translated
from linedesk.store.limits import MOST_MESSAGES, TOKEN_LIFE, USER
from linedesk.store.records.events import ACCEPT_TIME

MOST_EVENTS = 10_000
# An open page counts every two seconds.
MOST_ON_PAGE = 1_000
READ_SECONDS = 10.0


@dataclass(frozen=True)
class Waiting:
    """The held events of a scope, and the fate of their answers if each is answered once."""

    a_day: int = A_DAY
    """How many late answers one conversation may cost a day."""
    events: int = 0
    is_more: bool = False
    """Whether more may wait: not all were counted, or the dispatcher has not read all."""
    pushes: int = 0
    """The most pushes that they cost."""
    letters: tuple[int, int] = (0, 0)
    """The fewest and the most answers that become dead letters: a push can carry five."""

    def __str__(self) -> str:
        count = f"{self.events:,}"
        told = _("at least {count}").format(count=count) if self.is_more else count
        if not self.pushes and not self.letters[1]:
            return _("waiting events: {count}").format(count=told)
        fewest, letters = (f"{one:,}" for one in self.letters)
        if fewest != letters:
            letters = _("{first} to {last}").format(first=fewest, last=letters)
        words = _(
            "waiting events: {count}; if each is answered, up to {pushes} counted pushes go out, "
            "and {letters} answers become dead letters"
        )
        return words.format(count=told, pushes=f"{self.pushes:,}", letters=letters)

    def while_paused(self) -> str:
        """Return what becomes of answers during a pause."""
        return _(
            "answers to events that wait for over a minute become counted pushes: at most {count} "
            "a day for each conversation, and a tenth of the month's rest for all together. "
            "Further answers become dead letters"
        ).format(count=self.a_day)


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
    late = [(one["late"], max(0, a_day - paid.get(id_, 0))) for id_, one in groups.items()]
    in_all = _allowed(figures)
    users = f"/{USER}"
    costs_one = in_all is None or all(users in id_ for id_, one in groups.items() if one["late"])
    is_cut = sum(one["events"] for one in found) > most
    return Waiting(
        a_day,
        min(most, sum(one["events"] for one in groups.values())),
        leader is None or is_cut or bool(figures.number("lagDocuments")),
        *_fates(late, in_all, costs_one=costs_one),
    )


def _allowed(figures: ProcessRow) -> int | None:
    """Return how many late answers all conversations may cost now; None without a limit."""
    if figures.number("quotaClosedSinceSeconds") is not None:
        return 0
    most, used = figures.number("quotaMessages"), figures.number("quotaUsedMessages")
    if most is None or used is None:
        return None
    return allowed(max(0, int(most - used)), int(figures.number("lateRepliesToday") or 0))


def _fates(
    late: Sequence[tuple[int, int]], in_all: int | None, *, costs_one: bool
) -> tuple[int, tuple[int, int]]:
    """Return the most pushes, and the fewest and the most dead letters.

    `late` has the late answers of each conversation, and how many calls it may cost. A push to a
    group costs one for each member, so without `costs_one` fewer pushes may use up `in_all`.
    """
    count = sum(answers for answers, _ in late)
    pushes = sum(min(one) for one in late)
    # The calls of each conversation, if they carry as many answers as fit.
    calls = [
        min(MOST_MESSAGES, answers - start)
        for answers, may_cost in late
        for start in islice(range(0, answers, MOST_MESSAGES), may_cost)
    ]
    if in_all is not None:
        pushes, calls = min(pushes, in_all), sorted(calls, reverse=True)[:in_all]
    return pushes, (count - sum(calls), count - pushes if costs_one else count)
