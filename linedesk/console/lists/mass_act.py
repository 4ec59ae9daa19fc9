"""An act on many dead letters, in the background of the console, one such act at a time.

Each letter is replayed or dropped by itself, so what was done stays done when the console ends.
What is left is still in the list and can be asked for again.
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
from linedesk.console.errors import NotDone, NotReplayed
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import QueueError, RecvqClosed, SetupError, WriteRefused

log = logging.getLogger(__name__)

ActName = Literal["replay", "drop"]
# As the page shows refusals; the audit has them all.
MOST_REFUSED = 20
# A drop of many is one write.
DROP_SLICE = 100
STEP_SECONDS = 10.0
# MongoDB may be away: each step is tried again after a pause, so often.
TRIES, PAUSE_SECONDS = 6, 2.0
JOIN_SECONDS = STEP_SECONDS
UNEXPECTED = "an unexpected error; the console's log names it"


@dataclass(frozen=True)
class Progress:
    """How far an act on many letters is."""

    act: ActName
    about: str
    """What it is about, for a person: a cause, or so many letters that were chosen."""
    by: str
    began: datetime
    total: int
    done: int = 0
    refused: int = 0
    reasons: tuple[str, ...] = ()
    """Of the first refusals."""
    replays: tuple[str, ...] = ()
    """The events that the replays are, in order."""
    ended: datetime | None = None
    trouble: str | None = None
    """Why it ended before its time."""

    @property
    def seen(self) -> int:
        """How many letters are dealt with."""
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
        """That of the present act, else of the last one."""
        with self._lock:
            return self._progress

    def begin(
        self,
        act: ActName,
        ids: Sequence[str],
        *,
        acts: Acts,
        by: str,
        about: str,
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
                raise NotDone(
                    f"another {running.act} runs, by {running.by}: {running.seen} of "
                    f"{running.total} letters; wait for its end"
                )
            self._progress = begun
            self._thread = BackgroundThread("mass act", run)
            self._thread.start()

    def close(self) -> None:
        """End after the present letter; what is left stays as it is."""
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
        """One letter, or one slice of a drop; returns why nothing more can be done, if so."""
        replay: tuple[str, ...] = ()
        for attempt in range(TRIES):
            if self._stop.wait(PAUSE_SECONDS if attempt else 0.0):
                return "the console ended"
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
                    self._refuse(f"{ids[0]}: {error}")
            except WriteRefused as error:
                self._refuse(f"{ids[0]}: {error}", letters=len(ids))
            except (RecvqClosed, SetupError) as error:
                return str(error)
            except (QueueError, PyMongoError) as error:
                log.warning("act on many letters, trying again error=%s", type(error).__name__)
                continue
            else:
                self._count(len(ids), *replay)
            return None
        return "MongoDB does not answer"

    def _count(self, done: int, *replays: str) -> None:
        with self._lock:
            now = self._progress
            assert now is not None
            known = now.replays + replays
            self._progress = replace(now, done=now.done + done, replays=known)

    def _refuse(self, reason: str, letters: int = 1) -> None:
        with self._lock:
            now = self._progress
            assert now is not None
            reasons = (*now.reasons, reason)[:MOST_REFUSED]
            self._progress = replace(now, refused=now.refused + letters, reasons=reasons)

    def _end(self, trouble: str | None) -> None:
        with self._lock:
            assert self._progress is not None
            self._progress = replace(self._progress, ended=datetime.now(UTC), trouble=trouble)
