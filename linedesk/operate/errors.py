"""Requests of an operator that the console cannot fulfil; the text is for the operator.

* ConsoleError
  * NoSuchLetter        a named dead letter does not exist
  * NotOneConversation  a word means no conversation, or more than one
  * NoSuchEvent         an id belongs to no known event
  * NotDone             an act is refused, with the reason
    * NotReplayed       a dead letter cannot be replayed, or not again

An error keeps a code or a text and its values apart. It is said when it is read, so the operator
reads it in the language of the page, and logs keep English.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from linedesk.operate.text import known
from linedesk.runtime.language import gettext, mark
from linedesk.store.documents import Document

UNSEEN = mark("the names of {count} older conversations were not read; give the id to be sure")


class Phrase:
    """A marked text with its values, translated each time it is read."""

    def __init__(self, message: str, **values: Any) -> None:
        self._message = message
        self._values = values

    def __str__(self) -> str:
        return gettext(self._message).format(**self._values)


class ConsoleError(Exception):
    """Base of the errors of the console; `problems` has one line for each problem.

    A problem is a text, or a code with its values.
    """

    def __init__(self, *problems: str | Phrase | Document) -> None:
        super().__init__(*problems)
        self._problems = problems

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems in the language of the context."""
        return tuple(known(str(one) if isinstance(one, Phrase) else one) for one in self._problems)

    @property
    def reason(self) -> Document | str:
        """The first problem, as a row of `audit` has it."""
        first = self._problems[0]
        return first if isinstance(first, dict) else str(first)

    def __str__(self) -> str:
        return "; ".join(self.problems)


class NoSuchLetter(ConsoleError):
    """A named dead letter does not exist."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(*(Phrase(mark("no dead letter {id!r}"), id=id_) for id_ in ids))


class NotOneConversation(ConsoleError):
    """A word means no conversation, or more than one; `found` has one line for each candidate."""

    def __init__(self, word: str, found: Sequence[str], *, unseen: int = 0) -> None:
        if len(found) > 1:
            message = mark("{word!r} matches several conversations:")
        elif found and unseen:
            message = mark("{word!r} may mean other conversations, too, besides:")
        elif found:
            message = mark("{word!r} is only a part of a name; give the whole name, or the id:")
        else:
            message = mark("no conversation {word!r}")
        left = [Phrase(UNSEEN, count=unseen)] if unseen else []
        super().__init__(Phrase(message, word=word), *found, *left)
        self.found = tuple(found)


class NoSuchEvent(ConsoleError):
    """The id belongs to no event among the searched rows."""


class NotDone(ConsoleError):
    """An act is refused; the text is the reason."""


class NotReplayed(NotDone):
    """A dead letter is not replayed; `unless` names the option that replays it anyway."""

    def __init__(
        self, code: str, *, unless: Literal["again", "force"] | None = None, **values: Any
    ) -> None:
        super().__init__({"code": code, **values})
        self.unless = unless
