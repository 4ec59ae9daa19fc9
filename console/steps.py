"""What is known of an event as steps in words, each with its time. Pure.

Facts are values for programs and for those who look closer; what people wrote is never in them
unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from console import letters
from console.known import Known
from console.words import brief
from recvq.documents import Document
from recvq.replay import REPLAY

Kind = Literal["received", "waits", "run", "send", "call", "timer", "letter", "replay", "unsend"]
SENT = (200, 409)
SENDS = "/v2/bot/message/"
# What is told of an effect: all but tokens, keys and texts.
EFFECT = ("id", "type", "way", "at", "triedAt", "as", "name", "runAt", "cause")
RUN = ("ms", "attempt", "outcome", "effects", "error", "thread", "waitedMs")
CALL = ("method", "endpoint", "status", "requestId", "ms", "attempt")
TIMER = ("_id", "name", "n", "runAt", "every", "endedAt", "rang", "setAside")


@dataclass(frozen=True)
class Step:
    """One thing that happened to the event, or that holds it up."""

    at: datetime | None
    """None where nobody wrote down when."""
    kind: Kind
    words: str
    facts: Document = field(default_factory=dict)


def steps_of(known: Known, *, text: bool = False) -> list[Step]:
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


def what(known: Known) -> str:
    """What the event is: its type, and that of its message."""
    if known.document is None:
        types = [str(row["type"]) for row in known.runs if row.get("type")]
        return types[0] if types else "-"
    event = known.document.get("event")
    return letters.what({"document": {"event": event, "unsent": known.was_unsent}})


def is_sent(row: Mapping[str, Any]) -> bool:
    """Whether a call brought a message to LINE; 409 says that it had it already."""
    return str(row.get("endpoint", "")).startswith(SENDS) and row.get("status") in SENT


def event_in(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """LINE's event in a document; one made by hand may hold anything there."""
    event = (document or {}).get("event")
    return event if isinstance(event, Mapping) else {}


def _received(known: Known, *, text: bool) -> Iterator[Step]:
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
    at = known.document.get("acceptTime")
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


def _taken_back(known: Known) -> Iterator[Step]:
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
    if kind == "deadletter":
        words = f"given up, its dead letter is on its way: {effect.get('cause')}"
        return Step(effect.get("lastAt"), "letter", words, facts)
    tried = "a try is of unknown outcome" if effect.get("triedAt") else "LINE has not taken it yet"
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


def _timer(row: Document, known: Known) -> Step:
    at = row.get("runAt")
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
    told = letters.summary(row)
    tries = row.get("attempts")
    tried = f" after {tries} {'try' if tries == 1 else 'tries'}" if tries else ""
    words = f"given up{tried}: {row.get('cause')}"
    return Step(row.get("lastAt"), "letter", f"{told['what']} {words}", told)


def _replays(known: Known) -> Iterator[Step]:
    for row in (known.letter, *known.letters):
        if row is not None and row.get("replays"):
            name = letters.last_replay(row)
            begun = "a replay was begun" if row.get("replaying") else "replayed"
            yield Step(row.get("replayedAt"), "replay", f"{begun} as {name}", {"replay": name})
    if known.replayed is not None:
        id_ = known.replayed["_id"]
        yield Step(None, "replay", f"it is a replay of the dead letter {id_}", {"letter": id_})


def _held(known: Known) -> Iterator[Step]:
    if known.held is not None:
        behind = f", behind {known.before} of its conversation" if known.before else ""
        words = f"waits in held{behind}: {known.held.get('why')}"
        yield Step(known.held.get("since"), "waits", words, _facts(known.held, ("n", "why")))


def _facts(row: Mapping[str, Any], names: tuple[str, ...]) -> Document:
    return {name.removeprefix("_"): row[name] for name in names if row.get(name) is not None}
