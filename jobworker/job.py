"""The dispatcher's job, as far as this room needs it (see `dispatcher.job`, which it may not)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from recvq.documents import Document

Verdict = Literal["finished", "recorded", "applied", "parked"]


class Handling(Protocol):
    """One call of the bot's handler: it returns or it is abandoned, whichever comes first."""

    @property
    def is_abandoned(self) -> bool: ...

    def end(self) -> bool: ...


class Condemned(Protocol):
    """Why a job is given up without another run of its handler."""

    @property
    def cause(self) -> str: ...

    @property
    def attempts(self) -> int: ...

    @property
    def first_at(self) -> datetime: ...

    @property
    def stack(self) -> str: ...


class Job(Protocol):
    """One document in hand."""

    document: Document
    again: bool
    memo: Any
    because: str | None

    @property
    def condemned(self) -> Condemned | None: ...

    def begin_handler(self) -> Handling: ...

    def unsaved(self) -> Sequence[str]: ...

    def resume(self) -> None: ...
