"""Events and their results: the newest of the queue, or the events of one conversation.

Without a period only the newest documents of recvq are read. The index of `_id`, whose values begin
with the time, finds a period. recvq has no index by conversation. `linedesk.console.story` has the
whole story of one event; this module judges many events at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_args

import pymongo
from pymongo.database import Database

from linedesk.console import dead_letters
from linedesk.console.format import brief
from linedesk.console.known import known
from linedesk.console.lists.traces import Traces, read_traces
from linedesk.console.reading import made_between, reported
from linedesk.console.story import DECIDED
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.store.documents import DEADLETTERS, HELD, RECVQ, Document, name_of, text_of
from linedesk.store.errors import translated
from linedesk.store.records.calls import CallRecord
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import REPLAYED_AT
from linedesk.store.records.runs import GATHERED_WITH

# The events of one list; some 2 MB with their runs, calls and letters.
MOST_EVENTS = 1_000
# So many of the newest documents are searched, heartbeats among them.
NEWEST_DOCUMENTS = 5_000
MOST_OF_ONE = 50
READ_SECONDS = 10.0
SHOWN = (EVENT_ID, "channel", "key", ACCEPT_TIME, "unsent", "event.type", "event.message.type")
TEXTS = ("event.message.text", "event.postback.data")

Result = Literal["answered", "waiting", "failed", "replayed", "no reply", "unknown"]
RESULTS: tuple[Result, ...] = get_args(Result)
RESULT_NAMES: dict[Result, str] = {
    "answered": mark("answered"),
    "waiting": mark("waiting"),
    "failed": mark("failed"),
    "replayed": mark("replayed"),
    "no reply": mark("no reply"),
    "unknown": mark("unknown"),
}


@dataclass(frozen=True)
class Outcome:
    """The result of one event."""

    result: Result
    words: str = ""
    """More about it, in a few words of the context's language."""
    letter: str | None = None
    """The id of its dead letter, or of the dead letter of one of its sends."""
    see: str | None = None
    """The event whose story has the rest."""

    @property
    def name(self) -> str:
        """The result, translated."""
        return _(RESULT_NAMES[self.result])


@dataclass(frozen=True)
class EventLine:
    """One event of a list."""

    event_id: str
    channel: str | None
    key: str | None
    at: datetime | None
    """The arrival of the webhook."""
    what: str
    text: str | None
    """The user's text; None where it is hidden, or there is none."""
    outcome: Outcome
    replay_of: str | None = None
    """The id of the first dead letter behind a replay."""
    replay_of_at: datetime | None = None
    """The arrival of that event, or the decision of that send; None where the letter is gone."""


def newest_events(
    database: Database[Any], *, since: datetime, limit: int = MOST_EVENTS
) -> list[EventLine]:
    """Return the events that arrived since a moment, the newest first. Raises StoreUnavailable."""
    with translated(), pymongo.timeout(READ_SECONDS):
        recvq = reported(database, RECVQ)
        wanted = {"heartbeat": {"$ne": True}, ACCEPT_TIME: {"$gte": since}}
        stages: list[Mapping[str, Any]] = [
            {"$limit": NEWEST_DOCUMENTS},
            {"$match": wanted},
            {"$limit": limit},
            {"$project": dict.fromkeys(SHOWN, 1)},
        ]
        documents = list(recvq.aggregate(stages, hint={"$natural": -1}))
        return _read_lines(database, documents)


def events_between(
    database: Database[Any],
    since: datetime | None,
    until: datetime | None,
    *,
    limit: int = MOST_EVENTS,
) -> list[EventLine]:
    """Return the newest events of a period, the newest first; None leaves an end open.

    Raises StoreUnavailable.
    """
    bounds = {"$gte": since, "$lt": until}
    at = {name: moment for name, moment in bounds.items() if moment is not None}
    wanted = {"_id": made_between(since, until), ACCEPT_TIME: at, "heartbeat": {"$ne": True}}
    with translated(), pymongo.timeout(READ_SECONDS):
        found = reported(database, RECVQ).find(wanted, list(SHOWN))
        return _read_lines(database, list(found.sort("_id", -1).hint("_id_").limit(limit)))


def events_named(database: Database[Any], names: Sequence[str]) -> list[EventLine]:
    """Return the events of these names in recvq, the newest first. Raises StoreUnavailable."""
    with translated(), pymongo.timeout(READ_SECONDS):
        found = reported(database, RECVQ).find({EVENT_ID: {"$in": list(names)}}, list(SHOWN))
        return _read_lines(database, list(found))


def events_of(
    database: Database[Any], channel: str, key: str, *, text: bool = False
) -> list[EventLine]:
    """Return the newest events of a conversation, the newest first; `text` includes their texts.

    Raises the errors of the driver.
    """
    whose = {"channel": channel, "key": key}
    fields = (*SHOWN, *(TEXTS if text else ()))
    stages: list[Mapping[str, Any]] = [
        {"$limit": NEWEST_DOCUMENTS},
        {"$match": whose},
        {"$limit": MOST_OF_ONE},
        {"$project": dict.fromkeys(fields, 1)},
    ]
    stored = list(reported(database, RECVQ).aggregate(stages, hint={"$natural": -1}))
    known = {row["_id"] for row in stored}
    held = database[HELD].find(whose, {"document": 1}).sort("n", 1).limit(MOST_OF_ONE)
    waiting = [
        {**row["document"], "_id": row["_id"]}
        for row in held
        if row["_id"] not in known and isinstance(row.get("document"), Mapping)
    ]
    documents = [*stored, *waiting]
    return _read_lines(database, documents, text=text)


def _read_lines(
    database: Database[Any], documents: Sequence[Document], *, text: bool = False
) -> list[EventLine]:
    lines = lines_of(documents, read_traces(database, documents), text=text)
    return _with_origins(database, lines)


def _with_origins(database: Database[Any], lines: list[EventLine]) -> list[EventLine]:
    """Add to each replay the time of the original."""
    ids = {one.replay_of for one in lines if one.replay_of is not None}
    if not ids:
        return lines
    fields = [f"document.{ACCEPT_TIME}", "effect.at"]
    rows = database[DEADLETTERS].find({"_id": {"$in": sorted(ids)}}, fields)
    happened = {row["_id"]: _happened(row) for row in rows}
    return [replace(one, replay_of_at=happened.get(one.replay_of)) for one in lines]


def _happened(letter: Mapping[str, Any]) -> datetime | None:
    document, effect = letter.get("document") or {}, letter.get("effect") or {}
    at = document.get(ACCEPT_TIME) or effect.get("at")
    return at if isinstance(at, datetime) else None


def lines_of(
    documents: Iterable[Document], traces: Traces, *, text: bool = False
) -> list[EventLine]:
    """Return documents as lines of a list, the newest first. Pure."""
    found = [
        EventLine(
            event_id=name_of(document),
            channel=document.get("channel"),
            key=document.get("key"),
            at=at if isinstance(at := document.get(ACCEPT_TIME), datetime) else None,
            what=dead_letters.what({"document": document}),
            text=_text(document) if text else None,
            outcome=outcome_of(document, traces),
            replay_of=dead_letters.first_letter(name_of(document)),
        )
        for document in documents
    ]
    return sorted(found, key=lambda one: one.at.timestamp() if one.at else 0.0, reverse=True)


def counted(lines: Sequence[EventLine]) -> dict[Result, int]:
    """Return how many events have each result."""
    found = [one.outcome.result for one in lines]
    return {result: found.count(result) for result in RESULTS if result in found}


def _text(document: Document) -> str | None:
    event = document.get("event")
    if not isinstance(event, Mapping):
        return None
    return text_of(event, "message", "text") or text_of(event, "postback", "data")


def outcome_of(document: Mapping[str, Any], traces: Traces) -> Outcome:
    """Return the result of an event, judged in the same order as in its story. Pure."""
    name = name_of(document)
    letter = traces.letters.get(name)
    if letter is not None:
        return _given_up(letter)
    last = traces.runs.get(name, {})
    outcome = last.get("outcome")
    is_held = document["_id"] in traces.held
    is_finished = document["_id"] in traces.finished and not is_held
    if outcome in DECIDED or name in traces.applied or is_finished:
        return _decided(name, last, traces, document.get(ACCEPT_TIME))
    return Outcome("waiting", _why_undecided(document, last, traces))


def _given_up(letter: Mapping[str, Any]) -> Outcome:
    cause, id_ = dead_letters.explained(letter.get("cause")), str(letter["_id"])
    if letter.get(REPLAYED_AT):
        return Outcome("replayed", cause, id_, dead_letters.last_replay(letter))
    return Outcome("failed", cause, id_)


def _decided(name: str, run: Mapping[str, Any], traces: Traces, came: Any) -> Outcome:
    given_up = traces.letters_of_effects.get(name, [])
    if failed := [one for one in given_up if not one.get(REPLAYED_AT)]:
        return _given_up(failed[0])
    if count := traces.waiting_sends.get(name, 0):
        words = ngettext("a send waits for LINE", "{count} sends wait for LINE", count)
        return Outcome("waiting", words.format(count=count))
    if name in traces.buttons:
        return Outcome("waiting", _("a button is shown; its answer waits for a tap"))
    sent = [row for row in traces.calls.get(name, ()) if CallRecord.from_document(row).is_sent]
    if given_up and not sent:
        return _given_up(given_up[0])
    if sent:
        return Outcome("answered", _after(came, sent[0]))
    if run.get("outcome") == "gathered":
        return Outcome("answered", _("handled with another message"), see=str(run[GATHERED_WITH]))
    if run.get("outcome") == "unheard":
        return Outcome("no reply", _("taken back, or a timer that was set again"))
    return Outcome("no reply")


def _after(came: Any, call: Mapping[str, Any]) -> str:
    at, ms = call.get("at"), call.get("ms")
    if not (isinstance(came, datetime) and isinstance(at, datetime)):
        return ""
    took = (at - came).total_seconds() + (ms if isinstance(ms, (int, float)) else 0.0) / 1000
    return _("after {time}").format(time=brief(max(0.0, took)))


def _why_undecided(document: Mapping[str, Any], last: Mapping[str, Any], traces: Traces) -> str:
    name = name_of(document)
    if name in traces.running:
        return _("its handler runs")
    error, attempt = last.get("error"), last.get("attempt") or 1
    if last.get("outcome") == "timeout":
        return _("try {number} did not return in time").format(number=attempt)
    if last.get("outcome") == "failed":
        told = known(str(error)) if error else _("an error")
        return _("try {number} failed: {error}").format(number=attempt, error=told)
    if why := traces.reasons.get(name) or traces.held.get(document["_id"]):
        return known(why)
    if error:
        return known(str(error))
    return _("not handled yet") if traces.is_led else _("no running dispatcher holds the lease")
