"""Calls that carry the same sends of many conversations: multicasts, each a row of `batches`.

A row is `open` while sends are claimed for it, and `ready` before LINE is called. A claim without
its row has no effect, and only an open row becomes ready. A leader and its successor therefore
never both have the sends. The successor adopts the conversations, which ends the claiming, and then
removes the open rows. A ready batch is repeated under its key, which is LINE's retry key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from jobworker.record.conversations import Conversations, there
from linedesk.store.client import durable
from linedesk.store.documents import BATCHES, CONVERSATIONS, Document
from linedesk.store.errors import (
    TRANSIENT_CODES,
    Replaced,
    StoreUnavailable,
    translated,
    writing_one,
)
from linedesk.store.records.batches import OPEN, READY, STATE


@dataclass(frozen=True)
class ReadyBatch:
    """A multicast whose body and recipients are fixed."""

    key: str
    at: datetime
    members: Mapping[str, Sequence[str]]
    """The places of its sends by conversation."""


class Batches:
    """Reads and writes for the holder of the conversations' epoch.

    Every method raises StoreUnavailable when MongoDB does not confirm in time, and may be repeated.
    """

    def __init__(self, database: Database[Any], conversations: Conversations) -> None:
        self._rows = durable(database[BATCHES])
        self._collection = durable(database[CONVERSATIONS])
        self._conversations = conversations

    def open(self, key: str, at: datetime) -> None:
        """Begin a batch, before any send is claimed for it."""
        # It exists if an earlier try was late.
        with suppress(DuplicateKeyError), writing_one():
            self._rows.insert_one({"_id": key, "epoch": self._epoch, STATE: OPEN, "at": at})

    def claim(self, key: str, at: datetime, wanted: Mapping[str, Sequence[str]]) -> list[str]:
        """Claim the sends at these places; returns the claimed conversations.

        Only chats with a friend, since a multicast reaches no other user and does not report that.
        """
        claims = [
            UpdateOne(
                {
                    "_id": id_,
                    "epoch": self._epoch,
                    "kind": "user",
                    "friend": True,  # guard: friends-only
                    "call": None,
                    **there(places),
                },
                {"$set": {"call": {"batch": key, "at": at, "members": list(places)}}},
            )
            for id_, places in wanted.items()
        ]
        these = {"_id": {"$in": list(wanted)}, "call.batch": key, "epoch": self._epoch}
        with writing_one():
            try:
                self._collection.bulk_write(claims, ordered=False)
            except BulkWriteError as error:
                # An error of a single conversation is reported when that conversation is called by
                # itself.
                if not _is_refusal(error):
                    raise StoreUnavailable("a batch is not claimed as a whole") from error
            return [row["_id"] for row in self._collection.find(these, {"_id": 1})]

    def ready(self, key: str, members: Mapping[str, Sequence[str]]) -> bool:
        """Fix the recipients; False if a successor has removed the batch."""
        rows = [{"_id": id_, "places": list(places)} for id_, places in members.items()]
        still_open = {"_id": key, "epoch": self._epoch, STATE: OPEN}
        with writing_one():
            answer = self._rows.update_one(still_open, {"$set": {STATE: READY, "members": rows}})
        # guard: only-an-open-batch -> return True
        return bool(answer.matched_count)

    def end(self, batch: ReadyBatch) -> None:
        """End a batch that LINE has: its sends leave their outboxes, then its row is removed.

        Raises Replaced if a successor has adopted one of them: without the row the successor would
        ignore the claim.
        """
        # guard: members-leave-first ->
        #     self.remove(batch.key)
        #     self._let_go(batch.key, batch.members, done=True)
        self._let_go(batch.key, batch.members, done=True)
        # guard: row-of-a-successor-stays
        if self.messages(batch) is not None:
            raise Replaced("a conversation of a multicast belongs to a higher epoch")
        self.remove(batch.key)

    def call_off(self, key: str, members: Mapping[str, Sequence[str]]) -> None:
        """Cancel a batch that LINE does not have: its row is removed, then its sends are free.

        Raises Replaced if the row is a successor's.
        """
        self.remove(key)
        self._let_go(key, members)

    def left(self) -> list[str]:
        """Return the keys of the batches that predecessors left, open or ready."""
        with translated():
            return [row["_id"] for row in self._rows.find(self._older, {"_id": 1})]

    def take(self, key: str) -> ReadyBatch | None:
        """Take over a predecessor's batch and all of its conversations if it is ready; an open one
        is removed. Raises Replaced if it is a successor's.
        """
        with writing_one():
            self._rows.delete_one({"_id": key, **self._older, STATE: OPEN})
            row = self._take_row({"_id": key, STATE: READY})
        if row is None:
            return None
        members = {one["_id"]: one["places"] for one in row["members"]}
        # Before it ends each conversation has to leave it, even one whose outbox is not loaded yet.
        self._conversations.adopt_all(list(members))
        return ReadyBatch(key, row["at"], members)

    def messages(self, batch: ReadyBatch) -> list[Document] | None:
        """Return its messages, from a conversation that is still in it; None if all have left.

        By a write without changes: right after an election a read may lag behind.
        """
        these = {"_id": {"$in": list(batch.members)}, "call.batch": batch.key}
        with writing_one():
            row: Document | None = self._collection.find_one_and_update(
                these, {"$set": {"call.batch": batch.key}}, {"outbox": 1}
            )
        if row is None:
            return None
        sends = (row["outbox"].get(place) or {} for place in batch.members[row["_id"]])
        return [message for send in sends for message in send.get("messages", ())]

    def _let_go(
        self, key: str, members: Mapping[str, Sequence[str]], *, done: bool = False
    ) -> None:
        def gone(places: Iterable[str]) -> Document:
            return dict.fromkeys((f"outbox.{place}" for place in places if done), "")

        updates = [
            UpdateOne(
                {"_id": id_, "epoch": self._epoch, "call.batch": key},
                {"$unset": {"call": "", **gone(places)}},
            )
            for id_, places in members.items()
        ]
        if not updates:
            return
        with writing_one():
            try:
                self._collection.bulk_write(updates, ordered=False)
            except BulkWriteError as error:
                raise StoreUnavailable("a batch has not left all its conversations") from error

    def remove(self, key: str) -> None:
        """Remove its row, which frees the sends that are still claimed for it.

        Raises Replaced if it is a successor's, which may call LINE with it.
        """
        with writing_one():
            removed = self._rows.delete_one({"_id": key, "epoch": self._epoch}).deleted_count
            # guard: row-of-a-successor-is-not-called-off
            if not removed:
                self._take_row({"_id": key})

    def _take_row(self, which: Document) -> Document | None:
        """Return an existing row, with this epoch; by a write, since right after an election a read
        may lag behind. Raises Replaced if it is a successor's.
        """
        row: Document | None = self._rows.find_one_and_update(
            which, {"$max": {"epoch": self._epoch}}, return_document=ReturnDocument.AFTER
        )
        if row is not None and row["epoch"] > self._epoch:
            raise Replaced(f"a multicast belongs to epoch {row['epoch']}")
        return row

    @property
    def _epoch(self) -> int:
        return self._conversations.epoch

    @property
    def _older(self) -> Document:
        return {"epoch": {"$lt": self._epoch}}


def _is_refusal(error: BulkWriteError) -> bool:
    """Whether MongoDB refused single documents for their content, and has confirmed the others."""
    codes = {one.get("code") for one in error.details["writeErrors"]}
    return not error.details["writeConcernErrors"] and not codes & TRANSIENT_CODES
