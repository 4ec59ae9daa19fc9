"""Conversations and timers in memory, in the form of MongoDB.

Records pass through BSON: a tuple becomes a list, a datetime loses its microseconds, and values
that MongoDB cannot store are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import bson

from jobworker.effects import TAKEN
from jobworker.record.conversations import STARTED, Decision, StoredConversation
from jobworker.record.record import named
from linedesk.store.client import aware_options
from linedesk.store.documents import Document, conversation_id, name_of
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.timers import RUN_AT, SET_BY
from linedesk.store.recurrence import Recurrence
from linedesk.store.timers import TIMER


def as_stored(document: Mapping[str, Any]) -> Document:
    """The document as MongoDB would return it."""
    return _decoded(bson.encode(document))


def _decoded(stored: bytes) -> Document:
    found: Document = bson.decode(stored, aware_options())
    return found


class Memory:
    """The collections `conversations` and `schedule` of one test."""

    def __init__(self) -> None:
        self._conversations: dict[str, bytes] = {}
        self._schedule: dict[str, Document] = {}
        # By timer, the number of the last record that set or cancelled it.
        self._orders: dict[str, int] = {}

    def load(self, document: Mapping[str, Any]) -> StoredConversation:
        """The conversation of a document, in the form for handlers."""
        id_ = conversation_id(document)
        return StoredConversation.from_document(id_, self.stored(id_))

    def stored(self, id_: str) -> Document:
        """A copy of a conversation's document; empty if there is none."""
        return _decoded(self._conversations[id_]) if id_ in self._conversations else {}

    def unstarted(self, name: str) -> list[str]:
        """The 1:1 conversations that wait for this `start_timers`; blocked ones do not."""
        found = {id_: self.stored(id_) for id_ in self._conversations}
        return [
            id_
            for id_, one in found.items()
            if one.get("kind") == "user"
            and one.get("friend") is not False
            and name not in one.get(STARTED, {})
        ]

    def record(self, document: Mapping[str, Any], decision: Decision) -> list[Document]:
        """Write a checked decision, all or nothing; returns the sends in order."""
        if decision.is_empty:
            return []
        id_ = conversation_id(document)
        before = self.stored(id_)
        changed = {**before, **named(document), "n": before.get("n", 0) + 1}
        for path, value in decision.changes.items():
            field, _, part = path.partition(".")
            changed[field] = {**(changed.get(field) or {}), part: value} if part else value
        for path in decision.gone:
            field, _, part = path.partition(".")
            # Like MongoDB, ignore absent fields.
            (changed.get(field) or {}).pop(part, None)
        effects = as_stored({"effects": decision.effects})["effects"]
        self._conversations[id_] = bson.encode(changed)
        for effect in effects:
            if effect["type"] == "timer":
                self._set(effect, name_of(document), changed["n"])
        return [effect for effect in effects if effect["type"] == "send"]

    def end_old_answers(self, before: datetime) -> None:
        """Remove the answers that wait for a tap since before that moment."""
        for id_ in self._conversations:
            stored = self.stored(id_)
            answers = stored.get(ANSWERS) or {}
            left = {name: one for name, one in answers.items() if one["at"] >= before}
            if left != answers:
                self._conversations[id_] = bson.encode({**stored, ANSWERS: left})

    def overtook(self, document: Mapping[str, Any]) -> bool:
        """Whether a timer that fired was set again or cancelled by a later record."""
        timer = document["event"].get(TIMER)
        return timer is not None and timer["n"] < self._orders.get(timer["id"], 0)

    def rows(self) -> list[Document]:
        """The timers that wait, as rows of `schedule`, in the order in which they were set."""
        return list(self._schedule.values())

    def fired(self, row: Document) -> None:
        """Remove the row of a timer that fires; one that fires again is set again."""
        del self._schedule[row["_id"]]
        following = row["every"] and Recurrence.from_document(row["every"]).after(row[RUN_AT])
        if following:
            self._schedule[row["_id"]] = {**row, RUN_AT: following}

    def _set(self, effect: Document, event_id: str, n: int) -> None:
        self._schedule.pop(effect["timer"], None)
        self._orders[effect["timer"]] = n
        if effect[RUN_AT] is None:
            return
        kept = {name: effect[name] for name in TAKEN}
        row = {"_id": effect["timer"], **kept, "n": n, SET_BY: event_id}
        self._schedule[effect["timer"]] = row
