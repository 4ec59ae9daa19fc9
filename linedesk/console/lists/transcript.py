"""One conversation as a chat: the user's events, the bot's answers, and the result of each.

Rows of `calls` have no texts, so an answer that LINE took is shown without its text. The text of a
send that waits or was given up is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.console.calls import channels_of_events, reason_words
from linedesk.console.dead_letters import LISTED, summary
from linedesk.console.lists.events import EventLine, events_of
from linedesk.console.lists.timers import TimerLine, timers_due
from linedesk.console.reading import newest_rows, of_key, outbox_of, reported
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import DONE_AT, RELEASE, Release
from linedesk.store.documents import CALLS, CONTROL, CONVERSATIONS, DEADLETTERS, Document
from linedesk.store.errors import translated
from linedesk.store.records.calls import REASON, SENDS, is_taken
from linedesk.store.records.effects import CALL, OUTBOX, SEND, TRIED_AT
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import LAST_AT

NEWEST_CALLS = 10_000
NEWEST_LETTERS = 1_000
MOST_CALLS = 100
MOST_LETTERS = 10
READ_SECONDS = 10.0
LETTER = (*LISTED, "effect.messages", f"effect.{EVENT_ID}")
CALL_FIELDS = ("at", "endpoint", "status", EVENT_ID, "attempt", "also", REASON)

Result = Literal["sent", "refused", "no answer", "waiting", "failed"]
RESULT_NAMES: dict[Result, str] = {
    "sent": mark("sent"),
    "refused": mark("refused"),
    "no answer": mark("no answer"),
    "waiting": mark("waiting"),
    "failed": mark("failed"),
}


@dataclass(frozen=True)
class BotLine:
    """One send of the bot, which LINE took or refused, or which waits or was given up."""

    at: datetime | None
    way: str
    """reply, push, and so on."""
    result: Result
    words: str
    event_id: str | None
    """The event that it answers."""
    text: str | None = None
    letter: str | None = None

    @property
    def result_name(self) -> str:
        """The result, translated."""
        return _(RESULT_NAMES[self.result])


@dataclass(frozen=True)
class OrderedRelease:
    """The last release of a conversation that was ordered within a day."""

    by: str
    at: datetime
    what: str
    """The id of the event or send."""
    outcome: str | None
    """None until a dispatcher confirms it."""


@dataclass(frozen=True)
class Transcript:
    """A conversation in the order of a chat, the newest line last."""

    lines: list[EventLine | BotLine]
    letters: list[Document]
    """Summaries of its newest dead letters, the newest first."""
    timers: list[TimerLine]
    release: OrderedRelease | None


def read_transcript(
    database: Database[Any], channel: str, key: str, *, text: bool = False
) -> Transcript:
    """Return the newest events and sends of a conversation; `text` includes their texts.

    Raises StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        letters = _letters(database, channel, key)
        events = events_of(database, channel, key, text=text)
        answers = [
            *_calls(database, channel, key),
            *_outbox(database, f"{channel}/{key}", text=text),
            *_given_up(letters, text=text),
        ]
        release = _release(database, channel, key)
    timers = timers_due(database, conversation=f"{channel}/{key}")
    # Sends from before the first known event are left out.
    begin = min((one.at for one in events if one.at), default=None)
    answers = [one for one in answers if begin is None or one.at is None or one.at >= begin]
    lines: list[EventLine | BotLine] = sorted([*events, *answers], key=_when)
    return Transcript(lines, [summary(row) for row in letters[:MOST_LETTERS]], timers, release)


def _when(line: EventLine | BotLine) -> float:
    return line.at.timestamp() if line.at else 0.0


def _calls(database: Database[Any], channel: str, key: str) -> Iterator[BotLine]:
    """Yield the calls of this channel: the same user may write to another one."""
    stages: list[Mapping[str, Any]] = [
        *newest_rows(NEWEST_CALLS),
        {"$match": {**of_key(key), "endpoint": {"$in": sorted(SENDS)}}},
        {"$limit": MOST_CALLS},
        {"$project": dict.fromkeys(CALL_FIELDS, 1)},
    ]
    rows = list(reported(database, CALLS).aggregate(stages, hint={"$natural": -1}))
    channels = channels_of_events(database, (_event_of(row, key) for row in rows))
    for row in rows:
        if channels.get(_event_of(row, key) or "", channel) != channel:
            continue
        status = row.get("status")
        tried = row.get("attempt") or 1
        reason = reason_words(row)
        words = _("it is unknown whether LINE has it")
        if status == 409:
            words = _("LINE answered 409 (it had it already)")
        elif status:
            words = _("LINE answered {status}").format(status=status)
        if reason:
            words = _("{step} ({reason})").format(step=words, reason=reason)
        if tried > 1:
            words = _("{step}, try {number}").format(step=words, number=tried)
        result: Result = "sent" if is_taken(status) else "refused" if status else "no answer"
        way = str(row["endpoint"]).rpartition("/")[2]
        yield BotLine(_moment(row.get("at")), way, result, words, _event_of(row, key))


def _event_of(row: Mapping[str, Any], key: str) -> str | None:
    """Return the event of this conversation in a call that may carry sends of others."""
    also = row["also"] if isinstance(row.get("also"), list) else []
    own = [row.get(EVENT_ID), *(one.get(EVENT_ID) for one in also if one.get("key") == key)]
    return next((one for one in own if isinstance(one, str)), None)


def _outbox(database: Database[Any], id_: str, *, text: bool) -> Iterator[BotLine]:
    row = database[CONVERSATIONS].find_one({"_id": id_}, [OUTBOX, CALL]) or {}
    for effect in outbox_of(database, row):
        if effect.get("type") == SEND:
            tried = effect.get(TRIED_AT) is not None
            words = _("a try is of unknown outcome") if tried else _("LINE has not taken it yet")
            way, at = str(effect.get("way", "send")), _moment(effect.get("at"))
            written = _texts(effect) if text else None
            yield BotLine(at, way, "waiting", words, effect.get(EVENT_ID), written)


def _given_up(letters: Sequence[Document], *, text: bool) -> Iterator[BotLine]:
    for row in letters:
        effect = row.get("effect")
        if isinstance(effect, Mapping) and effect.get("type") != "timer":
            told = summary(row)
            yield BotLine(
                _moment(row.get(LAST_AT)),
                str(effect.get("way", "send")),
                "failed",
                _("given up: {cause}").format(cause=told["explained"]),
                effect.get(EVENT_ID),
                _texts(effect) if text else None,
                str(row["_id"]),
            )


def _texts(effect: Mapping[str, Any]) -> str | None:
    """Return the texts of a send; of a message without text its type."""
    messages = effect.get("messages")
    if not isinstance(messages, list):
        return None
    shown = [one for one in messages if isinstance(one, Mapping)]
    return "\n".join(str(one.get("text") or one.get("type") or "-") for one in shown) or None


def _letters(database: Database[Any], channel: str, key: str) -> list[Document]:
    """Return its letters among the newest ones: they have no index by conversation."""
    stages: list[Mapping[str, Any]] = [
        {"$sort": {LAST_AT: -1}},
        {"$limit": NEWEST_LETTERS},
        {"$match": {"channel": channel, "key": key}},
        {"$project": dict.fromkeys(LETTER, 1)},
    ]
    return list(database[DEADLETTERS].aggregate(stages))


def _release(database: Database[Any], channel: str, key: str) -> OrderedRelease | None:
    row = database[CONTROL].find_one({"_id": f"{RELEASE}/{channel}/{key}"})
    release = Release.from_row(row) if row else None
    if row is None or release is None:
        return None
    outcome = str(row.get("came")) if row.get(DONE_AT) is not None else None
    return OrderedRelease(release.by, release.at, release.name, outcome)


def _moment(value: Any) -> datetime | None:
    return value if isinstance(value, datetime) else None
