"""Events and their results: the newest of the queue, or of one conversation, with the answers.

Without a period only the newest documents of recvq are read. The index of `_id`, whose values begin
with the time, finds a period. recvq has no index by conversation. Rows of `calls` have no texts, so
an answer that LINE took is shown without its text; that of a send that waits or was given up is
known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.operate import dead_letters
from linedesk.operate.calls import reason_words
from linedesk.operate.events.rows import Present, Rows, named, read_present, read_rows
from linedesk.operate.events.verdict import RESULTS, Result, Verdict, explained, verdict
from linedesk.operate.reading import made_between, reported
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.documents import DEADLETTERS, HELD, RECVQ, Document, text_of
from linedesk.store.errors import translated
from linedesk.store.records.calls import SENDS, is_taken
from linedesk.store.records.effects import SEND, TRIED_AT
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import LAST_AT

# The events of one list; some 2 MB with their runs, calls and letters.
MOST_EVENTS = 1_000
# So many of the newest documents are searched, heartbeats among them.
NEWEST_DOCUMENTS = 5_000
MOST_OF_ONE = 50
READ_SECONDS = 10.0
SHOWN = (
    *(EVENT_ID, "channel", "key", ACCEPT_TIME, "unsent", "event.type", "event.message.type"),
    *("event.message.id", "event.mode", "event.source.userId"),
)
TEXTS = ("event.message.text", "event.postback.data")

AnswerIs = Literal["sent", "refused", "no answer", "waiting", "failed"]
ANSWER_NAMES: dict[AnswerIs, str] = {
    "sent": mark("sent"),
    "refused": mark("refused"),
    "no answer": mark("no answer"),
    "waiting": mark("waiting"),
    "failed": mark("failed"),
}


@dataclass(frozen=True)
class Answer:
    """One send of the bot, which LINE took or refused, or which waits or was given up."""

    at: datetime | None
    way: str
    """reply, push, and so on."""
    result: AnswerIs
    words: str
    text: str | None = None
    letter: str | None = None

    @property
    def result_name(self) -> str:
        """The result, translated."""
        return _(ANSWER_NAMES[self.result])


@dataclass(frozen=True)
class EventLine:
    """One event of a list."""

    event_id: str
    channel: str | None
    key: str | None
    at: datetime | None
    """The arrival of the webhook."""
    what: str
    sender: str | None
    """The id of the user who wrote, also in a group."""
    text: str | None
    """The user's text; None where it is hidden, or there is none."""
    outcome: Verdict
    answers: Sequence[Answer] = ()
    """Its sends, in the order of time; only in the list of a conversation."""
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


def events_of(
    database: Database[Any], channel: str, key: str, *, text: bool = False
) -> list[EventLine]:
    """Return the newest events of a conversation with their answers, the newest first.

    `text` includes the texts. Raises StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        return _read_lines(database, _of_one(database, channel, key, text), text=text, whole=True)


def _of_one(database: Database[Any], channel: str, key: str, text: bool) -> list[Document]:
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
    return [*stored, *waiting]


def _read_lines(
    database: Database[Any],
    documents: Sequence[Document],
    *,
    text: bool = False,
    whole: bool = False,
) -> list[EventLine]:
    rows = read_rows(database, named(documents), whole=whole)
    lines = lines_of(rows.values(), read_present(database), text=text, with_answers=whole)
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
    found: Iterable[Rows], present: Present, *, text: bool = False, with_answers: bool = False
) -> list[EventLine]:
    """Return events as lines of a list, the newest first. Pure."""
    now = datetime.now(UTC)
    lines = [
        EventLine(
            event_id=rows.name,
            channel=document.get("channel"),
            key=document.get("key"),
            at=_moment(document.get(ACCEPT_TIME)),
            what=dead_letters.what({"document": {**document, "unsent": rows.was_unsent}}),
            sender=text_of(document, "event", "source", "userId"),
            text=_text(document) if text else None,
            outcome=verdict(rows, present, now=now),
            answers=answers_of(rows, text=text) if with_answers else (),
            replay_of=dead_letters.first_letter(rows.name),
        )
        for rows in found
        for document in [rows.document or {}]
    ]
    return sorted(lines, key=_when, reverse=True)


def answers_of(rows: Rows, *, text: bool = False) -> list[Answer]:
    """Return the sends of an event, in the order of time; `text` includes their texts. Pure."""
    found = [*_called(rows), *_waiting(rows, text=text), *_failed(rows, text=text)]
    return sorted(found, key=_when)


def _called(rows: Rows) -> Iterator[Answer]:
    for row in rows.calls:
        endpoint, status, tried = row.get("endpoint"), row.get("status"), row.get("attempt") or 1
        if endpoint not in SENDS:
            continue
        words = _("it is unknown whether LINE has it")
        if status == 409:
            words = _("LINE answered 409 (it had it already)")
        elif status:
            words = _("LINE answered {status}").format(status=status)
        if (reason := reason_words(row)) is not None:
            words = _("{step} ({reason})").format(step=words, reason=reason)
        if tried > 1:
            words = _("{step}, try {number}").format(step=words, number=tried)
        result: AnswerIs = "sent" if is_taken(status) else "refused" if status else "no answer"
        yield Answer(_moment(row.get("at")), str(endpoint).rpartition("/")[2], result, words)


def _waiting(rows: Rows, *, text: bool) -> Iterator[Answer]:
    for effect in rows.effects:
        if effect.get("type") == SEND:
            tried = effect.get(TRIED_AT) is not None
            words = _("a try is of unknown outcome") if tried else _("LINE has not taken it yet")
            way, at = str(effect.get("way", SEND)), _moment(effect.get("at"))
            yield Answer(at, way, "waiting", words, _texts(effect) if text else None)


def _failed(rows: Rows, *, text: bool) -> Iterator[Answer]:
    for row in rows.letters:
        effect = row.get("effect")
        if isinstance(effect, Mapping) and effect.get("type") != "timer":
            words = _("given up: {cause}").format(cause=explained(row))
            way, at, id_ = str(effect.get("way", SEND)), _moment(row.get(LAST_AT)), str(row["_id"])
            yield Answer(at, way, "failed", words, _texts(effect) if text else None, id_)


def _texts(effect: Mapping[str, Any]) -> str | None:
    """Return the texts of a send; of a message without text its type."""
    messages = effect.get("messages")
    if not isinstance(messages, list):
        return None
    shown = [one for one in messages if isinstance(one, Mapping)]
    return "\n".join(str(one.get("text") or one.get("type") or "-") for one in shown) or None


def _when(line: EventLine | Answer) -> float:
    return line.at.timestamp() if line.at else 0.0


def _moment(value: Any) -> datetime | None:
    return value if isinstance(value, datetime) else None


def counted(lines: Sequence[EventLine]) -> dict[Result, int]:
    """Return how many events have each result."""
    found = [one.outcome.result for one in lines]
    return {result: found.count(result) for result in RESULTS if result in found}


def _text(document: Document) -> str | None:
    event = document.get("event")
    if not isinstance(event, Mapping):
        return None
    return text_of(event, "message", "text") or text_of(event, "postback", "data")
