"""The actions that a user finds in messages: buttons, quick replies, areas of images. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from linedesk.store.documents import Document

PICKER = "datetimepicker"
# LINE's reference, "Action objects"; a location is also a message, which has no label.
ACTIONS = frozenset(
    {"postback", "message", "uri", PICKER, "camera", "cameraRoll", "location"}
    | {"richmenuswitch", "clipboard"}
)
# LINE's reference, "Datetime picker action": the form of each mode's moments.
FORMS = {"date": "%Y-%m-%d", "time": "%H:%M", "datetime": "%Y-%m-%dT%H:%M"}


def action_of(label: str, messages: Sequence[Mapping[str, Any]]) -> Document:
    """Return the action with this label in the newest of the messages that has one.

    Raises ValueError. Quick replies are there under the last message only.
    """
    for message in reversed(messages):
        shown = message
        if message is not messages[-1]:
            shown = {name: part for name, part in message.items() if name != "quickReply"}
        for action in actions_in(shown):
            if label in (action.get("label"), action.get("text")):
                return action
    labels = [one.get("label") or one.get("text") for one in actions_in(list(messages[-1:]))]
    raise ValueError(f"no action {label!r}; the last message has {labels}")


def actions_in(part: Any) -> Iterator[Document]:
    """All actions in a message, a rich menu, or a part of one."""
    if isinstance(part, list):
        for one in part:
            yield from actions_in(one)
    elif isinstance(part, Mapping):
        if part.get("type") in ACTIONS and {"label", "text", "data", "uri"} & part.keys():
            yield dict(part)
            return
        for one in part.values():
            yield from actions_in(one)


def picked(action: Mapping[str, Any], moment: date | time | str) -> dict[str, str]:
    """Return the `params` of a picker's postback. Raises ValueError for a moment that LINE's picker
    does not offer.
    """
    mode = str(action.get("mode"))
    value = moment if isinstance(moment, str) else moment.strftime(FORMS[mode])
    datetime.strptime(value, FORMS[mode])
    least, most = (str(action.get(name) or value).replace("t", "T") for name in ("min", "max"))
    if not least <= value <= most:
        raise ValueError(f"the picker offers {least} to {most}, not {value}")
    return {mode: value}
