"""The story of one event: the steps from the webhook to LINE's request id, or to the current wait.

Each step has its time, a sentence, and details for programs. Text that people wrote is included
only on request. Sentences are in the language of the context; make a story for JSON inside
`speaking("en")`.
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
from linedesk.console.known import known
from linedesk.console.tracing import event_of
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.store.control import Pause
from linedesk.store.documents import Document
from linedesk.store.errors import translated
from linedesk.store.records.answers import BY, STATE, AnswerState, state_of
from linedesk.store.records.calls import PAID, REASON, REQUEST_ID, SENDS, CallRecord
from linedesk.store.records.effects import SEND, TRIED_AT
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import DEADLETTER, LAST_AT, REPLAY, REPLAYED_AT
from linedesk.store.records.runs import GATHERED_WITH, WAITED_MS
from linedesk.store.records.timers import ENDED_AT, RANG, RUN_AT, SET_ASIDE

Kind = Literal["received", "waits", "run", "send", "call", "timer", "letter", "replay", "unsend"]
# The shown fields of an effect: all but tokens, keys and texts.
EFFECT = ("id", "type", "way", "at", TRIED_AT, "as", "name", RUN_AT, "cause")
RUN = ("ms", "attempt", "outcome", "effects", "error", "thread", WAITED_MS, GATHERED_WITH)
CALL = (
    *("method", "endpoint", "status", REQUEST_ID, REASON),
    *("ms", "attempt", "class", WAITED_MS, PAID),
)
TIMER = ("_id", "name", "n", RUN_AT, "every", ENDED_AT, RANG, SET_ASIDE)


@dataclass(frozen=True)
class Step:
    """One step of the event, or the reason for its wait."""

    at: datetime | None
    """None where no row has the time."""
    kind: Kind
    words: str
    facts: Document = field(default_factory=dict)


def steps_of(facts: Facts, *, text: bool = False) -> list[Step]:
    """Return all steps in the order of time; a step without a time keeps its place."""
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
    """Return the type of the event, and the type of its message."""
    if facts.document is None:
        types = [str(row["type"]) for row in facts.runs if row.get("type")]
        return types[0] if types else "-"
    event = facts.document.get("event")
    return dead_letters.what({"document": {"event": event, "unsent": facts.was_unsent}})


def event_in(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return LINE's event in a document; a document made by hand may have any value there."""
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
    words = {
        "timer": _("a timer fired"),
        REPLAY: _("replayed: a send or a timer, carried out again"),
    }
    yield Step(
        at if isinstance(at, datetime) else None,
        "received",
        words.get(str(event.get("type"))) or _("received and stored, then confirmed to LINE"),
        details,
    )


def _moment(timestamp: Any) -> datetime | None:
    """Return LINE's milliseconds as a time."""
    if not isinstance(timestamp, (int, float)) or not 0 < timestamp < 32_503_680_000_000:
        return None
    return datetime.fromtimestamp(timestamp / 1000, UTC)


def _taken_back(facts: Facts) -> Iterator[Step]:
    if facts.was_unsent:
        words = _("its message was taken back by its sender: the stored copies are empty")
        yield Step(None, "unsend", words)


RUNS = {
    "finished": mark("the handler decided to do nothing"),
    "applied": mark("it had been decided before"),
    "unheard": mark("skipped without its handler: taken back, or a timer that was set again"),
    "again": mark("could not be decided yet"),
}


def _run(row: Document, *, is_given_up: bool) -> Step:
    outcome = row.get("outcome")
    effects = row.get("effects") or 0
    tried, error = row.get("attempt") or 1, row.get("error")
    if outcome == "recorded" and is_given_up:
        words = _("recorded that it is given up")
    elif outcome == "recorded":
        words = ngettext(
            "handled, {count} send or timer recorded",
            "handled, {count} sends or timers recorded",
            effects,
        ).format(count=effects)
    elif outcome == "failed":
        words = _("the handler failed, try {number}: {error}").format(
            number=tried, error=known(str(error)) if error else _("an error")
        )
    elif outcome == "gathered":
        words = _("handled together with {event}").format(event=row.get(GATHERED_WITH))
    elif outcome == "timeout":
        words = _("the handler did not return, try {number}").format(number=tried)
    else:
        run = RUNS.get(str(outcome))
        words = _(run) if run else _("ran: {outcome}").format(outcome=outcome)
        if error:
            words = _("{step}: {error}").format(step=words, error=known(str(error)))
    if outcome != "again":
        words = _("{step} in {time}").format(step=words, time=brief(_seconds(row)))
    return Step(row.get("at"), "run", words, _details(row, RUN))


def _on_its_way(effect: Document, *, text: bool) -> Step:
    details = _details(effect, EFFECT)
    if isinstance(effect.get("messages"), list):
        details["messages"] = effect["messages"] if text else len(effect["messages"])
    kind = effect.get("type")
    if kind == "timer":
        words = _("the timer {name} is not set yet").format(name=effect.get("name"))
        return Step(effect.get("at"), "timer", words, details)
    if kind == DEADLETTER:
        cause = dead_letters.explained(effect.get("cause"))
        words = _("given up, its dead letter is being written: {cause}").format(cause=cause)
        return Step(effect.get(LAST_AT), "letter", words, details)
    if effect.get(TRIED_AT):
        words = _("a {way} waits in the outbox: a try is of unknown outcome")
    else:
        words = _("a {way} waits in the outbox: LINE has not taken it yet")
    return Step(effect.get("at"), "send", words.format(way=known(str(effect.get("way")))), details)


def _answer(facts: Facts) -> Iterator[Step]:
    """Yield the step of an answer that waits for a tap because its reply token had expired."""
    state, entry = state_of(facts.answer), facts.answer or {}
    words = {
        AnswerState.OFFERED: _("LINE is asked to show a button, or was asked"),
        AnswerState.SHOWN: _("LINE shows a button, and the handler has not ended"),
        AnswerState.WAITING: _("the answer waits for a tap on its button, for a day at most"),
        AnswerState.TAKEN: _("the answer went to the outbox without a tap"),
    }
    if state is not None:
        by = entry.get(BY)
        taken = _("a tap brought the answer to the outbox: {event}").format(event=by)
        yield Step(
            entry.get("at"), "send", taken if by else words[state], _details(entry, (STATE, BY))
        )


def _call(row: Document, name: str) -> Step:
    status = row.get("status")
    if status == 409:
        words = _("{method} {endpoint}: LINE answered 409 (it had it already) in {time}")
    elif status:
        words = _("{method} {endpoint}: LINE answered {status} in {time}")
    else:
        words = _("{method} {endpoint}: no answer in {time}")
    words = words.format(
        method=row.get("method"),
        endpoint=row.get("endpoint"),
        status=status,
        time=brief(_seconds(row)),
    )
    if (why := reason_words(row)) is not None:
        words = _("{step} ({reason})").format(step=words, reason=why)
    more = (cost_words(row), company_words(row, name), wait_words(row))
    details = _details(row, CALL)
    if row.get("also"):
        # Its ids belong to other people.
        details["sends"] = 1 + len(CallRecord.from_document(row).also)
    words = _(", ").join([words, *(one for one in more if one is not None)])
    return Step(row.get("at"), "call", words, details)


def _seconds(row: Mapping[str, Any]) -> float | None:
    ms = row.get("ms")
    return ms / 1000 if isinstance(ms, (int, float)) else None


def _timer(row: Document, facts: Facts) -> Step:
    at = row.get(RUN_AT)
    name = row.get("name")
    if isinstance(at, datetime):
        words = _("set the timer {name}").format(name=name)
    else:
        words = _("its timer {name} has fired or was cancelled").format(name=name)
    run = facts.runs[-1] if facts.runs else {}
    ran, ms = run.get("at"), run.get("ms")
    when = ran + timedelta(milliseconds=ms or 0) if isinstance(ran, datetime) else None
    return Step(when, "timer", words, _details(row, TIMER))


def _letter(row: Document) -> Step:
    told = dead_letters.summary(row)
    tries, what = row.get("attempts"), known(told["what"])
    if tries:
        words = ngettext(
            "{what} given up after {count} try: {cause}",
            "{what} given up after {count} tries: {cause}",
            tries,
        ).format(what=what, count=tries, cause=told["explained"])
    else:
        words = _("{what} given up: {cause}").format(what=what, cause=told["explained"])
    return Step(row.get(LAST_AT), "letter", words, told)


def _replays(facts: Facts) -> Iterator[Step]:
    for row in (facts.letter, *facts.letters):
        if row is not None and row.get("replays"):
            name = dead_letters.last_replay(row)
            words = _("a replay was begun as {replay}") if row.get("replaying") else REPLAYED
            words = _(words).format(replay=name)
            yield Step(row.get(REPLAYED_AT), "replay", words, {"replay": name})
    if facts.replayed is not None:
        id_ = facts.replayed["_id"]
        words = _("it is a replay of the dead letter {id}").format(id=id_)
        yield Step(None, "replay", words, {"letter": id_})


def _held(facts: Facts) -> Iterator[Step]:
    if facts.held is not None:
        why = known(facts.held.get("why"))
        words = _("waits in held: {reason}").format(reason=why)
        if facts.before:
            words = _("waits in held, behind {count} of its conversation: {reason}").format(
                count=facts.before, reason=why
            )
        yield Step(facts.held.get("since"), "waits", words, _details(facts.held, ("n", "why")))


def _details(row: Mapping[str, Any], names: tuple[str, ...]) -> Document:
    return {name.removeprefix("_"): row[name] for name in names if row.get(name) is not None}


READ_SECONDS = 10.0
ANSWERED = mark("answered: LINE took {sends}")
REPLAYED = mark("replayed as {replay}")
DECIDED = ("recorded", "finished", "applied", "unheard", "gathered")
Stands = Literal[
    "waits", "in hand", "given up", "replayed", "sending", "answered", "done", "unknown"
]
STANDINGS: dict[Stands, str] = {
    "waits": mark("waiting"),
    "in hand": mark("in progress"),
    "given up": mark("given up"),
    "replayed": mark("replayed"),
    "sending": mark("sending"),
    "answered": mark("answered"),
    "done": mark("done"),
    "unknown": mark("unknown"),
}


@dataclass(frozen=True)
class Story:
    """The result of one event, and its steps."""

    asked: str
    """The id in the request."""
    event_id: str
    channel: str | None
    key: str | None
    what: str
    """The type of the event, and of its message."""
    stands: Stands
    verdict: str
    """The result in a sentence."""
    steps: list[Step]
    gaps: list[str]
    """Missing information and missing steps, with the reason."""
    related: list[str]
    """Ids of related events: the event that it was handled together with, the original of a replay,
    and its own replays."""
    letters: list[str]
    """Ids of its dead letters, and of its effects' dead letters, that were not replayed."""
    replay: str | None
    """The eventId of the newest replay of one of them."""
    name: str | None = None
    """The name in LINE of its user or group, where it is known."""

    @property
    def standing(self) -> str:
        """The result in a word or two, translated."""
        return _(STANDINGS[self.stands])

    def as_json(self) -> Document:
        """Return the same for programs."""
        told: Document = as_json(self)
        return told


def tell(database: Database[Any], asked: str, *, text: bool = False) -> Story:
    """Return the story of the event that belongs to an id (see `tracing.event_of`).

    `text` includes the text that people wrote. Raises NoSuchEvent, StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        event = event_of(database, asked)
        facts = read_facts(database, event, row=leader(database))
        whose = "/".join(facts.conversation or ())
        name = names_of(database, [whose]).get(whose)
    return replace(story_of(facts, asked=asked, now=datetime.now(UTC), text=text), name=name)


def story_of(facts: Facts, *, asked: str, now: datetime, text: bool = False) -> Story:
    """Return the story of these facts. Pure."""
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
        words = _("given up ({cause}), and replayed since as {replay}")
        return "replayed", words.format(cause=cause, replay=last_replay(letter))
    if letter.get("replaying"):
        words = _("given up: {cause}; a replay was begun and is not confirmed")
    else:
        words = _("given up: {cause}")
    return "given up", words.format(cause=cause)


def _letters(facts: Facts) -> list[Document]:
    return [row for row in (facts.letter, *facts.letters) if row is not None]


def _replayed(facts: Facts) -> list[Document]:
    """Return the letters that were replayed, the newest replay first."""
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
        words = ngettext(
            "decided, but one of its sends or timers was given up: {cause}",
            "decided, but {count} of its sends or timers were given up: {cause}",
            len(failed),
        )
        cause = dead_letters.explained(failed[0]["cause"])
        return "given up", words.format(count=len(failed), cause=cause)
    if waiting:
        return "sending", _held_up(_in_outbox(len(waiting)), facts, now)
    if state_of(facts.answer) is AnswerState.WAITING:
        return "sending", _("decided; a button is shown, and the answer waits for a tap on it")
    if (again := _replayed(facts)) and not sent:
        cause = dead_letters.explained(again[0].get("cause"))
        words = ngettext(
            "decided, but one of its sends or timers was given up ({cause}), and replayed since as "
            "{replay}",
            "decided, but {count} of its sends or timers were given up ({cause}), and replayed "
            "since as {replay}",
            len(again),
        )
        replay = last_replay(again[0])
        return "replayed", words.format(count=len(again), cause=cause, replay=replay)
    if sent:
        return "answered", _answered(facts, sent)
    if (first := _gathered_with(facts)) is not None:
        words = _("handled together with {event}; its story has the sends")
        return "done", words.format(event=first)
    if facts.runs and facts.runs[-1].get("outcome") == "unheard":
        return "done", _("skipped: its message was taken back, or its timer was set again")
    if event_in(facts.document).get("mode") == "standby":
        return "done", _("decided; nothing is carried out, because the channel was in standby")
    return "done", _("handled; no message was sent")


def _answered(facts: Facts, sent: list[Document]) -> str:
    """Return how and when LINE took the answers."""
    count = sum(max(1, sends_of(row, facts.name)) for row in sent)
    is_paid, took = any(row.get(PAID, 0) != 0 for row in sent), _took(facts, sent[0])
    sends = ngettext("one send", "{count} sends", count).format(count=count)
    if took is None:
        words = _("answered by a counted push: LINE took {sends}") if is_paid else ANSWERED
        return _(words).format(sends=sends)
    words = _("answered {time} after it came: LINE took {sends}")
    if is_paid:
        words = _("answered by a counted push {time} after it came: LINE took {sends}")
    return words.format(time=brief(took), sends=sends)


def _gathered_with(facts: Facts) -> str | None:
    """Return the message that it was handled together with."""
    last = facts.runs[-1] if facts.runs else {}
    return str(last.get(GATHERED_WITH)) if last.get("outcome") == "gathered" else None


def _in_outbox(count: int) -> str:
    return ngettext(
        "decided; one of its sends waits in the outbox",
        "decided; {count} of its sends wait in the outbox",
        count,
    ).format(count=count)


def _held_up(verdict: str, facts: Facts, now: datetime) -> str:
    """Return the verdict with the reason for the wait, else with LINE's last answer."""
    why = _why(facts) if processes.is_fresh(facts.row or {}, now=now) else None
    if why is not None:
        return _("{verdict}: {reason}").format(verdict=verdict, reason=why)
    last = facts.calls[-1] if facts.calls else {}
    if not last:
        return verdict
    status, reason = last.get("status"), reason_words(last)
    if not status:
        return _("{verdict}; LINE gave no answer last time").format(verdict=verdict)
    if reason:
        words = _("{verdict}; LINE's last answer was {status} ({reason})")
        return words.format(verdict=verdict, status=status, reason=reason)
    words = _("{verdict}; LINE's last answer was {status}")
    return words.format(verdict=verdict, status=status)


def _took(facts: Facts, call: Mapping[str, Any]) -> float | None:
    """Return the seconds from the event's arrival to LINE's answer."""
    came, called = (facts.document or {}).get(ACCEPT_TIME), call.get("at")
    if not isinstance(came, datetime) or not isinstance(called, datetime):
        return None
    return max(0.0, (called - came).total_seconds() + (call.get("ms") or 0) / 1000)


def _undecided(facts: Facts, now: datetime) -> tuple[Stands, str]:
    paused = facts.pauses.covering(*(facts.conversation or (None, None)))
    if paused:
        return "waits", _("waits: {reason}").format(reason=_told(paused[0], now))
    row = facts.row or {}
    if not processes.is_fresh(row, now=now):
        return "waits", _("waits: no running dispatcher holds the lease")
    doing = _of(row, "threads", EVENT_ID, facts.name)
    if doing is not None:
        time = _since(doing.get("since"), now)
        words = _("in progress for {time}: {step} on {thread}")
        if time is None:
            words = _("in progress: {step} on {thread}")
        step = known(str(doing.get("doing")))
        return "in hand", words.format(time=time, step=step, thread=doing.get("name"))
    why = _why(facts)
    if facts.held is not None:
        why = why or known(facts.held.get("why"))
    if facts.held is not None and facts.before:
        words = _("waits behind {count} others of its conversation: {reason}")
        return "waits", words.format(count=facts.before, reason=why)
    if why is not None:
        return "waits", _("waits: {reason}").format(reason=why)
    if facts.in_recvq:
        return "waits", _("stored; a dispatcher reads it next, or handles it now")
    return "unknown", _("its result is not known: the rows about it are overwritten")


def _told(pause: Pause, now: datetime) -> str:
    time = _since(pause.at, now)
    words = _("{scope} is paused by {name}")
    if time is not None:
        words = _("{scope} is paused for {time} by {name}")
    told = words.format(scope=pause.scope, time=time, name=pause.by or _("an operator"))
    return _("{pause} ({reason})").format(pause=told, reason=pause.why) if pause.why else told


def _since(since: Any, now: datetime) -> str | None:
    is_known = isinstance(since, datetime)
    return for_long(max(0.0, (now - since).total_seconds())) if is_known else None


def _why(facts: Facts) -> str | None:
    """Return the dispatcher's reason for the wait of its conversation."""
    channel, key = facts.conversation or (None, None)
    row = facts.row or {}
    own = _of(row, "waiting", EVENT_ID, facts.name)
    if own is not None:
        return known(own.get("why"))
    for one in processes.listed(row, "waiting"):
        if (one.get("channel"), one.get("key")) == (channel, key):
            return _("behind {event} of its conversation: {reason}").format(
                event=one.get(EVENT_ID), reason=known(one.get("why"))
            )
    return None


def _of(row: Mapping[str, Any], name: str, field: str, value: str) -> Mapping[str, Any] | None:
    return next((one for one in processes.listed(row, name) if one.get(field) == value), None)


def _gaps(facts: Facts) -> Iterator[str]:
    if not facts.in_recvq:
        yield _("recvq does not have it: it was overwritten since, or never stored here")
    decided = _is_decided(facts)
    if not facts.runs and (decided or facts.letter is not None):
        yield _("jobs has no run of it: overwritten since, or it never ran a handler")
    if not decided or any(row.get("endpoint") in SENDS for row in facts.calls):
        return
    effects = facts.runs[-1].get("effects") if facts.runs else None
    if _gathered_with(facts) is not None:
        return
    if effects == 0:
        yield _("no call was made: the handler returned nothing")
    elif not any((facts.calls, facts.effects, facts.letter, facts.letters, facts.timers)):
        yield _("calls has no call of it: overwritten since, or none was made")


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
