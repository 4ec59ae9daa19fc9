"""The demo's conversation through the simulator, and the result of each event."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from linedesk.console.reading import rows_in
from linedesk.demo.environment import DemoEnvironment
from linedesk.settings.errors import DemoFailed
from linedesk.store.documents import CALLS
from linedesk.store.records.calls import REQUEST_ID
from linedesk.store.records.events import EVENT_ID

ANSWER_SECONDS = 15.0

# The dispatcher's log line, with --verbose, at the start of a handler.
_STARTED = re.compile(r" started event_id=(\S+) .*?since_accept_ms=([\d.]+)")


@dataclass(frozen=True)
class Person:
    """A user of the simulator."""

    name: str
    user_id: str


@dataclass(frozen=True)
class Deed:
    """One action of a user; `shown` is its text in the transcript.

    It is complete when the bot has answered, when its handler has started, or at once. `answer` is
    the exact answer of the bot, if there is only one.
    """

    who: Person
    shown: str
    act: Mapping[str, object]
    where: str = ""
    until: Literal["answered", "started", "stored"] = "answered"
    answer: str | None = None


@dataclass(frozen=True)
class BotAnswer:
    """One answer as received by LINE; `milliseconds` from sending the webhook to the call."""

    text: str
    milliseconds: float
    called_at: float = 0.0
    """When LINE received the call, in seconds of the simulator's clock."""


@dataclass
class Event:
    """The times of one event in every part, from sending its webhook."""

    deed: Deed
    event_id: str
    sent_at: float
    stored_ms: float
    started_ms: float | None = None
    answers: list[BotAnswer] = field(default_factory=list)


class DemoConversation:
    """Acts through the simulator and collects the results; `events` has all, in order."""

    def __init__(self, stage: DemoEnvironment) -> None:
        self._stage = stage
        self.events: list[Event] = []
        self.webhooks = 0

    def meet(self, name: str, *, friend: bool = False) -> Person:
        """A new user who has not added the bot, or did so long ago (`friend`)."""
        made = self._stage.post("/sim/users", {"name": name, "friend": friend})
        return Person(name, made["userId"])

    def gather(self, name: str, people: Sequence[Person]) -> str:
        """A new group with the bot not yet in it; returns its id."""
        members = [person.user_id for person in people]
        body = {"name": name, "members": members, "present": False}
        return str(self._stage.post("/sim/groups", body)["chatId"])

    def send(self, *deeds: Deed) -> tuple[int, list[Event]]:
        """One webhook with these deeds; returns its number and its events, stored and not yet
        handled. Raises DemoFailed if the front desk did not answer 200.
        """
        acts = [{"user": deed.who.user_id, **deed.act} for deed in deeds]
        delivery = self._stage.post("/sim/deliveries", {"acts": acts})
        self._require_stored(delivery)
        events = [
            Event(deed, event_id, delivery["started"], delivery["milliseconds"])
            for deed, event_id in zip(deeds, delivery["eventIds"], strict=True)
        ]
        self.events += events
        return delivery["number"], events

    def send_again(self, number: int) -> float:
        """The same webhook once more, as LINE redelivers it; returns the milliseconds to 200."""
        delivery = self._stage.post(f"/sim/deliveries/{number}/redeliver")
        self._require_stored(delivery)
        return float(delivery["milliseconds"])

    def wait_for(self, events: Sequence[Event]) -> None:
        """Wait until each event was handled, and has the expected answer.

        Raises DemoFailed if not.
        """
        try:
            self._stage.wait_for(
                lambda: self._all_done(events), "dispatcher", seconds=ANSWER_SECONDS
            )
        except DemoFailed as error:
            open_deeds = ", ".join(
                f"{e.deed.who.name} {e.deed.shown}" for e in events if not done(e)
            )
            raise DemoFailed(f"not answered: {open_deeds}: {error}") from error
        for event in events:
            _require_answer(event)

    def refresh(self) -> None:
        """Update the start and the answers of every event."""
        self._read_starts()
        self._read_answers()

    def _all_done(self, events: Sequence[Event]) -> bool:
        self.refresh()
        return all(done(event) for event in events)

    def _read_starts(self) -> None:
        starts = dict(_STARTED.findall(self._stage.log_of("dispatcher")))
        for event in self.events:
            if event.event_id in starts:
                event.started_ms = float(starts[event.event_id])

    def _read_answers(self) -> None:
        calls = [call for call in self._stage.get("/sim/calls") if call["accepted"]]
        written = self._stage.documents(CALLS, {})
        rows = {row[REQUEST_ID]: row for document in written for row in rows_in(document)}
        for event in self.events:
            event.answers = [
                BotAnswer(text, (call["started"] - event.sent_at) * 1000, call["started"])
                for call in calls
                if (text := text_for(event.event_id, call, rows.get(call.get(REQUEST_ID))))
            ]

    def _require_stored(self, delivery: Mapping[str, Any]) -> None:
        self.webhooks += 1
        if delivery["status"] != 200:
            said = delivery["status"] or delivery["error"]
            raise DemoFailed(f"the front desk did not store a webhook, it answered: {said}")


def done(event: Event) -> bool:
    """Whether the condition of its deed is met."""
    has_started = event.started_ms is not None
    return {
        "answered": has_started and bool(event.answers),
        "started": has_started,
        "stored": True,
    }[event.deed.until]


def _require_answer(event: Event) -> None:
    wanted = event.deed.answer
    if wanted is not None and (given := event.answers[0].text) != wanted:
        who, said = event.deed.who.name, event.deed.shown
        raise DemoFailed(f"{who} said {said} and was answered {given}, not {wanted}")


def text_for(event_id: str, call: Mapping[str, Any], row: Mapping[str, Any] | None) -> str:
    """The text of a call for an event; empty for other events.

    `row` is the row of `calls`, if it exists yet: answers that waited together are sent in one
    call, with the token of the last one.
    """
    events = [row[EVENT_ID], *(one[EVENT_ID] for one in row.get("also", ()))] if row else []
    messages = (call["body"] or {}).get("messages", ())
    if len(events) < 2 or len(events) != len(messages):
        return text_of(call) if call["eventId"] == event_id else ""
    own = [one for name, one in zip(events, messages, strict=True) if name == event_id]
    return text_of({"body": {"messages": own}})


def text_of(call: Mapping[str, Any]) -> str:
    """The text of a call."""
    return " / ".join(m.get("text") or f"({m['type']})" for m in call["body"]["messages"])
