"""Checks messages with LINE's OpenAPI (`schema.json`), the limits of its reference, and its rules.

Each object and union becomes a function once, at its first use, so that a check of a text takes
microseconds and a start nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from linemessages import values
from linemessages.finding import Check, Finding, Found, put_below
from linemessages.limits import COUNTS, FLEX_VALUES, REQUIRED, VALUES
from linemessages.rules import RULES

MOST_MESSAGES = 5


@dataclass(frozen=True)
class Place:
    """Which actions may stand at a place, and their labels there (reference, "Specifications of the
    label").
    """

    label: int
    is_required: bool = False
    more: Collection[str] = ()
    schemes: Collection[str] = values.LINKS
    """Of a URI action; none for any."""

    @property
    def kinds(self) -> Collection[str]:
        return {"postback", "message", "uri", "datetimepicker", "clipboard", *self.more}


QUICK_REPLY = Place(20, is_required=True, more=("camera", "cameraRoll", "location"))
PLACES: Mapping[str, Place] = {
    "QuickReplyItem.action": QUICK_REPLY,
    "ButtonsTemplate.actions": Place(20, is_required=True),
    "ConfirmTemplate.actions": Place(20, is_required=True),
    "CarouselColumn.actions": Place(20, is_required=True),
    # LINE's reference requires a label here as well; LINE takes it without.
    "ButtonsTemplate.defaultAction": Place(20),
    "CarouselColumn.defaultAction": Place(20),
    "ImageCarouselColumn.action": Place(12),
    "RichMenuArea.action": Place(20, more=("richmenuswitch",)),
    "FlexButton.action": Place(40, is_required=True, schemes=()),
}
# docs, "Use LINE features with the LINE URL scheme": a native app's own scheme may be used in Flex.
IN_FLEX = Place(40, schemes=())


def check_messages(messages: Any, *, mentions: bool = True) -> Found:
    """Return what LINE would refuse in the `messages` of a request, in order.

    `mentions=False` is for all but replies and pushes to groups and rooms: LINE takes none there.
    """
    if not isinstance(messages, list) or not 1 <= len(messages) <= MOST_MESSAGES:
        return [Finding(f"Size must be between 1 and {MOST_MESSAGES}", "messages")]
    found: Found = []
    try:
        values.items(_union("Message"), 1, MOST_MESSAGES)(messages, found)
    except RecursionError:
        found.append(Finding("Is nested too deeply"))
    put_below("messages", found)
    if not mentions:
        _no_mentions(messages, found)
    return found


def check_request(name: str, body: Any, *, mentions: bool = True) -> Found:
    """Return what LINE would refuse in the JSON of a request, in order.

    `name` is that of its schema in LINE's OpenAPI, such as `PushMessageRequest`; raises KeyError
    for one that is not there. `mentions` as in `check_messages`.
    """
    found: Found = []
    try:
        _object(name)(body, found)
    except RecursionError:
        found.append(Finding("Is nested too deeply"))
    if name == "RichMenuRequest":
        _as_of_a_menu(found)
    if not mentions and isinstance(body, dict):
        _no_mentions(body.get("messages"), found)
    return found


def _as_of_a_menu(found: Found) -> None:
    """LINE words two errors of a rich menu otherwise (reference, "Create rich menu")."""
    for one in found:
        if one.message == values.EMPTY:
            one.message = "must be specified"
        elif one.property.endswith(".action.uri"):
            one.message = "invalid uri"


def _no_mentions(messages: Any, found: Found) -> None:
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        given = message.get("substitution") if isinstance(message, dict) else None
        for name, one in (given if isinstance(given, dict) else {}).items():
            if isinstance(one, dict) and one.get("type") == "mention":
                where = f"messages[{place}].substitution.{name}"
                found.append(
                    Finding("Mentions go to groups and rooms only, by reply or push", where)
                )


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))
    return schema


@cache
def _union(name: str, place: Place | None = None) -> Check:
    """The check of an object whose kind is told by its `type`."""
    kinds: Mapping[str, str] = _schema()["unions"][name]
    told = f"Must be one of the following values: [{', '.join(kinds)}]"
    checks = {kind: _named(one, None) for kind, one in kinds.items()}

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, dict):
            found.append(Finding("Must be an object"))
            return
        kind = value.get("type")
        if kind is None or kind == "":
            found.append(Finding(values.EMPTY, "type"))
        elif not isinstance(kind, str) or kind not in kinds:
            found.append(Finding(told, "type", is_unknown=isinstance(kind, str)))
        else:
            if place is not None:
                _stands(value, place, found)
            checks[kind](value, found)

    return check


def _stands(action: dict[str, Any], place: Place, found: Found) -> None:
    if action["type"] not in place.kinds:
        found.append(Finding("This action can't be used here", "type"))
    elif action.get("label") is not None:
        before = len(found)
        values.visible(place.label, int(place.is_required))(action["label"], found)
        put_below("label", found[before:])
    elif place.is_required:
        found.append(Finding(values.EMPTY, "label"))
    scheme, colon, _ = str(action.get("uri", "")).partition(":")
    if colon and place.schemes and scheme.lower() not in place.schemes:
        found.append(Finding(f"Must have the scheme {' or '.join(place.schemes)}", "uri"))


@cache
def _object(name: str) -> Check:
    """The check of an object: its properties one by one, then its rule."""
    schema = _schema()["objects"][name]
    required = sorted({*schema["required"], *REQUIRED.get(name, ())})
    properties = {one: _property(name, one) for one in schema["properties"]}
    rule = RULES.get(name)

    def check(value: Any, found: Found) -> None:
        if not isinstance(value, dict):
            found.append(Finding("Must be an object"))
            return
        before = len(found)
        for one in required:
            if value.get(one) is None:
                found.append(Finding(values.EMPTY, one))
        for key, one in value.items():
            if (right := properties.get(key)) is None:
                found.append(Finding("Is not a known property", str(key), is_unknown=True))
            elif one is not None:
                sofar = len(found)
                right(one, found)
                if len(found) > sofar:
                    put_below(key, found[sofar:])
        is_right = len(found) == before or all(one.is_unknown for one in found[before:])
        if rule is not None and is_right:
            rule(value, found)

    return check


def _property(name: str, one: str) -> Check:
    schema, path = _schema()["objects"][name]["properties"][one], f"{name}.{one}"
    place = PLACES.get(path) or (IN_FLEX if name.startswith("Flex") else None)
    if path in VALUES:
        return VALUES[path]
    if isinstance(schema, str):
        return _named(schema, place)
    if "items" in schema:
        own = schema.get("minItems", 0), schema.get("maxItems")
        least, most = COUNTS.get(path, own)
        inner = schema["items"]
        each = _named(inner, place) if isinstance(inner, str) else _plain(inner, 1)
        return values.items(each, least, most)
    if "additionalProperties" in schema:
        return _values_of(_named(schema["additionalProperties"], None))
    if name.startswith("Flex") and one in FLEX_VALUES and "enum" not in schema:
        return FLEX_VALUES[one]
    return _plain(schema, int(one in _schema()["objects"][name]["required"]))


def _named(name: str, place: Place | None) -> Check:
    """The check of an object or union, made when it is first used: boxes contain boxes."""
    made: Check | None = None

    def check(value: Any, found: Found) -> None:
        nonlocal made
        if made is None:
            is_union = name in _schema()["unions"]
            where = place if name == "Action" else None
            made = _union(name, where) if is_union else _object(name)
        made(value, found)

    return check


def _values_of(each: Check) -> Check:
    def check(value: Any, found: Found) -> None:
        if not isinstance(value, dict):
            found.append(Finding("Must be an object"))
            return
        for key, one in value.items():
            before = len(found)
            each(one, found)
            put_below(key, found[before:])

    return check


def _plain(schema: Mapping[str, Any], least: int) -> Check:
    """A value of which only the OpenAPI tells something; a text has at least so many letters."""
    if "enum" in schema:
        return values.one_of(schema["enum"])
    kind = schema["type"]
    if kind == "boolean":
        return values.boolean
    if kind in ("integer", "number"):
        bounds = schema.get("minimum", -values.MOST), schema.get("maximum", values.MOST)
        return values.number(*bounds, whole=kind == "integer")
    if "pattern" in schema:
        return values.pattern(schema["pattern"], f"Must match {schema['pattern']}")
    return values.text(schema.get("maxLength", values.MOST), schema.get("minLength", least))
