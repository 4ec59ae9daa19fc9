"""Bot time in a simulation: the setting SIM_CLOCK names a linesim whose clock was moved ahead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import PyMongoError
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from linedesk.runtime.thread import BackgroundThread
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import CONVERSATIONS, PROGRESS, RECVQ, SCHEDULE
from linedesk.store.records.effects import WITH_OUTBOX
from linedesk.store.records.timers import RUN_AT

log = logging.getLogger(__name__)

ASK_SECONDS = 1.0
LOOK_SECONDS = 0.2
# While linesim's clock moves: it waits for the reports.
REPORT_SECONDS = 0.02
# The number of newest documents that are checked for completion; `progress` lists a thousand.
NEWEST = 500
# The number of a dispatcher's workers that can ask at the same time without a new connection.
CONNECTIONS = 32


class _Told(BaseModel):
    """The fields of linesim's answer that are used here."""

    ahead: float = Field(ge=0, allow_inf_nan=False)
    goal: float | None = None
    """While the clock moves, with stops at our timers."""


class SimClock(BackgroundThread):
    """`now` asks linesim; a thread looks for moves of its clock and reports them.

    Of `database` it reports to linesim when the next timer is due, and whether all is done.
    """

    def __init__(
        self,
        url: str,
        *,
        ask_seconds: float = ASK_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__("simclock", self._follow)
        self._url = url
        self._ask_seconds = ask_seconds
        self._look_seconds = look_seconds
        self._http = PoolManager(maxsize=CONNECTIONS, retries=False)
        self._database: Database[Any] | None = None
        self._listeners: list[Callable[[], object]] = []
        # The last known value; only the thread writes it.
        self._ahead = 0.0

    def now(self) -> datetime:
        """Bot time in UTC; never behind a move of the clock that linesim has confirmed.

        If linesim does not answer within a second, the last known offset is used.
        """
        told = self._ask()
        return datetime.now(UTC) + timedelta(seconds=told.ahead if told else self._ahead)

    def when_moved(self, function: Callable[[], object]) -> None:
        """Have `function` called after each move, and once at the start; call this before the
        start.

        The clock's thread calls it. It must be quick and must not raise.
        """
        self._listeners.append(function)

    def report(self, database: Database[Any]) -> None:
        """Report the timers of this database; call this before the start."""
        self._database = database

    def stalled(self) -> str | None:
        """None: each of its waits ends, and production does not use it."""
        return None

    def status(self) -> str:
        """The offset of bot time."""
        return f"bot time {self._ahead:.0f} s ahead"

    def _follow(self) -> None:
        known: float | None = None
        answers = True
        while not self._stop.is_set():
            told = self._ask()
            if answers and told is None:
                log.warning("linesim does not report the time url=%s", self._url)
            answers = told is not None
            moves = told is not None and told.goal is not None
            if told is not None and (moves or told.ahead != known):
                if told.ahead != known:
                    known = self._ahead = told.ahead
                    for function in self._listeners:
                        function()
                self._report()
            self._stop.wait(REPORT_SECONDS if moves else self._look_seconds)

    def _report(self) -> None:
        if self._database is None:
            return
        with suppress(PyMongoError, HTTPError):
            now = datetime.now(UTC) + timedelta(seconds=self._ahead)
            done = is_done(self._database, now)
            due = self._database[SCHEDULE].find_one(
                {RUN_AT: {"$type": "date"}}, sort=[(RUN_AT, ASCENDING)]
            )
            told = {"ahead": self._ahead, "at": due and due[RUN_AT].timestamp(), "done": done}
            self._http.request("POST", f"{self._url}/due", json=told, timeout=self._ask_seconds)

    def _ask(self) -> _Told | None:
        """linesim's clock; None if linesim does not answer in time."""
        try:
            answer = self._http.request("GET", self._url, timeout=self._ask_seconds)
            return _Told.model_validate_json(answer.data)
        except (HTTPError, ValidationError):
            return None


def is_done(database: Database[Any], now: datetime) -> bool:
    """Whether all that was stored is finished, every outbox is empty, and no timer is due."""
    # Work moves from recvq to the outboxes, from there to `schedule`, and back to recvq, so recvq
    # is checked once more at the end.
    stored = _stored(database)
    progress = database[PROGRESS].find_one({"_id": DISPATCHER}) or {}
    return (
        stored <= {*progress.get("ring", ()), *progress.get("finished", ())}
        and database[CONVERSATIONS].find_one(WITH_OUTBOX) is None
        and database[SCHEDULE].find_one({RUN_AT: {"$lte": now}}) is None
        and _stored(database) == stored
    )


def _stored(database: Database[Any]) -> set[Any]:
    """The newest documents of recvq."""
    recvq = database[RECVQ].find({"heartbeat": None}, {"_id": 1})
    return {document["_id"] for document in recvq.sort("$natural", -1).limit(NEWEST)}
