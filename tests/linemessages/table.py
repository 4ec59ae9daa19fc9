"""What LINE's documentation says of messages: for each rule, messages that break or just keep it.

Written from LINE's reference, its guides and its OpenAPI description alone, so that it judges
a checker of messages independently. What these leave open is not here.

The property that an error must name:
- a missing property is named itself ("text"), a list of wrong size too ("template.actions");
- a wrong entry is named by its index ("quickReply.items[0].action.label");
- an action, component or bubble of a known type where it may not stand is named by its `type`,
  as in LINE's own example of an error ("messages[1].type");
- a rule about a whole object names the object ("contents", "template.columns[1]");
- of `min` and `max` of a datetime picker that contradict each other, `max` is named;
- braces of a text (v2) without a pair or without a substitution: the `text` is named.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

Message = dict[str, Any]
# The path, the value that comes there and, if it is not the path, the property that is wrong.
Change = tuple[str, Any] | tuple[str, Any, str]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


@dataclass(frozen=True)
class Rule:
    """One sentence of LINE's documentation, messages that break it and messages that just keep it.

    `at` is an anchor in LINE's reference, or the name of another page.
    """

    says: str
    at: str
    base: Message
    wrong: tuple[Change, ...]
    right: tuple[Change, ...] = ()


def _copy(value: Any) -> Any:
    """Unlike `deepcopy`, it makes two objects of one that stands in a message twice."""
    return json.loads(json.dumps(value))


_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def changed(base: Message, change: Change) -> Message:
    """A copy of the base with the value at the path; an empty path replaces the whole message."""
    path, value = change[0], change[1]
    message: Message = _copy(base if path else value)
    if not path:
        return message
    *way, last = (int(index) if index else name for name, index in _STEP.findall(path))
    at: Any = message
    for step in way:
        at = at[step]
    if isinstance(value, _Absent):
        del at[last]
    else:
        at[last] = _copy(value)
    return message


def named(change: Change) -> str:
    """The property that an error must name."""
    return change[2] if len(change) == 3 else change[0]


def each(path: str, *values: Any) -> tuple[Change, ...]:
    """One message with each of the values at the path."""
    return tuple((path, value) for value in values)


def within(path: str, **values: Any) -> tuple[Change, ...]:
    """For each property of the object at the path, one message with the value there."""
    return tuple((f"{path}.{name}".lstrip("."), value) for name, value in values.items())


# One grapheme cluster each, of so many UTF-16 code units.
APPLE = "\U0001f34e"  # 2
GA = "か\u3099"  # 2
THUMB = "\U0001f44d\U0001f3fd"  # 4
FLAG = "\U0001f1ef\U0001f1f5"  # 4
JAMO = "\u1100\u1161\u11a8"  # 3
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # 8


def url(length: int) -> str:
    return "https://example.com/".ljust(length, "a")


URL = "https://example.com/images/1.jpg"
HTTP = "http://example.com/images/1.jpg"

# --- Actions ---

POSTBACK: Message = {
    "type": "postback",
    "label": "Buy",
    "data": "action=buy&itemid=111",
    "displayText": "Buy",
    "inputOption": "openKeyboard",
    "fillInText": "---\nName: \n---",
}
SAY: Message = {"type": "message", "label": "Yes", "text": "Yes"}
OPEN: Message = {
    "type": "uri",
    "label": "View details",
    "uri": "http://example.com/page/222",
    "altUri": {"desktop": "http://example.com/pc/page/222"},
}
PICK: Message = {
    "type": "datetimepicker",
    "label": "Select date",
    "data": "storeId=12345",
    "mode": "datetime",
    "initial": "2017-12-25t00:00",
    "max": "2018-01-24t23:59",
    "min": "2017-12-25t00:00",
}
CAMERA: Message = {"type": "camera", "label": "Camera"}
CAMERA_ROLL: Message = {"type": "cameraRoll", "label": "Camera roll"}
LOCATE: Message = {"type": "location", "label": "Location"}
COPY: Message = {"type": "clipboard", "label": "Copy", "clipboardText": "3B48740B"}
SWITCH: Message = {
    "type": "richmenuswitch",
    "label": "Next",
    "richMenuAliasId": "richmenu-alias-b",
    "data": "richmenu-changed-to-b",
}


def without(one: Message, *names: str) -> Message:
    return {name: value for name, value in one.items() if name not in names}


SIMPLE_OPEN = without(OPEN, "altUri")

# --- Texts ---

TEXT: Message = {"type": "text", "text": "Hello, world"}
SENT: Message = TEXT | {"sender": {"name": "Cony", "iconUrl": "https://line.me/conyprof"}}
QUICK_ACTIONS = (SAY, POSTBACK, SIMPLE_OPEN, PICK, CAMERA, CAMERA_ROLL, LOCATE, COPY)
QUICK: Message = TEXT | {
    "quickReply": {
        "items": [{"type": "action", "imageUrl": URL, "action": one} for one in QUICK_ACTIONS]
    }
}
SAY_AT, POSTBACK_AT, OPEN_AT, PICK_AT, CAMERA_AT, CAMERA_ROLL_AT, LOCATE_AT, COPY_AT = (
    f"quickReply.items[{index}].action" for index in range(len(QUICK_ACTIONS))
)

PRODUCT = "5ac1bfd5040ab15980c9b435"


def with_emojis(text: str, *indexes: Any) -> Message:
    emojis = [{"index": one, "productId": PRODUCT, "emojiId": "001"} for one in indexes]
    return {"type": "text", "text": text, "emojis": emojis}


EMOJIS = with_emojis("$ LINE emoji $", 0, 13)

USER: Message = {"type": "mention", "mentionee": {"type": "user", "userId": f"U{'4' * 32}"}}
ALL: Message = {"type": "mention", "mentionee": {"type": "all"}}
LAUGH: Message = {"type": "emoji", "productId": "5a8555cfe6256cc92ea23c2a", "emojiId": "002"}
TEXT_V2: Message = {
    "type": "textV2",
    "text": "Welcome, {user1}! {laugh}\n{everyone} There is a newcomer!",
    "substitution": {"user1": USER, "laugh": LAUGH, "everyone": ALL},
}
PLAIN_V2: Message = {"type": "textV2", "text": "Welcome!"}


def v2(text: str, substitution: Message) -> Message:
    return {"type": "textV2", "text": text, "substitution": substitution}


def many_v2(count: int, one: Message) -> Message:
    """All of them stand in the text."""
    names = [f"x{number}" for number in range(count)]
    return v2(" ".join(f"{{{name}}}" for name in names), dict.fromkeys(names, one))


# --- Media ---

STICKER: Message = {"type": "sticker", "packageId": "446", "stickerId": "1988"}
IMAGE: Message = {"type": "image", "originalContentUrl": URL, "previewImageUrl": URL}
VIDEO: Message = {
    "type": "video",
    "originalContentUrl": "https://example.com/original.mp4",
    "previewImageUrl": URL,
    "trackingId": "track-id",
}
AUDIO: Message = {
    "type": "audio",
    "originalContentUrl": "https://example.com/original.m4a",
    "duration": 60000,
}
LOCATION: Message = {
    "type": "location",
    "title": "my location",
    "address": "1-3 Kioicho, Chiyoda-ku, Tokyo, 102-8282, Japan",
    "latitude": 35.67966,
    "longitude": 139.73669,
}
COUPON: Message = {
    "type": "coupon",
    "couponId": "01JYNW8JMQVFBNWF1APF8Z3FS7",
    "deliveryTag": "2025_winter_campaign",
}
AREA: Message = {"x": 0, "y": 586, "width": 520, "height": 454}
IMAGEMAP: Message = {
    "type": "imagemap",
    "baseUrl": "https://example.com/bot/images/rm001",
    "altText": "This is an imagemap",
    "baseSize": {"width": 1040, "height": 1040},
    "video": {
        "originalContentUrl": "https://example.com/video.mp4",
        "previewImageUrl": "https://example.com/video_preview.jpg",
        "area": {"x": 0, "y": 0, "width": 1040, "height": 585},
        "externalLink": {"linkUri": "https://example.com/see_more.html", "label": "See More"},
    },
    "actions": [
        {"type": "uri", "label": "Site", "linkUri": "https://example.com/", "area": AREA},
        {"type": "message", "label": "hello", "text": "Hello", "area": AREA},
        {"type": "clipboard", "label": "Copy", "clipboardText": "3B48740B", "area": AREA},
    ],
}

# --- Templates ---


def template(**properties: Any) -> Message:
    return {"type": "template", "altText": "This is a template", "template": properties}


PLAIN_BUTTONS = template(
    type="buttons",
    text="Please select",
    actions=[without(POSTBACK, "inputOption", "fillInText"), SAY, SIMPLE_OPEN, COPY],
)
BUTTONS = template(
    type="buttons",
    thumbnailImageUrl=URL,
    imageAspectRatio="rectangle",
    imageSize="cover",
    imageBackgroundColor="#FFFFFF",
    title="Menu",
    text="Please select",
    defaultAction=SIMPLE_OPEN,
    actions=[POSTBACK, SAY, SIMPLE_OPEN],
)
PICKERS = template(
    type="buttons",
    text="When?",
    actions=[
        PICK,
        PICK | {"mode": "date", "initial": "2017-06-18", "max": "2017-12-31", "min": "2017-01-01"},
        PICK | {"mode": "time", "initial": "06:15", "max": "23:59", "min": "00:00"},
    ],
)
DATETIME_AT, DATE_AT, TIME_AT = (f"template.actions[{index}]" for index in range(3))
CONFIRM = template(
    type="confirm",
    text="Are you sure?",
    actions=[SAY, {"type": "message", "label": "No", "text": "no"}],
)
COLUMN: Message = {
    "thumbnailImageUrl": URL,
    "imageBackgroundColor": "#FFFFFF",
    "title": "this is menu",
    "text": "description",
    "defaultAction": SIMPLE_OPEN,
    "actions": [SAY, SIMPLE_OPEN],
}
PLAIN_COLUMN: Message = {"text": "description", "actions": [SAY, SIMPLE_OPEN]}


def carousel(*columns: Message) -> Message:
    return template(
        type="carousel", columns=list(columns), imageAspectRatio="rectangle", imageSize="cover"
    )


CAROUSEL = carousel(COLUMN, COLUMN)
PLAIN_CAROUSEL = carousel(PLAIN_COLUMN, PLAIN_COLUMN, PLAIN_COLUMN)
IMAGE_COLUMN: Message = {"imageUrl": URL, "action": SAY}
IMAGE_CAROUSEL = template(
    type="image_carousel",
    columns=[{"imageUrl": URL, "action": one} for one in (SAY, SIMPLE_OPEN, POSTBACK)],
)

# --- Flex ---


def flex(contents: Message) -> Message:
    return {"type": "flex", "altText": "this is a flex message", "contents": contents}


def box(layout: str, *contents: Message, **properties: Any) -> Message:
    return {"type": "box", "layout": layout, "contents": list(contents), **properties}


FLEX_TEXT: Message = {"type": "text", "text": "hello"}
FLEX_IMAGE: Message = {"type": "image", "url": URL}
BUTTON: Message = {"type": "button", "action": SAY}
ICON: Message = {"type": "icon", "url": URL}
SPAN: Message = {"type": "span", "text": "hello"}
SEPARATOR: Message = {"type": "separator"}
FILLER: Message = {"type": "filler"}
FILM: Message = {
    "type": "video",
    "url": "https://example.com/video.mp4",
    "previewUrl": URL,
    "altContent": FLEX_IMAGE,
    "aspectRatio": "20:13",
    "action": SIMPLE_OPEN,
}
GRADIENT: Message = {
    "type": "linearGradient",
    "angle": "90deg",
    "startColor": "#FFFF00",
    "endColor": "#0080ff",
    "centerColor": "#00ff00",
    "centerPosition": "10%",
}
# A component of each type that may stand in a bubble anywhere but in the hero alone.
BUBBLE = flex(
    {
        "type": "bubble",
        "size": "mega",
        "direction": "ltr",
        "header": box("vertical", FLEX_TEXT),
        "hero": FLEX_IMAGE,
        "body": box(
            "vertical",
            box("vertical", width="30px", height="30px", background=GRADIENT),
            BUTTON,
            FLEX_IMAGE,
            FLEX_TEXT,
            SEPARATOR,
            FILLER,
            box("baseline", ICON, FLEX_TEXT, FILLER),
            {"type": "text", "contents": [SPAN, SPAN]},
        ),
        "footer": box("horizontal", BUTTON),
        "styles": {"footer": {"backgroundColor": "#00ffff", "separatorColor": "#000000"}},
    }
)
BODY_AT = "contents.body.contents"
BOX_AT, BUTTON_AT, IMAGE_AT, TEXT_AT, SEPARATOR_AT, FILLER_AT, BASELINE_AT, SPANS_AT = (
    f"{BODY_AT}[{index}]" for index in range(8)
)
ICON_AT = f"{BASELINE_AT}.contents[0]"
SPAN_AT = f"{SPANS_AT}.contents[1]"


def bubble(*contents: Message, **properties: Any) -> Message:
    return {"type": "bubble", "body": box("vertical", *contents), **properties}


HELLO = bubble(FLEX_TEXT)
MICRO = bubble(FLEX_TEXT, size="micro")
BIG_FILM = flex({"type": "bubble", "size": "mega", "hero": FILM})


def bubbles(*contents: Message) -> Message:
    return flex({"type": "carousel", "contents": list(contents)})


FLEX_CAROUSEL = bubbles(HELLO, bubble(FLEX_IMAGE, BUTTON))


def heavy(count: int, letter: str = "a") -> Message:
    """A bubble of so many thousand letters."""
    return bubble(*[{"type": "text", "text": letter * 1000}] * count)


def animated(count: int) -> Message:
    return box("vertical", *[FLEX_IMAGE | {"animated": True}] * count)


RULES: tuple[Rule, ...] = (
    # --- Any message ---
    Rule(
        "type: required; `May not be empty`, property `messages[0].type`",
        "send-broadcast-message",
        TEXT,
        each("type", ABSENT, "", 1, None, ["text"]),
    ),
    Rule(
        "quickReply: Object; items: Array of objects, required",
        "items-object",
        QUICK,
        (
            *each("quickReply", [SAY], "items"),
            ("quickReply", {}, "quickReply.items"),
            ("quickReply.items", {"type": "action", "action": SAY}),
            ("quickReply.items[0]", "Yes"),
        ),
        (("quickReply", ABSENT),),
    ),
    Rule(
        "items: Quick reply button objects. Max: 13 objects",
        "items-object",
        QUICK,
        (
            *each(
                "quickReply.items",
                [{"type": "action", "action": SAY}] * 14,
                [{"type": "action", "action": CAMERA}] * 20,
            ),
            (
                "",
                STICKER | {"quickReply": {"items": [{"type": "action", "action": SAY}] * 14}},
                "quickReply.items",
            ),
        ),
        (
            *each(
                "quickReply.items",
                [{"type": "action", "action": SAY}],
                [{"type": "action", "action": SAY}] * 13,
            ),
            ("", STICKER | {"quickReply": {"items": [{"type": "action", "action": SAY}] * 13}}),
        ),
    ),
    Rule(
        "imageUrl: Max character limit: 2000, Protocol: HTTPS",
        "quick-reply-button-object",
        QUICK,
        (
            *each("quickReply.items[0].imageUrl", url(2001), 5),
            ("quickReply.items[1].imageUrl", HTTP),
            ("quickReply.items[4].imageUrl", "example.com/1.png"),
            ("quickReply.items[7].imageUrl", "data:image/png;base64,AAAA"),
        ),
        (
            ("quickReply.items[0].imageUrl", url(2000)),
            ("quickReply.items[1].imageUrl", ABSENT),
            ("quickReply.items[4].imageUrl", ABSENT),
        ),
    ),
    Rule(
        "action: Object, required: Action performed when this button is tapped",
        "quick-reply-button-object",
        QUICK,
        (
            (SAY_AT, ABSENT),
            (POSTBACK_AT, "postback"),
            (OPEN_AT, [OPEN]),
            (f"{PICK_AT}.type", ABSENT),
            (f"{CAMERA_AT}.type", 3),
        ),
    ),
    Rule(
        "One action you can't use on quick reply buttons is the rich menu switch action",
        "using-quick-reply",
        QUICK,
        (
            (SAY_AT, SWITCH, f"{SAY_AT}.type"),
            (COPY_AT, SWITCH, f"{COPY_AT}.type"),
            (CAMERA_AT, without(SWITCH, "label"), f"{CAMERA_AT}.type"),
        ),
        ((SAY_AT, COPY), (COPY_AT, LOCATE), (POSTBACK_AT, CAMERA_ROLL)),
    ),
    Rule(
        "label on a quick reply button: required, 20",
        "action-object-label-spec",
        QUICK,
        (
            (f"{SAY_AT}.label", ABSENT),
            (f"{POSTBACK_AT}.label", ABSENT),
            (f"{OPEN_AT}.label", "a" * 21),
            (f"{PICK_AT}.label", ABSENT),
            (f"{COPY_AT}.label", "日" * 21),
        ),
        (
            (f"{SAY_AT}.label", "a" * 20),
            (f"{POSTBACK_AT}.label", "日" * 20),
            (f"{COPY_AT}.label", "a" * 20),
        ),
    ),
    Rule(
        "label of a camera, camera roll or location action: required, Max character limit: 20",
        "camera-action",
        QUICK,
        (
            *each(f"{CAMERA_AT}.label", ABSENT, "a" * 21),
            (f"{CAMERA_ROLL_AT}.label", ABSENT),
            *each(f"{LOCATE_AT}.label", ABSENT, "a" * 21),
        ),
        (
            (f"{CAMERA_AT}.label", "a" * 20),
            (f"{CAMERA_ROLL_AT}.label", APPLE * 20),
            (f"{LOCATE_AT}.label", FLAG * 20),
        ),
    ),
    Rule(
        "All action objects: label is counted in grapheme cluster units",
        "text-character-count",
        QUICK,
        (
            (f"{SAY_AT}.label", FAMILY * 21),
            (f"{POSTBACK_AT}.label", GA * 21),
            (f"{OPEN_AT}.label", FLAG * 21),
            (f"{PICK_AT}.label", THUMB * 21),
            (f"{CAMERA_ROLL_AT}.label", JAMO * 21),
        ),
        (
            (f"{SAY_AT}.label", FAMILY * 20),
            (f"{POSTBACK_AT}.label", GA * 20),
            (f"{OPEN_AT}.label", FLAG * 20),
            (f"{PICK_AT}.label", THUMB * 20),
            (f"{CAMERA_ROLL_AT}.label", JAMO * 20),
        ),
    ),
    Rule(
        "sender.name: Max character limit: 20 (in UTF-16 code units)",
        "icon-nickname-switch",
        SENT,
        each("sender.name", "a" * 21, APPLE * 10 + "a", FAMILY * 3, GA * 11, 7),
        (*each("sender.name", "a" * 20, APPLE * 10, "日" * 20), ("sender", {"name": "Cony"})),
    ),
    Rule(
        "sender.name: Certain words such as `LINE` may not be used",
        "icon-nickname-switch",
        SENT,
        (("sender.name", "LINE"),),
        (("sender.name", "Brown"),),
    ),
    Rule(
        "sender.iconUrl: Max character limit: 2000, Protocol: HTTPS",
        "icon-nickname-switch",
        SENT,
        (
            *each(
                "sender.iconUrl",
                "http://line.me/conyprof",
                url(2001),
                "line.me/conyprof",
                ["https://line.me/conyprof"],
            ),
            ("sender", "Cony"),
        ),
        (("sender.iconUrl", url(2000)), ("sender", {"iconUrl": URL})),
    ),
    # --- Text ---
    Rule(
        "text: String, required; `May not be empty`, property `messages[0].text`",
        "error-responses",
        TEXT,
        each("text", ABSENT, "", 5, ["Hello"], None),
        each("text", "a", "$ and {braces", "1\n2"),
    ),
    Rule(
        "text: Max character limit: 5000, counted in UTF-16 code units",
        "text-message",
        TEXT,
        each("text", "a" * 5001, APPLE * 2500 + "a", "日" * 5001, FAMILY * 626, GA * 2501),
        each("text", "a" * 5000, APPLE * 2500, "日" * 5000, FAMILY * 625),
    ),
    Rule(
        "quoteToken: String",
        "text-message",
        TEXT,
        each("quoteToken", 12, {"token": "yHAz4Ua2wx7"}),
        (("quoteToken", "yHAz4Ua2wx7"),),
    ),
    Rule(
        "emojis: Array of LINE emoji objects. Max: 20 LINE emoji",
        "text-message",
        EMOJIS,
        (
            ("", with_emojis("$" * 21, *range(21)), "emojis"),
            ("", with_emojis("$" * 40, *range(40)), "emojis"),
            *each("emojis", "001", {"index": 0, "productId": PRODUCT, "emojiId": "001"}),
            ("emojis[1]", 13),
        ),
        (("", with_emojis("$" * 20, *range(20))), ("", with_emojis("$$", 1)), ("emojis", ABSENT)),
    ),
    Rule(
        "emojis.index: A position that doesn't match the position of `$`: 400 Bad request",
        "text-message",
        EMOJIS,
        (
            *each("emojis[0].index", 1, -1),
            *each("emojis[1].index", 12, 14),
            ("text", "a LINE emoji $", "emojis[0].index"),
        ),
        (("", with_emojis("a $", 2)), ("", with_emojis("$ costs 5 $", 10))),
    ),
    Rule(
        "emojis.index must be the position of the code unit when encoded in UTF-16",
        "text-message",
        EMOJIS,
        (
            ("", with_emojis(f"{APPLE}$", 1), "emojis[0].index"),
            ("", with_emojis(f"{GA}$", 1), "emojis[0].index"),
            ("", with_emojis(f"${FAMILY}$", 0, 6), "emojis[1].index"),
            ("emojis[0].index", "first"),
            ("emojis[1].productId", 5),
        ),
        (
            ("", with_emojis(f"{APPLE}$", 2)),
            ("", with_emojis(f"{GA}$", 2)),
            ("", with_emojis(f"${FAMILY}$", 0, 9)),
        ),
    ),
    # --- Text (v2) ---
    Rule(
        "text (v2): String, required. Max character limit: 5000",
        "text-message-v2",
        PLAIN_V2,
        each("text", ABSENT, "a" * 5001, APPLE * 2501, 5, ["Welcome!"]),
        each("text", "a" * 5000, APPLE * 2500),
    ),
    Rule(
        "`{` and `}` must be used in pairs",
        "text-message-v2",
        TEXT_V2,
        (
            *each(
                "text",
                "Welcome, {user1! {laugh} {everyone}",
                "Welcome, user1}! {laugh} {everyone}",
                "{user1} {laugh} {everyone} {",
                "} {user1} {laugh} {everyone}",
            ),
            ("", {"type": "textV2", "text": "Smile :}"}, "text"),
        ),
        each("text", "{user1}{laugh}{everyone}", "{everyone} {user1} {laugh} {user1}"),
    ),
    Rule(
        "If you want to use `{` and `}` as strings, escape them with `{{` and `}}`",
        "text-message-v2",
        PLAIN_V2,
        each("text", '{"a": 1}', "{{ and }", "{ and }}"),
        (
            *each("text", "{{ and }}", "{{user1}}", "Smile :}}", "A brace: {{"),
            ("", v2("{{user1}} is {user1}", {"user1": USER})),
        ),
    ),
    Rule(
        "The substitution content of the string enclosed in `{` and `}` must be specified",
        "text-message-v2",
        TEXT_V2,
        (
            ("substitution", ABSENT, "text"),
            ("substitution.laugh", ABSENT, "text"),
            ("substitution", {}, "text"),
            *each(
                "text", "{user1} {laugh} {everyone} {user2}", "{user1} {laugh} {everyone} {User1}"
            ),
        ),
        (("", v2("{everyone} Hello", {"everyone": ALL})), ("", PLAIN_V2)),
    ),
    Rule(
        "substitution: Object, of mention objects or emoji objects",
        "text-message-v2",
        TEXT_V2,
        (
            *each("substitution", [USER, LAUGH, ALL], "user1"),
            ("substitution.laugh", "smile"),
            ("substitution.user1.type", ABSENT),
            ("substitution.laugh.type", 1),
        ),
        within("substitution", user1=ALL, everyone=LAUGH),
    ),
    Rule(
        "Characters of object keys are half-width alphanumeric characters and underscore",
        "text-message-v2",
        TEXT_V2,
        (
            ("", v2("Hi {user-1}", {"user-1": USER}), "substitution.user-1"),
            ("", v2("Hi {user 1}", {"user 1": USER}), "substitution.user 1"),
            ("", v2("Hi {太郎}", {"太郎": USER}), "substitution.太郎"),
            ("", v2("Hi {ａ}", {"ａ": USER}), "substitution.ａ"),
            ("", v2("Hi {@user}", {"@user": USER}), "substitution.@user"),
        ),
        (
            ("", v2("Hi {User_1}", {"User_1": USER})),
            ("", v2("Hi {_}", {"_": USER})),
            ("", v2("Hi {0}", {"0": LAUGH})),
        ),
    ),
    Rule(
        "The maximum length of the key is 20 characters",
        "text-message-v2",
        TEXT_V2,
        (
            ("", v2(f"Hi {{{'a' * 21}}}", {"a" * 21: USER}), f"substitution.{'a' * 21}"),
            ("", v2(f"Hi {{{'_' * 40}}}", {"_" * 40: LAUGH}), f"substitution.{'_' * 40}"),
        ),
        (("", v2(f"Hi {{{'a' * 20}}}", {"a" * 20: USER})), ("", v2("{a}", {"a": LAUGH}))),
    ),
    Rule(
        "substitution: Max number of objects: 100",
        "text-message-v2",
        TEXT_V2,
        (("", v2("{x0}", {f"x{number}": LAUGH for number in range(101)}), "substitution"),),
    ),
    Rule(
        "Up to 20 mentions can be substituted in a single message; up to 20 emoji too",
        "text-message-v2-mention-object",
        TEXT_V2,
        (("", many_v2(21, USER), "substitution"), ("", many_v2(21, LAUGH), "substitution")),
        (
            ("", many_v2(20, USER)),
            ("", many_v2(20, LAUGH)),
            (
                "",
                v2(
                    many_v2(40, USER)["text"],
                    {f"x{number}": USER if number % 2 else LAUGH for number in range(40)},
                ),
            ),
        ),
    ),
    Rule(
        "mentionee: Object, required; its type and a user's userId: String, required",
        "text-message-v2-mention-object",
        TEXT_V2,
        (
            ("substitution.user1.mentionee", ABSENT),
            *each("substitution.user1.mentionee.userId", ABSENT, 4),
            ("substitution.everyone.mentionee.type", ABSENT),
            ("substitution.everyone.mentionee", "all"),
        ),
    ),
    Rule(
        "productId, emojiId of an emoji object: String, required",
        "text-message-v2-emoji-object",
        TEXT_V2,
        (("substitution.laugh.productId", ABSENT), *each("substitution.laugh.emojiId", ABSENT, 2)),
    ),
    # --- Media ---
    Rule(
        "packageId, stickerId: String, required",
        "sticker-message",
        STICKER,
        (*each("packageId", ABSENT, 446), *each("stickerId", ABSENT, ["1988"], None)),
        (("quoteToken", "yHAz4Ua2wx7"),),
    ),
    Rule(
        "originalContentUrl, previewImageUrl of an image: String, required",
        "image-message",
        IMAGE,
        (
            *each("originalContentUrl", ABSENT, 5),
            *each("previewImageUrl", ABSENT, {"url": URL}, None),
        ),
    ),
    Rule(
        "URLs of an image: Max character limit: 2000, Protocol: HTTPS",
        "image-message",
        IMAGE,
        (
            *each("originalContentUrl", HTTP, url(2001), "example.com/images/1.jpg"),
            *each("previewImageUrl", "ftp://example.com/1.jpg", url(2001)),
        ),
        (
            *each(
                "originalContentUrl",
                url(2000),
                "https://example.com/path?q=Good%20morning#Good%20afternoon",
            ),
            ("previewImageUrl", url(2000)),
        ),
    ),
    Rule(
        "originalContentUrl, previewImageUrl of a video: required, 2000, HTTPS",
        "video-message",
        VIDEO,
        (
            *each("originalContentUrl", ABSENT, "http://example.com/original.mp4"),
            *each("previewImageUrl", ABSENT, HTTP, url(2001)),
        ),
        within("", originalContentUrl=url(2000), trackingId=ABSENT),
    ),
    Rule(
        "trackingId: Max character limit: 100; alphanumerics and `-.=,+*()%$&;:@{}!?<>[]`",
        "video-message",
        VIDEO,
        each("trackingId", "a" * 101, "track id", "追跡", "track_id", "a/b"),
        each("trackingId", "a" * 100, "-.=,+*()%$&;:@{}!?<>[]", "aZ09"),
    ),
    Rule(
        "originalContentUrl of an audio: required, 2000, HTTPS",
        "audio-message",
        AUDIO,
        each(
            "originalContentUrl",
            ABSENT,
            "http://example.com/original.m4a",
            url(2001),
            "/original.m4a",
        ),
        (("originalContentUrl", url(2000)),),
    ),
    Rule(
        "duration: Number, required",
        "audio-message",
        AUDIO,
        each("duration", ABSENT, "one minute", None, [60000], {"milliseconds": 60000}),
        (("duration", 1),),
    ),
    Rule(
        "title, address: String, required",
        "location-message",
        LOCATION,
        (*each("title", ABSENT, 5, None), *each("address", ABSENT, ["Tokyo"])),
    ),
    Rule(
        "title, address: Max character limit: 100 (in UTF-16 code units)",
        "location-message",
        LOCATION,
        (
            *each("title", "a" * 101, APPLE * 50 + "a", GA * 51),
            *each("address", "a" * 101, FAMILY * 13),
        ),
        (*each("title", "a" * 100, APPLE * 50), *each("address", "日" * 100, FAMILY * 12)),
    ),
    Rule(
        "latitude, longitude: Decimal, required",
        "location-message",
        LOCATION,
        (*each("latitude", ABSENT, "north", None), *each("longitude", ABSENT, [139.73669])),
        (*each("latitude", 0, -35.67966), ("longitude", -139)),
    ),
    Rule(
        "couponId: String, required",
        "coupon-message",
        COUPON,
        each("couponId", ABSENT, 5, ["01JYNW8JMQVFBNWF1APF8Z3FS7"]),
    ),
    Rule(
        "deliveryTag: Max 30; half-width alphanumeric characters and underscore",
        "coupon-message",
        COUPON,
        each("deliveryTag", "a" * 31, "2025-winter", "冬", "winter campaign", 2025),
        each("deliveryTag", "a" * 30, "aZ_09", ABSENT),
    ),
    # --- Imagemap ---
    Rule(
        "baseUrl: String, required, Max character limit: 2000, Protocol: HTTPS",
        "imagemap-message",
        IMAGEMAP,
        each(
            "baseUrl",
            ABSENT,
            "http://example.com/bot/images/rm001",
            url(2001),
            "example.com/bot/images/rm001",
            5,
        ),
        (("baseUrl", url(2000)),),
    ),
    Rule(
        "altText: String, required, Max character limit: 1500 (in UTF-16 code units)",
        "imagemap-message",
        IMAGEMAP,
        each("altText", ABSENT, "a" * 1501, APPLE * 751, FAMILY * 188, 5),
        each("altText", "a" * 1500, APPLE * 750, FAMILY * 187),
    ),
    Rule(
        "baseSize.width: Number, required. Set to 1040",
        "imagemap-message",
        IMAGEMAP,
        (("baseSize", ABSENT), *each("baseSize.width", ABSENT, 1039, 700, 2080)),
    ),
    Rule(
        "baseSize.height: Number, required",
        "imagemap-message",
        IMAGEMAP,
        (*each("baseSize.height", ABSENT, "high", None), *each("baseSize", 1040, "1040x1040")),
        each("baseSize.height", 1500, 1041),
    ),
    Rule(
        "URLs of the video: required if you set a video to play, 2000, HTTPS",
        "imagemap-message",
        IMAGEMAP,
        (
            *each("video.originalContentUrl", ABSENT, "http://example.com/video.mp4"),
            *each("video.previewImageUrl", ABSENT, url(2001), HTTP),
        ),
        (("video.originalContentUrl", url(2000)), ("video", ABSENT)),
    ),
    Rule(
        "video.area and its x, y, width, height: required if you set a video to play",
        "imagemap-message",
        IMAGEMAP,
        (
            ("video.area", ABSENT),
            *within("video.area", x=ABSENT, y=ABSENT, width=ABSENT, height=ABSENT),
        ),
    ),
    Rule(
        "video.area.x, video.area.y: Value must be `0` or higher",
        "imagemap-message",
        IMAGEMAP,
        (
            *each("video.area.x", -1, "left"),
            ("video.area.y", -1),
            ("video.area", [0, 0, 1040, 585]),
            ("video", "https://example.com/video.mp4"),
        ),
        (("video.area.y", 1), ("video.area", {"x": 520, "y": 520, "width": 520, "height": 520})),
    ),
    Rule(
        "linkUri and label: required to display a label after the video; label: Max 30",
        "imagemap-message",
        IMAGEMAP,
        (
            ("video.externalLink.linkUri", ABSENT),
            *each("video.externalLink.label", ABSENT, "a" * 31, 5),
            ("video.externalLink", "https://example.com/see_more.html"),
        ),
        (("video.externalLink.label", "a" * 30), ("video.externalLink", ABSENT)),
    ),
    Rule(
        "video.externalLink.linkUri: Max 1000; schemes are `http`, `https`, `line`, and `tel`",
        "imagemap-message",
        IMAGEMAP,
        each(
            "video.externalLink.linkUri",
            url(1001),
            "ftp://example.com/",
            "mailto:a@example.com",
            "example.com",
        ),
        each("video.externalLink.linkUri", url(1000), "tel:09001234567", "line://nv/camera/"),
    ),
    Rule(
        "actions: Array of imagemap action objects, required. Max: 50",
        "imagemap-message",
        IMAGEMAP,
        (
            *each(
                "actions",
                ABSENT,
                [{"type": "message", "text": "a", "area": AREA}] * 51,
                {"type": "message", "text": "a", "area": AREA},
                "message",
            ),
            ("actions[0]", "uri"),
        ),
        each(
            "actions",
            [{"type": "message", "text": "a", "area": AREA}] * 50,
            [{"type": "message", "text": "a", "area": AREA}],
        ),
    ),
    Rule(
        "type: required; linkUri of a uri action: required, Max character limit: 1000",
        "imagemap-action-objects",
        IMAGEMAP,
        (("actions[0].type", ABSENT), *each("actions[0].linkUri", ABSENT, url(1001), 5)),
        (("actions[0].linkUri", url(1000)),),
    ),
    Rule(
        "linkUri of a uri action: The available schemes are `http`, `https`, `line`, and `tel`",
        "imagemap-action-objects",
        IMAGEMAP,
        each(
            "actions[0].linkUri",
            "ftp://example.com/",
            "mailto:a@example.com",
            "example.com",
            "sms:09001234567",
        ),
        each("actions[0].linkUri", "http://example.com/", "tel:09001234567", "line://nv/camera/"),
    ),
    Rule(
        "text of a message action: required, Max character limit: 400",
        "imagemap-action-objects",
        IMAGEMAP,
        each("actions[1].text", ABSENT, "a" * 401, 5),
        (("actions[1].text", "a" * 400),),
    ),
    Rule(
        "clipboardText: required, Max character limit: 1000 (OpenAPI: minLength 1)",
        "imagemap-action-objects",
        IMAGEMAP,
        each("actions[2].clipboardText", ABSENT, "a" * 1001, "", APPLE * 501),
        each("actions[2].clipboardText", "a" * 1000, APPLE * 500),
    ),
    Rule(
        "label of an imagemap action: optional, Max character limit: 100",
        "imagemap-action-objects",
        IMAGEMAP,
        (
            ("actions[0].label", "a" * 101),
            *each("actions[1].label", "a" * 101, 5),
            ("actions[2].label", "a" * 101),
        ),
        (
            ("actions[0].label", "a" * 100),
            ("actions[1].label", ABSENT),
            ("actions[2].label", "a" * 100),
        ),
    ),
    Rule(
        "area: required, with x, y, width, height",
        "imagemap-area-object",
        IMAGEMAP,
        (
            ("actions[0].area", ABSENT),
            ("actions[1].area", ABSENT),
            ("actions[2].area", ABSENT),
            ("actions[0].area.width", ABSENT),
            ("actions[1].area.height", ABSENT),
        ),
    ),
    Rule(
        "x, y: Number, required. Value must be `0` or higher",
        "imagemap-area-object",
        IMAGEMAP,
        (
            *within("actions[0].area", x=-1, y="top"),
            ("actions[1].area.y", -1),
            ("actions[2].area.x", ABSENT),
            ("actions[1].area", [0, 0, 520, 520]),
        ),
        (("actions[0].area.y", 0), ("actions[1].area.x", 1)),
    ),
    # --- Templates ---
    Rule(
        "altText of a template: String, required, Max character limit: 1500",
        "template-messages",
        CONFIRM,
        each("altText", ABSENT, "a" * 1501, APPLE * 750 + "a", 5, None),
        each("altText", "a" * 1500, APPLE * 750),
    ),
    Rule(
        "template: Object, required, with its type",
        "template-messages",
        CONFIRM,
        (
            *each("template", ABSENT, "confirm", [CONFIRM["template"]]),
            *each("template.type", ABSENT, 1),
        ),
    ),
    Rule(
        "thumbnailImageUrl: Max character limit: 2000, Protocol: HTTPS",
        "buttons",
        BUTTONS,
        each("template.thumbnailImageUrl", HTTP, url(2001), "example.com/1.jpg", 5),
        each("template.thumbnailImageUrl", url(2000), ABSENT),
    ),
    Rule(
        "imageAspectRatio: One of: rectangle, square; imageSize: One of: cover, contain",
        "buttons",
        BUTTONS,
        (
            *each("template.imageAspectRatio", "1.51:1", "circle"),
            *each("template.imageSize", "fit", "full", True),
        ),
        within("template", imageAspectRatio="square", imageSize="contain"),
    ),
    Rule(
        "imageBackgroundColor: Specify a RGB color value",
        "buttons",
        BUTTONS,
        each("template.imageBackgroundColor", "white", "#GGGGGG", "#12345", 16777215),
        each("template.imageBackgroundColor", "#00aaff", ABSENT),
    ),
    Rule(
        "title of buttons: Max character limit: 40, in grapheme clusters",
        "buttons",
        BUTTONS,
        each("template.title", "a" * 41, FAMILY * 41, GA * 41, 5),
        each("template.title", "a" * 40, FAMILY * 40, GA * 40, ABSENT),
    ),
    Rule(
        "text of buttons: required, Max character limit: 160 (no image or title)",
        "buttons",
        PLAIN_BUTTONS,
        each("template.text", ABSENT, "a" * 161, FAMILY * 161, "日" * 161, 5),
        each("template.text", "a" * 160, FAMILY * 160, APPLE * 160),
    ),
    Rule(
        "text of buttons: Max character limit: 60 (message with an image or title)",
        "buttons",
        BUTTONS,
        (
            *each("template.text", "a" * 61, FLAG * 61),
            (
                "",
                template(type="buttons", title="Menu", text="a" * 61, actions=[SAY]),
                "template.text",
            ),
            (
                "",
                template(type="buttons", thumbnailImageUrl=URL, text="a" * 61, actions=[SAY]),
                "template.text",
            ),
            (
                "",
                template(type="buttons", title="Menu", text="a" * 160, actions=[SAY]),
                "template.text",
            ),
        ),
        (
            *each("template.text", "a" * 60, FLAG * 60),
            ("", template(type="buttons", title="Menu", text="a" * 60, actions=[SAY])),
            ("", template(type="buttons", thumbnailImageUrl=URL, text="a" * 60, actions=[SAY])),
        ),
    ),
    Rule(
        "actions of buttons: Array of action objects, required. Max objects: 4",
        "buttons",
        PLAIN_BUTTONS,
        (*each("template.actions", ABSENT, [SAY] * 5, SAY, "Yes"), ("template.actions[3]", "copy")),
        each("template.actions", [SAY], [SAY] * 4),
    ),
    Rule(
        "label in a template other than image carousel: required, 20",
        "action-object-label-spec",
        PLAIN_BUTTONS,
        (
            ("template.actions[0].label", ABSENT),
            *each("template.actions[1].label", ABSENT, FAMILY * 21),
            ("template.actions[2].label", "a" * 21),
            ("template.actions[3].label", ABSENT),
        ),
        (
            ("template.actions[0].label", "a" * 20),
            ("template.actions[1].label", FAMILY * 20),
            ("template.actions[2].label", "日" * 20),
            ("template.actions[3].label", THUMB * 20),
        ),
    ),
    Rule(
        "label in a confirm or a carousel template: required, 20",
        "action-object-label-spec",
        CAROUSEL,
        (
            ("template.columns[0].actions[0].label", ABSENT),
            ("template.columns[1].actions[1].label", "a" * 21),
            (
                "",
                template(type="confirm", text="?", actions=[SAY, without(SAY, "label")]),
                "template.actions[1].label",
            ),
            (
                "",
                template(type="confirm", text="?", actions=[SAY | {"label": "a" * 21}, SAY]),
                "template.actions[0].label",
            ),
        ),
        (
            ("template.columns[0].actions[0].label", "a" * 20),
            ("", template(type="confirm", text="?", actions=[SAY, SAY | {"label": GA * 20}])),
        ),
    ),
    Rule(
        "Camera, camera roll, location: can be configured only with quick reply buttons",
        "camera-action",
        BUTTONS,
        (
            ("template.actions[0]", CAMERA, "template.actions[0].type"),
            ("template.actions[1]", CAMERA_ROLL, "template.actions[1].type"),
            ("template.actions[2]", LOCATE, "template.actions[2].type"),
            ("template.defaultAction", CAMERA, "template.defaultAction.type"),
            ("template.defaultAction", LOCATE, "template.defaultAction.type"),
        ),
        (("template.actions[0]", COPY), ("template.actions[1]", PICK)),
    ),
    Rule(
        "Rich menu switch: This action can be configured only with rich menus",
        "richmenu-switch-action",
        BUTTONS,
        (
            ("template.actions[0]", SWITCH, "template.actions[0].type"),
            ("template.defaultAction", SWITCH, "template.defaultAction.type"),
            (
                "",
                template(type="confirm", text="?", actions=[SWITCH, SAY]),
                "template.actions[0].type",
            ),
            (
                "",
                carousel(COLUMN | {"actions": [SAY, SWITCH]}),
                "template.columns[0].actions[1].type",
            ),
        ),
    ),
    Rule(
        "defaultAction: Action object",
        "buttons",
        BUTTONS,
        (
            *each("template.defaultAction", "https://example.com/", [SIMPLE_OPEN]),
            *within("template.defaultAction", type=ABSENT, uri=ABSENT),
        ),
        each("template.defaultAction", ABSENT, SAY),
    ),
    Rule(
        "text of a confirm template: required, Max character limit: 240, in grapheme clusters",
        "confirm",
        CONFIRM,
        each("template.text", ABSENT, "a" * 241, FAMILY * 241, GA * 241, 5),
        each("template.text", "a" * 240, FAMILY * 240, GA * 240),
    ),
    Rule(
        "actions of a confirm template: required. Set 2 actions for the 2 buttons",
        "confirm",
        CONFIRM,
        each("template.actions", ABSENT, [SAY], [SAY] * 3, [], {"yes": SAY, "no": SAY}),
        (("template.actions", [COPY, PICK]),),
    ),
    Rule(
        "columns: Array of column objects, required. Max columns: 10",
        "carousel",
        CAROUSEL,
        (
            *each("template.columns", ABSENT, [COLUMN] * 11, [PLAIN_COLUMN] * 11, COLUMN),
            ("template.columns[1]", "column"),
        ),
        each("template.columns", [COLUMN] * 10, [COLUMN]),
    ),
    Rule(
        "imageAspectRatio: One of: rectangle, square; imageSize: One of: cover, contain",
        "carousel",
        CAROUSEL,
        (*each("template.imageAspectRatio", "1:1", "oval"), *each("template.imageSize", "fill", 1)),
        (("template.imageAspectRatio", "square"), *each("template.imageSize", "contain", ABSENT)),
    ),
    Rule(
        "thumbnailImageUrl: Max 2000, HTTPS; imageBackgroundColor: a RGB color value",
        "column-object-for-carousel",
        CAROUSEL,
        (
            *within("template.columns[0]", thumbnailImageUrl=HTTP, imageBackgroundColor="black"),
            *within(
                "template.columns[1]", thumbnailImageUrl=url(2001), imageBackgroundColor="#12345"
            ),
        ),
        (
            ("template.columns[0].thumbnailImageUrl", url(2000)),
            ("template.columns[1].imageBackgroundColor", "#000000"),
        ),
    ),
    Rule(
        "title of a column: Max character limit: 40, in grapheme clusters",
        "column-object-for-carousel",
        CAROUSEL,
        (
            *each("template.columns[0].title", "a" * 41, 5),
            *each("template.columns[1].title", FAMILY * 41, FLAG * 41),
        ),
        (("template.columns[0].title", "a" * 40), ("template.columns[1].title", FAMILY * 40)),
    ),
    Rule(
        "text of a column: required, Max character limit: 120 (no image or title)",
        "column-object-for-carousel",
        PLAIN_CAROUSEL,
        (
            *each("template.columns[0].text", ABSENT, 5),
            ("template.columns[1].text", "a" * 121),
            ("template.columns[2].text", FAMILY * 121),
        ),
        (("template.columns[1].text", "a" * 120), ("template.columns[2].text", FAMILY * 120)),
    ),
    Rule(
        "text of a column: Max character limit: 60 (message with an image or title)",
        "column-object-for-carousel",
        CAROUSEL,
        (
            ("template.columns[0].text", "a" * 61),
            ("template.columns[1].text", JAMO * 61),
            (
                "",
                carousel(PLAIN_COLUMN | {"title": "menu", "text": "a" * 61}),
                "template.columns[0].text",
            ),
            (
                "",
                carousel(PLAIN_COLUMN | {"thumbnailImageUrl": URL, "text": "a" * 120}),
                "template.columns[0].text",
            ),
        ),
        (
            ("template.columns[0].text", "a" * 60),
            ("template.columns[1].text", JAMO * 60),
            ("", carousel(PLAIN_COLUMN | {"title": "menu", "text": "a" * 60})),
        ),
    ),
    Rule(
        "actions of a column: required. Max objects: 3",
        "column-object-for-carousel",
        CAROUSEL,
        (
            *each("template.columns[0].actions", ABSENT, SAY),
            ("", carousel(COLUMN | {"actions": [SAY] * 4}), "template.columns[0].actions"),
            ("", carousel(PLAIN_COLUMN | {"actions": [SAY] * 5}), "template.columns[0].actions"),
        ),
        (
            ("", carousel(COLUMN | {"actions": [SAY] * 3})),
            ("", carousel(COLUMN | {"actions": [SAY]}, COLUMN | {"actions": [COPY]})),
        ),
    ),
    Rule(
        "Keep the number of actions consistent for all columns",
        "column-object-for-carousel",
        PLAIN_CAROUSEL,
        (
            ("template.columns[1].actions", [SAY], "template.columns[1]"),
            ("template.columns[2].actions", [SAY] * 3, "template.columns[2]"),
            ("", carousel(COLUMN, COLUMN | {"actions": [SAY]}), "template.columns[1]"),
        ),
        (("template.columns[1].actions", [PICK, COPY]),),
    ),
    Rule(
        "If you use an image or title for a column, make sure to do the same for all others",
        "column-object-for-carousel",
        CAROUSEL,
        (
            ("template.columns[1].title", ABSENT, "template.columns[1]"),
            ("template.columns[1].thumbnailImageUrl", ABSENT, "template.columns[1]"),
            ("", carousel(PLAIN_COLUMN, PLAIN_COLUMN | {"title": "a"}), "template.columns[1]"),
            (
                "",
                carousel(PLAIN_COLUMN, PLAIN_COLUMN | {"thumbnailImageUrl": URL}),
                "template.columns[1]",
            ),
            ("", carousel(COLUMN, COLUMN, without(COLUMN, "title")), "template.columns[2]"),
        ),
        (
            ("", carousel(*[PLAIN_COLUMN | {"title": "a"}] * 2)),
            ("", carousel(*[PLAIN_COLUMN | {"thumbnailImageUrl": URL}] * 2)),
            ("template.columns[1].defaultAction", ABSENT),
        ),
    ),
    Rule(
        "columns: Array of column objects, required. Max columns: 10",
        "image-carousel",
        IMAGE_CAROUSEL,
        (
            *each("template.columns", ABSENT, [IMAGE_COLUMN] * 11, IMAGE_COLUMN),
            ("template.columns[0]", URL),
        ),
        each("template.columns", [IMAGE_COLUMN], [IMAGE_COLUMN] * 10),
    ),
    Rule(
        "imageUrl: String, required, Max character limit: 2000, Protocol: HTTPS",
        "column-object-for-image-carousel",
        IMAGE_CAROUSEL,
        (
            *each("template.columns[0].imageUrl", ABSENT, 5),
            ("template.columns[1].imageUrl", HTTP),
            ("template.columns[2].imageUrl", url(2001)),
        ),
        (("template.columns[2].imageUrl", url(2000)),),
    ),
    Rule(
        "action: required; camera, location and rich menu switch cannot stand here",
        "column-object-for-image-carousel",
        IMAGE_CAROUSEL,
        (
            ("template.columns[0].action", ABSENT),
            ("template.columns[1].action", CAMERA, "template.columns[1].action.type"),
            ("template.columns[1].action", SWITCH, "template.columns[1].action.type"),
            ("template.columns[2].action", "postback"),
            ("template.columns[2].action", LOCATE, "template.columns[2].action.type"),
        ),
        each("template.columns[0].action", PICK, COPY),
    ),
    Rule(
        "label in an image carousel: optional, 12",
        "action-object-label-spec",
        IMAGE_CAROUSEL,
        (
            *each("template.columns[0].action.label", "a" * 13, GA * 13),
            ("template.columns[1].action.label", FAMILY * 13),
            ("template.columns[2].action.label", "a" * 20),
        ),
        (
            ("template.columns[0].action.label", "a" * 12),
            ("template.columns[1].action.label", FAMILY * 12),
            ("template.columns[2].action.label", ABSENT),
        ),
    ),
    # --- Actions ---
    Rule(
        "data: String, required, Max character limit: 300 (in UTF-16 code units)",
        "postback-action",
        BUTTONS,
        each(
            "template.actions[0].data",
            ABSENT,
            "a" * 301,
            APPLE * 151,
            FAMILY * 38,
            {"action": "buy"},
        ),
        each("template.actions[0].data", "a" * 300, APPLE * 150, FAMILY * 37),
    ),
    Rule(
        "displayText: Max character limit: 300, in grapheme clusters",
        "postback-action",
        BUTTONS,
        each("template.actions[0].displayText", "a" * 301, FAMILY * 301, GA * 301, 5),
        each("template.actions[0].displayText", "a" * 300, FAMILY * 300, ABSENT),
    ),
    Rule(
        "text of a postback: Max 300; not at the same time as displayText",
        "postback-action",
        BUTTONS,
        (
            ("template.actions[0].text", "Buy", "template.actions[0]"),
            (
                "template.actions[0]",
                {"type": "postback", "label": "Buy", "data": "a", "text": "a" * 301},
                "template.actions[0].text",
            ),
            (
                "template.actions[0]",
                {"type": "postback", "label": "Buy", "data": "a", "text": FLAG * 301},
                "template.actions[0].text",
            ),
        ),
        each(
            "template.actions[0]",
            {"type": "postback", "label": "Buy", "data": "a", "text": "a" * 300},
            {"type": "postback", "label": "Buy", "data": "a", "text": FLAG * 300},
        ),
    ),
    Rule(
        "inputOption: closeRichMenu, openRichMenu, openKeyboard or openVoice",
        "postback-action",
        QUICK,
        each(f"{POSTBACK_AT}.inputOption", "openCamera", "keyboard", True),
        each(
            POSTBACK_AT,
            without(POSTBACK, "fillInText") | {"inputOption": "closeRichMenu"},
            without(POSTBACK, "fillInText") | {"inputOption": "openRichMenu"},
            without(POSTBACK, "fillInText") | {"inputOption": "openVoice"},
            without(POSTBACK, "fillInText"),
        ),
    ),
    Rule(
        "fillInText: Max character limit: 300, in grapheme clusters",
        "postback-action",
        QUICK,
        each(f"{POSTBACK_AT}.fillInText", "a" * 301, FAMILY * 301, 5),
        each(f"{POSTBACK_AT}.fillInText", "a" * 300, FAMILY * 300),
    ),
    Rule(
        "text of a message action: required, Max character limit: 300, in grapheme clusters",
        "message-action",
        CONFIRM,
        (
            *each("template.actions[0].text", ABSENT, FAMILY * 301, 5),
            *each("template.actions[1].text", "a" * 301, GA * 301),
        ),
        (
            *each("template.actions[0].text", "a" * 300, GA * 300),
            ("template.actions[1].text", FAMILY * 300),
        ),
    ),
    Rule(
        "uri: String, required, Max character limit: 1000",
        "uri-action",
        PLAIN_BUTTONS,
        each("template.actions[2].uri", ABSENT, url(1001), 5, ["https://example.com/"]),
        (("template.actions[2].uri", url(1000)),),
    ),
    Rule(
        "uri: The available schemes are `http`, `https`, `line`, and `tel`",
        "uri-action",
        PLAIN_BUTTONS,
        each(
            "template.actions[2].uri",
            "ftp://example.com/",
            "mailto:a@example.com",
            "example.com/page",
            "javascript:alert(1)",
            "/page",
        ),
        each(
            "template.actions[2].uri",
            "https://line.me/R/nv/recommendOA/%40linedevelopers",
            "http://example.com/",
            "tel:09001234567",
            "line://nv/camera/",
        ),
    ),
    Rule(
        "uri in a quick reply: required, Max 1000; `http`, `https`, `line`, and `tel`",
        "uri-action",
        QUICK,
        each(
            f"{OPEN_AT}.uri",
            ABSENT,
            url(1001),
            "ftp://example.com/",
            "www.example.com",
            "mailto:a@example.com",
        ),
        each(f"{OPEN_AT}.uri", "tel:09001234567", url(1000)),
    ),
    Rule(
        "altUri.desktop: String, Max character limit: 1000",
        "uri-action",
        flex(bubble({"type": "button", "action": OPEN})),
        (
            *each(f"{BODY_AT}[0].action.altUri.desktop", url(1001), "example.com", 5),
            (f"{BODY_AT}[0].action.altUri", "https://example.com/"),
        ),
        each(f"{BODY_AT}[0].action.altUri.desktop", url(1000), "tel:09001234567"),
    ),
    Rule(
        "data of a datetime picker: String, required, Max character limit: 300",
        "datetime-picker-action",
        PICKERS,
        (
            (f"{DATETIME_AT}.data", ABSENT),
            *each(f"{DATE_AT}.data", "a" * 301, 12345),
            (f"{TIME_AT}.data", APPLE * 151),
        ),
        ((f"{DATE_AT}.data", "a" * 300), (f"{TIME_AT}.data", APPLE * 150)),
    ),
    Rule(
        "mode: String, required: date, time or datetime",
        "datetime-picker-action",
        PICKERS,
        (
            (f"{DATETIME_AT}.mode", ABSENT),
            (DATE_AT, {"type": "datetimepicker", "label": "a", "data": "a"}, f"{DATE_AT}.mode"),
            (
                DATE_AT,
                {"type": "datetimepicker", "label": "a", "data": "a", "mode": "month"},
                f"{DATE_AT}.mode",
            ),
            (
                DATE_AT,
                {"type": "datetimepicker", "label": "a", "data": "a", "mode": 1},
                f"{DATE_AT}.mode",
            ),
        ),
        each(
            DATE_AT,
            {"type": "datetimepicker", "label": "a", "data": "a", "mode": "date"},
            {"type": "datetimepicker", "label": "a", "data": "a", "mode": "time"},
            {"type": "datetimepicker", "label": "a", "data": "a", "mode": "datetime"},
        ),
    ),
    Rule(
        "mode date: `full-date` of RFC3339, such as 2017-06-18",
        "datetime-picker-action",
        PICKERS,
        (
            *each(f"{DATE_AT}.initial", "2017/06/18", "2017-13-01", "2017-02-29"),
            *within(DATE_AT, max="2018-01-24T23:59", min="2017-1-1"),
        ),
        each(f"{DATE_AT}.initial", "2017-02-28", ABSENT),
    ),
    Rule(
        "mode date: Max: 2100-12-31, Min: 1900-01-01",
        "datetime-picker-action",
        PICKERS,
        (
            *within(DATE_AT, max="2101-01-01", min="1899-12-31"),
            *within(DATETIME_AT, max="2101-01-01T00:00", min="1899-12-31T23:59"),
        ),
        (
            *within(DATE_AT, max="2100-12-31", min="1900-01-01"),
            *within(DATETIME_AT, max="2100-12-31T23:59", min="1900-01-01T00:00"),
        ),
    ),
    Rule(
        "mode time: `time-hour`:`time-minute`, Max: 23:59, Min: 00:00",
        "datetime-picker-action",
        PICKERS,
        (
            (f"{TIME_AT}.max", "24:00"),
            *each(f"{TIME_AT}.initial", "6:15", "06:60", "06:15:00", "2017-06-18T06:15"),
        ),
        each(f"{TIME_AT}.initial", "00:00", "23:59"),
    ),
    Rule(
        "mode datetime: `full-date`T`time-hour`:`time-minute`, or with `t`",
        "datetime-picker-action",
        PICKERS,
        (
            *each(f"{DATETIME_AT}.initial", "2017-12-25 00:00", "2017-12-25", "2017-12-25T25:00"),
            *within(DATETIME_AT, max="2018-01-24T23:59:00+09:00", min="00:00"),
        ),
        each(f"{DATETIME_AT}.initial", "2017-12-25T00:00", ABSENT),
    ),
    Rule(
        "max: Must be greater than the `min` value",
        "datetime-picker-action",
        PICKERS,
        (
            (f"{DATE_AT}.max", "2016-12-31"),
            (DATE_AT, PICKERS["template"]["actions"][1] | {"max": "2017-01-01"}, f"{DATE_AT}.max"),
            (DATETIME_AT, PICK | {"max": "2017-12-24T23:59"}, f"{DATETIME_AT}.max"),
            (DATETIME_AT, PICK | {"max": "2017-12-25T00:00"}, f"{DATETIME_AT}.max"),
            (TIME_AT, PICKERS["template"]["actions"][2] | {"max": "00:00"}, f"{TIME_AT}.max"),
        ),
        (
            (
                DATE_AT,
                PICKERS["template"]["actions"][1] | {"min": "2017-06-17", "max": "2017-06-18"},
            ),
            *each(
                DATETIME_AT,
                PICK | {"max": "2017-12-25T00:01"},
                without(PICK, "min"),
                without(PICK, "max"),
            ),
        ),
    ),
    Rule(
        "clipboardText: String, required, Max character limit: 1000 (OpenAPI: minLength 1)",
        "clipboard-action",
        QUICK,
        each(f"{COPY_AT}.clipboardText", ABSENT, "", "a" * 1001, APPLE * 501, 5),
        each(f"{COPY_AT}.clipboardText", "a" * 1000, APPLE * 500),
    ),
    # --- Flex: containers ---
    Rule(
        "altText of a Flex Message: String, required, Max character limit: 1500",
        "flex-message",
        BUBBLE,
        each("altText", ABSENT, "a" * 1501, APPLE * 751, ["a"], 5),
        each("altText", "a" * 1500, APPLE * 750, "日" * 1500),
    ),
    Rule(
        "contents: Object, required: Flex Message container, with its type",
        "flex-message",
        BUBBLE,
        (*each("contents", ABSENT, [HELLO], "hello"), *each("contents.type", ABSENT, 1)),
        (("contents", HELLO),),
    ),
    Rule(
        "size: nano, micro, deca, hecto, kilo, mega, or giga",
        "bubble",
        BUBBLE,
        each("contents.size", "tera", "md", "300px", 5, "large"),
        each("contents.size", "nano", "deca", "hecto", "giga", ABSENT),
    ),
    Rule(
        "direction: ltr or rtl",
        "bubble",
        BUBBLE,
        each("contents.direction", "left", "ttb", "auto", True),
        each("contents.direction", "rtl", ABSENT),
    ),
    Rule(
        "header, body, footer: Specify a Box",
        "bubble",
        BUBBLE,
        (
            ("contents.header", FLEX_TEXT, "contents.header.type"),
            ("contents.body", FLEX_IMAGE, "contents.body.type"),
            ("contents.footer", BUTTON, "contents.footer.type"),
            *within("contents", body=[FLEX_TEXT], header="hello"),
        ),
        (("contents.header", ABSENT), *each("contents.footer", box("baseline", FLEX_TEXT), ABSENT)),
    ),
    Rule(
        "hero: Specify a box, an image or a video",
        "bubble",
        BUBBLE,
        (
            ("contents.hero", FLEX_TEXT, "contents.hero.type"),
            ("contents.hero", BUTTON, "contents.hero.type"),
            ("contents.hero", ICON, "contents.hero.type"),
            ("contents.hero", SEPARATOR, "contents.hero.type"),
            ("contents.hero", URL),
        ),
        each("contents.hero", box("vertical", FLEX_IMAGE), FILM, ABSENT),
    ),
    Rule(
        "styles: a bubble style with a block style for header, hero, body and footer",
        "bubble-style",
        BUBBLE,
        (
            ("contents.styles", "dark"),
            ("contents.styles.footer", "#00ffff"),
            *each("contents.styles.footer.separator", "yes", [True]),
        ),
        (
            ("contents.styles.footer.separator", True),
            *within(
                "contents.styles",
                body={"separator": True, "separatorColor": "#000000"},
                header={"backgroundColor": "#00ffff"},
            ),
        ),
    ),
    Rule(
        "backgroundColor, separatorColor of a block: Use a hexadecimal color code",
        "block-style",
        BUBBLE,
        (
            *each("contents.styles.footer.backgroundColor", "cyan", "00ffff", 65535),
            *each("contents.styles.footer.separatorColor", "#GGGGGG", "rgb(0, 0, 0)"),
        ),
        within("contents.styles.footer", backgroundColor="#ABCDEF", separatorColor="#012345"),
    ),
    Rule(
        "The maximum size of JSON data that defines a bubble is 30 KB",
        "bubble",
        BUBBLE,
        (
            *each("contents", heavy(32), heavy(40), heavy(11, "日")),
            ("", bubbles(HELLO, heavy(32)), "contents.contents[1]"),
        ),
        (*each("contents", heavy(28), heavy(9, "日")), ("", bubbles(HELLO, heavy(28)))),
    ),
    Rule(
        "The maximum size of JSON data that defines a carousel is 50 KB",
        "f-carousel",
        FLEX_CAROUSEL,
        (
            ("contents.contents", [heavy(9)] * 6, "contents"),
            ("contents.contents", [heavy(27)] * 2, "contents"),
            ("contents.contents", [heavy(6, "日")] * 3, "contents"),
        ),
        each("contents.contents", [heavy(9)] * 5, [heavy(23)] * 2),
    ),
    Rule(
        "contents of a carousel: Array of bubbles, required. Max: 12 bubbles",
        "f-carousel",
        FLEX_CAROUSEL,
        (
            *each("contents.contents", ABSENT, [HELLO] * 13, HELLO),
            ("contents.contents[1]", "hello"),
            ("contents.contents[0].type", ABSENT),
        ),
        each("contents.contents", [HELLO] * 12, [HELLO]),
    ),
    Rule(
        "A carousel can't contain bubbles of different widths (`size` property); default mega",
        "f-carousel",
        FLEX_CAROUSEL,
        (
            ("contents.contents[1].size", "micro"),
            ("contents.contents", [MICRO, HELLO], "contents.contents[1].size"),
            (
                "contents.contents",
                [MICRO, MICRO, MICRO | {"size": "nano"}],
                "contents.contents[2].size",
            ),
            (
                "contents.contents",
                [HELLO | {"size": "kilo"}, HELLO | {"size": "giga"}],
                "contents.contents[1].size",
            ),
        ),
        (
            *each("contents.contents", [MICRO, MICRO], [HELLO | {"size": "giga"}] * 3),
            ("contents.contents[0].size", "mega"),
        ),
    ),
    Rule(
        "action of a bubble, box, image or text: an action object; label optional, 40",
        "action-object-label-spec",
        flex(HELLO | {"action": SIMPLE_OPEN}),
        (
            *within("contents.action", label="a" * 41, uri=ABSENT),
            ("contents.body.action", SAY | {"label": FAMILY * 41}, "contents.body.action.label"),
            (f"{BODY_AT}[0].action", SAY | {"label": "a" * 41}, f"{BODY_AT}[0].action.label"),
            ("contents.action", "https://example.com/"),
        ),
        (
            *each("contents.action.label", "a" * 40, ABSENT),
            ("contents.body.action", SAY | {"label": FAMILY * 40}),
            (f"{BODY_AT}[0].action", without(POSTBACK, "label")),
        ),
    ),
    Rule(
        "Camera, camera roll, location: only with quick replies; rich menu switch: no Flex Message",
        "richmenu-switch-action",
        BUBBLE,
        (
            (f"{BUTTON_AT}.action", CAMERA, f"{BUTTON_AT}.action.type"),
            (f"{BUTTON_AT}.action", SWITCH, f"{BUTTON_AT}.action.type"),
            (f"{IMAGE_AT}.action", CAMERA_ROLL, f"{IMAGE_AT}.action.type"),
            (f"{TEXT_AT}.action", LOCATE, f"{TEXT_AT}.action.type"),
            ("contents.action", without(SWITCH, "label"), "contents.action.type"),
        ),
        ((f"{IMAGE_AT}.action", COPY), (f"{TEXT_AT}.action", PICK), ("contents.action", SAY)),
    ),
    # --- Flex: where components may stand ---
    Rule(
        "horizontal or vertical: box, button, image, text, separator, and filler",
        "flex-message-layout",
        BUBBLE,
        (
            (TEXT_AT, ICON, f"{TEXT_AT}.type"),
            (TEXT_AT, SPAN, f"{TEXT_AT}.type"),
            ("contents.footer.contents[0]", ICON, "contents.footer.contents[0].type"),
            ("contents.footer.contents[0]", SPAN, "contents.footer.contents[0].type"),
            (f"{BOX_AT}.contents", [ICON], f"{BOX_AT}.contents[0].type"),
        ),
        (
            (f"{BOX_AT}.contents", [BUTTON, FLEX_IMAGE, FLEX_TEXT, SEPARATOR, FILLER]),
            ("contents.footer.contents", [box("baseline", ICON), SEPARATOR, FILLER]),
        ),
    ),
    Rule(
        "baseline: icon, text, and filler",
        "flex-message-layout",
        BUBBLE,
        (
            (f"{BASELINE_AT}.contents[1]", box("vertical"), f"{BASELINE_AT}.contents[1].type"),
            (f"{BASELINE_AT}.contents[1]", BUTTON, f"{BASELINE_AT}.contents[1].type"),
            (f"{BASELINE_AT}.contents[1]", FLEX_IMAGE, f"{BASELINE_AT}.contents[1].type"),
            (f"{BASELINE_AT}.contents[1]", SPAN, f"{BASELINE_AT}.contents[1].type"),
            (f"{BASELINE_AT}.contents[1]", SEPARATOR, f"{BASELINE_AT}.contents[1].type"),
        ),
        (
            *each(f"{BASELINE_AT}.contents", [], [FILLER, FLEX_TEXT, FILLER]),
            (f"{BASELINE_AT}.contents[1]", ICON),
        ),
    ),
    Rule(
        "The video component is specified directly under the hero block",
        "f-video",
        BUBBLE,
        (
            (IMAGE_AT, FILM, f"{IMAGE_AT}.type"),
            ("contents.hero", box("vertical", FILM), "contents.hero.contents[0].type"),
            ("contents.body", FILM, "contents.body.type"),
            (f"{BOX_AT}.contents", [FILM], f"{BOX_AT}.contents[0].type"),
            (f"{BASELINE_AT}.contents[0]", FILM, f"{BASELINE_AT}.contents[0].type"),
        ),
    ),
    Rule(
        "`kilo`, `mega` or `giga` is the size of the bubble; it is not the child of a carousel",
        "f-video",
        BIG_FILM,
        (
            ("contents.size", "micro", "contents.hero.type"),
            ("contents.size", "nano", "contents.hero.type"),
            ("contents.size", "hecto", "contents.hero.type"),
            ("", bubbles(BIG_FILM["contents"]), "contents.contents[0].hero.type"),
            ("", bubbles(HELLO, HELLO | {"hero": FILM}), "contents.contents[1].hero.type"),
        ),
        each("contents.size", "kilo", "giga"),
    ),
    Rule(
        "Span is set to `contents` property of texts: Array of spans",
        "span",
        BUBBLE,
        (
            (SPAN_AT, FLEX_TEXT, f"{SPAN_AT}.type"),
            (SPAN_AT, ICON, f"{SPAN_AT}.type"),
            (SPAN_AT, "hello"),
            (f"{SPANS_AT}.contents", SPAN),
            (f"{SPAN_AT}.type", ABSENT),
        ),
        within(SPANS_AT, contents=[SPAN], text="hello, world"),
    ),
    # --- Flex: boxes ---
    Rule(
        "layout: String, required: horizontal, vertical or baseline",
        "flex-message-layout",
        BUBBLE,
        (("contents.body.layout", ABSENT), *each(f"{BOX_AT}.layout", ABSENT, "grid", "row", 1)),
        each(f"{BOX_AT}.layout", "horizontal", "baseline"),
    ),
    Rule(
        "contents of a box: Array of objects, required. You may also specify an empty array",
        "box",
        BUBBLE,
        (
            ("contents.body.contents", ABSENT),
            *each(f"{BOX_AT}.contents", ABSENT, FLEX_TEXT, "hello"),
            (f"{BOX_AT}.contents", ["hello"], f"{BOX_AT}.contents[0]"),
        ),
        ((f"{BOX_AT}.contents", [box("vertical", box("horizontal"))]),),
    ),
    Rule(
        "type of a component: String, required",
        "flex-component",
        BUBBLE,
        (
            (f"{BOX_AT}.type", ABSENT),
            (f"{TEXT_AT}.type", ABSENT),
            (f"{BUTTON_AT}.type", 1),
            ("contents.hero.type", ABSENT),
            ("contents.body.type", ABSENT),
        ),
    ),
    Rule(
        "backgroundColor, borderColor of a box: a hexadecimal color code (e.g. #RRGGBBAA)",
        "box",
        BUBBLE,
        (
            *each(f"{BOX_AT}.backgroundColor", "red", "#GG0000", "rgba(0, 0, 0, 0.5)"),
            *each(f"{BOX_AT}.borderColor", "FF0000", "#12345"),
        ),
        (
            *each(f"{BOX_AT}.backgroundColor", "#00000000", "#aaBB00"),
            (f"{BOX_AT}.borderColor", "#000000"),
        ),
    ),
    Rule(
        "borderWidth: pixels or none, light, normal, medium, semi-bold, or bold",
        "box",
        BUBBLE,
        each(f"{BOX_AT}.borderWidth", "thick", "10%", "2", "xs", 2),
        each(f"{BOX_AT}.borderWidth", "semi-bold", "light", "2px", "none"),
    ),
    Rule(
        "cornerRadius: pixels or none, xs, sm, md, lg, xl, or xxl",
        "box",
        BUBBLE,
        each(f"{BOX_AT}.cornerRadius", "round", "10%", "3xl", "5", 5),
        each(f"{BOX_AT}.cornerRadius", "xxl", "5px", "none"),
    ),
    Rule(
        "width, maxWidth: in pixels or as a percentage of the width of the parent element",
        "box",
        BUBBLE,
        (*each(f"{BOX_AT}.width", "md", "100", 100), *each(f"{BOX_AT}.maxWidth", "full", "10em")),
        (*each(f"{BOX_AT}.width", "100%", "23.5px"), *each(f"{BOX_AT}.maxWidth", "50%", "200px")),
    ),
    Rule(
        "height, maxHeight: in pixels or as a percentage of the height of the parent element",
        "box",
        BUBBLE,
        (*each(f"{BOX_AT}.height", "lg", "400"), *each(f"{BOX_AT}.maxHeight", "auto", "10pt", 400)),
        (*each(f"{BOX_AT}.height", "400px", "50%"), (f"{BOX_AT}.maxHeight", "23.5%")),
    ),
    Rule(
        "flex: Number",
        "flex-component",
        BUBBLE,
        (
            (f"{BOX_AT}.flex", "wide"),
            (f"{BUTTON_AT}.flex", [1]),
            (f"{IMAGE_AT}.flex", "md"),
            (f"{TEXT_AT}.flex", {"grow": 1}),
            (f"{FILLER_AT}.flex", "1px"),
        ),
        (
            (f"{BOX_AT}.flex", 0),
            (f"{BUTTON_AT}.flex", 1),
            (f"{TEXT_AT}.flex", 5),
            (f"{FILLER_AT}.flex", 2),
        ),
    ),
    Rule(
        "spacing: in pixels or with a keyword (none, xs, sm, md, lg, xl, xxl), no percentage",
        "flex-message-layout",
        BUBBLE,
        each("contents.body.spacing", "10%", "3xl", "10", "-10px", 10),
        each("contents.body.spacing", "none", "xxl", "23.5px"),
    ),
    Rule(
        "margin: in pixels or with a keyword (none, xs, sm, md, lg, xl, xxl), no percentage",
        "flex-message-layout",
        BUBBLE,
        (
            (f"{BOX_AT}.margin", "10%"),
            (f"{BUTTON_AT}.margin", "full"),
            (f"{IMAGE_AT}.margin", "10"),
            (f"{TEXT_AT}.margin", "3xl"),
            (f"{SEPARATOR_AT}.margin", "-5px"),
        ),
        (
            (f"{BOX_AT}.margin", "none"),
            (f"{BUTTON_AT}.margin", "xxl"),
            (f"{SEPARATOR_AT}.margin", "23.5px"),
            (f"{ICON_AT}.margin", "md"),
        ),
    ),
    Rule(
        "padding: in pixels, percentage or with a keyword (none, xs, sm, md, lg, xl, xxl)",
        "flex-message-layout",
        BUBBLE,
        within(
            BOX_AT,
            paddingAll="3xl",
            paddingTop="10",
            paddingBottom="auto",
            paddingStart="-10px",
            paddingEnd=10,
        ),
        within(
            BOX_AT,
            paddingAll="none",
            paddingTop="23.5%",
            paddingBottom="xxl",
            paddingStart="10px",
            paddingEnd="md",
        ),
    ),
    Rule(
        "offset: in pixels, keywords (none, xs, sm, md, lg, xl, or xxl) or percentage",
        "flex-message-layout",
        BUBBLE,
        (
            (f"{BOX_AT}.offsetTop", "3xl"),
            (f"{BUTTON_AT}.offsetBottom", "10"),
            (f"{IMAGE_AT}.offsetStart", "left"),
            (f"{TEXT_AT}.offsetEnd", 10),
            (f"{ICON_AT}.offsetTop", "full"),
        ),
        (
            (f"{BOX_AT}.offsetTop", "10px"),
            (f"{BUTTON_AT}.offsetBottom", "10%"),
            (f"{IMAGE_AT}.offsetStart", "xxl"),
            (f"{ICON_AT}.offsetTop", "none"),
        ),
    ),
    Rule(
        "position: relative or absolute",
        "flex-message-layout",
        BUBBLE,
        (
            (f"{BUTTON_AT}.position", "fixed"),
            (f"{BOX_AT}.position", "static"),
            (f"{IMAGE_AT}.position", "sticky"),
            (f"{TEXT_AT}.position", True),
            (f"{ICON_AT}.position", "top"),
        ),
        (
            (f"{BUTTON_AT}.position", "absolute"),
            (f"{BOX_AT}.position", "relative"),
            (f"{TEXT_AT}.position", "absolute"),
        ),
    ),
    Rule(
        "justifyContent: flex-start, center, flex-end, space-between, -around, -evenly",
        "flex-message-layout",
        BUBBLE,
        each("contents.body.justifyContent", "start", "stretch", "space_evenly", 1),
        each(
            "contents.body.justifyContent", "flex-start", "space-evenly", "space-around", "center"
        ),
    ),
    Rule(
        "alignItems: flex-start, center, flex-end",
        "flex-message-layout",
        BUBBLE,
        each("contents.body.alignItems", "space-between", "end", "baseline", ["center"]),
        each("contents.body.alignItems", "flex-end", "center"),
    ),
    Rule(
        "background.angle: an integer or decimal number of degrees in [0, 360), required",
        "box",
        BUBBLE,
        each(f"{BOX_AT}.background.angle", ABSENT, "360deg", "-1deg", "90", 90),
        each(f"{BOX_AT}.background.angle", "0deg", "23.5deg", "359.9deg"),
    ),
    Rule(
        "startColor, endColor: required; `#RRGGBB` or `#RRGGBBAA` format",
        "box",
        BUBBLE,
        (
            *each(f"{BOX_AT}.background.startColor", ABSENT, "#FF0"),
            *each(f"{BOX_AT}.background.endColor", ABSENT, "blue"),
            (f"{BOX_AT}.background.centerColor", "#00ff0"),
        ),
        (
            *within(f"{BOX_AT}.background", startColor="#FFFF0080", centerColor="#00FF0000"),
            (f"{BOX_AT}.background", without(GRADIENT, "centerColor", "centerPosition")),
        ),
    ),
    Rule(
        "background.centerPosition: integer or decimal between `0%` and `100%`",
        "box",
        BUBBLE,
        each(f"{BOX_AT}.background.centerPosition", "101%", "-1%", "50", "50px", "center"),
        each(f"{BOX_AT}.background.centerPosition", "0%", "100%", "33.3%", ABSENT),
    ),
    # --- Flex: button, image, video, icon ---
    Rule(
        "action of a button: required; its label: required, 40",
        "button",
        BUBBLE,
        (
            *each(f"{BUTTON_AT}.action", ABSENT, "Yes"),
            *each(f"{BUTTON_AT}.action.label", ABSENT, "a" * 41, FAMILY * 41),
        ),
        (
            *each(f"{BUTTON_AT}.action.label", "a" * 40, FAMILY * 40, GA * 40),
            (f"{BUTTON_AT}.action", OPEN),
        ),
    ),
    Rule(
        "style: primary, secondary or link; height: sm or md",
        "button",
        BUBBLE,
        (
            *each(f"{BUTTON_AT}.style", "danger", "bold", 1),
            *each(f"{BUTTON_AT}.height", "lg", "50px"),
        ),
        (
            *each(f"{BUTTON_AT}.style", "primary", "secondary", "link"),
            *each(f"{BUTTON_AT}.height", "sm", "md"),
        ),
    ),
    Rule(
        "adjustMode: shrink-to-fit",
        "flex-message-layout",
        BUBBLE,
        ((f"{BUTTON_AT}.adjustMode", "shrink"), *each(f"{TEXT_AT}.adjustMode", "none", True)),
        ((f"{BUTTON_AT}.adjustMode", "shrink-to-fit"), (f"{TEXT_AT}.adjustMode", "shrink-to-fit")),
    ),
    Rule(
        "color of a button, a text, a separator, a span: Use a hexadecimal color code",
        "flex-component",
        BUBBLE,
        (
            (f"{BUTTON_AT}.color", "blue"),
            *each(f"{TEXT_AT}.color", "0000ff", 255),
            (f"{SEPARATOR_AT}.color", "#00000g"),
            (f"{SPAN_AT}.color", "#4f8f0"),
        ),
        (
            (f"{BUTTON_AT}.color", "#0000ff"),
            (f"{TEXT_AT}.color", "#0000FF"),
            (f"{SEPARATOR_AT}.color", "#000000"),
            (f"{SPAN_AT}.color", "#4f8f00"),
        ),
    ),
    Rule(
        "gravity of texts, images and buttons: top, bottom, center",
        "flex-message-layout",
        BUBBLE,
        (
            (f"{BUTTON_AT}.gravity", "middle"),
            (f"{IMAGE_AT}.gravity", "start"),
            *each(f"{TEXT_AT}.gravity", "end", 0),
        ),
        (
            (f"{BUTTON_AT}.gravity", "center"),
            (f"{IMAGE_AT}.gravity", "top"),
            (f"{TEXT_AT}.gravity", "bottom"),
        ),
    ),
    Rule(
        "align of texts and images: start, end, center",
        "flex-message-layout",
        BUBBLE,
        (*each(f"{TEXT_AT}.align", "left", "justify"), *each(f"{IMAGE_AT}.align", "right", "top")),
        (*each(f"{TEXT_AT}.align", "start", "center"), (f"{IMAGE_AT}.align", "end")),
    ),
    Rule(
        "wrap, scaling: Boolean",
        "f-text",
        BUBBLE,
        (
            *within(TEXT_AT, wrap="yes", scaling=[True]),
            (f"{BUTTON_AT}.scaling", "on"),
            (f"{ICON_AT}.scaling", {"scaling": True}),
        ),
        ((f"{TEXT_AT}.wrap", True), (f"{BUTTON_AT}.scaling", False), (f"{ICON_AT}.scaling", True)),
    ),
    Rule(
        "url of an image: String, required, Max character limit: 2000, Protocol: HTTPS",
        "f-image",
        BUBBLE,
        (
            *each(f"{IMAGE_AT}.url", ABSENT, HTTP, 5),
            *each("contents.hero.url", url(2001), "example.com/1.jpg"),
        ),
        ((f"{IMAGE_AT}.url", url(2000)), ("contents.hero.url", url(2000))),
    ),
    Rule(
        "size of an image: %, px or xxs, xs, sm, md, lg, xl, xxl, 3xl, 4xl, 5xl, full",
        "flex-message-layout",
        BUBBLE,
        (*each(f"{IMAGE_AT}.size", "6xl", "50", "-50px", 50), ("contents.hero.size", "cover")),
        (
            *each(f"{IMAGE_AT}.size", "full", "23.5%", "23.5px", "xxs"),
            ("contents.hero.size", "5xl"),
        ),
    ),
    Rule(
        "aspectRatio: `{width}:{height}` format, in the range from 1 to 100000",
        "f-image",
        BUBBLE,
        (
            *each(f"{IMAGE_AT}.aspectRatio", "16/9", "0:1", "100001:1"),
            *each("contents.hero.aspectRatio", "wide", "1:0"),
        ),
        (
            *each(f"{IMAGE_AT}.aspectRatio", "1.91:1", "100000:100000"),
            *each("contents.hero.aspectRatio", "100000:1", "20:13"),
        ),
    ),
    Rule(
        "You cannot set `{height}` to a value that is more than three times the value of `{width}`",
        "f-image",
        BUBBLE,
        (
            *each(f"{IMAGE_AT}.aspectRatio", "1:4", "100:301"),
            (f"{ICON_AT}.aspectRatio", "1:4"),
            (
                "",
                flex(BIG_FILM["contents"] | {"hero": FILM | {"aspectRatio": "1:4"}}),
                "contents.hero.aspectRatio",
            ),
        ),
        (*each(f"{IMAGE_AT}.aspectRatio", "1:3", "100:300"), (f"{ICON_AT}.aspectRatio", "1:3")),
    ),
    Rule(
        "aspectMode: cover or fit; backgroundColor: a hexadecimal color code",
        "f-image",
        BUBBLE,
        (
            *each(f"{IMAGE_AT}.aspectMode", "contain", "full"),
            *each(f"{IMAGE_AT}.backgroundColor", "white", "FFFFFF"),
        ),
        (
            *each(f"{IMAGE_AT}.aspectMode", "cover", "fit"),
            (f"{IMAGE_AT}.backgroundColor", "#FFFFFF"),
        ),
    ),
    Rule(
        "animated: Boolean; up to 10 images in a single message",
        "f-image",
        BUBBLE,
        (
            ("contents.body", animated(11), "contents"),
            ("", flex(bubble(animated(6), animated(5))), "contents"),
            ("", bubbles(bubble(animated(6)), bubble(animated(6))), "contents"),
            (f"{IMAGE_AT}.animated", "always"),
        ),
        (
            ("contents.body", animated(10)),
            ("", bubbles(bubble(animated(5)), bubble(animated(5)))),
            ("", flex(bubble(animated(10), FLEX_IMAGE, FLEX_IMAGE | {"animated": False}))),
        ),
    ),
    Rule(
        "url, previewUrl of a video: String, required, Max 2000, Protocol: HTTPS",
        "f-video",
        BIG_FILM,
        (
            *each("contents.hero.url", ABSENT, "http://example.com/video.mp4"),
            *each("contents.hero.previewUrl", ABSENT, url(2001), 5),
        ),
        within("contents.hero", url=url(2000), previewUrl=url(2000)),
    ),
    Rule(
        "altContent: component, required. Specify a box or an image",
        "f-video",
        BIG_FILM,
        (
            ("contents.hero.altContent", ABSENT),
            ("contents.hero.altContent", FLEX_TEXT, "contents.hero.altContent.type"),
            ("contents.hero.altContent", BUTTON, "contents.hero.altContent.type"),
            ("contents.hero.altContent", FILM, "contents.hero.altContent.type"),
            ("contents.hero.altContent.url", ABSENT),
        ),
        (("contents.hero.altContent", box("vertical", FLEX_TEXT)),),
    ),
    Rule(
        "aspectRatio of a video: `{width}:{height}`; action: URI action",
        "f-video",
        BIG_FILM,
        (
            *each("contents.hero.aspectRatio", "16x9", "0:1"),
            ("contents.hero.action", SAY, "contents.hero.action.type"),
            ("contents.hero.action", POSTBACK, "contents.hero.action.type"),
            ("contents.hero.action", COPY, "contents.hero.action.type"),
        ),
        (*each("contents.hero.aspectRatio", "16:9", ABSENT), ("contents.hero.action", ABSENT)),
    ),
    Rule(
        "url of an icon: String, required, Max character limit: 2000, Protocol: HTTPS",
        "icon",
        BUBBLE,
        (
            *each(f"{ICON_AT}.url", ABSENT, HTTP, url(2001)),
            *each(f"{ICON_AT}.aspectRatio", "1-1", "100001:1"),
        ),
        within(ICON_AT, url=url(2000), aspectRatio="1.91:1"),
    ),
    # --- Flex: text, span ---
    Rule(
        "size of an icon, text, span: px or xxs, xs, sm, md, lg, xl, xxl, 3xl, 4xl, 5xl; no %",
        "flex-message-layout",
        BUBBLE,
        (
            (f"{ICON_AT}.size", "50%"),
            *each(f"{TEXT_AT}.size", "full", "6xl"),
            *each(f"{SPAN_AT}.size", "50%", "12"),
        ),
        (
            (f"{ICON_AT}.size", "5xl"),
            *each(f"{TEXT_AT}.size", "23.5px", "xxs"),
            (f"{SPAN_AT}.size", "12px"),
        ),
    ),
    Rule(
        "Be sure to set either one of the `text` property or `contents` property",
        "f-text",
        BUBBLE,
        (
            (f"{TEXT_AT}.text", ABSENT, TEXT_AT),
            (f"{SPANS_AT}.contents", ABSENT, SPANS_AT),
            (f"{BASELINE_AT}.contents[1].text", ABSENT, f"{BASELINE_AT}.contents[1]"),
            *each(f"{TEXT_AT}.text", 5, ["hello"]),
        ),
        within(TEXT_AT, contents=[SPAN], text="a"),
    ),
    Rule(
        "weight: regular or bold; style: normal, italic",
        "f-text",
        BUBBLE,
        (
            *each(f"{TEXT_AT}.weight", "heavy", 700),
            *each(f"{TEXT_AT}.style", "oblique", "bold"),
            (f"{SPAN_AT}.weight", "normal"),
        ),
        (
            *each(f"{TEXT_AT}.weight", "bold", "regular"),
            (f"{TEXT_AT}.style", "italic"),
            *within(SPAN_AT, weight="bold", style="normal"),
        ),
    ),
    Rule(
        "decoration: none, underline, line-through",
        "f-text",
        BUBBLE,
        (
            *each(f"{TEXT_AT}.decoration", "overline", "strikethrough"),
            *within(SPAN_AT, decoration="bold", style="underline", text=5),
        ),
        (
            (f"{TEXT_AT}.decoration", "line-through"),
            *each(f"{SPAN_AT}.decoration", "underline", "none"),
        ),
    ),
    Rule(
        "lineSpacing: a positive integer or decimal number that ends in px",
        "f-text",
        BUBBLE,
        each(f"{TEXT_AT}.lineSpacing", "20", "md", "-20px", "150%", 20),
        each(f"{TEXT_AT}.lineSpacing", "20px", "23.5px"),
    ),
    Rule(
        "maxLines: Number",
        "f-text",
        BUBBLE,
        each(f"{TEXT_AT}.maxLines", "many", [2], {"lines": 2}),
        each(f"{TEXT_AT}.maxLines", 0, 2),
    ),
)

# LINE adds types and properties without notice: none of these is to be refused.
UNKNOWN: tuple[tuple[Message, Change], ...] = (
    (TEXT, ("", {"type": "poll", "question": "Where?", "answers": 5})),
    (TEXT, ("silent", True)),
    (SENT, ("sender.color", "red")),
    (QUICK, ("quickReply.layout", "grid")),
    (QUICK, ("quickReply.items[0].badge", 3)),
    (QUICK, (SAY_AT, {"type": "payment", "amount": 100})),
    (EMOJIS, ("emojis[0].size", "large")),
    (TEXT_V2, ("substitution.laugh", {"type": "sticker", "stickerId": "1988"})),
    (TEXT_V2, ("substitution.user1.mentionee", {"type": "admins"})),
    (IMAGEMAP, ("actions[1]", {"type": "postback", "data": "a", "area": AREA})),
    (IMAGEMAP, ("video.loop", True)),
    (BUTTONS, ("template", {"type": "gallery", "images": [URL]})),
    (BUTTONS, ("template.actions[1].hint", "Tap me")),
    (BUTTONS, ("template.actions[2]", {"type": "share", "target": "friends"})),
    (CAROUSEL, ("template.columns[0].subtitle", "new")),
    (BUBBLE, ("contents", {"type": "stack", "layers": []})),
    (BUBBLE, ("contents.shadow", "light")),
    (BUBBLE, (f"{BOX_AT}.opacity", 0.5)),
    (BUBBLE, (TEXT_AT, {"type": "chart", "values": [1, 2, 3]})),
    (BUBBLE, (f"{BOX_AT}.background", {"type": "radialGradient", "radius": "50%"})),
)
