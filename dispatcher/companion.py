"""What lives as long as a dispatcher holds the lease, and is none of its business."""

from __future__ import annotations

from typing import Protocol


class Companion(Protocol):
    """Started once the dispatcher is at work, stopped before all else when it ends.

    One of its threads that dies takes the process along, like any other.
    """

    def start(self) -> None:
        """Begin; after a stop it ends at once."""
        ...

    def stop(self) -> None:
        """Begin nothing new; may be called twice, and before `start`."""
        ...

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end; returns whether it came."""
        ...

    def stalled(self) -> str | None:
        """What of it hangs although it may not, in words; None while all goes on."""
        ...

    def status(self) -> str:
        """How it goes, in words for a person; quick, from any thread."""
        ...
