"""The story of one event, made of its facts: the steps from the webhook to LINE's request id, or to
what holds it up.

Each step has its time, a sentence, and details for programs. Text that people wrote is in none of
them unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.console import dead_letters, processes
from linedesk.console.calls import (
    company_words,
    cost_words,
    reason_words,
    sends_of,
    wait_words,
)
from linedesk.console.conversation import names_of
from linedesk.console.dead_letters import last_replay
from linedesk.console.facts import Facts, leader, read_facts
from linedesk.console.format import as_json, brief, for_long
from linedesk.console.tracing import event_of
from linedesk.store.control import Pause
from linedesk.store.documents import Document
from linedesk.store.errors import translated
from linedesk.store.queue.replays import REPLAY
from linedesk.store.records.answers import BY, STATE, AnswerState, state_of
from linedesk.store.records.calls import PAID, REASON, REQUEST_ID, SENDS, CallRecord
from linedesk.store.records.effects import SEND, TRIED_AT
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import DEADLETTER, LAST_AT, REPLAYED_AT
from linedesk.store.records.runs import GATHERED_WITH, WAITED_MS
from linedesk.store.records.timers import ENDED_AT, RANG, RUN_AT, SET_ASIDE

Kind = Literal["received", "waits", "run", "send", "call", "timer", "letter", "replay", "unsend"]
# What is told of an effect: all but tokens, keys and texts.
EFFECT = ("id", "type", "way", "at", TRIED_AT, "as", "name", RUN_AT, "cause")
RUN = ("ms", "attempt", "outcome", "effects", "error", "thread", WAITED_MS, GATHERED_WITH)
CALL = (
    *("method", "endpoint", "status", REQUEST_ID, REASON),
    *("ms", "attempt", "class", WAITED_MS, PAID),
)
TIMER = ("_id", "name", "n", RUN_AT, "every", ENDED_AT, RANG, SET_ASIDE)


@dataclass(frozen=True)
class Step:
    """One thing that happened to the event, or that holds it up."""

    at: datetime | None
    """None where nobody wrote down when."""
    kind: Kind
    words: str
    facts: Document = field(default_factory=dict)


def steps_of(facts: Facts, *, text: bool = False) -> list[Step]:
    """All of them in the order of time; what has no time stands where it belongs."""
    found = [
        *_received(facts, text=text),
        *_taken_back(facts),
        *(_run(row, is_given_up=facts.letter is not None) for row in facts.runs),
        *(_on_its_way(effect, text=text) for effect in facts.effects),
        *_answer(facts),
        *(_call(row, facts.name) for row in facts.calls),
        *(_timer(row, facts) for row in facts.timers),
        *(_letter(row) for row in (facts.letter, *facts.letters) if row is not None),
        *_replays(facts),
        *_held(facts),
    ]
    dated = {id(step): step.at for step in found if step.at is not None}
    last = max(dated.values(), default=datetime.now(UTC))
    return sorted(found, key=lambda step: dated.get(id(step), last))


def what(facts: Facts) -> str:
    """What the event is: its type, and that of its message."""
    if facts.document is None:
        types = [str(row["type"]) for row in facts.runs if row.get("type")]
        return types[0] if types else "-"
    event = facts.document.get("event")
    return dead_letters.what({"document": {"event": event, "unsent": facts.was_unsent}})


def event_in(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """LINE's event in a document; one made by hand may hold anything there."""
    event = (document or {}).get("event")
    return event if isinstance(event, Mapping) else {}


def _received(facts: Facts, *, text: bool) -> Iterator[Step]:
    if facts.document is None:
        return
    event = event_in(facts.document)
    sent_at = _moment(event.get("timestamp"))
    details: Document = {"type": event.get("type"), "document": facts.document.get("_id")}
    if sent_at is not None:
        details["sentAt"] = sent_at
    if (event.get("deliveryContext") or {}).get("isRedelivery"):
        details["isRedelivery"] = True
    if event.get("mode") == "standby":
        details["mode"] = "standby"
    if text:
        details["event"] = {name: value for name, value in event.items() if name != "replyToken"}
    if event.get("type") == REPLAY:
        effect = (facts.replayed or {}).get("effect")
        details["effect"] = _details(effect, EFFECT) if isinstance(effect, Mapping) else {}
    at = facts.document.get(ACCEPT_TIME)
    words = {"timer": "a timer rang", REPLAY: "replayed: a send or timer anew"}
    yield Step(
        at if isinstance(at, datetime) else None,
        "received",
        words.get(str(event.get("type")), "received and stored, then confirmed to LINE"),
        details,
    )


def _moment(timestamp: Any) -> datetime | None:
    """LINE's milliseconds as a time."""
    if not isinstance(timestamp, (int, float)) or not 0 < timestamp < 32_503_680_000_000:
        return None
    return datetime.fromtimestamp(timestamp / 1000, UTC)


def _taken_back(facts: Facts) -> Iterator[Step]:
    if facts.was_unsent:
        words = "its message was taken back by its sender: the stored copies are empty"
        yield Step(None, "unsend", words)


RUNS = {
    "finished": "the handler decided nothing to do",
    "applied": "it had been decided before",
    "unheard": "passed over without its handler: taken back, or a timer that was set anew",
    "again": "could not be decided yet",
}


def _run(row: Document, *, is_given_up: bool) -> Step:
    outcome = row.get("outcome")
    effects = row.get("effects") or 0
    tried, error = row.get("attempt") or 1, row.get("error")
    if outcome == "recorded" and is_given_up:
        words = "recorded that it is given up"
    elif outcome == "recorded":
        words = (
            f"handled, {effects} {'send or timer' if effects == 1 else 'sends or timers'} recorded"
        )
    elif outcome == "failed":
        words = f"the handler failed, try {tried}: {error or 'an error'}"
    elif outcome == "gathered":
        words = f"handled together with {row.get(GATHERED_WITH)}"
    elif outcome == "timeout":
        words = f"the handler did not return, try {tried}"
    else:
        words = RUNS.get(str(outcome), f"ran: {outcome}")
        words += f": {error}" if error else ""
    took = "" if outcome == "again" else f" in {brief(_seconds(row))}"
    return Step(row.get("at"), "run", words + took, _details(row, RUN))


def _on_its_way(effect: Document, *, text: bool) -> Step:
    details = _details(effect, EFFECT)
    if isinstance(effect.get("messages"), list):
        details["messages"] = effect["messages"] if text else len(effect["messages"])
    kind = effect.get("type")
    if kind == "timer":
        return Step(
            effect.get("at"), "timer", f"the timer {effect.get('name')} is not set yet", details
        )
    if kind == DEADLETTER:
        cause = dead_letters.explained(effect.get("cause"))
        words = f"given up, its dead letter is on its way: {cause}"
        return Step(effect.get(LAST_AT), "letter", words, details)
    tried = "a try is of unknown outcome" if effect.get(TRIED_AT) else "LINE has not taken it yet"
    return Step(
        effect.get("at"), "send", f"a {effect.get('way')} waits in the outbox: {tried}", details
    )


def _answer(facts: Facts) -> Iterator[Step]:
    """What stands for an answer that comes too late for its reply token."""
    state, entry = state_of(facts.answer), facts.answer or {}
    words = {
        AnswerState.OFFERED: "LINE is asked to show a button, or was",
        AnswerState.SHOWN: "LINE shows a button, and the handler has not ended",
        AnswerState.WAITING: "the answer waits for a tap on its button, for a day at most",
        AnswerState.TAKEN: "the answer went to the outbox without a tap",
    }
    if state is not None:
        by = entry.get(BY)
        taken = f"a tap brought the answer to the outbox: {by}"
        yield Step(
            entry.get("at"), "send", taken if by else words[state], _details(entry, (STATE, BY))
        )


def _call(row: Document, name: str) -> Step:
    status = row.get("status")
    came = f"LINE answered {status}" if status else "no answer"
    if status == 409:
        came += " (it had it already)"
    words = f"{row.get('method')} {row.get('endpoint')}: {came} in {brief(_seconds(row))}"
    if (why := reason_words(row)) is not None:
        words += f" ({why})"
    more = (cost_words(row), company_words(row, name), wait_words(row))
    details = _details(row, CALL)
    if row.get("also"):
        # Its ids are other people's.
        details["sends"] = 1 + len(CallRecord.from_document(row).also)
    words = ", ".join([words, *(one for one in more if one is not None)])
    return Step(row.get("at"), "call", words, details)


def _seconds(row: Mapping[str, Any]) -> float | None:
    ms = row.get("ms")
    return ms / 1000 if isinstance(ms, (int, float)) else None


def _timer(row: Document, facts: Facts) -> Step:
    at = row.get(RUN_AT)
    name = row.get("name")
    if isinstance(at, datetime):
        words = f"set the timer {name}"
    else:
        words = f"the timer {name} of it has rung or was cancelled"
    run = facts.runs[-1] if facts.runs else {}
    ran, ms = run.get("at"), run.get("ms")
    when = ran + timedelta(milliseconds=ms or 0) if isinstance(ran, datetime) else None
    return Step(when, "timer", words, _details(row, TIMER))


def _letter(row: Document) -> Step:
    told = dead_letters.summary(row)
    tries = row.get("attempts")
    tried = f" after {tries} {'try' if tries == 1 else 'tries'}" if tries else ""
    words = f"given up{tried}: {told['explained']}"
    return Step(row.get(LAST_AT), "letter", f"{told['what']} {words}", told)


def _replays(facts: Facts) -> Iterator[Step]:
    for row in (facts.letter, *facts.letters):
        if row is not None and row.get("replays"):
            name = dead_letters.last_replay(row)
            begun = "a replay was begun" if row.get("replaying") else "replayed"
            yield Step(row.get(REPLAYED_AT), "replay", f"{begun} as {name}", {"replay": name})
    if facts.replayed is not None:
        id_ = facts.replayed["_id"]
        yield Step(None, "replay", f"it is a replay of the dead letter {id_}", {"letter": id_})


def _held(facts: Facts) -> Iterator[Step]:
    if facts.held is not None:
        behind = f", behind {facts.before} of its conversation" if facts.before else ""
        words = f"waits in held{behind}: {facts.held.get('why')}"
        yield Step(facts.held.get("since"), "waits", words, _details(facts.held, ("n", "why")))


def _details(row: Mapping[str, Any], names: tuple[str, ...]) -> Document:
    return {name.removeprefix("_"): row[name] for name in names if row.get(name) is not None}


READ_SECONDS = 10.0
DECIDED = ("recorded", "finished", "applied", "unheard", "gathered")
Stands = Literal[
    "waits", "in hand", "given up", "replayed", "sending", "answered", "done", "unknown"
]


@dataclass(frozen=True)
class Story:
    """What became of one event."""

    asked: str
    """The id by which it was asked for."""
    event_id: str
    channel: str | None
    key: str | None
    what: str
    """Its type, and that of its message."""
    stands: Stands
    verdict: str
    """Where it stands, in a sentence."""
    steps: list[Step]
    gaps: list[str]
    """What nobody can tell any more, or what did not happen, and why."""
    related: list[str]
    """Ids of other events that belong to it: the one that it was handled together with, of what it
    is a replay, and its own replays."""
    letters: list[str]
    """Ids of its dead letters, and of those of its effects, that were not replayed."""
    replay: str | None
    """The eventId of the newest replay of one of them."""
    name: str | None = None
    """The name in LINE of its user or group, where it is known."""

    def as_json(self) -> Document:
        """The same for programs."""
        told: Document = as_json(self)
        return told


def tell(database: Database[Any], asked: str, *, text: bool = False) -> Story:
    """The story of the event that an id means (see `tracing.event_of`).

    `text` tells what people wrote, too. Raises NoSuchEvent, StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        event = event_of(database, asked)
        facts = read_facts(database, event, row=leader(database))
        whose = "/".join(facts.conversation or ())
        name = names_of(database, [whose]).get(whose)
    return replace(story_of(facts, asked=asked, now=datetime.now(UTC), text=text), name=name)


def story_of(facts: Facts, *, asked: str, now: datetime, text: bool = False) -> Story:
    """A story of what is facts. Pure."""
    channel, key = facts.conversation or (None, None)
    stands, verdict = _verdict(facts, now)
    return Story(
        asked=asked,
        event_id=facts.name,
        channel=channel,
        key=key,
        what=what(facts),
        stands=stands,
        verdict=verdict,
        steps=steps_of(facts, text=text),
        gaps=list(_gaps(facts)),
        related=list(_related(facts)),
        letters=[str(row["_id"]) for row in _letters(facts) if not row.get(REPLAYED_AT)],
        replay=next((last_replay(row) for row in _replayed(facts)), None),
    )


def _verdict(facts: Facts, now: datetime) -> tuple[Stands, str]:
    if facts.letter is not None:
        return _given_up(facts.letter)
    if _is_decided(facts):
        return _decided(facts, now)
    return _undecided(facts, now)


def _given_up(letter: Mapping[str, Any]) -> tuple[Stands, str]:
    cause = dead_letters.explained(letter.get("cause"))
    if letter.get(REPLAYED_AT):
        return "replayed", f"given up ({cause}), and replayed since as {last_replay(letter)}"
    begun = "; a replay was begun and is not confirmed" if letter.get("replaying") else ""
    return "given up", f"given up: {cause}{begun}"


def _letters(facts: Facts) -> list[Document]:
    return [row for row in (facts.letter, *facts.letters) if row is not None]


def _replayed(facts: Facts) -> list[Document]:
    """The letters that were replayed, the newest replay first."""
    processes = [row for row in _letters(facts) if isinstance(row.get(REPLAYED_AT), datetime)]
    return sorted(processes, key=lambda row: row[REPLAYED_AT], reverse=True)


def _is_decided(facts: Facts) -> bool:
    last = facts.runs[-1].get("outcome") if facts.runs else None
    return last in DECIDED or facts.was_applied or (facts.is_finished and facts.held is None)


def _decided(facts: Facts, now: datetime) -> tuple[Stands, str]:
    sent = [row for row in facts.calls if CallRecord.from_document(row).is_sent]
    failed = [row for row in facts.letters if not row.get(REPLAYED_AT)]
    waiting = [one for one in facts.effects if one.get("type") == SEND]
    if failed:
        return (
            "given up",
            f"decided, but {_effects(len(failed))} given up: "
            f"{dead_letters.explained(failed[0]['cause'])}",
        )
    if waiting:
        return "sending", f"decided; {_in_outbox(len(waiting))}{_held_up(facts, now)}"
    if state_of(facts.answer) is AnswerState.WAITING:
        return "sending", "decided; a button is shown, and the answer waits for a tap on it"
    if (again := _replayed(facts)) and not sent:
        cause = dead_letters.explained(again[0].get("cause"))
        how = f"given up ({cause}), and replayed since as {last_replay(again[0])}"
        return "replayed", f"decided, but {_effects(len(again))} {how}"
    if sent:
        count = sum(max(1, sends_of(row, facts.name)) for row in sent)
        how = ", by a counted push," if any(row.get(PAID, 0) != 0 for row in sent) else ""
        return "answered", f"answered{how}{_after(facts, sent[0])}: LINE took {_times(count)}"
    if (first := _gathered_with(facts)) is not None:
        return "done", f"handled together with {first}; its story has the sends"
    if facts.runs and facts.runs[-1].get("outcome") == "unheard":
        return "done", "passed over: its message was taken back, or its timer was set anew"
    if event_in(facts.document).get("mode") == "standby":
        return "done", "decided; nothing is carried out, since the channel was in standby"
    return "done", "handled; no message was sent"


def _gathered_with(facts: Facts) -> str | None:
    """The message that it was handled together with."""
    last = facts.runs[-1] if facts.runs else {}
    return str(last.get(GATHERED_WITH)) if last.get("outcome") == "gathered" else None


def _in_outbox(count: int) -> str:
    if count == 1:
        return "one of its sends waits in the outbox"
    return f"{count} of its sends wait in the outbox"


def _held_up(facts: Facts, now: datetime) -> str:
    """Why they wait, as the dispatcher tells; else what LINE said last."""
    why = _why(facts) if processes.is_fresh(facts.row or {}, now=now) else None
    if why is not None:
        return f": {why}"
    last = facts.calls[-1] if facts.calls else {}
    if not last:
        return ""
    reason = reason_words(last)
    told = f"{last.get('status') or 'none'}{f' ({reason})' if reason else ''}"
    return f"; LINE's last answer was {told}"


def _effects(count: int) -> str:
    what = "one of its sends or timers was"
    return what if count == 1 else f"{count} of its sends or timers were"


def _times(count: int) -> str:
    return "one send" if count == 1 else f"{count} sends"


def _after(facts: Facts, call: Mapping[str, Any]) -> str:
    came, called = (facts.document or {}).get(ACCEPT_TIME), call.get("at")
    if not isinstance(came, datetime) or not isinstance(called, datetime):
        return ""
    took = (called - came).total_seconds() + (call.get("ms") or 0) / 1000
    return f" {brief(max(0.0, took))} after it came"


def _undecided(facts: Facts, now: datetime) -> tuple[Stands, str]:
    paused = facts.pauses.covering(*(facts.conversation or (None, None)))
    if paused:
        return "waits", f"waits: {_told(paused[0], now)}"
    row = facts.row or {}
    if not processes.is_fresh(row, now=now):
        return "waits", "waits: no dispatcher runs that holds the lease"
    doing = _of(row, "threads", EVENT_ID, facts.name)
    if doing is not None:
        ago = _ago(doing.get("since"), now)
        return "in hand", f"in progress{ago}: {doing.get('doing')} on {doing.get('name')}"
    why = _why(facts)
    if facts.held is not None:
        behind = f" behind {facts.before} others of its conversation" if facts.before else ""
        return "waits", f"waits{behind}: {why or facts.held.get('why')}"
    if why is not None:
        return "waits", f"waits: {why}"
    if facts.in_recvq:
        return "waits", "stored; a dispatcher reads it next, or handles it now"
    return "unknown", "its result is not known: the rows about it are overwritten"


def _told(pause: Pause, now: datetime) -> str:
    why = f" ({pause.why})" if pause.why else ""
    return f"{pause.scope} is paused{_ago(pause.at, now)} by {pause.by or 'an operator'}{why}"


def _ago(since: Any, now: datetime) -> str:
    is_known = isinstance(since, datetime)
    return f" for {for_long(max(0.0, (now - since).total_seconds()))}" if is_known else ""


def _why(facts: Facts) -> str | None:
    """Why its key waits, as the dispatcher tells."""
    channel, key = facts.conversation or (None, None)
    row = facts.row or {}
    own = _of(row, "waiting", EVENT_ID, facts.name)
    if own is not None:
        return str(own.get("why"))
    for one in processes.listed(row, "waiting"):
        if (one.get("channel"), one.get("key")) == (channel, key):
            return f"behind {one.get(EVENT_ID)} of its conversation: {one.get('why')}"
    return None


def _of(row: Mapping[str, Any], name: str, field: str, value: str) -> Mapping[str, Any] | None:
    return next((one for one in processes.listed(row, name) if one.get(field) == value), None)


def _gaps(facts: Facts) -> Iterator[str]:
    if not facts.in_recvq:
        yield "recvq has it no longer: it was overwritten since, or never stored here"
    decided = _is_decided(facts)
    if not facts.runs and (decided or facts.letter is not None):
        yield "no run of it stands in jobs: overwritten since, or it never ran a handler"
    if not decided or any(row.get("endpoint") in SENDS for row in facts.calls):
        return
    effects = facts.runs[-1].get("effects") if facts.runs else None
    if _gathered_with(facts) is not None:
        return
    if effects == 0:
        yield "no call was made: the handler returned nothing"
    elif not any((facts.calls, facts.effects, facts.letter, facts.letters, facts.timers)):
        yield "no call of it stands in calls: overwritten since, or none was made"


def _related(facts: Facts) -> Iterator[str]:
    if (first := _gathered_with(facts)) is not None:
        yield first
    if facts.replayed is not None:
        effect = facts.replayed.get("effect") or {}
        yield str(effect.get(EVENT_ID) or facts.replayed["_id"])
    for row in _letters(facts):
        for number in range(1, 1 + int(row.get("replays") or 0)):
            yield f"replay:{row['_id']}:{number}"
    event = event_in(facts.document)
    timer = event.get("timer")
    if isinstance(timer, Mapping) and isinstance(timer.get("id"), str):
        yield timer["id"]
