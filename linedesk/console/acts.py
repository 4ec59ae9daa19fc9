"""What an operator may do: pause, resume, release, replay, drop.

The page and the command line alike write each act to `audit` before it is done and complete the row
afterwards, so that one that was cut off shows. An act whose row cannot be written is not done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pymongo
from bson import ObjectId
from pymongo.database import Database

from linedesk.console import processes
from linedesk.console.dead_letters import Replaying
from linedesk.console.errors import NotDone
from linedesk.console.facts import present_leader
from linedesk.console.format import scope_words
from linedesk.console.health import WAIT_WARN_SECONDS
from linedesk.console.reading import outbox_of
from linedesk.store import control
from linedesk.store.client import DURABLE
from linedesk.store.collections import require_schema
from linedesk.store.control import Control, Release, Scope
from linedesk.store.documents import (
    AUDIT,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    Document,
    name_of,
)
from linedesk.store.errors import QueueError, RecvqClosed, SetupError, StoreUnavailable, translated
from linedesk.store.records.audit import DONE, AuditRecord
from linedesk.store.records.effects import CALL, EFFECT_ID, OUTBOX, PENDING, SEND, TRIED_AT
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

REFUSED = "refused"
Via = Literal["page", "command"]
MOST_SHOWN = 200
WHY_CHARACTERS = 500
READ_SECONDS = 5.0


class Audit:
    """Writes what one operator does; `by` is his name, `via` the way that he came."""

    def __init__(self, database: Database[Any], *, by: str, via: Via) -> None:
        self._rows = database[AUDIT].with_options(write_concern=DURABLE)
        self._by, self._via = by, via

    @contextmanager
    def noted(self, act: str, *, on: str | Sequence[str], why: str = "") -> Iterator[None]:
        """Around an act. Raises StoreUnavailable with the act not begun where MongoDB is away.

        An act that raises NotDone, or that MongoDB or recvq refuses, ends as refused. One of which
        nobody knows whether it was done stays as begun.
        """
        require_schema(self._rows.database)
        id_ = self._begin(act, on if isinstance(on, str) else list(on), why)
        try:
            yield
        except (NotDone, RecvqClosed, SetupError) as error:
            self._end(id_, f"{REFUSED}: {error}")
            raise
        except StoreUnavailable:
            log.warning("nobody knows whether it was done, begun in audit act=%s id=%s", act, id_)
            raise
        self._end(id_, DONE)

    def _begin(self, act: str, on: str | list[str], why: str) -> ObjectId:
        row = AuditRecord(
            at=datetime.now(UTC),
            by=self._by,
            via=self._via,
            act=act,
            on=on,
            why=why[:WHY_CHARACTERS],
        )
        id_ = ObjectId()
        # guard: audit-row-first
        with translated():
            self._rows.insert_one({"_id": id_, **row.to_document()})
        return id_

    def _end(self, id_: ObjectId, outcome: str) -> None:
        try:
            with translated():
                ended = AuditRecord.end(outcome, datetime.now(UTC))
                self._rows.update_one({"_id": id_}, {"$set": ended})
        except QueueError as error:
            # What was done is done: only its row stays as begun.
            log.warning("end of an act not written id=%s error=%s", id_, type(error).__name__)


def newest(database: Database[Any], *, limit: int = MOST_SHOWN) -> list[Document]:
    """The newest rows, the newest first. Raises StoreUnavailable."""
    with translated(), pymongo.timeout(READ_SECONDS):
        return list(database[AUDIT].find({}).sort("at", -1).limit(limit))


SLICE = 1_000
# As the dispatcher says of a document why it is held.
PAUSED = "paused"
Kind = Literal["event", "send"]


@dataclass(frozen=True)
class Head:
    """What stands first in a key's line, or in its outbox: that which a release gives up."""

    kind: Kind
    id: str
    """An event's id, or a send's."""
    why: str
    """What is known of why it does not get on."""
    since: datetime | None = None
    is_held: bool = False
    """Whether it, or what waits behind it, was moved to `held`."""

    @property
    def named(self) -> dict[control.Head, str]:
        """As a release names it in `control`."""
        return {EVENT_ID: self.id} if self.kind == "event" else {EFFECT_ID: self.id}

    def is_stuck(self, now: datetime) -> bool:
        """Whether a release is worth offering: it holds others up, or has waited for long.

        What waits for the end of a pause is not stuck.
        """
        if self.why == PAUSED:
            return False
        return self.is_held or (
            self.since is not None and (now - self.since).total_seconds() > WAIT_WARN_SECONDS
        )


class Acts:
    """The acts of one operator. All raise StoreUnavailable; most may then be asked again."""

    def __init__(self, database: Database[Any], *, by: str, via: Via) -> None:
        self._database = database
        self._by = by
        self._control = Control(database)
        self._audit = Audit(database, by=by, via=via)
        self._replaying = Replaying(database)

    def pause(self, scope: Scope, *, why: str = "") -> bool:
        """Hold back everything, a channel or a key; False if that was paused already."""
        with self._audit.noted("pause", on=str(scope), why=why):
            return self._control.pause(scope, by=self._by, why=why)

    def resume(self, scope: Scope, *, why: str = "") -> bool:
        """End that one pause; False if there was none."""
        with self._audit.noted("resume", on=str(scope), why=why):
            return self._control.resume(scope)

    def still_paused(self, scope: Scope) -> list[tuple[str | None, str | None]]:
        """Channel and key of each pause that covers the scope, or a part of it."""
        return [
            (other.channel, other.key)
            for other in (one.scope for one in self._control.read().rows)
            if other.covers(scope.channel, scope.key) or scope.covers(other.channel, other.key)
        ]

    def release(self, channel: str, key: str, head: Head, *, why: str = "") -> Release:
        """Have the dispatcher give up what the operator saw stuck, if it still is.

        It becomes a dead letter, and the next of the key goes on; `came` tells when.
        """
        with self._audit.noted("release", on=f"{channel}/{key} {head.id}", why=why):
            return self._control.release(channel, key, head.named, by=self._by)

    def waits_for(self, ids: Sequence[str]) -> str | None:
        """Why the replays of these letters are not handled at once; None where they are."""
        fields = ["channel", "key"]
        with translated():
            rows = list(self._database[DEADLETTERS].find({"_id": {"$in": list(ids)}}, fields))
        pauses = self._control.read()
        covering = {
            str(one.scope): one
            for row in rows
            for one in pauses.covering(row.get("channel"), row.get("key"))
        }
        if not covering:
            return None
        names = sorted(scope_words(one.scope.channel, one.scope.key) for one in covering.values())
        are = "is" if len(names) == 1 else "are"
        return f"waits, since {', '.join(names)} {are} paused"

    def came(self, release: Release) -> str | None:
        """What came of a release, in words; None until a dispatcher has carried it out."""
        return self._control.outcome_of(release)

    def replay(self, id_: str, *, again: bool = False, force: bool = False) -> str:
        """Put a dead letter into recvq; returns its eventId there. Raises as `Replaying.replay`."""
        with self._audit.noted("replay", on=id_, why="may arrive twice" if force else ""):
            return self._replaying.replay(id_, again=again, force=force)

    def drop(self, ids: Sequence[str]) -> int:
        """Delete dead letters for good; returns how many there were."""
        letters = self._database[DEADLETTERS].with_options(write_concern=DURABLE)
        dropped = 0
        for start in range(0, len(ids), SLICE):
            some = list(ids[start : start + SLICE])
            with self._audit.noted("drop", on=some), translated():
                dropped += letters.delete_many({"_id": {"$in": some}}).deleted_count
        return dropped


def heads(database: Database[Any], channel: str, key: str) -> list[Head]:
    """What could be released of a key: the first event in its line, the first send of its outbox.

    At most one of each. Raises StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        event = _event_head(database, channel, key)
        if event is not None and Control(database).read().covers(channel, key):
            # Its row in `held` may still have the reason from before the pause.
            event = replace(event, why=PAUSED)
        send = _send_head(database, channel, key)
    return [head for head in (event, send) if head is not None]


def only(found: Sequence[Head], kind: Kind | None) -> Head:
    """The one that is meant. Raises NotDone where none is stuck, or nobody said which."""
    fits = [head for head in found if kind in (None, head.kind)]
    if not fits:
        raise NotDone("nothing of it waits")
    if len(fits) > 1:
        raise NotDone("both an event and a send of it wait: say which")
    return fits[0]


def _event_head(database: Database[Any], channel: str, key: str) -> Head | None:
    whose = {"channel": channel, "key": key}
    row = present_leader(database) or {}
    first: Mapping[str, Any] | None = database[HELD].find_one(whose, sort=[("n", 1)])
    is_held = first is not None
    for name, words in (("threads", "its handler runs"), ("waiting", "")):
        for one in processes.listed(row, name):
            # A row with an effectId is of a send that waits: its event is decided.
            if EFFECT_ID not in one and _is_of(one, whose) and isinstance(one.get(EVENT_ID), str):
                why = words or str(one.get("why", ""))
                return Head("event", one[EVENT_ID], why, one.get("since"), is_held)
    if first is None:
        return None
    document = first.get("document") or {"_id": first["_id"]}
    return Head("event", name_of(document), str(first.get("why", "")), first.get("since"), is_held)


def _is_of(one: Mapping[str, Any], whose: Mapping[str, str]) -> bool:
    return all(one.get(name) == value for name, value in whose.items())


def _send_head(database: Database[Any], channel: str, key: str) -> Head | None:
    fields = [OUTBOX, PENDING, CALL, "epoch"]
    row = database[CONVERSATIONS].find_one({"_id": f"{channel}/{key}"}, fields) or {}
    sends = [one for one in outbox_of(database, row) if one.get("type") == SEND]
    if not sends:
        return None
    first = sends[0]
    tried = "tried, of unknown outcome" if first.get(TRIED_AT) else "not taken by LINE yet"
    why = f"{len(sends)} wait in its outbox; the first: {tried}"
    return Head("send", first["id"], why, first.get("at"))
