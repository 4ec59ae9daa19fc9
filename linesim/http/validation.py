"""LINE's checks of a message-sending body, answered in LINE's form.

All errors of a body are collected, each with its message and the path of the property, as in LINE.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from linesim.model import errors

MOST_MESSAGES = 5
MOST_TEXT_UNITS = 5_000
MOST_RECIPIENTS = 500
MOST_QUICK_REPLIES = 13
MOST_SENDER_NAME = 20
MOST_ALT_TEXT = 1_500
MOST_URL = 2_000

Problem = dict[str, str]
Check = Callable[[Any, str], Iterator[Problem]]


def utf16_units(text: str) -> int:
    """The length of a text as LINE counts it: an emoji outside the BMP is two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def problem(property_: str, message: str) -> Problem:
    return {"message": message, "property": property_}


def _text(most: int) -> Check:
    def check(value: Any, where: str) -> Iterator[Problem]:
        if not isinstance(value, str) or not value:
            yield problem(where, "May not be empty")
        elif utf16_units(value) > most:
            yield problem(where, f"Length must be between 0 and {most}")

    return check


def _https_url(value: Any, where: str) -> Iterator[Problem]:
    if not isinstance(value, str) or not value:
        yield problem(where, "May not be empty")
    elif not value.startswith("https://"):
        yield problem(where, "Must be a URL with the HTTPS scheme")
    elif len(value) > MOST_URL:
        yield problem(where, f"Length must be between 0 and {MOST_URL}")


def _number(least: float, most: float) -> Check:
    def check(value: Any, where: str) -> Iterator[Problem]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield problem(where, "Must be a number")
        elif not least <= value <= most:
            yield problem(where, f"Must be between {least:g} and {most:g}")

    return check


def _object(value: Any, where: str) -> Iterator[Problem]:
    if not isinstance(value, dict) or not value:
        yield problem(where, "May not be empty")


def _array(value: Any, where: str) -> Iterator[Problem]:
    if not isinstance(value, list) or not value:
        yield problem(where, "May not be empty")


_MEDIUM: Mapping[str, Check] = {"originalContentUrl": _https_url, "previewImageUrl": _https_url}

MESSAGE_TYPES: Mapping[str, Mapping[str, Check]] = {
    "text": {"text": _text(MOST_TEXT_UNITS)},
    "textV2": {"text": _text(MOST_TEXT_UNITS)},
    "sticker": {"packageId": _text(20), "stickerId": _text(20)},
    "image": _MEDIUM,
    "video": _MEDIUM,
    "audio": {"originalContentUrl": _https_url, "duration": _number(1, 2**53)},
    "location": {
        "title": _text(100),
        "address": _text(100),
        "latitude": _number(-90, 90),
        "longitude": _number(-180, 180),
    },
    "imagemap": {
        "baseUrl": _https_url,
        "altText": _text(MOST_ALT_TEXT),
        "baseSize": _object,
        "actions": _array,
    },
    "template": {"altText": _text(MOST_ALT_TEXT), "template": _object},
    "flex": {"altText": _text(MOST_ALT_TEXT), "contents": _object},
    "coupon": {"couponId": _text(100)},
}


def check_messages(body: Any) -> None:
    """Raises LineError 400 unless `messages` holds one to five good messages."""
    _refuse(list(_messages(body)))


def check_reply(body: Any) -> None:
    _refuse([*_filled(body, "replyToken"), *_messages(body)])


def check_push(body: Any) -> None:
    _refuse([*_filled(body, "to"), *_messages(body)])


def check_multicast(body: Any) -> None:
    _refuse([*_recipients(body), *_messages(body), *_mentions(body)])


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise errors.invalid_body(problems)


def _filled(body: dict[str, Any], name: str) -> Iterator[Problem]:
    if not isinstance(body.get(name), str) or not body[name]:
        yield problem(name, "May not be empty")


def _recipients(body: dict[str, Any]) -> Iterator[Problem]:
    to = body.get("to")
    if not isinstance(to, list) or not 1 <= len(to) <= MOST_RECIPIENTS:
        yield problem("to", f"Size must be between 1 and {MOST_RECIPIENTS}")
        return
    for place, user_id in enumerate(to):
        if not isinstance(user_id, str) or not user_id:
            yield problem(f"to[{place}]", "May not be empty")


def _messages(body: dict[str, Any]) -> Iterator[Problem]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MOST_MESSAGES:
        yield problem("messages", f"Size must be between 1 and {MOST_MESSAGES}")
        return
    for place, message in enumerate(messages):
        yield from _message(message, f"messages[{place}]")


def _message(message: Any, where: str) -> Iterator[Problem]:
    kind = message.get("type") if isinstance(message, dict) else None
    checks = MESSAGE_TYPES.get(kind) if isinstance(kind, str) else None
    if checks is None:
        names = ", ".join(MESSAGE_TYPES)
        yield problem(f"{where}.type", f"Must be one of the following values: [{names}]")
        return
    for name, check in checks.items():
        yield from check(message.get(name), f"{where}.{name}")
    yield from _quick_reply(message, where)
    yield from _sender(message, where)


def _mentions(body: dict[str, Any]) -> Iterator[Problem]:
    """LINE takes mentions in replies and pushes only (reference, "Mention object")."""
    messages = body.get("messages")
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        found = message.get("substitution") if isinstance(message, dict) else None
        for name, value in (found if isinstance(found, dict) else {}).items():
            if isinstance(value, dict) and value.get("type") == "mention":
                where = f"messages[{place}].substitution.{name}"
                yield problem(where, "Mentions can't be used in this API")


def _quick_reply(message: dict[str, Any], where: str) -> Iterator[Problem]:
    if (quick_reply := message.get("quickReply")) is None:
        return
    items = quick_reply.get("items") if isinstance(quick_reply, dict) else None
    if not isinstance(items, list) or not 1 <= len(items) <= MOST_QUICK_REPLIES:
        yield problem(
            f"{where}.quickReply.items", f"Size must be between 1 and {MOST_QUICK_REPLIES}"
        )


def _sender(message: dict[str, Any], where: str) -> Iterator[Problem]:
    sender = message.get("sender")
    name = sender.get("name") if isinstance(sender, dict) else None
    if isinstance(name, str) and utf16_units(name) > MOST_SENDER_NAME:
        yield problem(f"{where}.sender.name", f"Length must be between 0 and {MOST_SENDER_NAME}")
