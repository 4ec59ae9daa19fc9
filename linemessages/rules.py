"""LINE's rules about several properties of one object. Pure.

Each runs only on an object whose properties are right one by one. Sources as in `limits`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from linemessages.finding import Check, Finding, Found
from linemessages.text import graphemes

Object = dict[str, Any]

KILOBYTE = 1_024
MOST_ANIMATED = 10
# linesim's own: what it keeps is read again by a parser with a limit.
MOST_NESTED = 50
MOST_TEXT_BESIDE_IMAGE = 60
MOST_SUBSTITUTIONS = 100
MOST_OF_A_KIND = 20
MOST_CONDITIONS = 10
LEAST_MENU_RATIO = 1.45
BLOCKS = ("header", "hero", "body", "footer")
HEROES = ("box", "image", "video")
WIDE = ("kilo", "mega", "giga")
UPRIGHT = ("box", "button", "image", "text", "separator", "filler")
BASELINE = ("icon", "text", "filler")
COMPONENTS = {*UPRIGHT, *BASELINE, "span", "video"}
ACTIONS = {
    *("postback", "message", "uri", "datetimepicker", "clipboard"),
    *("camera", "cameraRoll", "location", "richmenuswitch"),
}
BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
KEY = re.compile("[0-9A-Za-z_]{1,20}")
MOMENTS = {"date": "%Y-%m-%d", "time": "%H:%M", "datetime": "%Y-%m-%dT%H:%M"}
YEARS = range(1_900, 2_101)


def _sender(sender: Object, found: Found) -> None:
    # LINE names no other word, and does not say whether a longer name may contain it.
    if sender.get("name") == "LINE":
        found.append(Finding("Certain words such as LINE may not be used", "name"))


def _text(message: Object, found: Found) -> None:
    """Each LINE emoji stands for its own `$`, counted in UTF-16 code units."""
    utf16 = message["text"].encode("utf-16-le", "surrogatepass")
    free = {place // 2 for place in range(0, len(utf16), 2) if utf16[place : place + 2] == b"$\0"}
    for place, emoji in enumerate(message.get("emojis") or ()):
        if emoji["index"] not in free:
            found.append(Finding("Must be the position of a $", f"emojis[{place}].index"))
        free.discard(emoji["index"])


def _text_v2(message: Object, found: Found) -> None:
    given = message.get("substitution") or {}
    for match in BRACES.finditer(message["text"]):
        if match.group() in ("{", "}"):
            found.append(Finding("Braces must be in pairs: {{ and }} for plain ones", "text"))
        elif match.group(1) is not None and match.group(1) not in given:
            found.append(Finding("Must have a substitution for each {name}", "text"))
    if len(given) > MOST_SUBSTITUTIONS:
        found.append(Finding(f"Size must be between 0 and {MOST_SUBSTITUTIONS}", "substitution"))
    if not all(KEY.fullmatch(key) for key in given):
        found.append(Finding("Keys must be 1 to 20 of 0-9, a-z, A-Z and _", "substitution"))
    for kind in ("mention", "emoji"):
        if sum(one["type"] == kind for one in given.values()) > MOST_OF_A_KIND:
            told = f"Up to {MOST_OF_A_KIND} of {kind} can be substituted"
            found.append(Finding(told, "substitution"))


def _text_beside_image(one: Object, found: Found) -> None:
    beside = one.get("title") or one.get("thumbnailImageUrl")
    if beside and graphemes(one["text"]) > MOST_TEXT_BESIDE_IMAGE:
        found.append(Finding(f"Length must be between 0 and {MOST_TEXT_BESIDE_IMAGE}", "text"))


def _columns(template: Object, found: Found) -> None:
    first, *others = map(_makeup, template["columns"])
    for place, other in enumerate(others, 1):
        if other != first:
            told = "Must have as many actions as the other columns, and an image and title as they"
            found.append(Finding(told, f"columns[{place}]"))


def _makeup(column: Object) -> tuple[int, bool, bool]:
    has = bool(column.get("thumbnailImageUrl")), bool(column.get("title"))
    return (len(column["actions"]), *has)


def _bubble(bubble: Object, found: Found) -> None:
    if not any(bubble.get(block) for block in BLOCKS):
        found.append(Finding("At least one block must be specified"))
    _fits(bubble, 30, found)
    alt = (bubble.get("hero") or {}).get("altContent")
    if any(map(_is_deep, (alt or {}, *(bubble.get(block) or {} for block in BLOCKS)))):
        found.append(Finding("Is nested too deeply"))
    hero = (bubble.get("hero") or {}).get("type")
    if hero in COMPONENTS and hero not in HEROES:
        told = f"Must be one of the following values: [{', '.join(HEROES)}]"
        found.append(Finding(told, "hero.type"))
    if hero == "video" and (bubble.get("size") or "mega") not in WIDE:
        found.append(
            Finding(f"A video needs a bubble of the size {' or '.join(WIDE)}", "hero.type")
        )
    for block in BLOCKS:
        box = bubble.get(block) or {}
        contents = box["contents"] if box.get("type") == "box" else ()
        if contents and contents[0].get("position") == "absolute":
            told = "The first component of a block can't be absolute"
            found.append(Finding(told, f"{block}.contents[0].position"))


def _is_deep(box: Object, left: int = MOST_NESTED) -> bool:
    return left == 0 or any(_is_deep(one, left - 1) for one in box.get("contents") or ())


def _bubbles(carousel: Object, found: Found) -> None:
    _fits(carousel, 50, found)
    bubbles = carousel["contents"]
    for place, bubble in enumerate(bubbles):
        if (bubble.get("size") or "mega") != (bubbles[0].get("size") or "mega"):
            told = "Must be the size of the other bubbles"
            found.append(Finding(told, f"contents[{place}].size"))
        if (bubble.get("hero") or {}).get("type") == "video":
            told = "A bubble of a carousel can't have a video"
            found.append(Finding(told, f"contents[{place}].hero.type"))


def _fits(container: Object, most: int, found: Found) -> None:
    written = json.dumps(container, ensure_ascii=False, separators=(",", ":"))
    if len(written.encode("utf-8", "surrogatepass")) > most * KILOBYTE:
        found.append(Finding(f"Must be at most {most} KB of JSON"))
    # Within a text the quotation marks would be escaped.
    if written.count('"animated":true') > MOST_ANIMATED:
        found.append(Finding(f"At most {MOST_ANIMATED} images can be animated"))


def _box(box: Object, found: Found) -> None:
    allowed = BASELINE if box["layout"] == "baseline" else UPRIGHT
    for place, one in enumerate(box["contents"]):
        if one["type"] in COMPONENTS and one["type"] not in allowed:
            told = f"Must be one of the following values: [{', '.join(allowed)}]"
            found.append(Finding(told, f"contents[{place}].type"))


def _flex_text(component: Object, found: Found) -> None:
    if component.get("contents"):
        return
    if component.get("text") is None:
        found.append(Finding("Either text or contents must be specified"))
    elif not component["text"]:
        # LINE's own simulator.
        found.append(Finding("Must be non-empty text", "text"))


def _video(video: Object, found: Found) -> None:
    if video["altContent"]["type"] in COMPONENTS - {"box", "image"}:
        told = "Must be one of the following values: [box, image]"
        found.append(Finding(told, "altContent.type"))
    if (video.get("action") or {}).get("type") in ACTIONS - {"uri"}:
        found.append(Finding("Must be uri", "action.type"))


def _postback(action: Object, found: Found) -> None:
    if action.get("displayText") and action.get("text"):
        found.append(Finding("displayText and text can't both be used"))


def _picker(action: Object, found: Found) -> None:
    moments = {}
    for name in ("initial", "max", "min"):
        if (value := action.get(name)) is not None:
            moments[name] = _moment(value, MOMENTS[action["mode"]])
            if moments[name] is None:
                found.append(Finding(f"Must be a {action['mode']} of 1900 to 2100", name))
    least, most = moments.get("min"), moments.get("max")
    if least and most and least >= most:
        found.append(Finding("Must be greater than min", "max"))


def _moment(value: str, form: str) -> datetime | None:
    try:
        # LINE's also has a small t. `strptime` alone takes "1:5" as well.
        moment = datetime.strptime(value.replace("t", "T"), form)
    except ValueError:
        return None
    is_exact = moment.strftime(form) == value.replace("t", "T")
    return moment if is_exact and moment.year in YEARS else None


def conditions(tree: Object | None) -> Iterator[Object]:
    """The conditions that the operators of a recipient or a demographic filter combine."""
    if tree and tree.get("type") == "operator":
        for part in (*(tree.get("and") or ()), *(tree.get("or") or ()), tree.get("not")):
            yield from conditions(part)
    elif tree:
        yield tree


def _narrowcast(request: Object, found: Found) -> None:
    demographic = (request.get("filter") or {}).get("demographic")
    for where, tree in (
        ("recipient", request.get("recipient")),
        ("filter.demographic", demographic),
    ):
        if sum(1 for _ in conditions(tree)) > MOST_CONDITIONS:
            found.append(Finding(f"Up to {MOST_CONDITIONS} conditions can be combined", where))


def _operator(operator: Object, found: Found) -> None:
    if sum(operator.get(name) is not None for name in ("and", "or", "not")) != 1:
        found.append(Finding("Exactly one of and, or, not must be specified"))


def _range(condition: Object, found: Found) -> None:
    """Of ages ("age_20") or days of friendship ("day_30")."""
    least, most = (condition.get(name) for name in ("gte", "lt"))
    if least is None and most is None:
        found.append(Finding("gte, lt or both must be specified"))
    elif least and most and int(least.split("_")[1]) >= int(most.split("_")[1]):
        found.append(Finding("Must be greater than gte", "lt"))


def _coupon(coupon: Object, found: Found) -> None:
    if coupon["endTimestamp"] <= coupon["startTimestamp"]:
        found.append(Finding("Must be after startTimestamp", "endTimestamp"))


def _menu_size(size: Object, found: Found) -> None:
    if size["width"] / size["height"] < LEAST_MENU_RATIO:
        found.append(Finding(f"width / height must be at least {LEAST_MENU_RATIO}"))


def _batch(request: Object, found: Found) -> None:
    kinds = {one["type"] for one in request["operations"]}
    menus = (one.get("from") for one in request["operations"])
    if "unlinkAll" in kinds and len(kinds) > 1:
        told = "'unlinkAll' type can't be combined with other type"
        found.append(Finding(told, "operations[].type"))
    counts = Counter(one for one in menus if isinstance(one, str))
    for menu_id in (one for one, count in counts.items() if count > 1):
        told = f"from richmenu ({menu_id}) is duplicated"
        found.append(Finding(told, "operations[].from"))


RULES: Mapping[str, Check] = {
    "NarrowcastRequest": _narrowcast,
    "OperatorRecipient": _operator,
    "OperatorDemographicFilter": _operator,
    "AgeDemographicFilter": _range,
    "SubscriptionPeriodDemographicFilter": _range,
    "CouponCreateRequest": _coupon,
    "Sender": _sender,
    "TextMessage": _text,
    "TextMessageV2": _text_v2,
    "ButtonsTemplate": _text_beside_image,
    "CarouselColumn": _text_beside_image,
    "CarouselTemplate": _columns,
    "FlexBubble": _bubble,
    "FlexCarousel": _bubbles,
    "FlexBox": _box,
    "FlexText": _flex_text,
    "FlexVideo": _video,
    "PostbackAction": _postback,
    "DatetimePickerAction": _picker,
    "RichMenuSize": _menu_size,
    "RichMenuBatchRequest": _batch,
}
