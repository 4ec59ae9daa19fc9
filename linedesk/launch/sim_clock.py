"""Bot time in a simulation: the setting SIM_CLOCK names a linesim whose clock was moved ahead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, Field, ValidationError
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from linedesk.runtime.thread import BackgroundThread

log = logging.getLogger(__name__)

ASK_SECONDS = 1.0
LOOK_SECONDS = 0.2
# The number of a dispatcher's workers that can ask at the same time without a new connection.
CONNECTIONS = 32


class _Told(BaseModel):
    """The fields of linesim's answer that are used here."""

    ahead: float = Field(ge=0, allow_inf_nan=False)


class SimClock(BackgroundThread):
    """`now` asks linesim; a thread looks for moves of its clock and reports them."""

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
        self._listeners: list[Callable[[], object]] = []
        # The last known value; only the thread writes it.
        self._ahead = 0.0

    def now(self) -> datetime:
        """Bot time in UTC; never behind a move of the clock that linesim has confirmed.

        If linesim does not answer within a second, the last known offset is used.
        """
        ahead = self._ask()
        return datetime.now(UTC) + timedelta(seconds=self._ahead if ahead is None else ahead)

    def when_moved(self, function: Callable[[], object]) -> None:
        """Have `function` called after each move, and once at the start; call this before the
        start.

        The clock's thread calls it. It must be quick and must not raise.
        """
        self._listeners.append(function)

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
            ahead = self._ask()
            if answers and ahead is None:
                log.warning("linesim does not report the time url=%s", self._url)
            answers = ahead is not None
            if ahead is not None and ahead != known:
                known = self._ahead = ahead
                for function in self._listeners:
                    function()
            self._stop.wait(self._look_seconds)

    def _ask(self) -> float | None:
        """The clock's offset in seconds; None if linesim does not answer in time."""
        try:
            answer = self._http.request("GET", self._url, timeout=self._ask_seconds)
            return _Told.model_validate_json(answer.data).ahead
        except (HTTPError, ValidationError):
            return None
