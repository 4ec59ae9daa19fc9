"""Whoever keeps a process running, and what the process tells it: systemd, or nobody.

The rooms report through this protocol; `linedesk/systemd.py` is the one that speaks systemd's.
"""

from __future__ import annotations

from typing import Protocol


class Service(Protocol):
    """Who runs this process. Every method may be called from any thread, and never raises."""

    @property
    def watchdog_seconds(self) -> float | None:
        """How long the process may go without a word before it is ended; None: for ever."""

    def starting(self, status: str, *, seconds: float) -> None:
        """Not ready yet, for a reason; it will say more within so many seconds."""

    def ready(self, status: str) -> None:
        """The process does its work from now on; said once."""

    def alive(self, status: str) -> None:
        """It still makes progress, or waits for something that has a name."""

    def unwell(self, status: str) -> None:
        """It hangs: the words are shown, the watchdog is not fed."""

    def reloading(self) -> None:
        """It reads something anew; `ready` or `alive` follows."""

    def stopping(self, status: str, *, seconds: float) -> None:
        """It ends in an orderly way, and will say more within so many seconds."""


class Nobody:
    """A process that somebody started by hand: nobody listens."""

    watchdog_seconds: float | None = None

    def starting(self, status: str, *, seconds: float) -> None:
        """Nobody waits for it."""

    def ready(self, status: str) -> None:
        """Nobody waits for it."""

    def alive(self, status: str) -> None:
        """Nobody watches it."""

    def unwell(self, status: str) -> None:
        """Nobody watches it."""

    def reloading(self) -> None:
        """Nobody asked for it."""

    def stopping(self, status: str, *, seconds: float) -> None:
        """Nobody waits for it."""


def word_seconds(service: Service) -> float:
    """How often to say a word: once a second, or twice in the watchdog's time if that is short."""
    watchdog_seconds = service.watchdog_seconds
    return 1.0 if watchdog_seconds is None else min(1.0, watchdog_seconds / 2)
