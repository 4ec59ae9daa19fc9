"""The acts of an operator: pause, resume, release, replay, drop.

The page and the command line write each act to `audit` before it is done and complete the row
afterwards. An interrupted act is therefore visible. An act is not done if its row cannot be
written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pymongo
from bson import ObjectId
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError
from pymongo.results import UpdateResult

from linedesk.operate import processes
from linedesk.operate.dead_letters import Replays
from linedesk.operate.format import scope_words
from linedesk.operate.health import WAIT_WARN_SECONDS
from linedesk.operate.processes import present_leader
from linedesk.operate.reading import outbox_of
from linedesk.operate.text import NotDone, NotReplayed, known
from linedesk.runtime.language import DEFAULT, ngettext, speaking
from linedesk.runtime.language import gettext as _
from linedesk.store import control
from linedesk.store.client import DURABLE
from linedesk.store.collections import require_schema
from linedesk.store.control import (
    DONE_AT,
    DROP,
    PAUSE,
    RELEASE,
    Control,
    Pause,
    Release,
    Scope,
    TimerOrder,
    now_stored,
)
from linedesk.store.documents import (
    AUDIT,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    Document,
    name_of,
)
from linedesk.store.errors import QueueError, RecvqClosed, SetupError, StoreUnavailable, translated
from linedesk.store.records.audit import DONE, begun_row, ended
from linedesk.store.records.effects import CALL, EFFECT_ID, OUTBOX, SEND, TRIED_AT
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.waits import Why, code_of, reason

log = logging.getLogger(__name__)

Via = Literal["page", "command"]
MOST_SHOWN = 200
WHY_CHARACTERS = 500
READ_SECONDS = 5.0


class Audit:
    """Writes the acts of one operator; `by` is the operator's name, `via` the page or a command."""

    def __init__(self, database: Database[Any], *, by: str, via: Via) -> None:
        self._rows = database[AUDIT].with_options(write_concern=DURABLE)
        self._by, self._via = by, via

    @contextmanager
    def noted(self, act: str, *, on: str | Sequence[str], why: str = "") -> Iterator[None]:
        """Record an act around its block, in English.

        Raises StoreUnavailable before the act begins where MongoDB is away. An act that raises
        NotDone, or that MongoDB or recvq refuses, ends as refused. An act of unknown outcome stays
        as begun.
        """
        require_schema(self._rows.database)
        id_ = ObjectId()
        row = begun_row(
            at=datetime.now(UTC),
            by=self._by,
            via=self._via,
            act=act,
            on=on if isinstance(on, str) else list(on),
            why=why[:WHY_CHARACTERS],
        )
        # guard: audit-row-first
        with translated():
            self._rows.insert_one({"_id": id_, **row})
        try:
            yield
        except (NotDone, RecvqClosed, SetupError) as error:
            with speaking(DEFAULT):
                refusal = error.reason if isinstance(error, NotReplayed) else str(error)
            self._end(id_, {"code": "refused", "reason": refusal})
            raise
        except StoreUnavailable:
            log.warning("outcome of an act is unknown, begun in audit act=%s id=%s", act, id_)
            raise
        self._end(id_, DONE)

    def _end(self, id_: ObjectId, outcome: str | Document) -> None:
        try:
            with translated():
                changes = ended(outcome, datetime.now(UTC))
                self._rows.update_one({"_id": id_}, {"$set": changes})
        except QueueError as error:
            # The act is done: only its row stays as begun.
            log.warning("end of an act not written id=%s error=%s", id_, type(error).__name__)


def newest(database: Database[Any], *, limit: int = MOST_SHOWN) -> list[Document]:
    """Return the newest rows, the newest first. Raises StoreUnavailable."""
    with translated(), pymongo.timeout(READ_SECONDS):
        return list(database[AUDIT].find({}).sort("at", -1).limit(limit))


class OperatorControl(Control):
    """`control` for a command or the console; every method may raise StoreUnavailable."""

    def pause(self, scope: Scope, *, by: str, why: str = "") -> bool:
        """Stop processing the scope from now on; False if it was paused already."""
        with translated():
            found = self.rows.find_one({"_id": scope.id})
            if found is not None and Pause.from_row(found) is not None:
                return False
            row = {
                "act": PAUSE,
                "channel": scope.channel,
                "key": scope.key,
                "by": by,
                "why": why,
                "at": now_stored(),
            }
            # A drop of the same scope stays: it may not have reached all of its events.
            changes = {"$set": row, "$unset": {DONE_AT: ""}}
            _put(lambda: self.rows.update_one({"_id": scope.id}, changes, upsert=True))
        return True

    def resume(self, scope: Scope, *, drop_by: str | None = None) -> bool:
        """End the pause of exactly this scope; False if there was none.

        With `drop_by`, the name of an operator, no event that was stored until now is handled: each
        becomes a dead letter. The same write ends the pause and orders that.
        """
        paused, changes = {"_id": scope.id, "act": PAUSE}, {"act": DROP}
        with translated():
            if drop_by is not None:
                drop = {DROP: {"by": drop_by, "at": now_stored()}}
                return bool(self.rows.update_one(paused, {"$set": changes | drop}).matched_count)
            no_drop = {"_id": scope.id, DROP: None}
            return bool(
                self.rows.delete_one(no_drop).deleted_count
                or self.rows.update_one(paused, {"$set": changes}).matched_count
            )

    def release(
        self, channel: str, key: str, what: Mapping[control.Head, str], *, by: str
    ) -> Release:
        """Order to give up the head of a conversation.

        `what` is `{"eventId": …}`, the first event in the queue, or `{"effectId": …}`, the first
        send of the outbox. It replaces an earlier release of the same conversation.
        """
        ((head, name),) = what.items()
        release = Release(channel, key, head, name, by, now_stored())
        row = {
            "_id": release.id,
            "act": RELEASE,
            "channel": channel,
            "key": key,
            "what": {head: name},
            "by": by,
            "at": release.at,
        }
        with translated():
            _put(lambda: self.rows.replace_one({"_id": release.id}, row, upsert=True))
        return release

    def order_timers(self, order: TimerOrder) -> TimerOrder:
        """Order a timer for all friends; it replaces an earlier order of the same name."""
        with translated():
            _put(lambda: self.rows.replace_one({"_id": order.id}, order.row, upsert=True))
        return order

    def outcome_of(self, order: Release | TimerOrder) -> Document | str | None:
        """The result of an order; None until a dispatcher has carried it out."""
        with translated():
            row = self.rows.find_one({"_id": order.id})
        if row is None or row.get("at") != order.at:
            return {"code": "release_replaced"}
        return row.get("came") if row.get(DONE_AT) is not None else None


def _put(put: Callable[[], UpdateResult]) -> UpdateResult:
    """Write a row that another order may create at the same time."""
    try:
        return put()
    except DuplicateKeyError:
        return put()


SLICE = 1_000
Kind = Literal["event", "send"]


@dataclass(frozen=True)
class Head:
    """The first event of a conversation's queue or the first send of its outbox.

    A release gives it up.
    """

    kind: Kind
    id: str
    """An event's id, or a send's."""
    why: object
    """The known reason for its wait, as stored."""
    since: datetime | None = None
    is_held: bool = False
    """Whether it, or an event behind it, was moved to `held`."""

    @property
    def named(self) -> dict[control.Head, str]:
        """The fields that name it in `control`."""
        return {EVENT_ID: self.id} if self.kind == "event" else {EFFECT_ID: self.id}

    @property
    def is_paused(self) -> bool:
        """Whether a pause covers it."""
        return code_of(self.why) == Why.PAUSED

    def is_stuck(self, now: datetime) -> bool:
        """Return whether a release is offered: it blocks other events, or has waited for long.

        A paused event is not stuck.
        """
        if self.is_paused:
            return False
        return self.is_held or (
            self.since is not None and (now - self.since).total_seconds() > WAIT_WARN_SECONDS
        )


class Acts:
    """The acts of one operator. All raise StoreUnavailable; most may then be repeated."""

    def __init__(self, database: Database[Any], *, by: str, via: Via) -> None:
        self._database = database
        self._by = by
        self._control = OperatorControl(database)
        self._audit = Audit(database, by=by, via=via)
        self._replays = Replays(database)

    def pause(self, scope: Scope, *, why: str = "") -> bool:
        """Pause everything, a channel or a conversation; False if it was paused already."""
        with self._audit.noted("pause", on=str(scope), why=why):
            return self._control.pause(scope, by=self._by, why=why)

    def resume(self, scope: Scope, *, why: str = "", drop: bool = False) -> bool:
        """End this one pause; False if there was none.

        With `drop` no event that waits is handled: each becomes a dead letter.
        """
        with self._audit.noted("resume and drop" if drop else "resume", on=str(scope), why=why):
            return self._control.resume(scope, drop_by=self._by if drop else None)

    def still_paused(self, scope: Scope) -> list[tuple[str | None, str | None]]:
        """Return channel and key of each pause that covers the scope or a part of it."""
        return [
            (other.channel, other.key)
            for other in (one.scope for one in self._control.read().rows)
            if other.covers(scope.channel, scope.key) or scope.covers(other.channel, other.key)
        ]

    def release(self, channel: str, key: str, head: Head, *, why: str = "") -> Release:
        """Order the dispatcher to give up a stuck event or send, if it still is stuck.

        It becomes a dead letter, and the next event of the conversation is handled. `came` returns
        the outcome.
        """
        with self._audit.noted("release", on=f"{channel}/{key} {head.id}", why=why):
            return self._control.release(channel, key, head.named, by=self._by)

    def accept(self, version: str, *, why: str = "") -> bool:
        """Let workers with this version of the bot get jobs; False if they may already."""
        with self._audit.noted("accept", on=version, why=why):
            return self._control.accept_bot(version, by=self._by)

    def waits_for(self, ids: Sequence[str]) -> str | None:
        """Return why the replays of these letters wait; None where they do not wait."""
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
        return ngettext(
            "waits because {scopes} is paused", "waits because {scopes} are paused", len(names)
        ).format(scopes=_(", ").join(names))

    def set_timers(self, name: str, timer: Mapping[str, Any], *, why: str = "") -> TimerOrder:
        """Order the dispatcher to set a timer for all friends."""
        when = timer["runAt"] or " ".join(timer["every"].values())
        with self._audit.noted("set timers", on=f"{name} {when}", why=why):
            return self._control.order_timers(TimerOrder(name, timer, self._by, now_stored()))

    def came(self, order: Release | TimerOrder) -> Document | str | None:
        """Return the stored outcome of an order; None until a dispatcher has carried it out."""
        return self._control.outcome_of(order)

    def replay(self, id_: str, *, again: bool = False, force: bool = False) -> str:
        """Put a dead letter into recvq; returns its eventId. Raises as `Replays.replay`."""
        with self._audit.noted("replay", on=id_, why="may arrive twice" if force else ""):
            return self._replays.replay(id_, again=again, force=force)

    def drop(self, ids: Sequence[str]) -> int:
        """Delete dead letters for good; returns how many existed."""
        letters = self._database[DEADLETTERS].with_options(write_concern=DURABLE)
        dropped = 0
        for start in range(0, len(ids), SLICE):
            some = list(ids[start : start + SLICE])
            with self._audit.noted("drop", on=some), translated():
                dropped += letters.delete_many({"_id": {"$in": some}}).deleted_count
        return dropped


def heads(database: Database[Any], channel: str, key: str) -> list[Head]:
    """Return the first event of a conversation's queue and the first send of its outbox.

    At most one of each. Raises StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        event = _event_head(database, channel, key)
        if event is not None and OperatorControl(database).read().covers(channel, key):
            # Its row in `held` may still have the reason from before the pause.
            event = replace(event, why=reason(Why.PAUSED))
        send = _send_head(database, channel, key)
    return [head for head in (event, send) if head is not None]


def only(found: Sequence[Head], kind: Kind | None) -> Head:
    """Return the head of this kind. Raises NotDone where none waits, or both without a kind."""
    fits = [head for head in found if kind in (None, head.kind)]
    if not fits:
        raise NotDone(known("nothing_waits"))
    if len(fits) > 1:
        raise NotDone(known("two_wait"))
    return fits[0]


def _event_head(database: Database[Any], channel: str, key: str) -> Head | None:
    whose = {"channel": channel, "key": key}
    row = present_leader(database) or {}
    first: Mapping[str, Any] | None = database[HELD].find_one(whose, sort=[("n", 1)])
    is_held = first is not None
    for name, doing in (("threads", reason(Why.HANDLER_RUNS)), ("waiting", None)):
        for one in processes.listed(row, name):
            # A row with an effectId belongs to a send that waits: its event is decided.
            is_its_own = EFFECT_ID not in one and whose.items() <= one.items()
            if is_its_own and isinstance(one.get(EVENT_ID), str):
                why = doing or one.get("why", "")
                return Head("event", one[EVENT_ID], why, one.get("since"), is_held)
    if first is None:
        return None
    document = first.get("document") or {"_id": first["_id"]}
    return Head("event", name_of(document), first.get("why", ""), first.get("since"), is_held)


def _send_head(database: Database[Any], channel: str, key: str) -> Head | None:
    fields = [OUTBOX, CALL]
    row = database[CONVERSATIONS].find_one({"_id": f"{channel}/{key}"}, fields) or {}
    sends = [one for one in outbox_of(database, row) if one.get("type") == SEND]
    if not sends:
        return None
    first = sends[0]
    why = Why.FIRST_TRIED_OF if first.get(TRIED_AT) else Why.FIRST_OF
    return Head("send", first["id"], reason(why, count=len(sends)), first.get("at"))
