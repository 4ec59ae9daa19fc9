"""An act on many dead letters, in the background of the console, one such act at a time.

Each letter is replayed or dropped by itself. When the console ends, finished letters stay finished,
and the others are still in the list. The texts of a progress are English and shared by all viewers;
the page translates them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import pymongo
from pymongo.errors import PyMongoError

from linedesk.console.acts import Acts
from linedesk.console.errors import KnownPhrase, NotDone, NotReplayed, Phrase
from linedesk.runtime.language import mark
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import QueueError, RecvqClosed, SetupError, WriteRefused

log = logging.getLogger(__name__)

ActName = Literal["replay", "drop"]
RUNNING: dict[ActName, str] = {
    "replay": mark("another replay runs, by {name}: {count} of {total} letters; wait for its end"),
    "drop": mark("another drop runs, by {name}: {count} of {total} letters; wait for its end"),
}
# The refusals on the page; the audit has them all.
MOST_REFUSED = 20
# A drop of many is one write.
DROP_SLICE = 100
STEP_SECONDS = 10.0
# MongoDB may be away: each step is retried after a pause, up to so many tries.
TRIES, PAUSE_SECONDS = 6, 2.0
JOIN_SECONDS = STEP_SECONDS
UNEXPECTED = mark("an unexpected error; the console's log names it")
ENDED = mark("the console ended")
AWAY = mark("MongoDB does not answer")


@dataclass(frozen=True)
class Progress:
    """The progress of an act on many letters."""

    act: ActName
    about: Phrase | str
    """The chosen letters: a cause, or a number of letters."""
    by: str
    began: datetime
    total: int
    done: int = 0
    refused: int = 0
    reasons: tuple[Phrase, ...] = ()
    """The reasons of the first refusals."""
    replays: tuple[str, ...] = ()
    """The eventIds of the replays, in order."""
    ended: datetime | None = None
    trouble: str | None = None
    """Why it ended early; English."""

    @property
    def seen(self) -> int:
        """The number of finished letters."""
        return self.done + self.refused


class MassAct:
    """Runs one act on many letters in a thread; methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: Progress | None = None  # under _lock
        self._thread: BackgroundThread | None = None  # under _lock
        self._stop = threading.Event()

    @property
    def progress(self) -> Progress | None:
        """The progress of the present act, else of the last one."""
        with self._lock:
            return self._progress

    def begin(
        self,
        act: ActName,
        ids: Sequence[str],
        *,
        acts: Acts,
        by: str,
        about: Phrase | str,
        again: bool = False,
        force: bool = False,
    ) -> None:
        """Start; `again` and `force` are those of `Acts.replay`.

        Raises NotDone while another one runs.
        """
        begun = Progress(act, about, by, datetime.now(UTC), total=len(ids))

        def run() -> None:
            self._run(begun, list(ids), acts, again=again, force=force)

        with self._lock:
            running = self._progress
            if running is not None and running.ended is None:
                message = RUNNING[running.act]
                counts = {"count": running.seen, "total": running.total}
                raise NotDone(Phrase(message, name=running.by, **counts))
            self._progress = begun
            self._thread = BackgroundThread("mass act", run)
            self._thread.start()

    def close(self) -> None:
        """End after the present letter; the other letters stay as they are."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(JOIN_SECONDS)

    def _run(
        self, progress: Progress, ids: list[str], acts: Acts, *, again: bool, force: bool
    ) -> None:
        size = 1 if progress.act == "replay" else DROP_SLICE
        slices = (ids[start : start + size] for start in range(0, len(ids), size))
        trouble: str | None = UNEXPECTED
        try:
            steps = (self._step(acts, progress.act, some, again, force) for some in slices)
            trouble = next((one for one in steps if one is not None), None)
        except Exception as error:  # noqa: BLE001 - else it would seem to run, and no other could
            log.warning("act on many letters failed error=%s", type(error).__name__)
        finally:
            self._end(trouble)

    def _step(
        self, acts: Acts, act: ActName, ids: list[str], again: bool, force: bool
    ) -> str | None:
        """Act on one letter, or one slice of a drop; return why the act has to end, else None."""
        replay: tuple[str, ...] = ()
        for attempt in range(TRIES):
            if self._stop.wait(PAUSE_SECONDS if attempt else 0.0):
                return ENDED
            try:
                with pymongo.timeout(STEP_SECONDS):
                    if act == "drop":
                        acts.drop(ids)
                    else:
                        # The try before may have replayed it.
                        # guard: unconfirmed-is-not-replayed-twice -> anew = again
                        anew = again and not attempt
                        replay = (acts.replay(ids[0], again=anew, force=force),)
            except NotReplayed as error:
                if attempt and not again and error.unless == "again":
                    self._count(1)
                else:
                    self._refuse(_refusal(ids[0], error))
            except WriteRefused as error:
                self._refuse(_refusal(ids[0], error), letters=len(ids))
            except (RecvqClosed, SetupError) as error:
                return str(error)
            except (QueueError, PyMongoError) as error:
                log.warning("act on many letters, trying again error=%s", type(error).__name__)
                continue
            else:
                self._count(len(ids), *replay)
            return None
        return AWAY

    def _count(self, done: int, *replays: str) -> None:
        with self._lock:
            now = self._progress
            assert now is not None
            known = now.replays + replays
            self._progress = replace(now, done=now.done + done, replays=known)

    def _refuse(self, reason: Phrase, letters: int = 1) -> None:
        with self._lock:
            now = self._progress
            assert now is not None
            reasons = (*now.reasons, reason)[:MOST_REFUSED]
            self._progress = replace(now, refused=now.refused + letters, reasons=reasons)

    def _end(self, trouble: str | None) -> None:
        with self._lock:
            assert self._progress is not None
            self._progress = replace(self._progress, ended=datetime.now(UTC), trouble=trouble)


def _refusal(id_: str, error: NotReplayed | WriteRefused) -> Phrase:
    reason = error if isinstance(error, NotReplayed) else KnownPhrase(str(error))
    return Phrase(mark("{id}: {reason}"), id=id_, reason=reason)
