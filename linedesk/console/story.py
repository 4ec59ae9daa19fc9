"""The story of one event: from the webhook to LINE's request id, or to what holds it up.

What is known of an event as steps in words, each with its time. Pure.

Facts are values for programs and for those who look closer; what people wrote is never in them
unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.console import dead_letters, processes
from linedesk.console import facts as knowing
from linedesk.console.dead_letters import last_replay
from linedesk.console.facts import Facts
from linedesk.console.format import as_json, brief, for_long
from linedesk.console.tracing import event_of
from linedesk.store.documents import Document
from linedesk.store.errors import translated
from linedesk.store.orders import Pause
from linedesk.store.queue.replays import REPLAY
from linedesk.store.records.calls import REQUEST_ID
from linedesk.store.records.effects import TRIED_AT
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import DEADLETTER, LAST_AT, REPLAYED_AT
from linedesk.store.records.runs import WAITED_MS
from linedesk.store.records.timers import ENDED_AT, RANG, RUN_AT, SET_ASIDE

Kind = Literal["received", "waits", "run", "send", "call", "timer", "letter", "replay", "unsend"]
SENT = (200, 409)
SENDS = "/v2/bot/message/"
# What is told of an effect: all but tokens, keys and texts.
EFFECT = ("id", "type", "way", "at", TRIED_AT, "as", "name", RUN_AT, "cause")
RUN = ("ms", "attempt", "outcome", "effects", "error", "thread", WAITED_MS)
CALL = ("method", "endpoint", "status", REQUEST_ID, "ms", "attempt")
TIMER = ("_id", "name", "n", RUN_AT, "every", ENDED_AT, RANG, SET_ASIDE)


@dataclass(frozen=True)
class Step:
    """One thing that happened to the event, or that holds it up."""

    at: datetime | None
    """None where nobody wrote down when."""
    kind: Kind
    words: str
    facts: Document = field(default_factory=dict)


def steps_of(known: Facts, *, text: bool = False) -> list[Step]:
    """All of them in the order of time; what has no time stands where it belongs."""
    found = [
        *_received(known, text=text),
        *_taken_back(known),
        *(_run(row, is_given_up=known.letter is not None) for row in known.runs),
        *(_pending(effect, text=text) for effect in known.pending),
        *(_call(row) for row in known.calls),
        *(_timer(row, known) for row in known.timers),
        *(_letter(row) for row in (known.letter, *known.letters) if row is not None),
        *_replays(known),
        *_held(known),
    ]
    dated = {id(step): step.at for step in found if step.at is not None}
    last = max(dated.values(), default=datetime.now(UTC))
    return sorted(found, key=lambda step: dated.get(id(step), last))


def what(known: Facts) -> str:
    """What the event is: its type, and that of its message."""
    if known.document is None:
        types = [str(row["type"]) for row in known.runs if row.get("type")]
        return types[0] if types else "-"
    event = known.document.get("event")
    return dead_letters.what({"document": {"event": event, "unsent": known.was_unsent}})


def is_sent(row: Mapping[str, Any]) -> bool:
    """Whether a call brought a message to LINE; 409 says that it had it already."""
    return str(row.get("endpoint", "")).startswith(SENDS) and row.get("status") in SENT


def event_in(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """LINE's event in a document; one made by hand may hold anything there."""
    event = (document or {}).get("event")
    return event if isinstance(event, Mapping) else {}


def _received(known: Facts, *, text: bool) -> Iterator[Step]:
    if known.document is None:
        return
    event = event_in(known.document)
    sent_at = _moment(event.get("timestamp"))
    facts: Document = {"type": event.get("type"), "document": known.document.get("_id")}
    if sent_at is not None:
        facts["sentAt"] = sent_at
    if (event.get("deliveryContext") or {}).get("isRedelivery"):
        facts["isRedelivery"] = True
    if event.get("mode") == "standby":
        facts["mode"] = "standby"
    if text:
        facts["event"] = {name: value for name, value in event.items() if name != "replyToken"}
    if event.get("type") == REPLAY:
        effect = (known.replayed or {}).get("effect")
        facts["effect"] = _facts(effect, EFFECT) if isinstance(effect, Mapping) else {}
    at = known.document.get(ACCEPT_TIME)
    words = {"timer": "a timer rang", REPLAY: "replayed: a send or timer anew"}
    yield Step(
        at if isinstance(at, datetime) else None,
        "received",
        words.get(str(event.get("type")), "received, and stored before LINE had its 200"),
        facts,
    )


def _moment(timestamp: Any) -> datetime | None:
    """LINE's milliseconds as a time."""
    if not isinstance(timestamp, (int, float)) or not 0 < timestamp < 32_503_680_000_000:
        return None
    return datetime.fromtimestamp(timestamp / 1000, UTC)


def _taken_back(known: Facts) -> Iterator[Step]:
    if known.was_unsent:
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
        words = f"decided, {effects} effect{'' if effects == 1 else 's'} recorded"
    elif outcome == "failed":
        words = f"the handler failed, try {tried}: {error or 'an error'}"
    elif outcome == "timeout":
        words = f"the handler did not return, try {tried}"
    else:
        words = RUNS.get(str(outcome), f"ran: {outcome}")
        words += f": {error}" if error else ""
    took = "" if outcome == "again" else f" in {brief(_seconds(row))}"
    return Step(row.get("at"), "run", words + took, _facts(row, RUN))


def _pending(effect: Document, *, text: bool) -> Step:
    facts = _facts(effect, EFFECT)
    if isinstance(effect.get("messages"), list):
        facts["messages"] = effect["messages"] if text else len(effect["messages"])
    kind = effect.get("type")
    if kind == "timer":
        return Step(
            effect.get("at"), "timer", f"the timer {effect.get('name')} is not set yet", facts
        )
    if kind == DEADLETTER:
        words = f"given up, its dead letter is on its way: {effect.get('cause')}"
        return Step(effect.get(LAST_AT), "letter", words, facts)
    tried = "a try is of unknown outcome" if effect.get(TRIED_AT) else "LINE has not taken it yet"
    return Step(
        effect.get("at"), "send", f"a {effect.get('way')} waits in the outbox: {tried}", facts
    )


def _call(row: Document) -> Step:
    status = row.get("status")
    came = f"LINE answered {status}" if status else "no answer"
    if status == 409:
        came += " (it had it already)"
    words = f"{row.get('method')} {row.get('endpoint')}: {came} in {brief(_seconds(row))}"
    return Step(row.get("at"), "call", words, _facts(row, CALL))


def _seconds(row: Mapping[str, Any]) -> float | None:
    ms = row.get("ms")
    return ms / 1000 if isinstance(ms, (int, float)) else None


def _timer(row: Document, known: Facts) -> Step:
    at = row.get(RUN_AT)
    name = row.get("name")
    if isinstance(at, datetime):
        words = f"set the timer {name}"
    else:
        words = f"the timer {name} of it has rung or was cancelled"
    run = known.runs[-1] if known.runs else {}
    ran, ms = run.get("at"), run.get("ms")
    when = ran + timedelta(milliseconds=ms or 0) if isinstance(ran, datetime) else None
    return Step(when, "timer", words, _facts(row, TIMER))


def _letter(row: Document) -> Step:
    told = dead_letters.summary(row)
    tries = row.get("attempts")
    tried = f" after {tries} {'try' if tries == 1 else 'tries'}" if tries else ""
    words = f"given up{tried}: {row.get('cause')}"
    return Step(row.get(LAST_AT), "letter", f"{told['what']} {words}", told)


def _replays(known: Facts) -> Iterator[Step]:
    for row in (known.letter, *known.letters):
        if row is not None and row.get("replays"):
            name = dead_letters.last_replay(row)
            begun = "a replay was begun" if row.get("replaying") else "replayed"
            yield Step(row.get(REPLAYED_AT), "replay", f"{begun} as {name}", {"replay": name})
    if known.replayed is not None:
        id_ = known.replayed["_id"]
        yield Step(None, "replay", f"it is a replay of the dead letter {id_}", {"letter": id_})


def _held(known: Facts) -> Iterator[Step]:
    if known.held is not None:
        behind = f", behind {known.before} of its conversation" if known.before else ""
        words = f"waits in held{behind}: {known.held.get('why')}"
        yield Step(known.held.get("since"), "waits", words, _facts(known.held, ("n", "why")))


def _facts(row: Mapping[str, Any], names: tuple[str, ...]) -> Document:
    return {name.removeprefix("_"): row[name] for name in names if row.get(name) is not None}


READ_SECONDS = 10.0
DECIDED = ("recorded", "finished", "applied", "unheard")
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
    """Ids of other events that belong to it: of what it is a replay, and its own replays."""
    letters: list[str]
    """Ids of its dead letters, and of those of its effects, that were not replayed."""
    replay: str | None
    """The eventId of the newest replay of one of them."""

    def as_json(self) -> Document:
        """The same for programs."""
        told: Document = as_json(self)
        return told


def tell(database: Database[Any], asked: str, *, text: bool = False) -> Story:
    """The story of the event that an id means (see `tracing.event_of`).

    `text` tells what people wrote, too. Raises NoSuchEvent, StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        name = event_of(database, asked)
        known = knowing.read(database, name, row=knowing.leader(database))
    return story_of(known, asked=asked, now=datetime.now(UTC), text=text)


def story_of(known: Facts, *, asked: str, now: datetime, text: bool = False) -> Story:
    """A story of what is known. Pure."""
    channel, key = known.conversation or (None, None)
    stands, verdict = _verdict(known, now)
    return Story(
        asked=asked,
        event_id=known.name,
        channel=channel,
        key=key,
        what=what(known),
        stands=stands,
        verdict=verdict,
        steps=steps_of(known, text=text),
        gaps=list(_gaps(known)),
        related=list(_related(known)),
        letters=[str(row["_id"]) for row in _letters(known) if not row.get(REPLAYED_AT)],
        replay=next((last_replay(row) for row in _replayed(known)), None),
    )


def _verdict(known: Facts, now: datetime) -> tuple[Stands, str]:
    if known.letter is not None:
        return _given_up(known.letter)
    if _is_decided(known):
        return _decided(known)
    return _undecided(known, now)


def _given_up(letter: Mapping[str, Any]) -> tuple[Stands, str]:
    cause = letter.get("cause")
    if letter.get(REPLAYED_AT):
        return "replayed", f"given up ({cause}), and replayed since as {last_replay(letter)}"
    begun = "; a replay was begun and is not confirmed" if letter.get("replaying") else ""
    return "given up", f"given up: {cause}{begun}"


def _letters(known: Facts) -> list[Document]:
    return [row for row in (known.letter, *known.letters) if row is not None]


def _replayed(known: Facts) -> list[Document]:
    """The letters that were replayed, the newest replay first."""
    processes = [row for row in _letters(known) if isinstance(row.get(REPLAYED_AT), datetime)]
    return sorted(processes, key=lambda row: row[REPLAYED_AT], reverse=True)


def _is_decided(known: Facts) -> bool:
    last = known.runs[-1].get("outcome") if known.runs else None
    return last in DECIDED or known.was_applied or (known.is_finished and known.held is None)


def _decided(known: Facts) -> tuple[Stands, str]:
    sent = [row for row in known.calls if is_sent(row)]
    failed = [row for row in known.letters if not row.get(REPLAYED_AT)]
    waiting = [one for one in known.pending if one.get("type") == "send"]
    if failed:
        return (
            "given up",
            f"decided, but {_effects(len(failed))} given up: {failed[0]['cause']}",
        )
    if waiting:
        last = known.calls[-1] if known.calls else {}
        why = f"; LINE's last answer was {last.get('status') or 'none'}" if last else ""
        return "sending", f"decided; {len(waiting)} of its sends wait in the outbox{why}"
    if (again := _replayed(known)) and not sent:
        how = f"given up ({again[0].get('cause')}), and replayed since as {last_replay(again[0])}"
        return "replayed", f"decided, but {_effects(len(again))} {how}"
    if sent:
        return "answered", f"answered{_after(known, sent[0])}: LINE took {_times(len(sent))}"
    if known.runs and known.runs[-1].get("outcome") == "unheard":
        return "done", "passed over: its message was taken back, or its timer was set anew"
    if event_in(known.document).get("mode") == "standby":
        return "done", "decided; nothing is carried out, since the channel was in standby"
    return "done", "handled; no message was sent"


def _effects(count: int) -> str:
    return "one of its effects was" if count == 1 else f"{count} of its effects were"


def _times(count: int) -> str:
    return "one send" if count == 1 else f"{count} sends"


def _after(known: Facts, call: Mapping[str, Any]) -> str:
    came, called = (known.document or {}).get(ACCEPT_TIME), call.get("at")
    if not isinstance(came, datetime) or not isinstance(called, datetime):
        return ""
    took = (called - came).total_seconds() + (call.get("ms") or 0) / 1000
    return f" {brief(max(0.0, took))} after it came"


def _undecided(known: Facts, now: datetime) -> tuple[Stands, str]:
    paused = known.pauses.covering(*(known.conversation or (None, None)))
    if paused:
        return "waits", f"waits: {_told(paused[0], now)}"
    row = known.row or {}
    if not processes.is_fresh(row, now=now):
        return "waits", "waits: no dispatcher runs that holds the lease"
    doing = _of(row, "threads", EVENT_ID, known.name)
    if doing is not None:
        ago = _ago(doing.get("since"), now)
        return "in hand", f"in hand{ago}: {doing.get('doing')} on {doing.get('name')}"
    why = _why(known)
    if known.held is not None:
        behind = f" behind {known.before} others of its conversation" if known.before else ""
        return "waits", f"waits{behind}: {why or known.held.get('why')}"
    if why is not None:
        return "waits", f"waits: {why}"
    if known.in_recvq:
        return "waits", "stored, and neither decided nor held: about to be read, or in hand"
    return "unknown", "nothing tells any more what became of it"


def _told(pause: Pause, now: datetime) -> str:
    why = f" ({pause.why})" if pause.why else ""
    return f"{pause.scope} is paused{_ago(pause.at, now)} by {pause.by or 'somebody'}{why}"


def _ago(since: Any, now: datetime) -> str:
    known = isinstance(since, datetime)
    return f" for {for_long(max(0.0, (now - since).total_seconds()))}" if known else ""


def _why(known: Facts) -> str | None:
    """Why its key waits, as the dispatcher tells."""
    channel, key = known.conversation or (None, None)
    row = known.row or {}
    own = _of(row, "waiting", EVENT_ID, known.name)
    if own is not None:
        return str(own.get("why"))
    for one in processes.listed(row, "waiting"):
        if (one.get("channel"), one.get("key")) == (channel, key):
            return f"behind {one.get(EVENT_ID)} of its conversation: {one.get('why')}"
    return None


def _of(row: Mapping[str, Any], name: str, field: str, value: str) -> Mapping[str, Any] | None:
    return next((one for one in processes.listed(row, name) if one.get(field) == value), None)


def _gaps(known: Facts) -> Iterator[str]:
    if not known.in_recvq:
        yield "recvq has it no longer: it was overwritten since, or never stored here"
    decided = _is_decided(known)
    if not known.runs and (decided or known.letter is not None):
        yield "no run of it stands in jobs: overwritten since, or it never ran a handler"
    if not decided or any(str(row.get("endpoint", "")).startswith(SENDS) for row in known.calls):
        return
    effects = known.runs[-1].get("effects") if known.runs else None
    if effects == 0:
        yield "no call was made: the handler returned nothing"
    elif not any((known.calls, known.pending, known.letter, known.letters, known.timers)):
        yield "no call of it stands in calls: overwritten since, or none was made"


def _related(known: Facts) -> Iterator[str]:
    if known.replayed is not None:
        effect = known.replayed.get("effect") or {}
        yield str(effect.get(EVENT_ID) or known.replayed["_id"])
    for row in _letters(known):
        for number in range(1, 1 + int(row.get("replays") or 0)):
            yield f"replay:{row['_id']}:{number}"
    event = event_in(known.document)
    timer = event.get("timer")
    if isinstance(timer, Mapping) and isinstance(timer.get("id"), str):
        yield timer["id"]
