"""The actions that a user finds in messages: buttons, quick replies, areas of images. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from linedesk.store.documents import Document

PICKER = "datetimepicker"
# LINE's reference, "Action objects". A location is also a message, but without a label.
ACTIONS = frozenset({"postback", "message", "uri", PICKER, "richmenuswitch", "clipboard"})
ACTIONS |= {"camera", "cameraRoll", "location"}


def action_of(label: str | None, shown: Sequence[Any]) -> Document:
    """Return the newest action with this label, or the newest picker, in messages or a rich menu.

    Raises ValueError. Only the last message still shows its quick reply.
    """
    before = [{k: v for k, v in one.items() if k != "quickReply"} for one in shown[:-1]]
    for message in reversed([*before, *shown[-1:]]):
        for action in _in(message):
            if label in _labels(action) if label is not None else action["type"] == PICKER:
                return action
    labels = [_labels(one)[0] for one in _in(list(shown[-1:]))]
    raise ValueError(f"no action {label or PICKER!r}; the last message has {labels}")


def picked(action: Mapping[str, Any], moment: str) -> dict[str, str]:
    """Return a picker's `params`. Raises ValueError for what LINE's picker does not offer."""
    if action["type"] != PICKER:
        raise ValueError("this is no picker: use taps")
    least, most = (str(action.get(name) or moment).replace("t", "T") for name in ("min", "max"))
    if not least <= moment <= most:
        raise ValueError(f"the picker offers {least} to {most}, not {moment}")
    return {str(action["mode"]): moment}


def _labels(action: Mapping[str, Any]) -> list[Any]:
    return [one for one in (action.get("label"), action.get("text")) if one] or [None]


def _in(part: Any) -> Iterator[Document]:
    if isinstance(part, Mapping):
        if part.get("type") in ACTIONS and {"label", "text", "data", "uri"} & part.keys():
            yield dict(part)
        else:
            yield from _in(list(part.values()))
    elif isinstance(part, list):
        for one in part:
            yield from _in(one)
