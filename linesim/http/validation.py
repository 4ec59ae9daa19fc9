"""LINE's checks of a message-sending body, answered in LINE's form.

All errors of a body are collected, each with its message and the path of the property, as in LINE.
`linemessages` checks the messages. What it does not know is refused, too: LINE may take it, and
nobody could say what for.
"""

from collections.abc import Iterator
from typing import Any

from linemessages import Finding, check_messages
from linemessages.values import EMPTY
from linesim.model import errors

MOST_RECIPIENTS = 500

Problem = dict[str, str]


def problem(property_: str, message: str) -> Problem:
    return Finding(message, property_).as_detail()


def check(body: Any, *needed: str) -> None:
    """Raises LineError 400 unless these properties are texts, and `messages` holds one to five good
    messages.
    """
    empty = [name for name in needed if not isinstance(body.get(name), str) or not body[name]]
    _refuse([*(problem(name, EMPTY) for name in empty), *_messages(body)])


def check_multicast(body: Any) -> None:
    _refuse([*_recipients(body), *_messages(body, mentions=False)])


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise errors.invalid_body(problems)


def _recipients(body: dict[str, Any]) -> Iterator[Problem]:
    to = body.get("to")
    if not isinstance(to, list) or not 1 <= len(to) <= MOST_RECIPIENTS:
        yield problem("to", f"Size must be between 1 and {MOST_RECIPIENTS}")
        return
    for place, user_id in enumerate(to):
        if not isinstance(user_id, str) or not user_id:
            yield problem(f"to[{place}]", EMPTY)


def _messages(body: dict[str, Any], *, mentions: bool = True) -> Iterator[Problem]:
    found = check_messages(body.get("messages"), mentions=mentions)
    yield from (one.as_detail() for one in found)
