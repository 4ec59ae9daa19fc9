"""What each document of an export becomes in the database that it is imported into. Pure.

Nothing that was on its way at the moment of the export goes on by itself: it may have been done
since. It becomes a dead letter, for a person to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from jobworker.bot.states import STATE_TIMER
from jobworker.effects import TAKEN, is_whole, of_effect, of_event, row_of
from linedesk.backup.file import AS_STORED
from linedesk.scheduler.rows import BrokenRow, fired_timer
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
from linedesk.store.queue.replays import asks_for_effect, under_replay
from linedesk.store.records import letters
from linedesk.store.records.answers import ANSWERS, waiting_in
from linedesk.store.records.answers import SEND as ANSWER
from linedesk.store.records.batches import READY, STATE
from linedesk.store.records.conversations import NAME_PARTS
from linedesk.store.records.effects import (
    CALL,
    OUTBOX,
    PENDING,
    RETRY_KEY,
    SEND,
    TRIED_AT,
    effects_of,
    effects_with_tries,
)
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER, EXPIRES_AT
from linedesk.store.records.timers import ENDED_AT, RUN_AT, SET_BY
from linedesk.store.redaction import message_id_of, redacted
from linedesk.store.timers import TIMER

# The causes of what becomes a dead letter; `linedesk dead replay --cause` takes a part of one.
WAITED_IN_OUTBOX = "restored: waited in an outbox"
REPLACED = "restored: replaced before it was sent"
WAITED_IN_HELD = "restored: waited in held"
TIMER_PAST_DUE = "restored: a timer past due"
STATE_PAST_DUE = "restored: the time of a state past due"
# What is told apart beside them.
WAITING = "timers that wait"
MOVED_ON = "daily timers past due, moved to their next time"
RANG = "timers past due that have rung since"
TOLD = (
    CONVERSATIONS,
    WAITING,
    MOVED_ON,
    RANG,
    DEADLETTERS,
    WAITED_IN_OUTBOX,
    REPLACED,
    WAITED_IN_HELD,
    TIMER_PAST_DUE,
    STATE_PAST_DUE,
)
"""The order in which an operator reads it; the last five are among the dead letters."""

Written = tuple[str, Mapping[str, Any]]


class Restored:
    """Goes through an export twice: `look` at each document, then `carry` each, and `rest`.

    `now` decides what is past due. `at` is the moment of the export: what became of an outbox
    after it nobody knows.
    """

    def __init__(self, *, at: datetime, now: datetime) -> None:
        self._at = at
        self._now = now
        self._held: set[tuple[str, str]] = set()
        # Letters of sends and timers whose replays wait in `held`, and once they are met what each
        # is to do: its replay only names it.
        self._replayed: dict[str, Document] = {}
        # Documents of `held` that were decided, and only waited for the next save to leave it.
        self._decided: set[tuple[str, str]] = set()
        # Timers on their way to `schedule`, of each row the latest.
        self._timers: dict[str, Mapping[str, Any]] = {}
        # Multicasts of which a call may have been made at the moment of the export.
        self._ready: set[str] = set()
        # Messages that were taken back, of which copies may not have been emptied yet.
        self._unsent: set[tuple[str, str | None]] = set()
        self.is_known: Callable[[Document], bool] = lambda place: False
        """Whether the database has had a document in recvq already; it is judged there then."""
        self.highest_epoch = 0
        self.epoch = 0
        """The one that conversations get; to be set before they are written."""
        self.became: Counter[str] = Counter()
        """How many documents there are of each collection that is written, and of each cause."""

    def look(self, collection: str, document: RawBSONDocument) -> None:
        """Learn what is needed to carry any document of the export."""
        epoch = document.get("epoch")
        if collection in (PROGRESS, BATCHES, CONVERSATIONS) and isinstance(epoch, int):
            self.highest_epoch = max(self.highest_epoch, epoch)
        if collection == BATCHES and document.get(STATE) == READY:
            self._ready.add(str(document["_id"]))
        if collection == HELD:
            held = _document_of(document)
            self._held.add(_place(held))
            if (first := _first_letter(held)) is not None:
                self._replayed[first] = {}
        elif collection == CONVERSATIONS:
            id_ = str(document["_id"])
            applied = ((id_, str(name)) for name in document.get("applied") or ())
            self._decided.update(self._held.intersection(applied))
            self._unsent.update((id_, str(message)) for message in document.get("unsent") or ())
            for _, effect in effects_of(document):
                if _is_timer(effect):
                    self._note_timer(effect)

    def carry(self, collection: str, document: RawBSONDocument) -> Iterator[Written]:
        """What a document becomes: documents with the collections that they belong to."""
        ways = {
            DEADLETTERS: self._letter,
            HELD: self._held_document,
            CONVERSATIONS: self._conversation,
            SCHEDULE: self._row,
        }
        if collection in ways:
            yield from self._counted(ways[collection](document))

    def rest(self) -> Iterator[Written]:
        """What is left to write once all was carried: timers that had no row yet."""
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
        """A letter without the message that its sender took back."""
        # By a date of the database that is gone it would go at once.
        letter = {name: value for name, value in letter.items() if name != EXPIRES_AT}
        document = letter.get("document")
        if not isinstance(document, Mapping) or not self._is_unsent(document):
            return letter
        return {**dict(letter), "document": redacted(document), "traceback": None}

    def _is_unsent(self, document: Mapping[str, Any]) -> bool:
        id_ = f"{document.get('channel')}/{document.get('key')}"
        return (id_, message_id_of(document)) in self._unsent

    def _held_document(self, row: Mapping[str, Any]) -> Iterator[Written]:
        document = _document_of(row)
        # One that was taken back by its sender comes to nothing anyway.
        if _place(document) in self._decided or document.get("unsent") or self._is_unsent(document):
            return
        if self.is_known({"_id": document["_id"]}):
            return
        since = row.get("since") or self._now
        letter = of_event(document, cause=WAITED_IN_HELD, traceback="", attempts=0, first_at=since)
        if effect := self._replayed.get(_first_letter(document) or ""):
            del letter["document"]
            letter |= effect
        yield self._given_up(letter)

    def _conversation(self, document: Mapping[str, Any]) -> Iterator[Written]:
        for effect in _waiting(document, is_ready=self._ready.__contains__):
            # It may have gone out after the export.
            yield self._ended(document, _perhaps_done(effect, at=self._at), cause=WAITED_IN_OUTBOX)
        empty: Document = {OUTBOX: {}, PENDING: []}
        emptied = {name: value for name, value in empty.items() if name in document}
        kept = {name: value for name, value in document.items() if name not in (CALL, NAME_PARTS)}
        if ANSWERS in document:
            # Of all others the event is over, or its answer waited in the outbox.
            emptied[ANSWERS] = dict(waiting_in(document))
        yield CONVERSATIONS, {**kept, "epoch": self.epoch, **emptied}

    def left(
        self, document: Mapping[str, Any], *, is_ready: Callable[[str], bool]
    ) -> Iterator[Written]:
        """What stays of a conversation that is to go: letters of what waits in its outbox, and of
        answers that wait for a tap.

        `is_ready` tells of a multicast of its database whether a call of it may have been made.
        """
        answers = (one.get(ANSWER) for _, one in waiting_in(document))
        effects = (one for one in answers if isinstance(one, Mapping) and "id" in one)
        for effect in (*_waiting(document, is_ready=is_ready), *map(dict, effects)):
            yield from self._counted(iter([self._ended(document, effect, cause=REPLACED)]))

    def _ended(self, document: Mapping[str, Any], effect: Document, *, cause: str) -> Written:
        if effect.get("type") == DEADLETTER:
            return DEADLETTERS, self._emptied(letters.row_of(effect))
        return self._given_up(of_effect(effect, document["_id"], cause=cause, attempts=0))

    def _row(self, row: Mapping[str, Any]) -> Iterator[Written]:
        effect = self._timers.get(str(row["_id"]))
        if effect is not None:
            del self._timers[str(row["_id"])]
            # As `jobworker.record.schedule.Schedule.enter` decides it.
            if not (isinstance(row.get("n"), int) and row["n"] >= effect["n"]):
                row = _entered(effect, row)
        yield from self._due(row)

    def _due(self, row: Mapping[str, Any]) -> Iterator[Written]:
        """A row as it has to stand, so that nothing rings only because its time has passed."""
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
            # The scheduler sets it aside, and says why.
            yield SCHEDULE, row
            return
        if fired.next_at is not None:
            self.became[MOVED_ON] += 1
            yield SCHEDULE, {**dict(row), RUN_AT: fired.next_at}
            return
        if self.is_known({EVENT_ID: fired.event_id}):
            self.became[RANG] += 1
        else:
            yield self._given_up(_letter_of_row(row))
        yield SCHEDULE, {**dict(row), RUN_AT: None, ENDED_AT: self._now}

    def _given_up(self, letter: Document) -> Written:
        self.became[letter["cause"]] += 1
        return DEADLETTERS, letters.row_of(letter)


def _document_of(row: Mapping[str, Any]) -> Document:
    """The document that a row of `held` holds; one made by hand may lack some of it."""
    names = {name: row.get(name) for name in ("_id", "channel", "key")}
    return {**names, **(row.get("document") or {})}


def _first_letter(document: Mapping[str, Any]) -> str | None:
    """The letter of a send or timer that a document is the replay of; None for all others."""
    if not isinstance(document.get("event"), Mapping) or not asks_for_effect(document):
        return None
    first = under_replay(document)
    return None if first is None else str(first["_id"])


def _place(document: Mapping[str, Any]) -> tuple[str, str]:
    """A document by its conversation and its name."""
    return conversation_id(document), name_of(document)


def _waiting(
    conversation: Mapping[str, Any], *, is_ready: Callable[[str], bool]
) -> Iterator[Document]:
    """What waits in an outbox, but for timers; what somebody made by hand gets an id."""
    for place, effect in effects_with_tries(conversation, is_ready=is_ready):
        if not _is_timer(effect):
            id_ = f"{conversation['_id']}/{conversation.get('n')}/{place}"
            yield {"id": id_, **effect}


def _perhaps_done(effect: Document, *, at: datetime) -> Document:
    """A send as one of unknown outcome, from that moment on.

    One that was not tried by then may have travelled together with others since, so its own retry
    key proves nothing.
    """
    if effect.get("type") != SEND or effect.get(TRIED_AT):
        return effect
    tried_as = effect.get("as") or effect.get("way")
    return {**effect, TRIED_AT: at, "as": tried_as, RETRY_KEY: None}


def _is_timer(effect: Mapping[str, Any]) -> bool:
    """Whether an effect can be entered into `schedule`; one made by hand may not be whole."""
    try:
        return effect["type"] == TIMER and is_whole(effect) and isinstance(effect["n"], int)
    except KeyError:
        return False


def _entered(effect: Mapping[str, Any], row: Mapping[str, Any]) -> Document:
    """The row once the effect has been entered."""
    update = row_of(effect)
    kept = {name: value for name, value in row.items() if name not in update["$unset"]}
    return {"_id": effect["timer"], **kept, **update["$set"]}


def _letter_of_row(row: Mapping[str, Any]) -> Document:
    """The letter of a timer that is not to ring by itself: its replay sets it again, as past."""
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
    return of_effect(effect, f"{row['channel']}/{row['key']}", cause=cause, attempts=0)
