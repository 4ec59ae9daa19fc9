"""Dead letters: choosing them, summarising them, and replaying one into recvq.

A summary has no message text and no text of an error, which may quote a message.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection
from pymongo.database import Database

from jobworker.errors import MayArriveTwice
from jobworker.record.dead_letters import anew, is_sound
from jobworker.record.waiting_answers import NOT_FETCHED
from jobworker.sending.late_replies import LATE
from jobworker.sending.verdict import EXPIRED, QUOTA
from linedesk.console.errors import KnownPhrase, NoSuchLetter, NotReplayed, Phrase
from linedesk.console.format import local
from linedesk.console.known import known
from linedesk.console.orders.replays import Replays, effect_again, event_again, replay_name
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.documents import DEADLETTERS, Document
from linedesk.store.errors import WriteRefused, translated
from linedesk.store.queue.guard import Guard
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import FIRST_AT, LAST_AT, REPLAY, REPLAYED_AT, asks_for_effect

Letter = Mapping[str, Any]

# The fields that a list needs of each letter, without its contents.
LISTED = (
    *("_id", "channel", "key", "cause", "attempts", FIRST_AT, LAST_AT),
    *("document.event.type", "document.event.message.type", "document.unsent"),
    *("effect.way", "effect.type", "replays", "replaying", REPLAYED_AT),
)
# The meanings of the causes that are single words.
MEANINGS = {
    QUOTA: mark("the month's messages are used up"),
    LATE: mark("its reply token had expired, and today's limit for late replies is used up"),
    NOT_FETCHED: mark("its button was not tapped within a day"),
    EXPIRED: mark("it was not tried before the moment that the bot had set"),
}
# The lines of a traceback that Python itself makes. A line of code follows each.
FRAME = re.compile(r'^\s*File ".*", line \d+')

# Replaces the error's message at the end of a traceback.
MESSAGE_HIDDEN = mark(
    "The error's message is hidden, because it can quote what people wrote. To see it, run "
    "`linedesk dead show {id} --text` or set CONSOLE_TEXT=true for the page."
)


def explained(cause: Any) -> str:
    """Return a cause with its meaning, for a person."""
    meaning = MEANINGS.get(cause) if isinstance(cause, str) else None
    if meaning is None:
        return known(str(cause))
    return _("{cause}: {meaning}").format(cause=cause, meaning=_(meaning))


def what(letter: Letter) -> str:
    """Return the kind of a letter: an event's type, a send's way, or the setting of a timer.

    It is English, for JSON and lists; `known` translates it.
    """
    effect = letter.get("effect")
    if effect is not None:
        return "timer" if effect.get("type") == "timer" else f"send {effect.get('way', '-')}"
    document = letter.get("document") or {}
    event = document.get("event")
    if not isinstance(event, Mapping):
        return "-"
    kind = str(event.get("type", "-"))
    message = event.get("message")
    if isinstance(message, Mapping) and isinstance(message.get("type"), str):
        kind += f" {message['type']}"
    return f"{kind} (unsent)" if document.get("unsent") else kind


def replayed(letter: Letter) -> str:
    """Return whether a letter was replayed, and how often, for a list."""
    if letter.get("replaying"):
        return "begun"
    times = letter.get("replays", 0)
    return f"{times}x" if times else "-"


def last_replay(letter: Letter) -> str | None:
    """Return the eventId of its newest replay, confirmed or not; None without a replay."""
    times = letter.get("replays")
    return f"replay:{letter['_id']}:{times}" if times else None


def first_letter(name: str) -> str | None:
    """Return the id of the first letter behind a replay, also through replays of replays.

    None where the event is not a replay.
    """
    found = None
    while name.startswith(f"{REPLAY}:"):
        found = name = name.removeprefix(f"{REPLAY}:").rpartition(":")[0]
    return found


def summary(letter: Letter) -> dict[str, Any]:
    """Return the entry of a list for a letter, as JSON."""
    return {
        "id": letter["_id"],
        "what": what(letter),
        "channel": letter.get("channel"),
        "key": letter.get("key"),
        "cause": letter.get("cause"),
        "explained": None if letter.get("cause") is None else explained(letter["cause"]),
        "attempts": letter.get("attempts"),
        FIRST_AT: _iso(letter.get(FIRST_AT)),
        LAST_AT: _iso(letter.get(LAST_AT)),
        "replays": letter.get("replays", 0),
        REPLAYED_AT: _iso(letter.get(REPLAYED_AT)),
        "replay": last_replay(letter),
    }


def frames(traceback: str | None, *, id_: str) -> str | None:
    """Return a letter's traceback without its errors' messages: files, lines and code.

    It ends with the way to see the messages.
    """
    if not traceback:
        return traceback
    lines = traceback.splitlines()
    kept = [n for n, line in enumerate(lines) if FRAME.match(line)]
    hidden = _(MESSAGE_HIDDEN).format(id=shlex.quote(id_))
    code = [n + 1 for n in kept if n + 1 < len(lines) and lines[n + 1].startswith("    ")]
    return "\n".join([*(lines[n] for n in sorted({*kept, *code})), hidden])


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone().isoformat() if moment else None


FIRST = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Choice:
    """The dead letters of an act."""

    ids: Sequence[str] = ()
    cause: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    """Also letters that were replayed."""
    limit: int = 0
    """0: all of them."""

    @property
    def is_open(self) -> bool:
        """Whether no condition is set."""
        return not self.ids and not any((self.cause, self.since, self.until))

    def query(self) -> Document:
        """Return the filter for MongoDB. Letters chosen by id match whether replayed or not."""
        query: Document = {}
        if self.ids:
            query["_id"] = {"$in": list(self.ids)}
        elif not self.everything:
            query[REPLAYED_AT] = None
        if self.cause:
            query["cause"] = {"$regex": re.escape(self.cause)}
        # Always bounded: without a bound MongoDB does not look for the cause in the index itself.
        query[LAST_AT] = {"$gte": self.since or FIRST}
        if self.until:
            query[LAST_AT]["$lt"] = self.until
        return query


def moment_of(text: str, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the moment that an operator wrote: 45s, 30m, 2h or 3d ago, or ISO 8601.

    A moment without a zone is in `zone`, else in this machine's. Raises ValueError.
    """
    ago = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    if ago:
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return moment.astimezone(UTC)


def found(
    letters: Collection[Any], choice: Choice, *, newest_first: bool = False
) -> list[Document]:
    """Return the letters of a list, without their contents."""
    order = DESCENDING if newest_first else ASCENDING
    with translated():
        return list(
            letters.find(choice.query(), list(LISTED)).sort(LAST_AT, order).limit(choice.limit)
        )


def whole(letters: Collection[Any], id_: str) -> Document | None:
    """Return one letter with its contents; None where it does not exist."""
    with translated():
        found: Document | None = letters.find_one({"_id": id_})
    return found


def all_of(rows: list[Document], choice: Choice) -> list[Document]:
    """Return the rows. Raises NoSuchLetter where a requested id is missing."""
    unknown = [id_ for id_ in choice.ids if id_ not in {row["_id"] for row in rows}]
    if unknown:
        raise NoSuchLetter(unknown)
    return rows


class Replaying:
    """Replays letters of one database while recvq's guard allows it."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self._letters = database[DEADLETTERS]
        self._replays = Replays(database, Guard(database))

    def replay(self, id_: str, *, again: bool = False, force: bool = False) -> str:
        """Put a letter into recvq; returns the eventId of its replay.

        `again` replays a letter that was replayed, `force` a send that may arrive twice. Raises
        NotReplayed, RecvqClosed with nothing written, and StoreUnavailable, after which the same
        call may be repeated.
        """
        letter, document = self.prepared(id_, again=again, force=force)
        try:
            is_stored = self._replays.replay(letter, document)
        except WriteRefused as error:
            raise NotReplayed(KnownPhrase(str(error))) from error
        if not is_stored:
            message = mark(
                "it was replayed or dropped meanwhile, or an earlier document with the name of "
                "its replay was refused: check the letter, then try again"
            )
            raise NotReplayed(Phrase(message))
        return str(document[EVENT_ID])

    def prepared(self, id_: str, *, again: bool, force: bool) -> tuple[Letter, Document]:
        """Return the letter and its document for recvq; writes nothing. Raises NotReplayed."""
        letter = whole(self._letters, id_)
        if letter is None:
            raise NotReplayed(Phrase(mark("it was dropped meanwhile")))
        if letter.get(REPLAYED_AT) and not again:
            told = Phrase(mark("it was replayed at {at}"), at=local(letter[REPLAYED_AT]))
            raise NotReplayed(told, unless="again")
        document = _document(letter, now=datetime.now(UTC), force=force)
        return letter, document


def _document(letter: Letter, *, now: datetime, force: bool) -> Document:
    """Return the document for recvq. Raises NotReplayed, also for a letter edited by hand."""
    name = replay_name(letter)
    if "effect" in letter:
        _require_replayable(letter, name, now, force=force)
        return effect_again(letter, name=name, now=now)
    document = letter.get("document")
    if not isinstance(document, Mapping) or not isinstance(document.get("event"), Mapping):
        raise NotReplayed(Phrase(mark("it holds neither an event nor a send")))
    if asks_for_effect(document):
        message = mark("it holds no event: it was refused because it had no dead letter")
        raise NotReplayed(Phrase(message))
    if document.get("unsent"):
        raise NotReplayed(Phrase(mark("its message was taken back by its sender")))
    return event_again(letter, name=name, now=now)


def _require_replayable(letter: Letter, name: str, now: datetime, *, force: bool) -> None:
    """Raise NotReplayed unless the worker can carry out the effect in the letter.

    Whether the effect may arrive twice is judged as of `now`.
    """
    if not is_sound(letter) or not all(isinstance(letter.get(n), str) for n in ("channel", "key")):
        raise NotReplayed(Phrase(mark("its send is incomplete, or names no conversation")))
    try:
        anew(letter["effect"], name=name, now=now, force=force)
    except MayArriveTwice as error:
        message = mark("{reason}, so it may arrive twice")
        told = Phrase(message, reason=KnownPhrase(str(error)))
        raise NotReplayed(told, unless="force") from error
