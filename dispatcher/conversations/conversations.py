"""All that a leader knows of the conversations: one object for each, under one lock.

A conversation has a mailbox, a stored state, an outbox and some facts. Those used last remain, up
to a size in memory. One with a mailbox or an outbox, or with effects that are yet to be loaded or
carried out, always remains. Whatever is forgotten is read again from MongoDB, or has passed.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson

from dispatcher.conversations.mailbox import Mailbox
from linedesk.store.client import aware_options
from linedesk.store.documents import Document

KEPT_SECONDS = 10.0
"""How long a stored state is used after it was read: a change by hand is seen after that."""
MOST_BYTES = 64 * 1024 * 1024
# Of a conversation besides the BSON of its state.
OVERHEAD_BYTES = 800
# While all are in use, one more costs this many looks at most.
MOST_LOOKS = 10
# The last messages taken back that are known of one conversation; its document has as many.
MOST_UNSENT = 100
OPTIONS = aware_options()


@dataclass(frozen=True, slots=True)
class Stored:
    """A conversation's document as last committed: `n`, and the fields on which decisions depend.

    The leader is the only process that writes them. A change by hand is noticed at the next record
    if it increments `n`: the record asks for the `n` on which its decision is based.
    """

    n: int
    raw: bytes
    """The fields, as BSON."""
    read_at: float
    """Monotonic seconds."""

    @classmethod
    def of(cls, fields: Mapping[str, Any], n: int) -> Stored:
        """Return a state that was read now."""
        return cls(n, bson.encode(fields), time.monotonic())

    @property
    def fields(self) -> Document:
        """A new copy of the fields, with `n`."""
        return {**bson.decode(self.raw, OPTIONS), "n": self.n}

    def after(self, changes: Mapping[str, Any], gone: Iterable[str]) -> Stored:
        """Return the state after a record, which has changed and removed these paths."""
        raw = self.raw
        if changes or gone:
            raw = bson.encode(_changed(bson.decode(raw, OPTIONS), changes, gone))
        return Stored(self.n + 1, raw, self.read_at)


class Conversation:
    """One conversation. Its attributes are read and set under the lock of all."""

    # Class attributes hold the usual values: few conversations have many facts.
    mailbox: Mailbox | None = None
    """Its unfinished documents; None without any."""
    outbox: Any = None
    """Its sends (`jobworker.sending.conversation_outbox.ConversationOutbox`)."""
    stored: Stored | None = None
    changes = 0
    """How many times it was changed; a state that was read before the last one is not kept."""
    names: int | None = None
    """The highest possible number of events in `applied`; None if unknown."""
    line_end = -math.inf
    """Its earliest place at the gate since its last call, in monotonic seconds."""
    late_on = ""
    """The last day on which its late replies were used up."""
    is_unloaded = False
    """Whether a predecessor left it an outbox that is not loaded yet."""
    is_reserved = False
    """Whether its next call was stored with its record, until its turn at the gate."""
    gone: frozenset[str] = frozenset()
    """Places of sends that have left an outbox which is not loaded yet."""
    timers: frozenset[str] = frozenset()
    """Places of timers on their way to `schedule`."""
    unsent: tuple[str, ...] = ()
    """Ids of messages that were taken back, the latest last."""

    def __init__(self, id_: str) -> None:
        self.id = id_

    @property
    def is_busy(self) -> bool:
        """Whether it must not be forgotten."""
        if self.mailbox is not None or self.outbox is not None:
            return True
        return bool(self.is_unloaded or self.is_reserved or self.timers)

    @property
    def size(self) -> int:
        """Its bytes in memory, apart from its parts in use."""
        return OVERHEAD_BYTES + (0 if self.stored is None else len(self.stored.raw))

    @property
    def fresh(self) -> Stored | None:
        """Its stored state, unless that has to be read again."""
        stored = self.stored
        # guard: cached-again -> return stored
        is_old = stored is not None and time.monotonic() - stored.read_at > KEPT_SECONDS
        return None if is_old else stored

    def take_back(self, message_ids: Iterable[str]) -> None:
        """These messages were taken back."""
        self.unsent = tuple(dict.fromkeys((*self.unsent, *message_ids)))[-MOST_UNSENT:]


class Conversations:
    """The conversations by id. Each method is called under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._by_id: OrderedDict[Any, Conversation] = OrderedDict()
        self._bytes = 0

    def find(self, id_: Any) -> Conversation | None:
        """Return a conversation; None if nothing is known of it."""
        return self._by_id.get(id_)

    def get(self, id_: Any) -> Conversation:
        """Return a conversation, which is used now; an unknown one is made."""
        found = self._by_id.get(id_)
        if found is None:
            found = self._by_id[id_] = Conversation(id_)
            self._bytes += found.size
            self._forget_others()
        else:
            self._by_id.move_to_end(id_)
        return found

    def store(self, conversation: Conversation, stored: Stored | None) -> None:
        """Keep what MongoDB has of it, or None."""
        if self._by_id.get(conversation.id) is not conversation:
            # Forgotten meanwhile, and perhaps made again.
            return
        self._bytes -= conversation.size
        conversation.stored = stored
        self._bytes += conversation.size
        self._forget_others()

    def changed(self, id_: str, stored: Stored | None = None) -> None:
        """It was changed in MongoDB, or may have been; `stored` is its state now, if known."""
        conversation = self.get(id_)
        conversation.changes += 1
        self.store(conversation, stored)

    def _forget_others(self) -> None:
        """Forget those used longest ago, until there is room."""
        for _ in range(MOST_LOOKS):
            if self._bytes <= MOST_BYTES or len(self._by_id) < 2:
                return
            id_, oldest = next(iter(self._by_id.items()))
            if oldest.is_busy:
                self._by_id.move_to_end(id_)
            else:
                del self._by_id[id_]
                self._bytes -= oldest.size


def _changed(fields: Document, changes: Mapping[str, Any], gone: Iterable[str]) -> Document:
    """Return the fields after an update; a path has one or two steps."""
    for path in gone:
        outer, _, name = path.rpartition(".")
        (fields.get(outer) or {} if outer else fields).pop(name, None)
    for path, value in changes.items():
        outer, _, name = path.rpartition(".")
        if outer:
            fields[outer] = {**(fields.get(outer) or {}), name: value}
        else:
            fields[name] = value
    return fields
