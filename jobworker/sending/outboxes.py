"""The outboxes that are not empty, and how much waits in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from dispatcher.conversations.conversations import Conversation, Conversations
from jobworker.effects import Send
from jobworker.sending.batch import Batch
from jobworker.sending.conversation_outbox import ConversationOutbox, Move, PendingSend, SendLimits

# The longest waiting sends are searched among the first sends of this many conversations.
LOOKED_AT = 500


class Outboxes:
    """All outboxes of the process. Each method is called under `lock`, that of all conversations.

    A conversation is `left` if a predecessor's sends of it are not loaded yet, and `reserved` from
    a record with a call to the turn of that call.
    """

    def __init__(self, known: Conversations, limits: SendLimits) -> None:
        self.known = known
        self.lock = known.lock
        self.effects = 0
        """How many effects wait, with timers on their way."""
        self.left = 0
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
        return self.effects + self.left

    @property
    def has_room(self) -> bool:
        """Whether reading may continue."""
        return len(self) < self._limits.most_in_all and self._bytes < self._limits.most_bytes_in_all

    def find(self, id_: str) -> ConversationOutbox | None:
        """Return the outbox of a conversation; None if it is empty."""
        found = self.known.find(id_)
        return None if found is None else found.outbox

    def enter(self, box: ConversationOutbox) -> None:
        """A conversation has sends, and had none."""
        self._boxes[box] = None
        box.conversation.outbox = box
        self.effects += len(box.sends)
        self._bytes += box.size

    def append(self, box: ConversationOutbox, one: PendingSend) -> Move | None:
        """Add a send behind the others of its outbox; returns what follows at the gate."""
        move = box.append(one)
        if box in self._boxes:
            self.effects += 1
            self._bytes += one.size
        else:
            self.enter(box)
        return move

    def leave(self, box: ConversationOutbox, places: Sequence[str]) -> None:
        """These sends have left the outbox."""
        count, size = len(box.sends), box.size
        box.left(places)
        self.effects -= count - len(box.sends)
        self._bytes -= size - box.size
        self.set_reserved(box.conversation, False)
        if not box.sends:
            del self._boxes[box]
            box.conversation.outbox = None

    def set_left(self, ids: Iterable[str], is_left: bool) -> None:
        """Whether these outboxes are yet to be loaded."""
        for conversation in map(self.known.get, ids):
            self.left += is_left - conversation.is_left
            conversation.is_left = is_left
            if not is_left:
                conversation.gone = frozenset()

    def set_reserved(self, conversation: Conversation, is_reserved: bool) -> None:
        """Whether its next call has a place at the gate and no turn yet."""
        self.reserved += is_reserved - conversation.is_reserved
        conversation.is_reserved = is_reserved

    def oldest(self, limit: int) -> list[ConversationOutbox]:
        """Return the outboxes whose first sends wait longest."""
        # Empty ones are removed, so the oldest come first.
        boxes = list(islice(self._boxes, LOOKED_AT))
        boxes.sort(key=lambda box: box.sends[0].send.at)
        return boxes[:limit]

    def oldest_seconds(self) -> float:
        """Seconds since the event of the longest waiting send; 0 without one."""
        boxes = islice(self._boxes, LOOKED_AT)
        oldest = min((arrived_at(box.sends[0].send) for box in boxes), default=None)
        if oldest is None:
            return 0.0
        return round(max(0.0, (datetime.now(UTC) - oldest).total_seconds()), 3)


def arrived_at(send: Send) -> datetime:
    """When the event of a reply arrived; for other sends only the time of the decision is
    stored.
    """
    return send.at if send.token_from is None else min(send.at, send.token_from)
