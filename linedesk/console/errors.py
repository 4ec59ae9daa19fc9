"""What an operator asked for and cannot have; the text is for the operator.

* ConsoleError
  * NoSuchLetter        dead letters were named that do not exist
  * NotOneConversation  no conversation was meant, or more than one
  * NoSuchEvent         nothing is known by this id
  * NotDone             an act that is not to be done, and why
    * NotReplayed       a dead letter that is not to be replayed, or no more
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal


class ConsoleError(Exception):
    """Base of the errors of the console; `problems` has a line for each thing to say."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class NoSuchLetter(ConsoleError):
    """Dead letters were named that do not exist."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(*(f"no dead letter {id_!r}" for id_ in ids))


class NotOneConversation(ConsoleError):
    """No conversation was meant, or more than one; `found` has a line for each of these."""

    def __init__(self, word: str, found: Sequence[str]) -> None:
        if len(found) > 1:
            what = f"several conversations are meant by {word!r}:"
        elif found:
            what = f"{word!r} is only a part of a name; give the whole name, or the id:"
        else:
            what = f"no conversation {word!r}"
        super().__init__(what, *found)
        self.found = tuple(found)


class NoSuchEvent(ConsoleError):
    """Nothing is known by this id, as far as was looked."""


class NotDone(ConsoleError):
    """An act that is not to be done; the text is the reason."""


class NotReplayed(NotDone):
    """A dead letter that is not to be replayed; `unless` names the option that does it anyway."""

    def __init__(self, reason: str, *, unless: Literal["again", "force"] | None = None) -> None:
        super().__init__(reason)
        self.unless = unless
