"""Dead letters: choosing them, summarising them, and replaying one into recvq.

A summary has neither message text nor the words of an error, which may quote it.
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
from linedesk.console.errors import NoSuchLetter, NotReplayed
from linedesk.console.format import local
from linedesk.store.collections import require_schema
from linedesk.store.documents import DEADLETTERS, Document
from linedesk.store.errors import translated
from linedesk.store.queue.guard import Guard
from linedesk.store.queue.replays import (
    REPLAY,
    Replays,
    asks_for_effect,
    effect_again,
    event_again,
    replay_name,
)
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import FIRST_AT, LAST_AT, REPLAYED_AT

Letter = Mapping[str, Any]

# What a list needs of each letter: the contents stay where they are.
LISTED = (
    *("_id", "channel", "key", "cause", "attempts", FIRST_AT, LAST_AT),
    *("document.event.type", "document.event.message.type", "document.unsent"),
    *("effect.way", "effect.type", "replays", "replaying", REPLAYED_AT),
)
# What a word says that stands for a cause.
MEANINGS = {
    QUOTA: "the month's messages are used up",
    LATE: "its reply token had run out, and late replies may cost no more today",
    NOT_FETCHED: "its button was not tapped for within a day",
    EXPIRED: "it was not tried before the moment that the bot had set",
}
# The lines of a traceback that Python itself makes, and after each the line of code.
FRAME = re.compile(r'^\s*File ".*", line \d+')

# Stands where a traceback ends with its error's own words.
MESSAGE_HIDDEN = (
    "The error's message is hidden, because it can quote what people wrote. To see it, run "
    "`linedesk dead show {id} --text` or set CONSOLE_TEXT=true for the page."
)


def explained(cause: Any) -> str:
    """A cause with what its word says, for a person."""
    meaning = MEANINGS.get(cause) if isinstance(cause, str) else None
    return f"{cause}: {meaning}" if meaning else str(cause)


def what(letter: Letter) -> str:
    """What was given up: an event by its type, a send by its way, or the setting of a timer."""
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
    """Whether it was replayed, and how often."""
    if letter.get("replaying"):
        return "begun"
    times = letter.get("replays", 0)
    return f"{times}x" if times else "-"


def last_replay(letter: Letter) -> str | None:
    """The eventId of its newest replay, confirmed or not; None where there is none."""
    times = letter.get("replays")
    return f"replay:{letter['_id']}:{times}" if times else None


def first_letter(name: str) -> str | None:
    """The id of the letter that a replay goes back to, also through replays of replays.

    None for the name of an event that is no replay.
    """
    found = None
    while name.startswith(f"{REPLAY}:"):
        found = name = name.removeprefix(f"{REPLAY}:").rpartition(":")[0]
    return found


def summary(letter: Letter) -> dict[str, Any]:
    """What a list tells of a letter, as JSON."""
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
    """A letter's traceback without the words of its errors: files, lines, code, and how to see the
    rest.
    """
    if not traceback:
        return traceback
    lines = traceback.splitlines()
    kept = [n for n, line in enumerate(lines) if FRAME.match(line)]
    hidden = MESSAGE_HIDDEN.format(id=shlex.quote(id_))
    code = [n + 1 for n in kept if n + 1 < len(lines) and lines[n + 1].startswith("    ")]
    return "\n".join([*(lines[n] for n in sorted({*kept, *code})), hidden])


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone().isoformat() if moment else None


FIRST = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Choice:
    """Which dead letters an act is about."""

    ids: Sequence[str] = ()
    cause: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    """Those that were replayed, too."""
    limit: int = 0
    """0: all of them."""

    @property
    def is_open(self) -> bool:
        """Whether nothing narrows it down."""
        return not self.ids and not any((self.cause, self.since, self.until))

    def query(self) -> Document:
        """The filter for MongoDB. Letters named by their ids count whether replayed or not."""
        query: Document = {}
        if self.ids:
            query["_id"] = {"$in": list(self.ids)}
        elif not self.everything:
            query[REPLAYED_AT] = None
        if self.cause:
            query["cause"] = {"$regex": re.escape(self.cause)}
        # Always bounded: only then does MongoDB look for the cause in the index itself.
        query[LAST_AT] = {"$gte": self.since or FIRST}
        if self.until:
            query[LAST_AT]["$lt"] = self.until
        return query


def moment_of(text: str, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """A moment as an operator writes it: 45s, 30m, 2h or 3d ago, or ISO 8601.

    Without a zone of its own it is in `zone`, else local. Raises ValueError.
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
    """What a list needs of each letter: the contents stay where they are."""
    order = DESCENDING if newest_first else ASCENDING
    with translated():
        return list(
            letters.find(choice.query(), list(LISTED)).sort(LAST_AT, order).limit(choice.limit)
        )


def whole(letters: Collection[Any], id_: str) -> Document | None:
    """One letter with all that it holds; None where it is not there."""
    with translated():
        found: Document | None = letters.find_one({"_id": id_})
    return found


def all_of(rows: list[Document], choice: Choice) -> list[Document]:
    """The rows themselves. Raises NoSuchLetter where an id that was asked for is not there."""
    unknown = [id_ for id_ in choice.ids if id_ not in {row["_id"] for row in rows}]
    if unknown:
        raise NoSuchLetter(unknown)
    return rows


# A dispatcher that writes by this number looks for the effect in recvq.
BRINGS_ITS_EFFECT = 1


class Replaying:
    """Replays letters of one database, as far as recvq's guard lets it."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self._letters = database[DEADLETTERS]
        self._replays = Replays(database, Guard(database))

    def replay(self, id_: str, *, again: bool = False, force: bool = False) -> str:
        """Put a letter into recvq; returns the eventId of its replay.

        `again` replays one that was replayed, `force` what may arrive twice. Raises NotReplayed,
        RecvqClosed with nothing written, and StoreUnavailable, after which the same may be asked
        again.
        """
        letter, document = self.prepared(id_, again=again, force=force)
        if not self._replays.replay(letter, document):
            raise NotReplayed(
                "it was replayed or dropped meanwhile, or a document with the name of its replay "
                "had come before and was refused: look, then try again"
            )
        return str(document[EVENT_ID])

    def prepared(self, id_: str, *, again: bool, force: bool) -> tuple[Letter, Document]:
        """The letter and what would go into recvq; writes nothing. Raises NotReplayed."""
        letter = whole(self._letters, id_)
        if letter is None:
            raise NotReplayed("it was dropped meanwhile")
        if letter.get(REPLAYED_AT) and not again:
            raise NotReplayed(f"it was replayed at {local(letter[REPLAYED_AT])}", unless="again")
        document = _document(letter, now=datetime.now(UTC), force=force)
        if asks_for_effect(document) and require_schema(self._database) == BRINGS_ITS_EFFECT:
            raise NotReplayed("the dispatcher is of an older release: start this release's first")
        return letter, document


def _document(letter: Letter, *, now: datetime, force: bool) -> Document:
    """What goes into recvq. Raises NotReplayed, also for a letter that a person has changed."""
    name = replay_name(letter)
    if "effect" in letter:
        _require_replayable(letter, name, now, force=force)
        return effect_again(letter, name=name, now=now)
    document = letter.get("document")
    if not isinstance(document, Mapping) or not isinstance(document.get("event"), Mapping):
        raise NotReplayed("it holds neither an event nor a send")
    if asks_for_effect(document):
        raise NotReplayed("it holds no event: it was refused, since no dead letter stood behind it")
    if document.get("unsent"):
        raise NotReplayed("its message was taken back by its sender")
    return event_again(letter, name=name, now=now)


def _require_replayable(letter: Letter, name: str, now: datetime, *, force: bool) -> None:
    """Raise NotReplayed unless the worker can carry out what the letter holds.

    It does so as of `now`, by which is judged here whether that may arrive twice.
    """
    if not is_sound(letter) or not all(isinstance(letter.get(n), str) for n in ("channel", "key")):
        raise NotReplayed("its send is not whole, or names no conversation")
    try:
        anew(letter["effect"], name=name, now=now, force=force)
    except MayArriveTwice as error:
        raise NotReplayed(f"{error}, so it may arrive twice", unless="force") from error
