"""The outboxes that are not empty, and how much waits in them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from dispatcher.conversations.conversations import Conversation, Conversations
from jobworker.effects import Send
from jobworker.sending.batch import Batch
from jobworker.sending.conversation_outbox import ConversationOutbox, Move, PendingSend, SendLimits
from linedesk.store.documents import Document
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.effects import EFFECT_ID
from linedesk.store.records.events import EVENT_ID

# The longest waiting sends are searched among the first sends of this many conversations.
LOOKED_AT = 500


class Outboxes:
    """All outboxes of the process. Each method is called under `lock`, that of all conversations,
    except for the quick views: any thread may ask for these.

    A conversation is `unloaded` until a predecessor's sends of it are loaded, and `reserved` from a
    record with a call to the turn of that call.
    """

    def __init__(self, known: Conversations, limits: SendLimits) -> None:
        self.known = known
        self.lock = known.lock
        self.effects = 0
        """How many effects wait, with timers on their way."""
        self.unloaded = 0
        self.reserved = 0
        self.batches: dict[str, Batch] = {}
        """Those on their way, by key."""
        self._limits = limits
        # The oldest first.
        self._boxes: dict[ConversationOutbox, None] = {}
        self._bytes = 0

    def __iter__(self) -> Iterator[ConversationOutbox]:
        return iter(self._boxes)

    def __len__(self) -> int:
        """The number of waiting effects; an outbox that is not loaded yet counts as one."""
        return self.effects + self.unloaded

    def find(self, id_: str) -> ConversationOutbox | None:
        """Return the outbox of a conversation; None if it is empty."""
        found = self.known.find(id_)
        return None if found is None else found.outbox

    def append(self, box: ConversationOutbox, one: PendingSend) -> Move | None:
        """Add a send behind the others of its outbox; returns what follows at the gate."""
        if box not in self._boxes:
            self._boxes[box] = None
            box.conversation.outbox = box
        self.effects += 1
        self._bytes += one.size
        return box.append(one)

    def remove(self, box: ConversationOutbox, places: Sequence[str]) -> None:
        """These sends have left the outbox."""
        count, size = len(box.sends), box.size
        box.remove(places)
        self.effects -= count - len(box.sends)
        self._bytes -= size - box.size
        self.set_reserved(box.conversation, False)
        if not box.sends:
            del self._boxes[box]
            box.conversation.outbox = None

    def set_unloaded(self, ids: Iterable[str], is_unloaded: bool) -> None:
        """Whether these outboxes are yet to be loaded."""
        for conversation in map(self.known.get, ids):
            self.unloaded += is_unloaded - conversation.is_unloaded
            conversation.is_unloaded = is_unloaded
            if not is_unloaded:
                conversation.gone = frozenset()

    def set_reserved(self, conversation: Conversation, is_reserved: bool) -> None:
        """Whether its next call has a place at the gate and no turn yet."""
        self.reserved += is_reserved - conversation.is_reserved
        conversation.is_reserved = is_reserved

    # Views.

    @property
    def has_room(self) -> bool:
        """Whether reading may continue."""
        return len(self) < self._limits.most_in_all and self._bytes < self._limits.most_bytes_in_all

    def waiting(self, limit: int, *, at_gate: Callable[[TurnClass], Document]) -> list[Document]:
        """The longest waiting sends, one for each conversation, with the reason for operators.

        `at_gate` returns the reason for a class at the gate.
        """
        with self.lock:
            # Empty ones are removed, so the oldest come first.
            boxes = list(islice(self._boxes, LOOKED_AT))
            boxes.sort(key=lambda box: box.sends[0].send.at)
            return [_told(box, box.waits_for(at_gate)) for box in boxes[:limit]]

    def oldest_seconds(self) -> float:
        """Seconds since the event of the longest waiting send; 0 without one."""
        with self.lock:
            boxes = islice(self._boxes, LOOKED_AT)
            oldest = min((_arrived_at(box.sends[0].send) for box in boxes), default=None)
        if oldest is None:
            return 0.0
        return round(max(0.0, (datetime.now(UTC) - oldest).total_seconds()), 3)


def _arrived_at(send: Send) -> datetime:
    """When the event of a reply arrived; for other sends only the time of the decision is
    stored.
    """
    return send.at if send.token_from is None else min(send.at, send.token_from)


def _told(box: ConversationOutbox, why: Document) -> Document:
    channel, _, key = box.id.partition("/")
    first = box.sends[0].send
    return {
        "channel": channel,
        "key": key,
        EVENT_ID: first.event_id,
        EFFECT_ID: first.id,
        "sends": len(box.sends),
        "since": _arrived_at(first),
        "why": why,
    }
