"""Which documents of the feed are unfinished, and how far all are finished. Pure: no I/O, no lock.

The window runs from the oldest unfinished document to the newest read one, in feed order. Behind it
a ring keeps the names of the last 1,000 finished documents. A scan after lost history starts some
places behind the window and must recognise them (architecture: G9).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from linedesk.store.documents import Document

RING_SLOTS = 1000
# Documents finished beyond `after` are at most the window's 10,000 documents ahead of it.
FORGET_AFTER = 20_000
KEPT_OUT_OF_HELD = 10_000


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one document in the window."""

    id: Any
    token: Any
    size: int = 0
    """The document's bytes."""
    finished: bool = False
    """Finished in its own place, by a decision or by moving to `held`."""
    since: float = 0.0
    """Monotonic seconds when it was queued."""


@dataclass(frozen=True)
class ProgressSnapshot:
    """The content of one save of progress."""

    token: Any
    after: Any
    finished: list[Any] | dict[int, Any]
    """The documents finished beyond `after`: all, or the changed places; None for a freed place."""
    passed: int
    ring: dict[int, Any]
    """The slots that changed since the last successful save, by their number."""
    held: int = 0
    """The next `n` of a document that moves to `held`."""
    rows: Sequence[Document] = ()
    """The rows to add to `held` in the same transaction, which names them finished."""
    gone: Sequence[Any] = ()
    """The ids of decided documents, which leave `held`."""
    marks: Mapping[Any, int] = field(default_factory=dict)
    """How many documents each key had decided; not stored."""


class ProgressTracker:
    """The record of the feed's documents, from a `progress` document; its caller holds the lock."""

    def __init__(
        self,
        *,
        token: Any = None,
        after: Any = None,
        finished: Sequence[Any] = (),
        passed: int = 0,
        ring: Sequence[Any] = (),
        held: int = 0,
        ring_slots: int = RING_SLOTS,
    ) -> None:
        self.token = token
        self.after = after
        self.passed = self._saved = self._restored = passed
        self.held = held
        self.unfinished = 0
        """The number of unfinished documents in the window, without those moved to `held`."""
        self.size = 0
        """The bytes of these."""
        self.changed = False
        """Whether documents were finished, or more, since the last snapshot."""
        self.moved = False
        """Whether the position has moved since, without documents."""
        self._ring = ([*ring] + [None] * ring_slots)[:ring_slots]
        self._window: deque[Slot] = deque()
        # Ids of the window and of the ring, and of documents that a predecessor finished beyond
        # `after`.
        self._known = {id_ for id_ in self._ring if id_ is not None}
        self._finished_before = {id_ for id_ in finished if id_ is not None}
        # The places in `progress.finished` of the documents finished beyond `after`, those not
        # saved yet, and the places freed since. As for the ring, a save contains only the changes.
        self._places = {id_: n for n, id_ in enumerate(self._finished_before)}
        self._untold: dict[Any, None] = {}
        self._left: set[int] = set()
        self._free: list[int] = []
        self._tell_all = True
        # The ids known when the present scan chose its start: the ring advances during the scan.
        self._before_scan: set[Any] = set()
        # Documents of `held` that were decided; others may have their places in the ring by now.
        self._out_of_held: OrderedDict[Any, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._window)

    @property
    def newest(self) -> Any:
        """The `_id` of the newest document that was read; None before the first."""
        return self._window[-1].id if self._window else self.after

    @property
    def oldest(self) -> Slot | None:
        """The oldest unfinished document; None if there is none."""
        return self._window[0] if self._window else None

    def next_held(self) -> int:
        """Return the place in `held` of one more document: in feed order, never reused."""
        self.held += 1
        return self.held - 1

    def finish_held(self, id_: Any) -> None:
        """A document of `held` is decided: a scan that meets it does not take it again."""
        self.changed = True
        self._out_of_held[id_] = None
        if len(self._out_of_held) > KEPT_OUT_OF_HELD:
            self._out_of_held.popitem(last=False)

    def take(self, id_: Any, token: Any, size: int = 0) -> Slot | None:
        """Enter a document that was read; None if it is known already: unfinished or finished.

        `token` is the position after it; None while a scan reads without a feed. `size` is in
        bytes.
        """
        was_finished = id_ in self._finished_before
        if not was_finished and self._knows(id_):
            self.move(token)
            return None
        slot = Slot(id_, token, size)
        self._window.append(slot)
        self.unfinished += 1
        self.size += size
        self._known.add(id_)
        if was_finished:
            self._finished_before.discard(id_)
            self.finish(slot)
            return None
        return slot

    def has_read(self, id_: Any) -> bool:
        """Whether a document is unfinished or finished, as far back as finished ones are known."""
        return self._knows(id_) or id_ in self._finished_before

    def _knows(self, id_: Any) -> bool:
        return id_ in self._known or id_ in self._before_scan or id_ in self._out_of_held

    def move(self, token: Any) -> None:
        """The feed's position is `token`, and no document was read since the last one."""
        if token is None:
            return
        if self._window:
            self._window[-1].token = token
        elif token != self.token:
            self.token = token
            self.moved = True

    def begin_scan(self) -> Any:
        """Return where a scan has to begin: at `after`. Known ids stay known until `end_scan`."""
        self._before_scan = set(self._known)
        return self.after

    def end_scan(self) -> None:
        """The scan has ended, and the feed continues from there."""
        self._before_scan = set()

    def forget_token(self) -> None:
        """The position is lost (G9): no token is saved until a new one arrives; `after` stays."""
        self.token = None
        for slot in self._window:
            slot.token = None
        self.changed = True

    def finish(self, slot: Slot) -> None:
        """Finish the document; progress advances over all documents finished without a gap."""
        slot.finished = True
        self.unfinished -= 1
        self.size -= slot.size
        self.changed = True
        if slot.id not in self._places:
            self._untold[slot.id] = None
        window = self._window
        while window and window[0].finished:
            self._pass(window.popleft())

    def _pass(self, slot: Slot) -> None:
        place = self.passed % len(self._ring)
        self._known.discard(self._ring[place])
        self._ring[place] = slot.id
        self.passed += 1
        self.after = slot.id
        self._leave(slot.id)
        if self._finished_before and self.passed - self._restored > FORGET_AFTER:
            # All of these that are still in recvq have been met again by now.
            for id_ in self._finished_before:
                self._leave(id_)
            self._finished_before.clear()
        if slot.token is not None:
            self.token = slot.token

    def _leave(self, id_: Any) -> None:
        """Free its place in `finished`, if it has one."""
        if id_ in self._untold:
            del self._untold[id_]
        elif id_ in self._places:
            place = self._places.pop(id_)
            self._left.add(place)
            self._free.append(place)

    def _tell_finished(self) -> list[Any] | dict[int, Any]:
        """Return the part of `finished` to write: the changed places, or all if that is less."""
        untold, self._untold = self._untold, {}
        left, self._left = self._left, set()
        if self._tell_all or len(left) > len(self._places):
            self._tell_all, self._free = False, []
            self._places = {id_: n for n, id_ in enumerate((*self._places, *untold))}
            return list(self._places)
        changes: dict[int, Any] = dict.fromkeys(left)
        for id_ in untold:
            # Without a free place, all lower places are taken.
            place = self._free.pop() if self._free else len(self._places)
            self._places[id_] = place
            changes[place] = id_
        return changes

    def snapshot(
        self,
        rows: Sequence[Document] = (),
        gone: Sequence[Any] = (),
        marks: Mapping[Any, int] = MappingProxyType({}),
    ) -> ProgressSnapshot:
        """Return the data to save. `saved` must follow once it is durable, `not_saved` otherwise.

        `rows` and `gone` are the documents that the same transaction adds to and removes from
        `held`.
        """
        self.changed = self.moved = False
        slots = len(self._ring)
        first = max(self._saved, self.passed - slots)
        return ProgressSnapshot(
            token=self.token,
            after=self.after,
            finished=self._tell_finished(),
            passed=self.passed,
            ring={n % slots: self._ring[n % slots] for n in range(first, self.passed)},
            held=self.held,
            rows=tuple(rows),
            gone=tuple(gone),
            marks=marks,
        )

    def saved(self, snapshot: ProgressSnapshot) -> None:
        self._saved = snapshot.passed

    def not_saved(self) -> None:
        """The last snapshot may not be durable: the next one includes its changes."""
        self.changed = self._tell_all = True
