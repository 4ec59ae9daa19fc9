"""Timers in the demo: moves linesim's clock to a timer's time and waits for the messages that
follow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from linedesk.demo.conversation import Person, text_of
from linedesk.demo.environment import DemoEnvironment
from linedesk.settings.errors import DemoFailed
from linedesk.store.documents import RECVQ, SCHEDULE
from linedesk.store.timers import TIMER

FIRE_SECONDS = 15.0
# The clock is moved to this time before a timer's time and passes it by itself. This shows the
# delay of the message, and that none is early.
LEAD_SECONDS = 0.5
# Time-outs of states, which send no message by themselves, have names with this prefix.
_OF_A_BOT = {"$not": {"$regex": "^~"}}


@dataclass(frozen=True)
class DemoTimer:
    """A message of a timer: `due` is the timer's time, `late_ms` the delay until LINE got it.

    Both by linesim's clock.
    """

    who: Person
    text: str
    due: datetime
    late_ms: float


class DemoTimers:
    """Moves the clock and collects the messages; `all` has every timer's message, in order."""

    def __init__(self, stage: DemoEnvironment) -> None:
        self._stage = stage
        self.all: list[DemoTimer] = []

    def advance_to_next(self, *, waiting: int) -> float:
        """Move the clock to half a second before the next timer, once `waiting` timers wait.

        Returns the seconds moved. Raises DemoFailed.
        """
        due = self._stage.wait_for(lambda: self._next(waiting), "dispatcher", seconds=FIRE_SECONDS)
        seconds: float = due.timestamp() - LEAD_SECONDS - self._stage.get("/sim/clock")["now"]
        if seconds > 0:
            self._stage.post("/sim/clock", {"advance": seconds})
        return max(seconds, 0.0)

    def wait_for(self, expected: Sequence[tuple[Person, str]]) -> list[DemoTimer]:
        """Wait until exactly these messages of timers arrived, each for the user named.

        Raises DemoFailed, also if one arrived before its time.
        """
        known = len(self.all)
        people = [who for who, _ in expected]
        self._stage.wait_for(
            lambda: len(self._heard()) >= known + len(expected), "dispatcher", seconds=FIRE_SECONDS
        )
        came = [_timer(people, *heard) for heard in self._heard()[known:]]
        if Counter((timer.who, timer.text) for timer in came) != Counter(expected):
            raise DemoFailed(f"the timers sent {[timer.text for timer in came]}")
        for timer in came:
            if timer.late_ms < 0:
                raise DemoFailed(f"{timer.text} was {-timer.late_ms:.1f} ms early")
        self.all += came
        return came

    def require_no_more(self) -> None:
        """Raise DemoFailed if more messages arrived than expected."""
        more = [text_of(call) for call, _ in self._heard()[len(self.all) :]]
        if more:
            raise DemoFailed(f"the timers sent more than expected: {more}")

    def _next(self, waiting: int) -> datetime | None:
        """The time of the next timer if exactly `waiting` timers wait."""
        rows = self._stage.documents(SCHEDULE, {"runAt": {"$type": "date"}, "name": _OF_A_BOT})
        return min(row["runAt"] for row in rows) if len(rows) == waiting else None

    def _heard(self) -> list[tuple[Mapping[str, Any], datetime | None]]:
        """Every push that LINE accepted, with the due time of its timer, if it has one.

        Pushes sent in one call are separated: each timer sends one message.
        """
        pushes = [
            call | {"body": {"messages": [message]}}
            for call in self._stage.get("/sim/calls")
            if call["accepted"] and call["endpoint"] == "push"
            for message in call["body"]["messages"]
        ]
        due = self._due()
        return [(push, next(due[push["chatId"]], None)) for push in pushes]

    def _due(self) -> Mapping[str, Iterator[datetime]]:
        """By key, the due times of the timers that fired, in the order of the queue."""
        query = {"event.type": TIMER, f"event.{TIMER}.name": _OF_A_BOT}
        due: defaultdict[str, list[datetime]] = defaultdict(list)
        for document in self._stage.documents(RECVQ, query):
            due[document["key"]].append(document["event"][TIMER]["runAt"])
        return defaultdict(lambda: iter(()), {key: iter(moments) for key, moments in due.items()})


def _timer(people: Sequence[Person], call: Mapping[str, Any], due: datetime | None) -> DemoTimer:
    who = next((each for each in people if each.user_id == call["chatId"]), None)
    if who is None or due is None:
        raise DemoFailed(f"{text_of(call)} reached another user, or has no timer")
    return DemoTimer(who, text_of(call), due, call["at"] - round(due.timestamp() * 1000))
