"""Calls that carry the same sends of many conversations: multicasts, each a row of `batches`.

The claims of all its sends and its row are one write, and so is its end. A call that a leader finds
is repeated under its key, which is LINE's retry key.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dispatcher.commit.committer import Change, Committer
from jobworker.record.conversations import there
from linedesk.store.documents import BATCHES, CONVERSATIONS, Document
from linedesk.store.errors import WriteRefused
from linedesk.store.records.batches import READY, STATE
from linedesk.store.records.effects import CALL

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadyBatch:
    """A multicast whose body and recipients are fixed."""

    key: str
    at: datetime
    members: Mapping[str, Sequence[str]]
    """The places of its sends by conversation."""


class Batches:
    """Reads and writes of the leader.

    Every method raises StoreUnavailable when MongoDB does not confirm in time, and may be repeated.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._rows = committer.database[BATCHES]
        self._collection = committer.database[CONVERSATIONS]

    def friends(self, ids: Iterable[str]) -> set[str]:
        """Return the chats of these with a friend: a multicast reaches no other user, and does not
        report that.
        """
        these = {"_id": {"$in": list(ids)}, **FRIEND}
        with self._committer.reading() as session:
            return {row["_id"] for row in self._collection.find(these, {"_id": 1}, session=session)}

    def make(self, batch: ReadyBatch, *, seconds: float) -> bool:
        """Claim its sends, and store it. False if one of them cannot be part of it."""
        members = batch.members.items()
        claims = [
            Change(
                CONVERSATIONS,
                {"_id": id_, **FRIEND, **there(places)},
                {"$set": {CALL: {"batch": batch.key, "at": batch.at, "members": list(places)}}},
            )
            for id_, places in members
        ]
        row: Document = {"_id": batch.key, STATE: READY, "at": batch.at}
        row["members"] = [{"_id": id_, "places": list(places)} for id_, places in members]
        insert = Change.insert(BATCHES, row)
        try:
            return self._committer.commit(*claims, insert, seconds=seconds)
        except WriteRefused as error:
            log.warning("batch not recorded batch=%s error=%s", batch.key, error)
            return False

    def end(self, batch: ReadyBatch, *, done: bool) -> None:
        """End a batch: its row goes and its sends are free, or leave if LINE has them."""
        row, members = Change(BATCHES, {"_id": batch.key}, None), []
        for id_, places in batch.members.items():
            gone = dict.fromkeys((f"outbox.{place}" for place in places if done), "")
            update = {"$unset": {CALL: "", **gone}}
            # One that was given up meanwhile may have another call.
            # guard: end-of-this-batch -> claimed: Document = {"_id": id_}
            claimed: Document = {"_id": id_, "call.batch": batch.key}
            members.append(Change(CONVERSATIONS, claimed, update))
        # Where they are made one by one, those that are claimed are free without the row.
        # guard: members-leave-first -> self._committer.commit_each(row, *members)
        self._committer.commit_each(*([*members, row] if done else [row, *members]))

    def unfinished(self) -> list[ReadyBatch]:
        """Return the batches that a predecessor left. Those that a release before this one has
        opened and not made ready count for nothing: they go.
        """
        with self._committer.reading() as session:
            rows = list(self._rows.find({}, session=session))
        for row in rows:
            if row[STATE] != READY:
                self.remove(row["_id"])
        return [
            ReadyBatch(row["_id"], row["at"], {one["_id"]: one["places"] for one in row["members"]})
            for row in rows
            if row[STATE] == READY
        ]

    def messages(self, batch: ReadyBatch) -> list[Document] | None:
        """Return its messages, from a conversation that is still in it; None if all have left."""
        these = {"_id": {"$in": list(batch.members)}, "call.batch": batch.key}
        with self._committer.reading() as session:
            row = self._collection.find_one(these, {"outbox": 1}, session=session)
        if row is None:
            return None
        sends = (row["outbox"].get(place) or {} for place in batch.members[row["_id"]])
        return [message for send in sends for message in send.get("messages", ())]

    def remove(self, key: str) -> None:
        """Remove its row: no conversation is in it."""
        self._committer.commit(Change(BATCHES, {"_id": key}, None))


# guard: friends-only -> FRIEND: Document = {}
FRIEND: Document = {"kind": "user", "friend": True}
