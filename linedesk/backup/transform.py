"""Transforms each document of an export for the database that receives it. Pure.

Sends and timers under way at the moment of the export may have been done since. They do not
continue; each becomes a dead letter for the operator to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from dispatcher.conversations.mailbox import Condemned
from dispatcher.timer_rows import BrokenRow, fired_timer
from jobworker.effects import TAKEN, of_effect, of_event, row_of
from linedesk.operate.reading import effects_with_tries
from linedesk.store.client import AS_STORED
from linedesk.store.documents import (
    BATCHES,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    PROGRESS,
    SCHEDULE,
    Document,
    conversation_id,
    name_of,
)
from linedesk.store.records import letters
from linedesk.store.records.answers import ANSWERS, waiting_in
from linedesk.store.records.answers import SEND as ANSWER
from linedesk.store.records.batches import READY, STATE
from linedesk.store.records.conversations import FORMER_NAMES
from linedesk.store.records.effects import (
    CALL,
    OUTBOX,
    RETRY_KEY,
    SEND,
    TRIED_AT,
    effects_of,
    place_of,
)
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import (
    DEADLETTER,
    EXPIRES_AT,
    Cause,
    asks_for_effect,
    under_replay,
)
from linedesk.store.records.timers import ENDED_AT, RUN_AT, SET_BY
from linedesk.store.redaction import message_id_of, redacted
from linedesk.store.timers import STATE_TIMER, TIMER

# The array that holds the outbox in exports of development versions (schema 1 and 2).
FORMER_OUTBOX = "pending"
# The causes of new dead letters; `linedesk dead replay --cause` accepts a part of one.
WAITED_IN_OUTBOX = "restored_outbox"
REPLACED = "restored_replaced"
WAITED_IN_HELD = "restored_held"
TIMER_PAST_DUE = "restored_timer"
STATE_PAST_DUE = "restored_state"
# A further count.
WAITING = "timers that wait"
TOLD = (
    CONVERSATIONS,
    WAITING,
    DEADLETTERS,
    WAITED_IN_OUTBOX,
    REPLACED,
    WAITED_IN_HELD,
    TIMER_PAST_DUE,
    STATE_PAST_DUE,
)
"""The order of the summary for operators; the last five are among the dead letters."""

Written = tuple[str, Mapping[str, Any]]


class Restored:
    """Goes through an export twice: `look` at each document, then `carry` each, and `rest`.

    `now` decides which timers are past due. `at` is the moment of the export: the fate of an outbox
    after it is unknown.
    """

    def __init__(self, *, at: datetime, now: datetime) -> None:
        self._at = at
        self._now = now
        self._held: set[tuple[str, str]] = set()
        # Dead letters of sends and timers whose replays wait in `held`. Once a letter is read, its
        # effect: the replay only names it.
        self._replayed: dict[str, Document] = {}
        # Documents of `held` that are decided and leave it with the next save.
        self._decided: set[tuple[str, str]] = set()
        # Timers that wait to enter `schedule`; the latest for each row.
        self._timers: dict[str, Mapping[str, Any]] = {}
        # Multicasts that may have been called at the moment of the export.
        self._ready: set[str] = set()
        # Unsent messages whose copies may not have been emptied yet.
        self._unsent: set[tuple[str, str | None]] = set()
        self.is_known: Callable[[Document], bool] = lambda place: False
        """Whether the receiving database has this document in recvq already; its own progress then
        decides.
        """
        self.highest_epoch = 0
        self.epoch = 0
        """The epoch for conversations; set it before they are written."""
        self.became: Counter[str] = Counter()
        """The number of documents of each written collection, and of each cause."""

    def look(self, collection: str, document: RawBSONDocument) -> None:
        """Collect what `carry` needs to know of the other documents."""
        if collection in (PROGRESS, BATCHES, CONVERSATIONS):
            self.highest_epoch = max(self.highest_epoch, document.get("epoch") or 0)
        if collection == BATCHES and document.get(STATE) == READY:
            self._ready.add(str(document["_id"]))
        if collection == HELD:
            held = document["document"]
            self._held.add(_place(held))
            if (first := _first_letter(held)) is not None:
                self._replayed[first] = {}
        elif collection == CONVERSATIONS:
            id_ = str(document["_id"])
            applied = ((id_, str(name)) for name in document.get("applied") or ())
            self._decided.update(self._held.intersection(applied))
            self._unsent.update((id_, str(message)) for message in document.get("unsent") or ())
            for _, effect in effects_of(_with_outbox(document)):
                if effect["type"] == TIMER:
                    self._note_timer(effect)

    def carry(self, collection: str, document: RawBSONDocument) -> Iterator[Written]:
        """The documents to write for one document, with their collections."""
        ways = {
            DEADLETTERS: self._letter,
            HELD: self._held_document,
            CONVERSATIONS: self._conversation,
            SCHEDULE: self._row,
        }
        if collection in ways:
            yield from self._counted(ways[collection](document))

    def rest(self) -> Iterator[Written]:
        """The documents to write at the end: timers that had no row yet."""
        for effect in self._timers.values():
            yield from self._counted(self._due(_entered(effect, {})))
        self._timers.clear()

    def _counted(self, written: Iterator[Written]) -> Iterator[Written]:
        for collection, document in written:
            self.became[collection] += 1
            yield collection, document

    def _note_timer(self, effect: Mapping[str, Any]) -> None:
        known = self._timers.get(effect["timer"])
        if known is None or known["n"] < effect["n"]:
            self._timers[effect["timer"]] = effect

    # Of each collection.

    def _letter(self, letter: Mapping[str, Any]) -> Iterator[Written]:
        if str(letter["_id"]) in self._replayed and "effect" in letter:
            self._replayed[str(letter["_id"])] = {"effect": letter["effect"]}
        yield DEADLETTERS, self._emptied(letter)

    def _emptied(self, letter: Mapping[str, Any]) -> Mapping[str, Any]:
        """The letter without a message that its sender unsent."""
        # With the expiry date of the old database it would be deleted at once.
        letter = {name: value for name, value in letter.items() if name != EXPIRES_AT}
        document = letter.get("document")
        if not isinstance(document, Mapping) or not self._is_unsent(document):
            return letter
        return {**dict(letter), "document": redacted(document), "traceback": None}

    def _is_unsent(self, document: Mapping[str, Any]) -> bool:
        id_ = f"{document.get('channel')}/{document.get('key')}"
        return (id_, message_id_of(document)) in self._unsent

    def _held_document(self, row: Mapping[str, Any]) -> Iterator[Written]:
        document = dict(row["document"])
        # An unsent message has no effect anyway.
        if _place(document) in self._decided or document.get("unsent") or self._is_unsent(document):
            return
        if self.is_known({"_id": document["_id"]}):
            return
        since = row.get("since") or self._now
        letter = of_event(document, Condemned(Cause(WAITED_IN_HELD), 0, since))
        if effect := self._replayed.get(_first_letter(document) or ""):
            del letter["document"]
            letter |= effect
        yield self._given_up(letter)

    def _conversation(self, document: Mapping[str, Any]) -> Iterator[Written]:
        for effect in _waiting(document, is_ready=self._ready.__contains__):
            # It may have been sent after the export.
            yield self._ended(document, _perhaps_done(effect, at=self._at), cause=WAITED_IN_OUTBOX)
        emptied: Document = {OUTBOX: {}} if OUTBOX in document else {}
        gone = (CALL, FORMER_NAMES, FORMER_OUTBOX)
        kept = {name: value for name, value in document.items() if name not in gone}
        if ANSWERS in document:
            # For all other answers the event is finished, or the answer waited in the outbox.
            emptied[ANSWERS] = dict(waiting_in(document))
        yield CONVERSATIONS, {**kept, "epoch": self.epoch, **emptied}

    def left(
        self, document: Mapping[str, Any], *, is_ready: Callable[[str], bool]
    ) -> Iterator[Written]:
        """The dead letters of a conversation to be deleted: waiting sends of its outbox, and
        answers that wait for a tap.

        `is_ready` returns whether a multicast of its database may have been called.
        """
        answers = (one.get(ANSWER) for _, one in waiting_in(document))
        for effect in (*_waiting(document, is_ready=is_ready), *map(dict, filter(None, answers))):
            yield from self._counted(iter([self._ended(document, effect, cause=REPLACED)]))

    def _ended(self, document: Mapping[str, Any], effect: Document, *, cause: str) -> Written:
        if effect.get("type") == DEADLETTER:
            return DEADLETTERS, self._emptied(letters.row_of(effect))
        return self._given_up(of_effect(effect, document["_id"], cause=Cause(cause), attempts=0))

    def _row(self, row: Mapping[str, Any]) -> Iterator[Written]:
        effect = self._timers.get(str(row["_id"]))
        if effect is not None:
            del self._timers[str(row["_id"])]
            # As `jobworker.record.schedule.Schedule.enter` decides it.
            if not (isinstance(row.get("n"), int) and row["n"] >= effect["n"]):
                row = _entered(effect, row)
        yield from self._due(row)

    def _due(self, row: Mapping[str, Any]) -> Iterator[Written]:
        """The row without timers that would fire only because their time has passed."""
        run_at = row.get(RUN_AT)
        if not isinstance(run_at, datetime):
            yield SCHEDULE, row
        elif run_at > self._now:
            self.became[WAITING] += 1
            yield SCHEDULE, row
        else:
            yield from self._past_due(row)

    def _past_due(self, row: Mapping[str, Any]) -> Iterator[Written]:
        try:
            stored = RawBSONDocument(bson.encode(row), AS_STORED)
            fired = fired_timer(stored, now=self._now, accept_time=self._now)
        except BrokenRow:
            # The dispatcher sets it aside and logs the reason.
            yield SCHEDULE, row
            return
        if fired.next_at is not None:
            self.became[WAITING] += 1
            yield SCHEDULE, {**dict(row), RUN_AT: fired.next_at}
            return
        if not self.is_known({EVENT_ID: fired.event_id}):
            yield self._given_up(_letter_of_row(row))
        yield SCHEDULE, {**dict(row), RUN_AT: None, ENDED_AT: self._now}

    def _given_up(self, letter: Document) -> Written:
        self.became[letter["cause"]] += 1
        return DEADLETTERS, letters.row_of(letter)


def _first_letter(document: Mapping[str, Any]) -> str | None:
    """The dead letter of the send or timer that a document replays; None for others."""
    first = under_replay(document) if asks_for_effect(document) else None
    return None if first is None else str(first["_id"])


def _place(document: Mapping[str, Any]) -> tuple[str, str]:
    """A document by its conversation and its name."""
    return conversation_id(document), name_of(document)


def _with_outbox(conversation: Mapping[str, Any]) -> Mapping[str, Any]:
    """The conversation with all of its effects in the outbox."""
    left, outbox = conversation.get(FORMER_OUTBOX), conversation.get(OUTBOX)
    if not isinstance(left, list):
        return conversation
    former = {place_of(0, number): effect for number, effect in enumerate(left)}
    later = outbox if isinstance(outbox, Mapping) else {}
    return {**conversation, OUTBOX: {**former, **later}}


def _waiting(
    conversation: Mapping[str, Any], *, is_ready: Callable[[str], bool]
) -> Iterator[Document]:
    """The effects that wait in an outbox, without timers."""
    effects = effects_with_tries(_with_outbox(conversation), is_ready=is_ready)
    return (effect for _, effect in effects if effect["type"] != TIMER)


def _perhaps_done(effect: Document, *, at: datetime) -> Document:
    """The send as one of unknown outcome since that moment.

    A send that was untried then may have been sent together with others since. Its own retry key
    therefore proves nothing.
    """
    if effect.get("type") != SEND or effect.get(TRIED_AT):
        return effect
    tried_as = effect.get("as") or effect.get("way")
    return {**effect, TRIED_AT: at, "as": tried_as, RETRY_KEY: None}


def _entered(effect: Mapping[str, Any], row: Mapping[str, Any]) -> Document:
    """The row once the effect has been entered."""
    update = row_of(effect)
    kept = {name: value for name, value in row.items() if name not in update["$unset"]}
    return {"_id": effect["timer"], **kept, **update["$set"]}


def _letter_of_row(row: Mapping[str, Any]) -> Document:
    """The dead letter of a timer that must not fire by itself. Its replay sets it past due."""
    set_by = row.get(SET_BY)
    event_id = set_by if isinstance(set_by, str) else row["_id"]
    effect = {
        "id": f"{event_id}/timer/{row['name']}",
        "type": TIMER,
        EVENT_ID: event_id,
        "timer": row["_id"],
        **{name: row.get(name) for name in TAKEN},
    }
    cause = STATE_PAST_DUE if row["name"] == STATE_TIMER else TIMER_PAST_DUE
    return of_effect(effect, f"{row['channel']}/{row['key']}", cause=Cause(cause), attempts=0)
