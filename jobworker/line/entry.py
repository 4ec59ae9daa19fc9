"""What waits at the gate for its turn."""

from __future__ import annotations

from typing import Protocol


class GateEntry(Protocol):
    """Something that wants to call. The gate calls its methods on a thread of the pool."""

    deadline: float
    """When it should be served at the latest, as a monotonic time: the order of serving."""
    patient: bool
    """Whether it waits on while LINE must not be called; else it is told `sent_away`. The patient
    one is told so at a stop, if it is prepared by then."""

    def sent_away(self) -> None:
        """LINE must not be called for now, so do without. Must be quick."""
        ...

    def prepare(self) -> bool:
        """Get ready; False if there is nothing to call, and then the turn goes to the next."""
        ...

    def call(self) -> None:
        """Make the one call. Must not raise."""
        ...

    def after(self) -> None:
        """What follows from the answer; the gate is free for others by now."""
        ...
