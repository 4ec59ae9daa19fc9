"""Timers that a handler sets and cancels, as effects: only the last one of each name counts.

An effect becomes a row in `schedule` after it is recorded; the dispatcher fires the row. Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from jobworker.errors import BotError, TalkEnded
from jobworker.record.conversations import STARTED, Decision
from linedesk.store.control import TimerOrder
from linedesk.store.documents import Document, name_of
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.timers import RUN_AT
from linedesk.store.recurrence import Recurrence
from linedesk.store.timers import EPOCH, RESERVED, START_TIMER, TIMER, check_name, timer_id

MOST_TIMERS = 100
# More than any bot needs, and well within a BSON date.
MOST_SECONDS = 100 * 366 * 24 * 3600.0
INVALID = "invalid timer"


def checked_name(name: object) -> str:
    """Return a name that a bot may give a timer. Raises BotError."""
    try:
        check_name(name)
    except ValueError as error:
        raise BotError(str(error), reason=INVALID) from error
    return str(name)


def checked_state(state: object) -> str:
    """Return a valid state. Raises BotError."""
    if not isinstance(state, str) or not state:
        raise BotError(f"a state is a text or None, not {state!r:.50}", reason="invalid state")
    return state


class Timers:
    """The timers of one event, collected while its handler runs."""

    def __init__(self, document: Document, *, member: str | None) -> None:
        self._document = document
        self._member = member
        self._effects: dict[str, Document] = {}
        self._ended = False

    def after(self, seconds: float, name: str, data: Mapping[str, Any], *, now: datetime) -> None:
        """Fire in this many seconds. Raises BotError."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise BotError(f"not a number of seconds: {type(seconds).__name__}", reason=INVALID)
        if not 0 <= seconds <= MOST_SECONDS:
            raise BotError("a timer fires in 0 seconds to 100 years", reason=INVALID)
        self.set(name, now + timedelta(seconds=seconds), None, data)

    def at(self, moment: datetime, name: str, data: Mapping[str, Any]) -> None:
        """Fire at the moment, at once if it is past. Raises BotError."""
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise BotError("a timer's moment is a datetime with a time zone", reason=INVALID)
        try:
            self.set(name, moment, None, data)
        except OverflowError as error:
            raise BotError(
                "a timer's moment is at the end of the calendar", reason=INVALID
            ) from error

    def every(self, at: str, name: str, data: Mapping[str, Any], *, tz: str, now: datetime) -> None:
        """Fire at each time of a rule in that zone; after its end none is set. Raises BotError."""
        try:
            rule = Recurrence.parse(at, tz, now=now)
        except (TypeError, ValueError) as error:
            raise BotError(str(error), reason=INVALID) from error
        due = rule.after(now)
        if due is None and not rule.has_end:
            raise BotError(f"not a time that ever comes: {at!r}", reason=INVALID)
        self.set(name, due, None if due is None else rule.as_document(), data)

    def cancel(self, name: str) -> None:
        """Cancel the timer of that name; harmless if there is none."""
        self.set(name, None, None, {})

    def effects(self) -> Iterator[Document]:
        """The effects to record; the record fills in `n`. No timer can be set afterwards."""
        self._ended = True
        yield from self._effects.values()

    def set(
        self,
        name: str,
        moment: datetime | None,
        every: Mapping[str, str] | None,
        data: Mapping[str, Any],
    ) -> None:
        """Fire at the moment, then by the rule `every` if there is one; None cancels it."""
        if self._ended:
            raise TalkEnded("the handler has ended: its talk sets no more timers")
        document, event_id = self._document, name_of(self._document)
        channel, key = document["channel"], document["key"]
        row_id = timer_id(channel, key, name, member=self._member)
        # A state's timer never exceeds the limit: a bot at its limit can still enter a state.
        is_one_more = row_id not in self._effects and not name.startswith(RESERVED)
        if is_one_more and len(self._effects) >= MOST_TIMERS:
            told = f"one event sets and cancels at most {MOST_TIMERS} timers"
            raise BotError(told, reason="too many timers")
        effect = {
            "id": f"{event_id}/timer/{name}",
            "type": TIMER,
            EVENT_ID: event_id,
            "timer": row_id,
            "channel": channel,
            "key": key,
            "name": name,
            "n": None,
            RUN_AT: None if moment is None else _rounded_up(moment),
            "every": every,
            # A copy, because the bot may change its object later.
            "data": copy.deepcopy(dict(data)),
            "source": document["event"].get("source"),
        }
        # Moved to the end, so that the effects are in the order of the decisions.
        self._effects.pop(row_id, None)
        self._effects[row_id] = effect


def decision_of(order: TimerOrder, id_: str, *, now: datetime) -> tuple[Document, Decision]:
    """The decision to set an ordered timer in a 1:1 conversation, and the document of its record.

    Its name is that of the order and the conversation, so it is recorded once.
    """
    channel, _slash, key = id_.partition("/")
    at = (order.at - EPOCH) // timedelta(milliseconds=1)
    document: Document = {
        "_id": ObjectId(),
        EVENT_ID: f"timers:{at}:{id_}/{order.name}",
        "channel": channel,
        "key": key,
        ACCEPT_TIME: order.at,
        "event": {"type": "timers", "source": {"type": "user", "userId": key}},
    }
    timers, due, timer = Timers(document, member=None), order.due(now), order.timer
    timers.set(order.name, due, timer["every"] if due else None, timer["data"])
    name = order.name.removeprefix(START_TIMER)
    started = {} if name == order.name else {f"{STARTED}.{name}": order.at}
    return document, Decision(started, list(timers.effects()))


def _rounded_up(moment: datetime) -> datetime:
    """Round up to the milliseconds of a BSON date, so that no timer fires early."""
    utc = moment.astimezone(UTC)
    return utc + timedelta(microseconds=-utc.microsecond % 1000)
