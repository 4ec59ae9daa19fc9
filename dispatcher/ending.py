"""Why a dispatcher ended, or never began."""

from __future__ import annotations

from enum import Enum


class Ending(Enum):
    """Why a dispatcher ended; the command line makes an exit code of it."""

    STOPPED = "stopped"
    STUCK = "stuck"
    """A thread did not end within the drain, or too many handlers never returned."""
    REPLACED = "replaced"
    FAILED = "failed"


class Interrupted(Exception):
    """A signal came, or a thread died, before the dispatcher had begun."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending
