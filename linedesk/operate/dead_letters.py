"""Dead letters: choosing, summarising, grouping and replaying them.

A summary has no message text and no text of an error, which may quote a message.

A replay takes three writes: the letter counts the replay, recvq gets the document
`replay:<letter>:<n>`, and the letter is marked as replayed. A crash between them leaves `replaying:
n`. The next replay takes the same n, and the unique eventId admits one document. Nothing is lost in
between, and two operators at once make one document.

The document of a send or timer only names the letter: the worker takes the effect from there. The
right to insert into recvq is therefore not the right to send.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pymongo
from bson import ObjectId
from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection
from pymongo.database import Database

from linedesk.operate.format import as_json
from linedesk.operate.text import CAUSES, NotDone, NotReplayed, known
from linedesk.runtime.language import DEFAULT, mark, speaking
from linedesk.runtime.language import gettext as _
from linedesk.store.client import DURABLE
from linedesk.store.documents import DEADLETTERS, RECVQ, Document
from linedesk.store.errors import WriteRefused, translated
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard
from linedesk.store.records.effects import unproved_try
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import (
    EXPIRES_AT,
    FIRST_AT,
    LAST_AT,
    REFUSED,
    REPLAY,
    REPLAYED_AT,
    TRIES,
    WRITE_REFUSED,
    Cause,
    asks_for_effect,
)

Letter = Mapping[str, Any]

# The fields that a list needs of each letter, without its contents.
LISTED = (
    *("_id", "channel", "key", "cause", "about", "attempts", FIRST_AT, LAST_AT),
    *("document.event.type", "document.event.message.type", "document.unsent"),
    *("effect.way", "effect.type", "replays", "replaying", REPLAYED_AT),
)
# The lines of a traceback that Python itself makes. A line of code follows each.
FRAME = re.compile(r'^\s*File ".*", line \d+')

# Replaces the error's message at the end of a traceback.
MESSAGE_HIDDEN = mark(
    "The error's message is hidden, because it can quote what people wrote. To see it, run "
    "`linedesk dead show {id} --text` or set CONSOLE_TEXT=true for the page."
)


def explained(letter: Letter) -> str:
    """Return the cause of a letter, or of its effect, for a person."""
    return known(Cause.of(letter)) or "-"


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


def summary(letter: Letter) -> dict[str, Any]:
    """Return the entry of a list for a letter, as JSON."""
    return {
        "id": letter["_id"],
        "what": what(letter),
        "channel": letter.get("channel"),
        "key": letter.get("key"),
        "cause": letter.get("cause"),
        "about": letter.get("about"),
        "explained": None if letter.get("cause") is None else explained(letter),
        "attempts": letter.get("attempts"),
        FIRST_AT: as_json(letter.get(FIRST_AT)),
        LAST_AT: as_json(letter.get(LAST_AT)),
        "replays": letter.get("replays", 0),
        REPLAYED_AT: as_json(letter.get(REPLAYED_AT)),
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


BY_CODE = {"$group": {"_id": "$cause"}}
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
        """Return the filter for MongoDB, without the cause. Letters chosen by id match whether
        replayed or not.
        """
        query: Document = {}
        if self.ids:
            query["_id"] = {"$in": list(self.ids)}
        elif not self.everything:
            query[REPLAYED_AT] = None
        # Always bounded: without a bound MongoDB does not look for the cause in the index itself.
        query[LAST_AT] = {"$gte": self.since or FIRST}
        if self.until:
            query[LAST_AT]["$lt"] = self.until
        return query


def moment_of(text: str, *, now: datetime) -> datetime:
    """Return the moment that an operator wrote: 45s, 30m, 2h or 3d ago, or ISO 8601.

    A moment without a zone is in this machine's. Raises ValueError.
    """
    ago = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    if ago:
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    return datetime.fromisoformat(text.strip()).astimezone(UTC)


def query_of(letters: Collection[Any], choice: Choice) -> Document:
    """Return the filter of a choice, with its cause: a part of what is stored or of what is said.

    Raises the errors of the driver.
    """
    query = choice.query()
    if not choice.cause:
        return query
    # The causes of a day are few, and the index has their codes.
    codes = [one["_id"] for one in letters.aggregate([{"$match": query}, BY_CODE])]
    coded = {**query, "cause": {"$in": [one for one in codes if one in CAUSES]}}
    by_cause = {"$group": {"_id": {"cause": "$cause", "about": "$about"}}}
    causes = [Cause(str(one or "")) for one in codes if one not in CAUSES]
    causes += [Cause.of(one["_id"]) for one in letters.aggregate([{"$match": coded}, by_cause])]
    fits = [one for one in causes if _says(one, choice.cause)]
    whole = [{"cause": one.code, "about": dict(one.about) or None} for one in fits]
    return {**query, "$or": whole} if whole else {**query, "_id": {"$in": []}}


def _says(cause: Cause, part: str) -> bool:
    with speaking(DEFAULT):
        english = known(cause)
    return any(part in said for said in (str(cause), english, known(cause)))


def found(
    letters: Collection[Any], choice: Choice, *, newest_first: bool = False
) -> list[Document]:
    """Return the letters of a list, without their contents."""
    order = DESCENDING if newest_first else ASCENDING
    with translated():
        query = query_of(letters, choice)
        return list(letters.find(query, list(LISTED)).sort(LAST_AT, order).limit(choice.limit))


def whole(letters: Collection[Any], id_: str) -> Document | None:
    """Return one letter with its contents; None where it does not exist."""
    with translated():
        found: Document | None = letters.find_one({"_id": id_})
    return found


def no_letters(ids: Sequence[str]) -> NotDone:
    """Return the error that these letters do not exist."""
    return NotDone(*(_("no dead letter {id!r}").format(id=id_) for id_ in ids))


def all_of(rows: list[Document], choice: Choice) -> list[Document]:
    """Return the rows. Raises NotDone where a requested id is missing."""
    unknown = [id_ for id_ in choice.ids if id_ not in {row["_id"] for row in rows}]
    if unknown:
        raise no_letters(unknown)
    return rows


# Groups.

# With their tracebacks some 5 MB.
NEWEST_LETTERS = 2_000
GROUPS_SECONDS = 10.0
# The cause of letters that were made by hand.
NO_CAUSE = mark("no cause given")


@dataclass(frozen=True)
class LetterGroup:
    """Letters of one cause and one line of code."""

    cause: Cause
    where: str
    """`main.py:12 in handle`; empty where no code of the bot failed."""
    count: int
    last_at: datetime | None
    newest: str
    """The id of the newest one."""

    @property
    def explained(self) -> str:
        """The cause with its meaning, translated."""
        return known(self.cause) or _(NO_CAUSE)


def letter_groups(database: Database[Any]) -> list[LetterGroup]:
    """Return the groups of the newest letters that were not replayed, the largest group first.

    Raises StoreUnavailable.
    """
    found = defaultdict[tuple[str, str], list[Document]](list)
    for row in _open_letters(database):
        found[str(Cause.of(row)), where_failed(row.get("traceback"))].append(row)
    groups = [
        LetterGroup(Cause.of(rows[0]), where, len(rows), rows[0].get(LAST_AT), str(rows[0]["_id"]))
        for (_, where), rows in found.items()
    ]
    return sorted(groups, key=lambda one: (-one.count, str(one.cause), one.where))


def ids_in(database: Database[Any], cause: str, where: str) -> list[str]:
    """Return the ids of a group, the oldest first.

    `cause` is the line of a cause. Raises StoreUnavailable.
    """
    rows = [row for row in _open_letters(database) if str(Cause.of(row)) == cause]
    fits = [row["_id"] for row in rows if where_failed(row.get("traceback")) == where]
    return fits[::-1]


def where_failed(traceback: Any) -> str:
    """Return the innermost frame of a traceback, without the error's message. Pure."""
    if not isinstance(traceback, str):
        return ""
    frames = [line for line in traceback.splitlines() if FRAME.match(line)]
    if not frames:
        return ""
    # `  File "/srv/bot/main.py", line 12, in handle`
    _, _, rest = frames[-1].partition('"')
    path, _, rest = rest.rpartition('"')
    number, _, function = rest.removeprefix(", line ").partition(", in ")
    file = path.rpartition("/")[2]
    return f"{file}:{number} in {function}" if function else f"{file}:{number}"


def _open_letters(database: Database[Any]) -> list[Document]:
    fields = ["cause", "about", "traceback", LAST_AT]
    with translated(), pymongo.timeout(GROUPS_SECONDS):
        rows = database[DEADLETTERS].find({REPLAYED_AT: None}, fields)
        return list(rows.sort(LAST_AT, -1).limit(NEWEST_LETTERS))


# Replays.

INSERT_SECONDS = 10.0


def replay_name(letter: Letter) -> str:
    """The eventId of the letter's next replay, or of an unconfirmed one."""
    return f"{REPLAY}:{letter['_id']}:{_number(letter)}"


def event_again(letter: Letter, *, name: str, now: datetime) -> Document:
    """The letter's event as a new document, as of now.

    It has no reply token, which has expired: the bot's replies become pushes.
    """
    document: Document = letter["document"]
    event = {part: value for part, value in document["event"].items() if part != "replyToken"}
    first = {"_id": ObjectId(), EVENT_ID: name}
    tries = document.get(TRIES, 0) + (letter.get("attempts") or 0)
    return {**document, **first, ACCEPT_TIME: now, "event": event, TRIES: tries}


def effect_again(letter: Letter, *, name: str, now: datetime) -> Document:
    """A document that repeats the letter's effect; it runs no handler."""
    return {
        "_id": ObjectId(),
        EVENT_ID: name,
        "channel": letter["channel"],
        "key": letter["key"],
        ACCEPT_TIME: now,
        "event": {"type": REPLAY},
    }


class Replays:
    """Writes replays into recvq, while its guard allows it.

    After StoreUnavailable the same replay may be repeated.
    """

    def __init__(self, database: Database[Any]) -> None:
        self._recvq = database[RECVQ]
        self._letters = database[DEADLETTERS].with_options(write_concern=DURABLE)
        self._guard = Guard(database)

    def replay(self, id_: str, *, again: bool = False, force: bool = False) -> str:
        """Put a letter into recvq; returns the eventId of its replay.

        `again` replays a letter that was replayed, `force` a send that may arrive twice. Raises
        NotReplayed, RecvqClosed with nothing written, and StoreUnavailable.
        """
        letter = whole(self._letters, id_)
        if letter is None:
            raise NotReplayed("dropped_meanwhile")
        if letter.get(REPLAYED_AT) and not again:
            raise NotReplayed("replayed_at", at=letter[REPLAYED_AT], unless="again")
        document = _document(letter, now=datetime.now(UTC), force=force)
        try:
            is_stored = self.put(letter, document)
        except WriteRefused as error:
            raise NotReplayed(WRITE_REFUSED, **error.about) from error
        if not is_stored:
            raise NotReplayed("changed_meanwhile")
        return str(document[EVENT_ID])

    def put(self, letter: Letter, document: Document) -> bool:
        """Store the document and mark the letter.

        Returns False if another process has done so, or if a document of that name arrived before
        the replay began and was refused. `letter` is as read, `document` is made for its
        `replay_name`. Raises RecvqClosed, with nothing written, if recvq is full or misconfigured.
        """
        self._guard.look_when_due()
        with self._guard.inserting(len(bson.encode(document))):
            if not self._begin(letter):
                return False
            known = insert_documents(self._recvq, [document], timeout_seconds=INSERT_SECONDS)
        # guard: refused-under-this-name
        if known and self._was_refused(document):
            self._mark(letter, {})
            return False
        self._mark(letter, {"$set": {REPLAYED_AT: datetime.now(UTC)}})
        return True

    def _begin(self, letter: Letter) -> bool:
        number = _number(letter)
        as_read = {name: letter.get(name) for name in ("replays", REPLAYED_AT)}
        gone = {REPLAYED_AT: "", EXPIRES_AT: ""}
        with translated():
            answer = self._letters.update_one(
                {
                    "_id": letter["_id"],
                    **as_read,  # guard: letter-as-it-was-read
                },
                {"$set": {"replays": number, "replaying": number}, "$unset": gone},
            )
        return bool(answer.matched_count)

    def _was_refused(self, document: Letter) -> bool:
        refused = {"_id": document[EVENT_ID], "cause": {"$regex": f"^{REFUSED}"}}
        with translated():
            return self._letters.find_one(refused, {"_id": 1}) is not None

    def _mark(self, letter: Letter, changes: Letter) -> None:
        begun = {"_id": letter["_id"], "replaying": _number(letter)}
        with translated():
            self._letters.update_one(begun, {**changes, "$unset": {"replaying": ""}})


def _document(letter: Letter, *, now: datetime, force: bool) -> Document:
    """Return the document for recvq. Raises NotReplayed, also for a letter edited by hand."""
    name = replay_name(letter)
    if "effect" in letter:
        if not all(isinstance(letter.get(part), str) for part in ("channel", "key")):
            raise NotReplayed("send_incomplete")
        effect = letter["effect"]
        tried = unproved_try(effect, now) if isinstance(effect, Mapping) else None
        if tried is not None and not force:
            raise NotReplayed("may_arrive_twice", at=tried, unless="force")
        return effect_again(letter, name=name, now=now)
    document = letter.get("document")
    if not isinstance(document, Mapping) or not isinstance(document.get("event"), Mapping):
        raise NotReplayed("not_replayable")
    if asks_for_effect(document):
        raise NotReplayed("refused_letter")
    if document.get("unsent"):
        raise NotReplayed("taken_back")
    return event_again(letter, name=name, now=now)


def _number(letter: Letter) -> int:
    # guard: replay-keeps-its-number -> return int(letter.get("replays", 0) + 1)
    return int(letter.get("replaying") or letter.get("replays", 0) + 1)
