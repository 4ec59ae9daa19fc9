"""Which documents have to leave the window for `held`, and the batch that is on its way there.

A key is set aside by its own fault only: a document that waits because every thread is busy stays
where it is, else any flood would move recvq into `held`. What is paused goes soon, so that progress
goes on without it. All of it under the pool's lock; no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import bson

from dispatcher.keyed.line import MOST_WHOLE, Line, Task
from dispatcher.keyed.lines import Lines
from dispatcher.progress.tracker import ProgressTracker
from linedesk.store.documents import Document

log = logging.getLogger(__name__)

HELD_AFTER_SECONDS = 60.0
PAUSED_AFTER_SECONDS = 1.0
PAUSED = "paused"
"""The `why` of what is held because an operator has paused its key."""
LOOKS = 60
"""How often the lines are looked at in that time."""
# A key is slow by itself whose first document has been under way for this part of that time.
SLOW_PART = 0.1
# One transaction holds so many documents, and about so many bytes.
AT_ONCE = 200
BYTES_AT_ONCE = 4 * 1024 * 1024
# `held` wraps a document, which may itself be as large as any: 16 MB.
MOST_BYTES = 15 * 1024 * 1024


class Holding:
    """Chooses the documents that wait long. `bound` is the pool's; 0 seconds switches it off."""

    def __init__(
        self, lines: Lines, ledger: ProgressTracker, *, after_seconds: float, bound: int
    ) -> None:
        self._lines = lines
        self._ledger = ledger
        self._after = after_seconds
        self._paused_after = min(after_seconds, PAUSED_AFTER_SECONDS)
        self._bound = bound
        self.look_seconds = min(1.0, max(0.01, after_seconds / LOOKS))
        self._looked_at = 0.0
        # Waits count from here on at the earliest: what MongoDB held up is no key's fault.
        self._counts_from = 0.0
        # Lines with how many of their documents have still to go.
        self._wanted: dict[Line, int] = {}
        # Tasks that are to go next; those kept as `_id`s have to be read before.
        self._chosen: list[Task] = []
        # The lines and rows of a batch whose transaction is not known to be through.
        self._settling: list[Line] = []
        self.rows: list[Document] = []

    @property
    def is_wanted(self) -> bool:
        """Whether a save has to follow at once."""
        return bool(self._wanted or self._chosen or self._settling)

    @property
    def settles(self) -> bool:
        """Whether there is a batch that the next save has to carry."""
        return bool(self._settling)

    def look(self, now: float) -> None:
        """See which lines hold what has waited too long, or far too much of the window."""
        if not self._after or now - self._looked_at < self.look_seconds:
            return
        self._looked_at = now
        oldest = self._ledger.oldest
        crowded = len(self._ledger) * 2 > self._bound
        after = self._paused_after if self._lines.pauses else self._after
        if oldest is None or (not crowded and now - oldest.since < after):
            return
        for line in self._lines.by_key.values():
            count = self._count(line, now, crowded=crowded)
            if count and (line.held or self._lines.held_keys < self._bound):
                self._wanted[line] = count

    def _count(self, line: Line, now: float, *, crowded: bool) -> int:
        """How many of the line's documents have to go; what comes before them goes along."""
        if line.holding:
            return 0
        if self._is_paused(line):
            return self._waited(line, now, self._paused_after)
        if not self._is_slow(line, now):
            return 0
        if crowded and len(line) > MOST_WHOLE and self._takes_too_long(line):
            return sum(1 for _ in line.not_held())
        return self._waited(line, now, self._after)

    def _waited(self, line: Line, now: float, seconds: float) -> int:
        """How many of the line's documents have waited for so long."""
        count = 0
        for task in line.not_held():
            if now - max(task.slot.since, self._counts_from) < seconds:
                break
            count += 1
        return count

    def _is_paused(self, line: Line) -> bool:
        return self._lines.pauses.covers(*line.key)

    def _is_slow(self, line: Line, now: float) -> bool:
        """Whether it waits for itself: for a thread it would wait only while all are busy."""
        if not self._lines.ready:
            return True
        head = line.tasks[0] if line.tasks else None
        return head is not None and 0 < head.begun < now - self._after * SLOW_PART

    def _takes_too_long(self, line: Line) -> bool:
        """Whether at the pace since the last look its last document would wait too long."""
        decided, line.looked = line.total - line.looked, line.total
        return len(line) * self.look_seconds > decided * self._after

    def choose(self) -> list[Task]:
        """The tasks to go next; until that is settled, their lines decide nothing more."""
        if self._settling or self._chosen:
            return self._chosen
        while self._wanted and len(self._chosen) < AT_ONCE:
            line, count = self._wanted.popitem()
            room = AT_ONCE - len(self._chosen)
            if count > room:
                self._wanted[line] = count - room
            for task in islice(line.not_held(), min(count, room)):
                # guard: rests-while-it-moves
                line.holding = True
                self._chosen.append(task)
        return self._chosen

    def take(self, read: Mapping[Any, Document]) -> None:
        """Make a batch of the chosen; `read` has those of which only the `_id` was kept."""
        chosen, self._chosen = self._chosen, []
        self._settling = list(dict.fromkeys(task.line for task in chosen))
        size, stopped = 0, set[Line]()
        for task in chosen:
            # One decided meanwhile needs no place; the rest of a line that had to stop stays.
            if task.slot.finished or task.line in stopped:
                continue
            document = task.document if task.document is not None else read.get(task.slot.id)
            if document is None:
                self._pass_over(task)
                continue
            bytes_ = len(bson.encode(document))
            size += bytes_
            if bytes_ > MOST_BYTES or (size > BYTES_AT_ONCE and self.rows):
                stopped.add(task.line)
                continue
            self._hold(task, document)

    def _pass_over(self, task: Task) -> None:
        """recvq no longer has it. The first of a line is told by the thread that wants it."""
        if task is task.line.tasks[0]:
            return
        log.error("document overwritten before it was handled id=%s", task.slot.id)
        task.held_as = self._ledger.next_held()
        self._ledger.finish(task.slot)

    def _hold(self, task: Task, document: Document) -> None:
        line = task.line
        if task is line.tasks[0]:
            # It stays in hand, and recvq may lose it from now on.
            task.document = document
        task.held_as = self._ledger.next_held()
        channel, key = line.key
        self.rows.append(
            {
                "_id": task.slot.id,
                "n": task.held_as,
                "key": key,
                "channel": channel,
                "document": document,
                "why": PAUSED if self._is_paused(line) else _why(line),
                "since": datetime.now(UTC),
            }
        )
        self._lines.count_held(line, 1)
        self._ledger.finish(task.slot)

    def excuse(self, now: float) -> None:
        """MongoDB did not take a save: the time until now counts for no document."""
        self._counts_from = now

    def settled(self) -> None:
        """The batch is durable."""
        if self.rows:
            keys = {row["key"] for row in self.rows}
            log.info("documents held documents=%d keys=%d", len(self.rows), len(keys))
        for line in self._settling:
            self._lines.settle(line)
        self._settling, self.rows = [], []


def _why(line: Line) -> str:
    head = line.tasks[0] if line.tasks else None
    if head is not None and head.parked:
        return head.because or "set aside"
    return "waiting behind a slow handler"


def ids_of(tasks: Iterable[Task]) -> list[Any]:
    """Of the tasks those kept as `_id`s only; what is nowhere is not looked for again."""
    return [task.slot.id for task in tasks if task.document is None and not task.is_lost]
