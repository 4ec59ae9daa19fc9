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
- braces of a text (v2) without a pair or without a substitution: the `text` is named;
- a wrong key of `substitution` is not quoted: `substitution` is named.
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


def rule(
    says: str, base: Message, wrong: tuple[Change, ...], right: tuple[Change, ...] = ()
) -> Rule:
    """The sentence comes after its anchor and a colon."""
    at, sentence = says.split(": ", 1)
    return Rule(sentence, at, base, wrong, right)


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
    """For each property of the object at the path, one message with the value there.

    A tuple is several values.
    """
    return tuple(
        (f"{path}.{name}".lstrip("."), one)
        for name, value in values.items()
        for one in (value if isinstance(value, tuple) else (value,))
    )


def missing(*paths: str) -> tuple[Change, ...]:
    return tuple((path, ABSENT) for path in paths)


def misplaced(path: str, *values: Message) -> tuple[Change, ...]:
    """One message with each of the actions, components or bubbles where it may not stand."""
    return tuple((path, value, f"{path}.type") for value in values)


def whole(at: str, *messages: Message) -> tuple[Change, ...]:
    """These messages instead of the base, wrong at the property."""
    return tuple(("", message, at) for message in messages)


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
ANSWER: Message = {"type": "action", "action": SAY}
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
V2: Message = {
    "type": "textV2",
    "text": "Welcome, {user1}! {laugh}",
    "substitution": {"user1": USER, "laugh": LAUGH},
}
NEEDED = ("user1.mentionee", "user1.mentionee.type", "user1.mentionee.userId", "laugh.productId")
LISTED = (("substitution", [USER, LAUGH]), ("substitution", "user1"))
PLAIN_V2: Message = {"type": "textV2", "text": "Welcome!"}


def v2(text: str, substitution: Message) -> Message:
    return {"type": "textV2", "text": text, "substitution": substitution}


def v2_key(key: str) -> Message:
    return v2(f"Hi {{{key}}}", {key: USER})


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
TAP = IMAGEMAP["actions"][1]

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
FIRST_AT, SECOND_AT, THIRD_AT, FOURTH_AT = (f"template.actions[{index}]" for index in range(4))
DATETIME_AT, DATE_AT, TIME_AT = FIRST_AT, SECOND_AT, THIRD_AT
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
COLUMN_AT, COLUMN2_AT, COLUMN3_AT = (f"template.columns[{index}]" for index in range(3))
PLAIN_CAROUSEL = carousel(PLAIN_COLUMN, PLAIN_COLUMN, PLAIN_COLUMN)
IMAGE_COLUMN: Message = {"imageUrl": URL, "action": SAY}
IMAGE_CAROUSEL = template(
    type="image_carousel",
    columns=[{"imageUrl": URL, "action": one} for one in (SAY, SIMPLE_OPEN, POSTBACK)],
)

TILE_AT = f"{COLUMN_AT}.action"
DEFAULT_AT = "template.defaultAction"
TITLE_OR_IMAGE: tuple[Message, ...] = ({"title": "Menu"}, {"thumbnailImageUrl": URL})


def buttons(**properties: Any) -> Message:
    return template(type="buttons", actions=[SAY], **properties)


def plain(**properties: Any) -> Message:
    """A carousel of a plain column that has these properties."""
    return carousel(PLAIN_COLUMN | properties)


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
HERO_AT = "contents.hero"
ICON_AT = f"{BASELINE_AT}.contents[0]"
SCORE_AT = f"{BASELINE_AT}.contents[1]"
ACT_AT = f"{BODY_AT}[0].action"
BACK_AT = f"{BOX_AT}.background"
STYLE_AT = "contents.styles.footer"
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
    rule(
        "send-broadcast-message: type: required; `May not be empty`",
        TEXT,
        each("type", ABSENT, "", 1, None),
    ),
    rule(
        "items-object: quickReply: Object; items: Array of objects, required. Max: 13",
        QUICK,
        (
            ("quickReply", {}, "quickReply.items"),
            *each("quickReply.items", ANSWER, [ANSWER] * 14),
            *whole("quickReply.items", STICKER | {"quickReply": {"items": [ANSWER] * 14}}),
        ),
        each("quickReply.items", [ANSWER], [ANSWER] * 13),
    ),
    rule(
        "quick-reply-button-object: imageUrl: Max character limit: 2000, Protocol: HTTPS",
        QUICK,
        each("quickReply.items[0].imageUrl", url(2001), HTTP, "example.com/1.png", 5),
        each("quickReply.items[0].imageUrl", url(2000), ABSENT),
    ),
    rule(
        "using-quick-reply: action: Object, required; not the rich menu switch action",
        QUICK,
        (*missing(SAY_AT, f"{PICK_AT}.type"), (POSTBACK_AT, "buy"), *misplaced(SAY_AT, SWITCH)),
        each(SAY_AT, COPY),
    ),
    rule(
        "action-object-label-spec: label on a quick reply button: required",
        QUICK,
        missing(*(f"{one}.label" for one in (SAY_AT, POSTBACK_AT, CAMERA_AT, LOCATE_AT, COPY_AT))),
    ),
    rule(
        "text-character-count: label on a quick reply button: Max 20, in grapheme clusters",
        QUICK,
        (*within(SAY_AT, label=("日" * 21, FAMILY * 21)), *within(CAMERA_AT, label="a" * 21)),
        each(f"{SAY_AT}.label", "a" * 20, FAMILY * 20, GA * 20, JAMO * 20, THUMB * 20),
    ),
    rule(
        "icon-nickname-switch: sender.name: Max 20 (in UTF-16 code units); not `LINE`",
        SENT,
        each("sender.name", "a" * 21, APPLE * 10 + "a", GA * 11, 7, "LINE"),
        (*each("sender.name", "a" * 20, APPLE * 10), ("sender", {"name": "Cony"})),
    ),
    rule(
        "icon-nickname-switch: sender.iconUrl: Max character limit: 2000, Protocol: HTTPS",
        SENT,
        within("", sender="Cony", **{"sender.iconUrl": (HTTP, url(2001), "line.me/cony", 5)}),
        within("", sender={"iconUrl": URL}, **{"sender.iconUrl": url(2000)}),
    ),
    # --- Text ---
    rule(
        "error-responses: text: required; `May not be empty`; quoteToken: String",
        TEXT,
        within("", text=(ABSENT, "", 5, None), quoteToken=12),
        within("", text=("a", "$ and {braces"), quoteToken="yHAz4Ua2wx7"),
    ),
    rule(
        "text-message: text: Max character limit: 5000, counted in UTF-16 code units",
        TEXT,
        each("text", "a" * 5001, APPLE * 2500 + "a", FAMILY * 626, GA * 2501),
        each("text", "a" * 5000, APPLE * 2500, "日" * 5000),
    ),
    rule(
        "text-message: emojis: Array of LINE emoji objects. Max: 20 LINE emoji",
        EMOJIS,
        (
            *whole("emojis", with_emojis("$" * 21, *range(21))),
            *within("", emojis="001", **{"emojis[1]": 13, "emojis[1].productId": 5}),
        ),
        each("", with_emojis("$" * 20, *range(20))),
    ),
    rule(
        "text-message: emojis.index doesn't match the position of `$`: 400 Bad request",
        EMOJIS,
        (*each("emojis[0].index", 1, -1, "first"), *each("emojis[1].index", 12, 14)),
        each("", with_emojis("a $", 2), with_emojis("$ costs 5 $", 10)),
    ),
    rule(
        "text-message: emojis.index: the position of the code unit when encoded in UTF-16",
        EMOJIS,
        whole("emojis[0].index", with_emojis(f"{APPLE}$", 1), with_emojis(f"{GA}$", 1)),
        each("", with_emojis(f"{APPLE}$", 2), with_emojis(f"${FAMILY}$", 0, 9)),
    ),
    # --- Text (v2) ---
    rule(
        "text-message-v2: text: String, required. Max character limit: 5000",
        PLAIN_V2,
        each("text", ABSENT, "a" * 5001, APPLE * 2501, 5),
        each("text", "a" * 5000, APPLE * 2500),
    ),
    rule(
        "text-message-v2: `{` and `}` must be used in pairs; as strings: `{{` and `}}`",
        PLAIN_V2,
        each("text", "Smile :}", "Wink {", '{"a": 1}', "{{ and }", "{ and }}"),
        each("text", "{{ and }}", "{{user1}}", "Smile :}}", "A brace: {{"),
    ),
    rule(
        "text-message-v2: `{` and `}` around a substitution must be used in pairs",
        V2,
        each("text", "{user1! {laugh}", "user1}! {laugh}", "{user1} {laugh} {", "} {user1}{laugh}"),
        each("text", "{user1}{laugh}", "{laugh} {user1} {laugh}", "{user1} {laugh} {{laugh}}"),
    ),
    rule(
        "text-message-v2: The substitution content of `{` and `}` must be specified",
        V2,
        (
            *(("substitution", one, "text") for one in (ABSENT, {"user1": USER})),
            *each("text", "{user1} {laugh} {b}", "{user1} {laugh} {User1}"),
        ),
        each("", v2("{everyone} Hello", {"everyone": ALL})),
    ),
    rule(
        "text-message-v2: substitution: Object, of mention objects or emoji objects",
        V2,
        within("substitution", laugh="smile", **{"user1.type": (ABSENT, 1)}) + LISTED,
        within("substitution", user1=ALL, laugh=USER),
    ),
    rule(
        "text-message-v2: Keys: half-width alphanumeric and underscore; max 20 characters",
        V2,
        whole("substitution", *(v2_key(one) for one in ("a-1", "a 1", "太郎", "ａ", "a" * 21))),
        each("", *(v2_key(one) for one in ("User_1", "0", "a" * 20))),
    ),
    rule(
        "text-message-v2-mention-object: Max 100 objects; 20 mentions and 20 emoji",
        V2,
        whole("substitution", many_v2(101, LAUGH), many_v2(21, USER), many_v2(21, LAUGH)),
        each("", many_v2(20, USER), many_v2(20, LAUGH)),
    ),
    rule(
        "text-message-v2-mention-object: mentionee, type, userId; productId, emojiId: required",
        V2,
        (*missing(*(f"substitution.{one}" for one in NEEDED)), ("substitution.laugh.emojiId", 2)),
    ),
    # --- Media ---
    rule(
        "sticker-message: packageId, stickerId: String, required; quoteToken: optional",
        STICKER,
        within("", packageId=(ABSENT, 446), stickerId=(ABSENT, None)),
        each("quoteToken", "yHAz4Ua2wx7"),
    ),
    rule(
        "image-message: originalContentUrl: required, Max 2000, Protocol: HTTPS",
        IMAGE,
        each("originalContentUrl", ABSENT, 5, HTTP, url(2001), "example.com/images/1.jpg"),
        each("originalContentUrl", url(2000), f"{URL}?q=Good%20morning#Good%20afternoon"),
    ),
    rule(
        "image-message: previewImageUrl: required, Max 2000, Protocol: HTTPS",
        IMAGE,
        each("previewImageUrl", ABSENT, "ftp://example.com/1.jpg", url(2001), {"url": URL}, None),
        each("previewImageUrl", url(2000)),
    ),
    rule(
        "video-message: originalContentUrl, previewImageUrl: required, 2000, HTTPS",
        VIDEO,
        within("", originalContentUrl=(ABSENT, HTTP), previewImageUrl=(ABSENT, url(2001))),
        within("", originalContentUrl=url(2000), trackingId=ABSENT),
    ),
    rule(
        "video-message: trackingId: Max 100; alphanumerics and `-.=,+*()%$&;:@{}!?<>[]`",
        VIDEO,
        each("trackingId", "a" * 101, "track id", "追跡", "track_id", "a/b"),
        each("trackingId", "a" * 100, "-.=,+*()%$&;:@{}!?<>[]", "aZ09"),
    ),
    rule(
        "audio-message: originalContentUrl: required, 2000, HTTPS; duration: Number, required",
        AUDIO,
        within("", originalContentUrl=(ABSENT, HTTP, url(2001)), duration=(ABSENT, "long")),
        within("", originalContentUrl=url(2000), duration=1),
    ),
    rule(
        "location-message: title, address: required, Max 100 (in UTF-16 code units)",
        LOCATION,
        within("", title=(ABSENT, 5, APPLE * 50 + "a"), address=(ABSENT, "a" * 101)),
        within("", title=("a" * 100, APPLE * 50), address="日" * 100),
    ),
    rule(
        "location-message: latitude, longitude: Decimal, required",
        LOCATION,
        within("", latitude=(ABSENT, "north", None), longitude=(ABSENT, [139.73669])),
        within("", latitude=(0, -35.67966), longitude=-139),
    ),
    rule(
        "coupon-message: couponId: required; deliveryTag: Max 30; alphanumeric, underscore",
        COUPON,
        within("", couponId=(ABSENT, 5), deliveryTag=("a" * 31, "2025-winter", "冬")),
        each("deliveryTag", "a" * 30, "aZ_09", ABSENT),
    ),
    # --- Imagemap ---
    rule(
        "imagemap-message: baseUrl: String, required, Max 2000, Protocol: HTTPS",
        IMAGEMAP,
        each("baseUrl", ABSENT, HTTP, url(2001), "example.com/rm001", 5),
        each("baseUrl", url(2000)),
    ),
    rule(
        "imagemap-message: altText: String, required, Max 1500 (in UTF-16 code units)",
        IMAGEMAP,
        each("altText", ABSENT, "a" * 1501, APPLE * 751, 5),
        each("altText", "a" * 1500, APPLE * 750),
    ),
    rule(
        "imagemap-message: baseSize.width: required. Set to 1040; height: Number, required",
        IMAGEMAP,
        within("baseSize", width=(ABSENT, 1039, 2080), height=(ABSENT, "high")),
        each("baseSize.height", 1500, 1041),
    ),
    rule(
        "imagemap-message: URLs of the video: required to play a video, 2000, HTTPS",
        IMAGEMAP,
        within("video", originalContentUrl=(ABSENT, HTTP), previewImageUrl=(ABSENT, url(2001))),
        within("", video=ABSENT, **{"video.originalContentUrl": url(2000)}),
    ),
    rule(
        "imagemap-message: video.area: required, its width, height, x, y too; x, y: `0` or higher",
        IMAGEMAP,
        within("video", area=ABSENT, **{"area.height": ABSENT, "area.x": (ABSENT, "left", -1)}),
        each("video.area.y", 1),
    ),
    rule(
        "imagemap-message: linkUri, label after the video: required; label: Max 30",
        IMAGEMAP,
        within("video.externalLink", linkUri=ABSENT, label=(ABSENT, "a" * 31, 5)),
        within("video", externalLink=ABSENT, **{"externalLink.label": "a" * 30}),
    ),
    rule(
        "imagemap-message: externalLink.linkUri: Max 1000; `http`, `https`, `line`, and `tel`",
        IMAGEMAP,
        each("video.externalLink.linkUri", url(1001), "ftp://example.com/", "example.com"),
        each("video.externalLink.linkUri", url(1000), "tel:09001234567"),
    ),
    rule(
        "imagemap-message: actions: Array of imagemap action objects, required. Max: 50",
        IMAGEMAP,
        within("", actions=(ABSENT, [TAP] * 51, TAP), **{"actions[0].type": ABSENT}),
        each("actions", [TAP] * 50, [TAP]),
    ),
    rule(
        "imagemap-action-objects: linkUri: required, Max 1000; `http`, `https`, `line`, `tel`",
        IMAGEMAP,
        each("actions[0].linkUri", ABSENT, url(1001), 5, "mailto:a@example.com", "example.com"),
        each("actions[0].linkUri", url(1000), "http://example.com/", "line://nv/camera/"),
    ),
    rule(
        "imagemap-action-objects: text: required, Max 400; label: optional, Max 100",
        IMAGEMAP,
        within("actions[1]", text=(ABSENT, "a" * 401, 5), label=("a" * 101, 5)),
        within("actions[1]", text="a" * 400, label=("a" * 100, ABSENT)),
    ),
    rule(
        "imagemap-action-objects: clipboardText: required, Max 1000 (OpenAPI: minLength 1)",
        IMAGEMAP,
        each("actions[2].clipboardText", ABSENT, "a" * 1001, "", APPLE * 501),
        each("actions[2].clipboardText", "a" * 1000),
    ),
    rule(
        "imagemap-area-object: area: required, with x, y, width, height; x, y: `0` or higher",
        IMAGEMAP,
        within("actions[0]", area=ABSENT, **{"area.width": ABSENT, "area.x": (ABSENT, -1, "top")}),
        within("actions[0].area", x=1, y=0),
    ),
    # --- Templates ---
    rule(
        "template-messages: altText: required, Max 1500; template: Object, required, with its type",
        CONFIRM,
        within("", altText=(ABSENT, "a" * 1501), template="a", **{"template.type": ABSENT}),
        each("altText", "a" * 1500, APPLE * 750),
    ),
    rule(
        "buttons: thumbnailImageUrl: Max character limit: 2000, Protocol: HTTPS",
        BUTTONS,
        each("template.thumbnailImageUrl", HTTP, url(2001), "example.com/1.jpg", 5),
        each("template.thumbnailImageUrl", url(2000), ABSENT),
    ),
    rule(
        "buttons: imageAspectRatio: rectangle, square; imageSize: cover, contain",
        BUTTONS,
        within("template", imageAspectRatio=("1.51:1", "circle"), imageSize=("fit", True)),
        within("template", imageAspectRatio="square", imageSize="contain"),
    ),
    rule(
        "buttons: imageBackgroundColor: Specify a RGB color value",
        BUTTONS,
        each("template.imageBackgroundColor", "white", "#GGGGGG", "#12345", 16777215),
        each("template.imageBackgroundColor", "#00aaff", ABSENT),
    ),
    rule(
        "buttons: title: Max 40, in grapheme clusters; text: Max 60 with an image or title",
        BUTTONS,
        within("template", title=("a" * 41, FAMILY * 41, 5), text=("a" * 61, FLAG * 61)),
        within("template", title=("a" * 40, FAMILY * 40), text=FLAG * 60),
    ),
    rule(
        "buttons: text: required, Max 160, but 60 with an image or title",
        PLAIN_BUTTONS,
        (
            *each("template.text", ABSENT, "a" * 161, FAMILY * 161),
            *whole("template.text", *(buttons(**one, text="a" * 61) for one in TITLE_OR_IMAGE)),
        ),
        (
            *each("template.text", "a" * 160, FAMILY * 160),
            *each("", *(buttons(**one, text="a" * 60) for one in TITLE_OR_IMAGE)),
        ),
    ),
    rule(
        "buttons: actions: Array of action objects, required. Max objects: 4",
        PLAIN_BUTTONS,
        within("template", actions=(ABSENT, [SAY] * 5, SAY), **{"actions[3]": "copy"}),
        each("template.actions", [SAY], [SAY] * 4),
    ),
    rule(
        "action-object-label-spec: label in a template but image carousel: required, 20",
        PLAIN_BUTTONS,
        (*missing(f"{FIRST_AT}.label"), *within(THIRD_AT, label=(ABSENT, "a" * 21, FAMILY * 21))),
        within(THIRD_AT, label=("a" * 20, FAMILY * 20)),
    ),
    rule(
        "action-object-label-spec: label in a carousel template: required, 20",
        CAROUSEL,
        within(f"{COLUMN_AT}.actions[0]", label=(ABSENT, "a" * 21)),
        within(f"{COLUMN_AT}.actions[0]", label="a" * 20),
    ),
    rule(
        "camera-action: Camera, camera roll, location: only with quick reply buttons",
        BUTTONS,
        misplaced(FIRST_AT, CAMERA, CAMERA_ROLL, LOCATE) + misplaced(DEFAULT_AT, CAMERA),
        each(FIRST_AT, COPY, PICK),
    ),
    rule(
        "richmenu-switch-action: This action can be configured only with rich menus",
        BUTTONS,
        (
            *misplaced(FIRST_AT, SWITCH),
            *misplaced(DEFAULT_AT, SWITCH),
            *whole(f"{FIRST_AT}.type", template(type="confirm", text="?", actions=[SWITCH, SAY])),
            *whole(f"{COLUMN_AT}.actions[0].type", carousel(COLUMN | {"actions": [SWITCH, SAY]})),
        ),
    ),
    rule(
        "buttons: defaultAction: Action object",
        BUTTONS,
        (*within(DEFAULT_AT, type=ABSENT, uri=ABSENT), (DEFAULT_AT, URL)),
        each(DEFAULT_AT, ABSENT, SAY),
    ),
    rule(
        "confirm: text: required, Max 240, in grapheme clusters; label: required, 20",
        CONFIRM,
        within("template", text=(ABSENT, "a" * 241, 5), **{"actions[1].label": (ABSENT, "a" * 21)}),
        (*within("template", text=("a" * 240, FAMILY * 240)), *within(SECOND_AT, label="a" * 20)),
    ),
    rule(
        "confirm: actions: required. Set 2 actions for the 2 buttons",
        CONFIRM,
        each("template.actions", ABSENT, [SAY], [SAY] * 3, [], {"yes": SAY, "no": SAY}),
        each("template.actions", [COPY, PICK]),
    ),
    rule(
        "carousel: columns: required. Max columns: 10; imageAspectRatio, imageSize as in buttons",
        CAROUSEL,
        within(
            "template", columns=(ABSENT, [COLUMN] * 11), imageAspectRatio="1:1", imageSize="fill"
        ),
        within("template", columns=[COLUMN] * 10, imageAspectRatio="square", imageSize="contain"),
    ),
    rule(
        "column-object-for-carousel: thumbnailImageUrl, imageBackgroundColor, title as in buttons",
        CAROUSEL,
        within(COLUMN_AT, thumbnailImageUrl=HTTP, imageBackgroundColor="black", title="a" * 41),
        within(COLUMN_AT, thumbnailImageUrl=url(2000), title=("a" * 40, FAMILY * 40)),
    ),
    rule(
        "column-object-for-carousel: text: required, Max 120, but 60 with an image or title",
        PLAIN_CAROUSEL,
        (
            *within(COLUMN_AT, text=(ABSENT, "a" * 121, FAMILY * 121)),
            *whole(f"{COLUMN_AT}.text", *(plain(**one, text="a" * 61) for one in TITLE_OR_IMAGE)),
        ),
        (
            *within(COLUMN_AT, text=("a" * 120, FAMILY * 120)),
            *each("", *(plain(**one, text="a" * 60) for one in TITLE_OR_IMAGE)),
        ),
    ),
    rule(
        "column-object-for-carousel: actions: required. Max objects: 3; as many in all columns",
        PLAIN_CAROUSEL,
        (
            (f"{COLUMN_AT}.actions", ABSENT),
            *whole(f"{COLUMN_AT}.actions", plain(actions=[SAY] * 4)),
            *((f"{one}.actions", [SAY], one) for one in (COLUMN2_AT, COLUMN3_AT)),
        ),
        (("", plain(actions=[SAY] * 3)), (f"{COLUMN2_AT}.actions", [PICK, COPY])),
    ),
    rule(
        "column-object-for-carousel: If a column has an image or title, all others have it",
        CAROUSEL,
        (
            (f"{COLUMN2_AT}.title", ABSENT, COLUMN2_AT),
            (f"{COLUMN2_AT}.thumbnailImageUrl", ABSENT, COLUMN2_AT),
            *whole(COLUMN2_AT, carousel(PLAIN_COLUMN, PLAIN_COLUMN | {"title": "a"})),
            *whole(COLUMN3_AT, carousel(COLUMN, COLUMN, without(COLUMN, "title"))),
        ),
        each("", *(carousel(PLAIN_COLUMN | one, PLAIN_COLUMN | one) for one in TITLE_OR_IMAGE)),
    ),
    rule(
        "image-carousel: columns: Array of column objects, required. Max columns: 10",
        IMAGE_CAROUSEL,
        each("template.columns", ABSENT, [IMAGE_COLUMN] * 11, IMAGE_COLUMN),
        each("template.columns", [IMAGE_COLUMN], [IMAGE_COLUMN] * 10),
    ),
    rule(
        "column-object-for-image-carousel: imageUrl: String, required, Max 2000, HTTPS",
        IMAGE_CAROUSEL,
        within(COLUMN_AT, imageUrl=(ABSENT, 5, HTTP, url(2001))),
        within(COLUMN_AT, imageUrl=url(2000)),
    ),
    rule(
        "column-object-for-image-carousel: action: required; no camera, location, menu switch",
        IMAGE_CAROUSEL,
        within(COLUMN_AT, action=(ABSENT, "a")) + misplaced(TILE_AT, CAMERA, SWITCH, LOCATE),
        within(COLUMN_AT, action=(PICK, COPY)),
    ),
    rule(
        "action-object-label-spec: label in an image carousel: optional, 12",
        IMAGE_CAROUSEL,
        within(TILE_AT, label=("a" * 13, GA * 13, FAMILY * 13)),
        within(TILE_AT, label=("a" * 12, FAMILY * 12, ABSENT)),
    ),
    # --- Actions ---
    rule(
        "postback-action: data: String, required, Max 300 (in UTF-16 code units)",
        BUTTONS,
        within(FIRST_AT, data=(ABSENT, "a" * 301, APPLE * 151, FAMILY * 38, {"action": "buy"})),
        within(FIRST_AT, data=("a" * 300, APPLE * 150, FAMILY * 37)),
    ),
    rule(
        "postback-action: displayText, fillInText: Max 300, in grapheme clusters",
        BUTTONS,
        within(FIRST_AT, displayText=("a" * 301, FAMILY * 301, 5), fillInText=(FAMILY * 301, 5)),
        within(FIRST_AT, displayText=(FAMILY * 300, ABSENT), fillInText=("a" * 300, FAMILY * 300)),
    ),
    rule(
        "postback-action: text: Max 300; not at the same time as displayText",
        flex(bubble({"type": "button", "action": without(POSTBACK, "displayText")})),
        (
            *within(ACT_AT, text=("a" * 301, FLAG * 301)),
            (ACT_AT, POSTBACK | {"text": "Buy"}, ACT_AT),
        ),
        within(ACT_AT, text=("a" * 300, FLAG * 300)),
    ),
    rule(
        "postback-action: inputOption: closeRichMenu, openRichMenu, openKeyboard, openVoice",
        flex(bubble({"type": "button", "action": without(POSTBACK, "fillInText")})),
        within(ACT_AT, inputOption=("openCamera", "keyboard", True)),
        within(ACT_AT, inputOption=("closeRichMenu", "openRichMenu", "openVoice", ABSENT)),
    ),
    rule(
        "message-action: text: required, Max character limit: 300, in grapheme clusters",
        CONFIRM,
        within(SECOND_AT, text=(ABSENT, "a" * 301, FAMILY * 301, 5)),
        within(SECOND_AT, text=("a" * 300, FAMILY * 300)),
    ),
    rule(
        "uri-action: uri: required, Max 1000; schemes are `http`, `https`, `line`, and `tel`",
        PLAIN_BUTTONS,
        within(THIRD_AT, uri=(ABSENT, url(1001), "ftp://example.com/", "javascript:alert(1)", "/")),
        within(
            THIRD_AT, uri=(url(1000), "http://example.com/", "tel:0901234567", "line://nv/camera")
        ),
    ),
    rule(
        "uri-action: uri in a quick reply: Max 1000; `http`, `https`, `line`, and `tel`",
        QUICK,
        within(OPEN_AT, uri=(ABSENT, url(1001), "mailto:a@example.com", "www.example.com")),
        within(OPEN_AT, uri=("tel:09001234567", url(1000))),
    ),
    rule(
        "uri-action: altUri.desktop: String, Max character limit: 1000",
        flex(bubble({"type": "button", "action": OPEN})),
        within(ACT_AT, altUri=URL, **{"altUri.desktop": (url(1001), "example.com", 5)}),
        within(ACT_AT, **{"altUri.desktop": (url(1000), "tel:09001234567")}),
    ),
    rule(
        "using-line-url-scheme: A URI action in a Flex Message may have any scheme",
        flex(bubble({"type": "button", "action": SIMPLE_OPEN})),
        within(ACT_AT, uri=(ABSENT, url(1001), 5)),
        within(ACT_AT, uri=("myapp://", "myapp://items/1?from=line", url(1000))),
    ),
    rule(
        "datetime-picker-action: data: String, required, Max 300; mode: date, time or datetime",
        flex(bubble({"type": "button", "action": without(PICK, "initial", "max", "min")})),
        within(ACT_AT, data=(ABSENT, "a" * 301, APPLE * 151), mode=(ABSENT, "month")),
        within(ACT_AT, data=("a" * 300, APPLE * 150), mode=("date", "time")),
    ),
    rule(
        "datetime-picker-action: mode date: `full-date` of RFC3339, 1900-01-01 to 2100-12-31",
        PICKERS,
        within(DATE_AT, initial=("2017/06/18", "2017-02-29"), min="1899-12-31", max="2101-01-01"),
        within(DATE_AT, initial=("2017-02-28", ABSENT), min="1900-01-01", max="2100-12-31"),
    ),
    rule(
        "datetime-picker-action: mode time: `time-hour`:`time-minute`, 00:00 to 23:59",
        PICKERS,
        within(TIME_AT, max="24:00", initial=("6:15", "06:60", "06:15:00", "2017-06-18T06:15")),
        within(TIME_AT, initial=("00:00", "23:59")),
    ),
    rule(
        "datetime-picker-action: mode datetime: `full-date`T`time-hour`:`time-minute`, or with `t`",
        PICKERS,
        within(DATETIME_AT, initial=("2017-12-25 00:00", "2017-12-25"), max="2101-01-01T00:00"),
        within(DATETIME_AT, initial=("2017-12-25T00:00", ABSENT), max="2100-12-31T23:59"),
    ),
    rule(
        "datetime-picker-action: max: Must be greater than the `min` value",
        PICKERS,
        (
            *within(DATE_AT, max=("2016-12-31", "2017-01-01")),
            *within(DATETIME_AT, max=("2017-12-24T23:59", "2017-12-25T00:00")),
            *within(TIME_AT, max="00:00"),
        ),
        (*within(DATETIME_AT, max="2017-12-25T00:01", min=ABSENT), *within(TIME_AT, max="00:01")),
    ),
    rule(
        "clipboard-action: clipboardText: required, Max 1000 (OpenAPI: minLength 1)",
        QUICK,
        within(COPY_AT, clipboardText=(ABSENT, "", "a" * 1001, APPLE * 501, 5)),
        within(COPY_AT, clipboardText=("a" * 1000, APPLE * 500)),
    ),
    # --- Flex: containers ---
    rule(
        "flex-message: altText: required, Max 1500; contents: Object, required, with its type",
        BUBBLE,
        within("", altText=(ABSENT, APPLE * 751), contents=ABSENT, **{"contents.type": ABSENT}),
        within("", altText=("a" * 1500, APPLE * 750), contents=HELLO),
    ),
    rule(
        "bubble: At least one block must be specified (LINE's own simulator)",
        BUBBLE,
        each("contents", {"type": "bubble"}, {"type": "bubble", "size": "kilo", "styles": {}}),
        each("contents", *({"type": "bubble", one: box("vertical")} for one in ("hero", "footer"))),
    ),
    rule(
        "bubble: size: nano, micro, deca, hecto, kilo, mega, or giga; direction: ltr or rtl",
        BUBBLE,
        within("contents", size=("tera", "300px", 5), direction=("left", True)),
        within("contents", size=("nano", "deca", "hecto", ABSENT), direction=("rtl", ABSENT)),
    ),
    rule(
        "bubble: header, body, footer: Specify a Box",
        BUBBLE,
        misplaced("contents.body", FLEX_TEXT, FLEX_IMAGE) + within("contents", header="hello"),
        within("contents", header=ABSENT, footer=(box("baseline", FLEX_TEXT), ABSENT)),
    ),
    rule(
        "bubble: hero: Specify a box, an image or a video",
        BUBBLE,
        (*misplaced(HERO_AT, FLEX_TEXT, BUTTON, ICON), (HERO_AT, URL)),
        each(HERO_AT, box("vertical", FLEX_IMAGE), FILM, ABSENT),
    ),
    rule(
        "bubble-style: styles: Object with a block style; separator: Boolean; a color code each",
        BUBBLE,
        (
            *within("contents", styles="dark", **{"styles.footer": "#00ffff"}),
            *within(STYLE_AT, separator="yes", backgroundColor="cyan", separatorColor="#GGGGGG"),
        ),
        within(STYLE_AT, separator=True, backgroundColor="#ABCDEF"),
    ),
    rule(
        "bubble: The maximum size of JSON data that defines a bubble is 30 KB",
        BUBBLE,
        (
            *each("contents", heavy(32), heavy(11, "日")),
            *whole("contents.contents[1]", bubbles(HELLO, heavy(32))),
        ),
        each("contents", heavy(28), heavy(9, "日")),
    ),
    rule(
        "f-carousel: The maximum size of JSON data that defines a carousel is 50 KB",
        FLEX_CAROUSEL,
        whole("contents", bubbles(*[heavy(9)] * 6), bubbles(*[heavy(6, "日")] * 3)),
        each("", bubbles(*[heavy(9)] * 5), bubbles(*[heavy(23)] * 2)),
    ),
    rule(
        "f-carousel: contents: Array of bubbles, required. Max: 12 bubbles",
        FLEX_CAROUSEL,
        within("contents", contents=(ABSENT, [HELLO] * 13, HELLO), **{"contents[1]": "hello"}),
        each("contents.contents", [HELLO] * 12, [HELLO]),
    ),
    rule(
        "f-carousel: A carousel can't contain bubbles of different widths; default mega",
        FLEX_CAROUSEL,
        (
            ("contents.contents[1].size", "micro"),
            *whole("contents.contents[2].size", bubbles(MICRO, MICRO, MICRO | {"size": "nano"})),
        ),
        (("contents.contents", [MICRO, MICRO]), ("contents.contents[0].size", "mega")),
    ),
    rule(
        "action-object-label-spec: label of a bubble's or box's action: optional, 40",
        flex(HELLO | {"action": SIMPLE_OPEN}),
        within("contents", action=URL, **{"action.label": FAMILY * 41, "action.uri": ABSENT}),
        within("contents", action=POSTBACK, **{"action.label": (FAMILY * 40, ABSENT)}),
    ),
    rule(
        "action-object-label-spec: label of an image's or text's action: optional, 40",
        flex(bubble(FLEX_TEXT | {"action": SAY})),
        within(ACT_AT, label=("a" * 41, FAMILY * 41), type=ABSENT),
        within(ACT_AT, label=("a" * 40, ABSENT)),
    ),
    rule(
        "richmenu-switch-action: no rich menu switch in a Flex Message; camera, location neither",
        BUBBLE,
        (
            *misplaced(f"{BUTTON_AT}.action", CAMERA, SWITCH),
            *misplaced(f"{TEXT_AT}.action", CAMERA_ROLL, LOCATE),
            *misplaced("contents.action", without(SWITCH, "label")),
        ),
        each(f"{TEXT_AT}.action", COPY, PICK),
    ),
    # --- Flex: where components may stand ---
    rule(
        "flex-message-layout: horizontal or vertical: box, button, image, text, separator, filler",
        BUBBLE,
        misplaced(TEXT_AT, ICON, SPAN) + misplaced("contents.footer.contents[0]", ICON, SPAN),
        each(f"{BOX_AT}.contents", [BUTTON, FLEX_IMAGE, SEPARATOR, FILLER, box("baseline", ICON)]),
    ),
    rule(
        "flex-message-layout: baseline: icon, text, and filler",
        BUBBLE,
        misplaced(SCORE_AT, box("vertical"), BUTTON, FLEX_IMAGE, SPAN, SEPARATOR),
        each(f"{BASELINE_AT}.contents", [], [FILLER, FLEX_TEXT, ICON]),
    ),
    rule(
        "f-video: The video component is specified directly under the hero block",
        BUBBLE,
        (
            (HERO_AT, box("vertical", FILM), f"{HERO_AT}.contents[0].type"),
            *misplaced(IMAGE_AT, FILM),
            *misplaced(SCORE_AT, FILM),
        ),
    ),
    rule(
        "f-video: `kilo`, `mega` or `giga` is the bubble; it is not the child of a carousel",
        BIG_FILM,
        (
            *(("contents.size", size, f"{HERO_AT}.type") for size in ("nano", "micro", "hecto")),
            *whole("contents.contents[1].hero.type", bubbles(HELLO, HELLO | {"hero": FILM})),
        ),
        each("contents.size", "kilo", "giga"),
    ),
    rule(
        "span: It is set to the `contents` property of texts: Array of spans",
        BUBBLE,
        misplaced(SPAN_AT, FLEX_TEXT, ICON) + within(SPANS_AT, contents=(SPAN, "hello")),
        within(SPANS_AT, contents=[SPAN], text="hello, world"),
    ),
    # --- Flex: boxes ---
    rule(
        "box: layout: required: horizontal, vertical or baseline; contents: Array, required",
        BUBBLE,
        within(BOX_AT, layout=(ABSENT, "grid", 1), contents=(ABSENT, FLEX_TEXT)),
        within(BOX_AT, layout=("horizontal", "baseline"), contents=[box("vertical")]),
    ),
    rule(
        "flex-component: type: String, required; an object",
        BUBBLE,
        (*missing(f"{BOX_AT}.type", f"{HERO_AT}.type"), (f"{BUTTON_AT}.type", 1), (TEXT_AT, "a")),
    ),
    rule(
        "box: backgroundColor, borderColor: a hexadecimal color code (e.g. #RRGGBBAA)",
        BUBBLE,
        within(BOX_AT, backgroundColor=("red", "#GG0000"), borderColor=("FF0000", "#12345")),
        within(BOX_AT, backgroundColor=("#00000000", "#aaBB00"), borderColor="#000000"),
    ),
    rule(
        "box: borderWidth: pixels or none, light, ..., bold; cornerRadius: pixels or none, xs, ...",
        BUBBLE,
        within(BOX_AT, borderWidth=("xs", "10%", 2), cornerRadius=("10%", "3xl")),
        within(BOX_AT, borderWidth=("semi-bold", "2px", "none"), cornerRadius=("xxl", "5px")),
    ),
    rule(
        "box: width, height, maxWidth, maxHeight: in pixels or as a percentage",
        BUBBLE,
        within(BOX_AT, width=("md", "100"), maxWidth="full", height=100, maxHeight="auto"),
        within(BOX_AT, width=("100%", "23.5px"), maxWidth="50%", height="400px", maxHeight="23.5%"),
    ),
    rule(
        "flex-component: flex: Number",
        BUBBLE,
        (*within(BOX_AT, flex="wide"), *within(BUTTON_AT, flex=[1]), *within(FILLER_AT, flex="1")),
        (*within(BOX_AT, flex=0), *within(FILLER_AT, flex=2)),
    ),
    rule(
        "flex-message-layout: spacing, margin: in pixels or a keyword, no percentage",
        BUBBLE,
        within(BOX_AT, spacing=("10%", "3xl", 10), margin=("10%", "-5px")),
        within(BOX_AT, spacing=("none", "23.5px"), margin="md"),
    ),
    rule(
        "flex-message-layout: padding: in pixels, percentage or with a keyword",
        BUBBLE,
        within(BOX_AT, paddingAll="3xl", paddingTop="10", paddingStart="-10px", paddingEnd=10),
        within(BOX_AT, paddingAll="none", paddingTop="23.5%", paddingEnd="1px"),
    ),
    rule(
        "flex-message-layout: offset: in pixels, percentage or with a keyword",
        BUBBLE,
        within(TEXT_AT, offsetTop="3xl", offsetBottom="10", offsetStart="left", offsetEnd=10),
        within(TEXT_AT, offsetTop="10px", offsetBottom="xxl", offsetEnd="10%"),
    ),
    rule(
        "flex-message-layout: position: relative or absolute",
        BUBBLE,
        (*within(BUTTON_AT, position="fixed"), *within(TEXT_AT, position=("static", True))),
        within(TEXT_AT, position=("absolute", "relative")),
    ),
    rule(
        "flex-message-layout: justifyContent: flex-start, ..., space-evenly; alignItems: ...",
        BUBBLE,
        within(BOX_AT, justifyContent=("start", "space_evenly", 1), alignItems="space-between"),
        within(BOX_AT, justifyContent=("flex-start", "space-evenly"), alignItems="flex-end"),
    ),
    rule(
        "box: background.angle: a number of degrees in [0, 360), required",
        BUBBLE,
        within(BACK_AT, angle=(ABSENT, "360deg", "-1deg", "90", 90)),
        within(BACK_AT, angle=("0deg", "23.5deg", "359.9deg")),
    ),
    rule(
        "box: startColor, endColor: required; `#RRGGBB` or `#RRGGBBAA` format",
        BUBBLE,
        within(BACK_AT, startColor=(ABSENT, "#FF0"), endColor=(ABSENT, "blue"), centerColor="#0f"),
        within(BACK_AT, startColor="#FFFF0080", centerColor="#00FF0000"),
    ),
    rule(
        "box: background.centerPosition: integer or decimal between `0%` and `100%`",
        BUBBLE,
        within(BACK_AT, centerPosition=("101%", "-1%", "50", "50px", "center")),
        within(BACK_AT, centerPosition=("0%", "100%", "33.3%", ABSENT)),
    ),
    # --- Flex: button, image, video, icon ---
    rule(
        "button: action: required; its label: required, 40",
        BUBBLE,
        within(BUTTON_AT, action=(ABSENT, 1), **{"action.label": (ABSENT, "a" * 41, FAMILY * 41)}),
        within(BUTTON_AT, action=OPEN, **{"action.label": ("a" * 40, FAMILY * 40)}),
    ),
    rule(
        "button: style: primary, secondary, link; height: sm, md; adjustMode: shrink-to-fit",
        BUBBLE,
        within(BUTTON_AT, style=("danger", 1), height=("lg", "50px"), adjustMode="shrink"),
        within(BUTTON_AT, style=("primary", "link"), height="sm", adjustMode="shrink-to-fit"),
    ),
    rule(
        "flex-component: color of a button, a text, a separator: a hexadecimal color code",
        BUBBLE,
        (
            *within(TEXT_AT, color=("0000ff", 255)),
            *within(BUTTON_AT, color="blue"),
            *within(SEPARATOR_AT, color="#00000g"),
        ),
        (*within(BUTTON_AT, color="#0000ff"), *within(SEPARATOR_AT, color="#4F8F00")),
    ),
    rule(
        "flex-message-layout: gravity: top, bottom, center; align: start, end, center",
        BUBBLE,
        (*within(TEXT_AT, gravity=("end", 0), align="justify"), *within(IMAGE_AT, align="top")),
        (*within(TEXT_AT, gravity="center", align="start"), *within(IMAGE_AT, gravity="bottom")),
    ),
    rule(
        "f-text: wrap, scaling: Boolean; maxLines: Number; adjustMode: shrink-to-fit",
        BUBBLE,
        within(TEXT_AT, wrap="yes", scaling=[True], maxLines="many", adjustMode="none"),
        within(TEXT_AT, wrap=True, scaling=False, maxLines=(0, 2), adjustMode="shrink-to-fit"),
    ),
    rule(
        "f-image: url: String, required, Max character limit: 2000, Protocol: HTTPS",
        BUBBLE,
        (*within(IMAGE_AT, url=(ABSENT, HTTP, 5)), *within(HERO_AT, url=(url(2001), "a.com"))),
        within(IMAGE_AT, url=url(2000)),
    ),
    rule(
        "flex-message-layout: size of an image: %, px or xxs, xs, ..., 5xl, full",
        BUBBLE,
        (*within(IMAGE_AT, size=("6xl", "50", "-50px", 50)), *within(HERO_AT, size="cover")),
        (*within(IMAGE_AT, size=("full", "23.5%", "23.5px", "xxs")), *within(HERO_AT, size="5xl")),
    ),
    rule(
        "f-image: aspectRatio: `{width}:{height}`, 1 to 100000, height not more than three times",
        BUBBLE,
        within(IMAGE_AT, aspectRatio=("16/9", "0:1", "100001:1", "1:4", "100:301")),
        within(IMAGE_AT, aspectRatio=("1.91:1", "100000:100000", "100:300")),
    ),
    rule(
        "f-image: aspectMode: cover or fit; backgroundColor: a hexadecimal color code",
        BUBBLE,
        within(IMAGE_AT, aspectMode=("contain", "full"), backgroundColor=("white", "FFFFFF")),
        within(IMAGE_AT, aspectMode=("cover", "fit"), backgroundColor="#FFFFFF"),
    ),
    rule(
        "f-image: animated: Boolean; up to 10 images in a single message",
        BUBBLE,
        (
            ("contents.body", animated(11), "contents"),
            *whole("contents", bubbles(bubble(animated(6)), bubble(animated(6)))),
            (f"{IMAGE_AT}.animated", "always"),
        ),
        each("", flex(bubble(animated(10), FLEX_IMAGE, FLEX_IMAGE | {"animated": False}))),
    ),
    rule(
        "f-video: url, previewUrl: String, required, Max 2000, Protocol: HTTPS",
        BIG_FILM,
        within(HERO_AT, url=(ABSENT, HTTP), previewUrl=(ABSENT, url(2001), 5)),
        within(HERO_AT, url=url(2000)),
    ),
    rule(
        "f-video: altContent: component, required. Specify a box or an image",
        BIG_FILM,
        (*missing(f"{HERO_AT}.altContent"), *misplaced(f"{HERO_AT}.altContent", FLEX_TEXT, FILM)),
        within(HERO_AT, altContent=box("vertical", FLEX_TEXT)),
    ),
    rule(
        "f-video: aspectRatio: `{width}:{height}`; action: URI action",
        BIG_FILM,
        within(HERO_AT, aspectRatio=("16x9", "1:4")) + misplaced(f"{HERO_AT}.action", SAY, COPY),
        within(HERO_AT, aspectRatio=("16:9", ABSENT), action=ABSENT),
    ),
    rule(
        "icon: url: String, required, Max character limit: 2000, HTTPS; aspectRatio, scaling",
        BUBBLE,
        within(ICON_AT, url=(ABSENT, HTTP, url(2001)), aspectRatio="1-1", scaling="on"),
        within(ICON_AT, url=url(2000), aspectRatio="1.91:1", scaling=True),
    ),
    # --- Flex: text, span ---
    rule(
        "flex-message-layout: size of an icon, text, span: px or xxs, xs, ..., 5xl; no %",
        BUBBLE,
        (*within(ICON_AT, size="50%"), *within(TEXT_AT, size="full"), *within(SPAN_AT, size="12")),
        (*within(ICON_AT, size="5xl"), *within(TEXT_AT, size="2.5px"), *within(SPAN_AT, size="sm")),
    ),
    rule(
        "f-text: Be sure to set either one of the `text` or `contents` property",
        BUBBLE,
        ((f"{TEXT_AT}.text", ABSENT, TEXT_AT), (f"{SPANS_AT}.contents", ABSENT, SPANS_AT)),
        within(TEXT_AT, contents=[SPAN], text="a"),
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
    (V2, ("substitution.laugh", {"type": "sticker", "stickerId": "1988"})),
    (V2, ("substitution.user1.mentionee", {"type": "admins"})),
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
