"""Bot time in a simulation: the setting SIM_CLOCK names a linesim whose clock was moved ahead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, Field, ValidationError
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from linedesk.runtime.thread import BackgroundThread

log = logging.getLogger(__name__)

ASK_SECONDS = 1.0
# A stop waits for the answer that is under way.
FOLLOW_SECONDS = 0.5
PAUSE_SECONDS = 0.2
# Of a dispatcher's workers, as many as may ask at a time without connecting anew.
CONNECTIONS = 32


class _Told(BaseModel):
    """What linesim answers, as far as it matters here."""

    ahead: float = Field(ge=0, allow_inf_nan=False)


class SimClock(BackgroundThread):
    """`now` asks linesim; a thread hears of each move of its clock and calls who wants to know."""

    def __init__(
        self,
        url: str,
        *,
        ask_seconds: float = ASK_SECONDS,
        follow_seconds: float = FOLLOW_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        super().__init__("simclock", self._follow)
        self._url = url
        self._ask_seconds = ask_seconds
        self._follow_seconds = follow_seconds
        self._pause_seconds = pause_seconds
        self._http = PoolManager(maxsize=CONNECTIONS, retries=False)
        self._listeners: list[Callable[[], object]] = []
        # As the thread heard last; it alone writes it.
        self._ahead = 0.0

    def now(self) -> datetime:
        """Bot time in UTC; never behind a move of the clock that linesim has confirmed.

        Where linesim does not answer within a second it is as far ahead as was heard last.
        """
        ahead = self._ask({}, seconds=self._ask_seconds)
        return datetime.now(UTC) + timedelta(seconds=self._ahead if ahead is None else ahead)

    def when_moved(self, function: Callable[[], object]) -> None:
        """Have `function` called after each move, and once at the start; to be said before it.

        It is called from the clock's thread, must be quick and must not raise.
        """
        self._listeners.append(function)

    def stalled(self) -> str | None:
        """Each of its waits ends; nothing of production comes here."""
        return None

    def status(self) -> str:
        """How far ahead bot time is."""
        return f"bot time {self._ahead:.0f} s ahead"

    def _follow(self) -> None:
        known: float | None = None
        answers = True
        seconds = self._follow_seconds + self._ask_seconds
        while not self._stop.is_set():
            ahead = self._ask(self._waiting(known), seconds=seconds)
            if answers and ahead is None:
                log.warning("linesim does not tell the time url=%s", self._url)
            answers = ahead is not None
            if ahead is None:
                self._stop.wait(self._pause_seconds)
            elif ahead != known:
                known = self._ahead = ahead
                self._tell()

    def _tell(self) -> None:
        for function in self._listeners:
            if not self._stop.is_set():
                function()

    def _waiting(self, known: float | None) -> Mapping[str, str]:
        """To be told once the clock is no longer `known` seconds ahead, or soon in any case."""
        return {} if known is None else {"after": repr(known), "wait": repr(self._follow_seconds)}

    def _ask(self, fields: Mapping[str, str], *, seconds: float) -> float | None:
        """How far ahead the clock is; None where linesim does not tell it in time."""
        try:
            answer = self._http.request("GET", self._url, fields=fields, timeout=seconds)
            return _Told.model_validate_json(answer.data).ahead
        except (HTTPError, ValidationError):
            return None
