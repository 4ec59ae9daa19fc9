"""What an operator does: pause, resume, release, replay, drop; each noted in `audit` first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from console import rows
from console.audit import Audit, Via
from console.errors import NotDone
from console.replaying import Replaying
from console.telling import told_in
from recvq import orders
from recvq.connect import DURABLE
from recvq.control import Control
from recvq.documents import CONVERSATIONS, DEADLETTERS, HELD, STATUS, name_of
from recvq.errors import translated
from recvq.orders import Release, Scope

SLICE = 1_000
READ_SECONDS = 5.0
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

    @property
    def named(self) -> dict[orders.Head, str]:
        """As a release names it in `control`."""
        return {"eventId": self.id} if self.kind == "event" else {"effectId": self.id}


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
    told = list(told_in(database, STATUS).find({"role": rows.DISPATCHER}))
    now = datetime.now(UTC)
    row = rows.leading(one for one in told if rows.is_fresh(one, now=now)) or {}
    for name, words in (("threads", "its handler runs"), ("waiting", "")):
        for one in rows.listed(row, name):
            # A row with an effectId is of a send that waits: its event is decided.
            if "effectId" not in one and _is_of(one, whose) and isinstance(one.get("eventId"), str):
                return Head("event", one["eventId"], words or one.get("why", ""), one.get("since"))
    first: Mapping[str, Any] | None = database[HELD].find_one(whose, sort=[("n", 1)])
    if first is None:
        return None
    document = first.get("document") or {"_id": first["_id"]}
    return Head("event", name_of(document), str(first.get("why", "")), first.get("since"))


def _is_of(one: Mapping[str, Any], whose: Mapping[str, str]) -> bool:
    return all(one.get(name) == value for name, value in whose.items())


def _send_head(database: Database[Any], channel: str, key: str) -> Head | None:
    fields = {"pending.id": 1, "pending.type": 1, "pending.at": 1, "pending.triedAt": 1}
    row = database[CONVERSATIONS].find_one({"_id": f"{channel}/{key}"}, fields) or {}
    sends = [one for one in row.get("pending") or () if one.get("type") == "send"]
    if not sends:
        return None
    first = sends[0]
    tried = "tried, of unknown outcome" if first.get("triedAt") else "not taken by LINE yet"
    why = f"{len(sends)} wait in its outbox; the first: {tried}"
    return Head("send", first["id"], why, first.get("at"))
