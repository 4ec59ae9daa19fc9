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

import json
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

Message = dict[str, Any]
# The path, the value that comes there and, if it is not the path, the property that is wrong.
Change = tuple[str, Any] | tuple[str, Any, str]


ABSENT: Final = object()


@dataclass(frozen=True)
class Rule:
    """One sentence of LINE's documentation, messages that break it and messages that just keep it.

    `at` is an anchor in LINE's reference, or the name of another page. With `request`, these are
    requests of that name in LINE's OpenAPI, not messages.
    """

    says: str
    at: str
    base: Message
    wrong: tuple[Change, ...]
    right: tuple[Change, ...] = ()
    request: str = ""


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
    if value is ABSENT:
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
SAY_AT, OPEN_AT, CAMERA_AT, COPY_AT = (f"quickReply.items[{n}].action" for n in (0, 2, 4, 7))

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
FIRST_AT, SECOND_AT, THIRD_AT = (f"template.actions[{index}]" for index in range(3))
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
COLUMN_AT, COLUMN2_AT = "template.columns[0]", "template.columns[1]"
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
BOX_AT, BUTTON_AT, IMAGE_AT, TEXT_AT = (f"{BODY_AT}[{index}]" for index in range(4))
BASELINE_AT, SPANS_AT = f"{BODY_AT}[6]", f"{BODY_AT}[7]"
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
        "error-responses: type, text: required; `May not be empty`; quoteToken: String",
        TEXT,
        within("", type=(ABSENT, "", 1), text=(ABSENT, "")),
        within("", text="$ and {braces", quoteToken="yHAz4Ua2wx7"),
    ),
    rule(
        "items-object: quickReply: Object; items: Array of objects, required. Max: 13",
        QUICK,
        each("quickReply.items", ABSENT, "a", ANSWER, [ANSWER] * 14),
        each("quickReply.items", [ANSWER], [ANSWER] * 13),
    ),
    rule(
        "quick-reply-button-object: imageUrl: Max 2000, HTTPS; action: required; no menu switch",
        QUICK,
        within("quickReply.items[0]", imageUrl=HTTP, action=ABSENT) + misplaced(SAY_AT, SWITCH),
        within("quickReply.items[0]", imageUrl=(url(2000), ABSENT), action=COPY),
    ),
    rule(
        "text-character-count: label on a quick reply button: required, 20 grapheme clusters",
        QUICK,
        within(SAY_AT, label=(ABSENT, FAMILY * 21)) + within(CAMERA_AT, label=(ABSENT, "a" * 21)),
        each(f"{SAY_AT}.label", "a" * 20, FAMILY * 20, GA * 20, JAMO * 20, THUMB * 20),
    ),
    rule(
        "icon-nickname-switch: sender: name: Max 20 (UTF-16), not `LINE`; iconUrl: 2000, HTTPS",
        SENT,
        within("sender", name=("a" * 21, APPLE * 10 + "a", "LINE"), iconUrl=(HTTP, url(2001))),
        within("sender", name=("a" * 20, APPLE * 10, ABSENT), iconUrl=(url(2000), ABSENT)),
    ),
    # --- Text ---
    rule(
        "text-message: text: Max character limit: 5000, counted in UTF-16 code units",
        TEXT,
        each("text", "a" * 5001, APPLE * 2500 + "a", FAMILY * 626, GA * 2501),
        each("text", "a" * 5000, APPLE * 2500, "日" * 5000),
    ),
    rule(
        "text-message: emojis: Max: 20 LINE emoji; index: the position of a `$`, in code units",
        EMOJIS,
        (
            *whole("emojis", with_emojis("$" * 21, *range(21))),
            *whole("emojis[0].index", with_emojis("a$", 0), with_emojis(f"{APPLE}$", 1)),
            ("emojis[1].productId", 5),
        ),
        each("", with_emojis("$" * 20, *range(20)), with_emojis(f"${FAMILY}{APPLE}$", 0, 11)),
    ),
    # --- Text (v2) ---
    rule(
        "text-message-v2: text: required, 5000; `{` and `}` in pairs; as strings: `{{` and `}}`",
        PLAIN_V2,
        each("text", ABSENT, "a" * 5001, "Smile :}", "{{ and }", "{ and }}"),
        each("text", "a" * 5000, APPLE * 2500, "{{ and }}", "{{user1}}", "A brace: {{"),
    ),
    rule(
        "text-message-v2: The substitution content of `{` and `}`, in pairs, must be specified",
        V2,
        each("text", "{user1! {laugh}", "user1}! {laugh}", "{user1} {b}", "{user1} {User1}"),
        each("text", "{laugh} {user1} {laugh}", "{user1} {laugh} {{laugh}}"),
    ),
    rule(
        "text-message-v2: substitution: Object, of mention or emoji objects; their properties",
        V2,
        within("", substitution="user1", **{f"substitution.{one}": ABSENT for one in NEEDED}),
        within("substitution", user1=ALL, laugh=USER),
    ),
    rule(
        "text-message-v2: Keys: half-width alphanumeric and underscore; max 20 characters",
        V2,
        whole("substitution", *(v2_key(one) for one in ("a-1", "a 1", "太郎", "ａ", "a" * 21))),
        each("", *(v2_key(one) for one in ("User_1", "a" * 20))),
    ),
    rule(
        "text-message-v2-mention-object: Max 100 objects; 20 mentions and 20 emoji",
        V2,
        whole("substitution", many_v2(101, LAUGH), many_v2(21, USER), many_v2(21, LAUGH)),
        each("", many_v2(20, USER), many_v2(20, LAUGH)),
    ),
    # --- Media ---
    rule(
        "sticker-message: packageId, stickerId: String, required; quoteToken: optional",
        STICKER,
        within("", packageId=(ABSENT, 446), stickerId=(ABSENT, 1988)),
        each("quoteToken", "yHAz4Ua2wx7"),
    ),
    rule(
        "image-message: originalContentUrl, previewImageUrl: required, 2000, HTTPS",
        IMAGE,
        within("", originalContentUrl=(ABSENT, HTTP, url(2001)), previewImageUrl=(ABSENT, HTTP)),
        each("originalContentUrl", url(2000), f"{URL}?q=Good%20morning#Good%20afternoon"),
    ),
    rule(
        "video-message: originalContentUrl, previewImageUrl: required, 2000, HTTPS",
        VIDEO,
        within("", originalContentUrl=(ABSENT, HTTP), previewImageUrl=(ABSENT, url(2001), 5)),
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
        "location-message: title, address: required, 100 UTF-16 code units; latitude, longitude",
        LOCATION,
        within("", title=(ABSENT, "a" * 101), address="a" * 101, latitude="a", longitude=[1]),
        within("", title=APPLE * 50, address="日" * 100, latitude=-35.67966, longitude=-139),
    ),
    rule(
        "coupon-message: couponId: required; deliveryTag: Max 30; alphanumeric, underscore",
        COUPON,
        within("", couponId=(ABSENT, 5), deliveryTag=("a" * 31, "2025-winter", "冬")),
        each("deliveryTag", "a" * 30, "aZ_09", ABSENT),
    ),
    # --- Imagemap ---
    rule(
        "imagemap-message: baseUrl: required, 2000, HTTPS; altText: required, 1500 code units",
        IMAGEMAP,
        within("", baseUrl=(ABSENT, HTTP, url(2001)), altText=(ABSENT, APPLE * 751)),
        within("", baseUrl=url(2000), altText=("a" * 1500, APPLE * 750)),
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
        within("video", originalContentUrl=(ABSENT, HTTP), previewImageUrl=(ABSENT, HTTP)),
        within("", video=ABSENT, **{"video.originalContentUrl": url(2000)}),
    ),
    rule(
        "imagemap-message: externalLink: linkUri: required, 1000; label: required, 30",
        IMAGEMAP,
        within("video.externalLink", linkUri=(ABSENT, url(1001)), label=(ABSENT, "a" * 31)),
        within("video.externalLink", linkUri=(url(1000), "tel:09001234567"), label="a" * 30),
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
        "imagemap-area-object: area: required, with x, y, width, height; x, y: `0` or higher",
        IMAGEMAP,
        within("", **{"video.area": ABSENT, "actions[0].area": ABSENT, "video.area.x": (-1, "a")}),
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
        "buttons: thumbnailImageUrl: HTTPS; imageAspectRatio: rectangle, square; imageSize",
        BUTTONS,
        within("template", thumbnailImageUrl=HTTP, imageAspectRatio="3:2", imageSize="fit"),
        within("template", imageAspectRatio="square", imageSize="contain"),
    ),
    rule(
        "buttons: title: 40 grapheme clusters; RGB color value; defaultAction: Action object",
        BUTTONS,
        within("template", title=FAMILY * 41, imageBackgroundColor="white", defaultAction=URL),
        within("template", title=FAMILY * 40, text=FLAG * 60, defaultAction=(ABSENT, SAY)),
    ),
    rule(
        "buttons: text: required, Max 160, but 60 with an image or title",
        PLAIN_BUTTONS,
        (
            *each("template.text", ABSENT, "a" * 161, FAMILY * 161),
            *whole("template.text", *(buttons(**one, text="a" * 61) for one in TITLE_OR_IMAGE)),
        ),
        (*each("template.text", FAMILY * 160), ("", buttons(title="Menu", text="a" * 60))),
    ),
    rule(
        "buttons: actions: Array of action objects, required. Max: 4; label: required, 20",
        PLAIN_BUTTONS,
        within("template", **{"actions": [SAY] * 5, "actions[2].label": (ABSENT, FAMILY * 21)}),
        within("template", **{"actions": [SAY] * 4, "actions[2].label": FAMILY * 20}),
    ),
    rule(
        "camera-action: Camera, camera roll, location: only with quick replies; switch: rich menus",
        BUTTONS,
        misplaced(FIRST_AT, CAMERA, CAMERA_ROLL, LOCATE, SWITCH) + misplaced(DEFAULT_AT, CAMERA),
        each(FIRST_AT, COPY, PICK),
    ),
    rule(
        "confirm: text: required, Max 240, in grapheme clusters; label: required, 20",
        CONFIRM,
        within("template", text=(ABSENT, "a" * 241, 5), **{"actions[1].label": (ABSENT, "a" * 21)}),
        within("template", text=FAMILY * 240, **{"actions[1].label": "a" * 20}),
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
        within("template", columns=[COLUMN] * 11, imageAspectRatio="1:1", imageSize="fill"),
        within("template", columns=[COLUMN] * 10, imageAspectRatio="square", imageSize="contain"),
    ),
    rule(
        "column-object-for-carousel: image, color, title and labels of actions as in buttons",
        CAROUSEL,
        (
            *within(COLUMN_AT, thumbnailImageUrl=HTTP, imageBackgroundColor="red", title="a" * 41),
            *within(f"{COLUMN_AT}.actions[0]", label=(ABSENT, "a" * 21)),
        ),
        within(COLUMN_AT, title=FAMILY * 40, **{"actions[0].label": "a" * 20}),
    ),
    rule(
        "column-object-for-carousel: text: required, Max 120, but 60 with an image or title",
        PLAIN_CAROUSEL,
        (
            *within(COLUMN_AT, text=(ABSENT, "a" * 121, FAMILY * 121)),
            *whole(f"{COLUMN_AT}.text", *(plain(**one, text="a" * 61) for one in TITLE_OR_IMAGE)),
        ),
        within(COLUMN_AT, text=FAMILY * 120),
    ),
    rule(
        "column-object-for-carousel: actions: required. Max objects: 3; as many in all columns",
        PLAIN_CAROUSEL,
        (*within(COLUMN_AT, actions=[SAY] * 4), (f"{COLUMN2_AT}.actions", [SAY], COLUMN2_AT)),
        (("", plain(actions=[SAY] * 3)), (f"{COLUMN2_AT}.actions", [PICK, COPY])),
    ),
    rule(
        "column-object-for-carousel: If a column has an image or title, all others have it",
        CAROUSEL,
        (
            (f"{COLUMN2_AT}.title", ABSENT, COLUMN2_AT),
            (f"{COLUMN2_AT}.thumbnailImageUrl", ABSENT, COLUMN2_AT),
            *whole(COLUMN2_AT, carousel(PLAIN_COLUMN, PLAIN_COLUMN | {"title": "a"})),
        ),
        each("", *(carousel(PLAIN_COLUMN | one, PLAIN_COLUMN | one) for one in TITLE_OR_IMAGE)),
    ),
    rule(
        "image-carousel: columns: required. Max columns: 10; imageUrl: required, 2000, HTTPS",
        IMAGE_CAROUSEL,
        within("template", columns=(ABSENT, [IMAGE_COLUMN] * 11), **{"columns[0].imageUrl": HTTP}),
        each("template.columns", [IMAGE_COLUMN], [IMAGE_COLUMN] * 10),
    ),
    rule(
        "column-object-for-image-carousel: action: required; no camera; label: optional, 12",
        IMAGE_CAROUSEL,
        each(TILE_AT, ABSENT, "a") + misplaced(TILE_AT, CAMERA) + within(TILE_AT, label="a" * 13),
        within(TILE_AT, label=("a" * 12, FAMILY * 12, ABSENT)),
    ),
    # --- Actions ---
    rule(
        "postback-action: data: required, 300 code units; displayText, fillInText: 300 clusters",
        BUTTONS,
        within(FIRST_AT, data=(ABSENT, APPLE * 151), displayText="a" * 301, fillInText="a" * 301),
        within(FIRST_AT, data=APPLE * 150, displayText=FAMILY * 300, fillInText=FAMILY * 300),
    ),
    rule(
        "postback-action: text: Max 300; not at the same time as displayText; inputOption",
        flex(bubble({"type": "button", "action": without(POSTBACK, "displayText", "fillInText")})),
        ((ACT_AT, POSTBACK | {"text": "Buy"}, ACT_AT), *within(ACT_AT, text="a" * 301)),
        within(ACT_AT, text=FLAG * 300, inputOption=("closeRichMenu", "openRichMenu", "openVoice")),
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
        within(THIRD_AT, uri=(url(1000), "tel:0901234567", "line://nv/camera")),
    ),
    rule(
        "clipboard-action: clipboardText: required, 1000 code units; schemes of a URI action",
        QUICK,
        within(COPY_AT, clipboardText=(ABSENT, "", "a" * 1001)) + within(OPEN_AT, uri="mailto:a@a"),
        (*within(COPY_AT, clipboardText="a" * 1000), *within(OPEN_AT, uri="tel:09001234567")),
    ),
    rule(
        "using-line-url-scheme: any scheme in a Flex Message; altUri.desktop: String, 1000",
        flex(bubble({"type": "button", "action": OPEN})),
        within(ACT_AT, uri=url(1001), altUri=URL, **{"altUri.desktop": (url(1001), 5, "a.com")}),
        within(ACT_AT, uri=("myapp://", "my://b?c=d"), **{"altUri.desktop": url(1000)}),
    ),
    rule(
        "datetime-picker-action: data: String, required, Max 300; mode: date, time or datetime",
        flex(bubble({"type": "button", "action": without(PICK, "initial", "max", "min")})),
        within(ACT_AT, data=(ABSENT, "a" * 301, APPLE * 151), mode=(ABSENT, "month")),
        within(ACT_AT, data=APPLE * 150, mode=("date", "time")),
    ),
    rule(
        "datetime-picker-action: mode date: `full-date` of RFC3339, 1900-01-01 to 2100-12-31",
        PICKERS,
        within(DATE_AT, initial=("2017/06/18", "2017-02-29"), min="1899-12-31", max="2101-01-01"),
        within(DATE_AT, initial=("2017-02-28", ABSENT), min="1900-01-01", max="2100-12-31"),
    ),
    rule(
        "datetime-picker-action: mode time: 00:00 to 23:59; datetime: `full-date`T and a time",
        PICKERS,
        within(TIME_AT, max="24:00", initial="6:15") + within(DATETIME_AT, max="2101-01-01T00:00"),
        (*within(TIME_AT, initial="23:59"), *within(DATETIME_AT, max="2100-12-31T23:59")),
    ),
    rule(
        "datetime-picker-action: max: Must be greater than the `min` value",
        PICKERS,
        within(DATE_AT, max="2017-01-01") + within(DATETIME_AT, max="2017-12-24T23:59"),
        (*within(DATETIME_AT, max="2017-12-25T00:01", min=ABSENT), *within(TIME_AT, max="00:01")),
    ),
    # --- Flex: containers ---
    rule(
        "flex-message: altText: required, Max 1500; contents: Object, required, with its type",
        BUBBLE,
        within("", altText=(ABSENT, APPLE * 751), contents=ABSENT, **{"contents.type": ABSENT}),
        within("", altText=("a" * 1500, APPLE * 750), contents=HELLO),
    ),
    rule(
        "bubble: At least one block (LINE's own simulator); size: nano to giga; direction",
        BUBBLE,
        (("contents", {"type": "bubble"}), *within("contents", size=("tera", 5), direction="left")),
        each("contents", *({"type": "bubble", one: box("vertical")} for one in ("hero", "footer"))),
    ),
    rule(
        "bubble: header, body, footer: Specify a Box; hero: Specify a box, an image or a video",
        BUBBLE,
        misplaced("contents.body", FLEX_TEXT) + misplaced(HERO_AT, FLEX_TEXT, BUTTON, ICON),
        within("contents", header=ABSENT, hero=(box("vertical", FLEX_IMAGE), FILM, ABSENT)),
    ),
    rule(
        "bubble-style: styles: Object with a block style; separator: Boolean; a color code each",
        BUBBLE,
        within(STYLE_AT, separator="yes", backgroundColor="cyan", separatorColor="#GGGGGG"),
        within(STYLE_AT, separator=True, backgroundColor="#ABCDEF"),
    ),
    rule(
        "bubble: The maximum size of JSON data is 30 KB for a bubble, 50 KB for a carousel",
        FLEX_CAROUSEL,
        (
            *whole("contents", flex(heavy(32)), flex(heavy(11, "日")), bubbles(*[heavy(9)] * 6)),
            *whole("contents.contents[1]", bubbles(HELLO, heavy(32))),
        ),
        each("", flex(heavy(28)), flex(heavy(9, "日")), bubbles(*[heavy(9)] * 5)),
    ),
    rule(
        "f-carousel: contents: required. Max: 12 bubbles, not of different widths; default mega",
        FLEX_CAROUSEL,
        within("contents", contents=(ABSENT, [HELLO] * 13), **{"contents[1].size": "micro"}),
        within("contents", contents=([HELLO] * 12, [MICRO]), **{"contents[0].size": "mega"}),
    ),
    rule(
        "action-object-label-spec: label of an action of a bubble or text: optional, 40",
        flex(bubble(FLEX_TEXT | {"action": SAY}, action=SIMPLE_OPEN)),
        within("contents.action", label=FAMILY * 41) + within(ACT_AT, label="a" * 41, type=ABSENT),
        (*within("contents.action", label=FAMILY * 40), *within(ACT_AT, label=ABSENT)),
    ),
    rule(
        "richmenu-switch-action: no rich menu switch in a Flex Message; camera, location neither",
        BUBBLE,
        misplaced(f"{BUTTON_AT}.action", CAMERA) + misplaced(f"{TEXT_AT}.action", SWITCH, LOCATE),
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
        "f-video: directly under the hero of a `kilo`, `mega` or `giga` bubble; in no carousel",
        BIG_FILM,
        (
            ("contents.hero", box("vertical", FILM), "contents.hero.contents[0].type"),
            *(("contents.size", size, f"{HERO_AT}.type") for size in ("nano", "micro", "hecto")),
            *whole("contents.contents[1].hero.type", bubbles(HELLO, HELLO | {"hero": FILM})),
        ),
        each("contents.size", "kilo", "giga"),
    ),
    rule(
        "f-text: set either one of `text` or `contents`; span: set to `contents`; Array of spans",
        BUBBLE,
        (*misplaced(SPAN_AT, FLEX_TEXT, ICON), (f"{TEXT_AT}.text", ABSENT, TEXT_AT)),
        within(SPANS_AT, contents=[SPAN], text="hello, world"),
    ),
    # --- Flex: boxes ---
    rule(
        "box: layout: required: horizontal, vertical or baseline; contents: Array; type: required",
        BUBBLE,
        within(BOX_AT, layout=(ABSENT, "grid"), contents=(ABSENT, FLEX_TEXT), type=ABSENT),
        within(BOX_AT, layout=("horizontal", "baseline"), contents=[box("vertical")]),
    ),
    rule(
        "flex-component: color, backgroundColor, borderColor: a hexadecimal color code",
        BUBBLE,
        within(BOX_AT, backgroundColor="#GGGGGG", borderColor="#123") + within(TEXT_AT, color="1"),
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
        within(BOX_AT, width=("100%", "23.5px"), maxWidth="50%", height="400px"),
    ),
    rule(
        "flex-message-layout: flex: Number; spacing, margin: in pixels or a keyword, no percentage",
        BUBBLE,
        within(BOX_AT, flex="wide", spacing=("10%", "3xl"), margin=("10%", "-5px")),
        within(BOX_AT, flex=0, spacing=("none", "23.5px"), margin="md"),
    ),
    rule(
        "flex-message-layout: padding: in pixels, percentage or with a keyword",
        BUBBLE,
        within(BOX_AT, paddingAll="3xl", paddingTop="10", paddingStart="-10px", paddingEnd=10),
        within(BOX_AT, paddingAll="none", paddingTop="23.5%"),
    ),
    rule(
        "flex-message-layout: offset: in pixels, percentage or with a keyword",
        BUBBLE,
        within(TEXT_AT, offsetTop="3xl", offsetBottom="10", offsetStart="left", offsetEnd=10),
        within(TEXT_AT, offsetTop="10px", offsetBottom="xxl", offsetEnd="10%"),
    ),
    rule(
        "flex-message-layout: position: relative or absolute; justifyContent; alignItems",
        BUBBLE,
        within(BOX_AT, position="fixed", justifyContent="start", alignItems="space-between"),
        within(BOX_AT, justifyContent=("flex-start", "space-evenly"), alignItems="flex-end"),
    ),
    rule(
        "box: background: angle in [0, 360), required; centerPosition: `0%` to `100%`",
        BUBBLE,
        within(BACK_AT, angle=(ABSENT, "360deg", "-1deg"), centerPosition=("101%", "50")),
        within(BACK_AT, angle=("0deg", "23.5deg", "359.9deg"), centerPosition=("0%", "100%")),
    ),
    rule(
        "box: startColor, endColor: required; `#RRGGBB` or `#RRGGBBAA` format",
        BUBBLE,
        within(BACK_AT, startColor=(ABSENT, "#FF0"), endColor=(ABSENT, "blue"), centerColor="#0f"),
        within(BACK_AT, startColor="#FFFF0080", centerColor="#00FF0000"),
    ),
    # --- Flex: button, text, image, video, icon ---
    rule(
        "button: action: required; its label: required, 40; style: primary, secondary or link",
        BUBBLE,
        within(BUTTON_AT, action=ABSENT, style="a", **{"action.label": (ABSENT, FAMILY * 41)}),
        within(BUTTON_AT, style="primary", **{"action.label": FAMILY * 40}),
    ),
    rule(
        "f-text: gravity; align; wrap: Boolean; maxLines: Number; adjustMode: shrink-to-fit",
        BUBBLE,
        within(TEXT_AT, gravity="end", align="top", wrap="yes", maxLines="many", adjustMode="none"),
        within(TEXT_AT, gravity="center", align="start", wrap=True, maxLines=(0, 2)),
    ),
    rule(
        "f-image: url: required, 2000, HTTPS; size: %, px or xxs, xs, ..., 5xl, full",
        BUBBLE,
        within(IMAGE_AT, url=(ABSENT, HTTP, url(2001)), size=("6xl", "50")),
        within(IMAGE_AT, url=url(2000), size=("full", "23.5%", "23.5px", "xxs")),
    ),
    rule(
        "f-image: aspectRatio: `{width}:{height}`, 1 to 100000, height not more than three times",
        BUBBLE,
        within(IMAGE_AT, aspectRatio=("16/9", "0:1", "100001:1", "1:4", "100:301")),
        within(IMAGE_AT, aspectRatio=("1.91:1", "100000:100000", "100:300")),
    ),
    rule(
        "f-image: animated: up to 10 images in a single message",
        BUBBLE,
        whole("contents", flex(bubble(animated(11))), bubbles(*[bubble(animated(6))] * 2)),
        each("", flex(bubble(animated(10), FLEX_IMAGE, FLEX_IMAGE | {"animated": False}))),
    ),
    rule(
        "f-video: url, previewUrl: String, required, Max 2000, Protocol: HTTPS",
        BIG_FILM,
        within(HERO_AT, url=(ABSENT, HTTP), previewUrl=(ABSENT, url(2001), 5)),
        within(HERO_AT, url=url(2000)),
    ),
    rule(
        "f-video: altContent: a box or an image; action: URI action",
        BIG_FILM,
        misplaced(f"{HERO_AT}.altContent", FILM) + misplaced(f"{HERO_AT}.action", SAY, COPY),
        within(HERO_AT, altContent=box("vertical", FLEX_TEXT), aspectRatio="16:9", action=ABSENT),
    ),
    rule(
        "icon: url: required, HTTPS; aspectRatio, scaling; size of icon, text, span: no %, `full`",
        BUBBLE,
        within(ICON_AT, url=(ABSENT, HTTP), aspectRatio="1-1", scaling="on", size="50%"),
        (*within(ICON_AT, size="5xl", scaling=True), *within(SPAN_AT, size=("sm", "2.5px"))),
    ),
)

# --- Rich menus ---

MENU_A, MENU_B = (f"richmenu-{letter * 32}" for letter in "ab")
MENU_ACTIONS = (without(POSTBACK, "label"), SAY, SIMPLE_OPEN, PICK, COPY, SWITCH)


def area(action: Message, **bounds: int) -> Message:
    return {"bounds": {"x": 0, "y": 0, "width": 400, "height": 250} | bounds, "action": action}


RICH_MENU: Message = {
    "size": {"width": 2500, "height": 1686},
    "selected": False,
    "name": "Nice rich menu",
    "chatBarText": "Tap to open",
    "areas": [area(one, x=400 * place) for place, one in enumerate(MENU_ACTIONS)],
}


def operation(kind: str, *menus: str) -> Message:
    return {"type": kind, **dict(zip(("from", "to"), menus, strict=False))}


OPERATIONS = [operation("link", MENU_A, MENU_B), operation("unlink", MENU_B)]
BATCH: Message = {"operations": OPERATIONS, "resumeRequestKey": "Key_1-"}
MANY = [operation("unlink", f"richmenu-{n:032x}") for n in range(1_001)]


# --- Messages to many, and coupons ---

MALE: Message = {"type": "gender", "oneOf": ["male"]}
TEN = [MALE] * 10
AGE: Message = {"type": "age", "gte": "age_20", "lt": "age_25"}
DAYS: Message = {"type": "subscriptionPeriod", "gte": "day_7", "lt": "day_30"}
AGAIN: Message = {"type": "redelivery", "requestId": "5b59509c-c57b-11e9-aa8c-2a2ae2dbcce4"}
NARROWCAST: Message = {
    "messages": [TEXT],
    "recipient": {"type": "operator", "and": [{"type": "audience", "audienceGroupId": 1}]},
    "filter": {"demographic": {"type": "operator", "or": [MALE, AGE, DAYS]}},
    "limit": {"max": 100, "upToRemainingQuota": True, "forbidPartialDelivery": True},
}
PUSH: Message = {"to": "U1", "messages": [TEXT], "customAggregationUnits": ["promotion_a"]}
OFFER: Message = {
    "title": "Friends-only coupon",
    "acquisitionCondition": {"type": "lottery", "lotteryProbability": 1, "maxAcquireCount": -1},
    "reward": {"type": "discount", "priceInfo": {"type": "fixed", "fixedAmount": 100}},
    "startTimestamp": 0,
    "endTimestamp": 1_924_959_599,
    "timezone": "ASIA_TOKYO",
    "visibility": "UNLISTED",
    "maxUseCountPerTicket": 1,
}
WHO, OR, PRICE = "recipient", "filter.demographic.or", "reward.priceInfo"


def _of(request: str, base: Message, says: str, *changes: tuple[Change, ...]) -> Rule:
    return replace(rule(says, base, *changes), request=request)


of_menu = partial(_of, "RichMenuRequest", RICH_MENU)
of_batch = partial(_of, "RichMenuBatchRequest", BATCH)
of_narrowcast = partial(_of, "NarrowcastRequest", NARROWCAST)
of_push = partial(_of, "PushMessageRequest", PUSH)
of_coupon = partial(_of, "CouponCreateRequest", OFFER)

REQUESTS: tuple[Rule, ...] = (
    of_menu(
        "rich-menu-object: size, selected, name, chatBarText, areas: required",
        tuple((name, ABSENT) for name in RICH_MENU),
    ),
    of_menu(
        "rich-menu-object: name: 300, chatBarText: 14 grapheme clusters; areas: Max 20",
        within("", name="n" * 301, chatBarText=("", "c" * 15), areas=[area(SAY)] * 21),
        within("", name=FAMILY * 300, chatBarText=FAMILY * 14, areas=[area(SAY)] * 20),
    ),
    of_menu(
        "size-object: width: 800 to 2500; height: at least 250; width / height at least 1.45",
        (*within("size", width=(799, 2501), height=249), ("size.height", 1725, "size")),
        each("size", {"width": 800, "height": 250}, {"width": 2500, "height": 1724}),
    ),
    of_menu(
        "area-object: bounds, action: required; bounds: x, y 0 or higher",
        within("areas[0]", bounds=ABSENT, action=ABSENT)
        + within("areas[1].bounds", x=-1, height=(ABSENT, 0)),
        # LINE's own answers show both (line-bot-sdk-php, issues 347 and 728).
        (("areas", []), ("areas[0].bounds.height", 1687)),
    ),
    of_menu(
        "camera-action: only with quick reply buttons; label: optional in a rich menu, Max 20",
        misplaced("areas[0].action", CAMERA, CAMERA_ROLL, LOCATE)
        + each("areas[1].action.label", "l" * 21),
        within("areas[5].action", label=("", "l" * 20, ABSENT)),
    ),
    of_menu(
        "richmenu-switch-action: richMenuAliasId, data: required; data: Max 300",
        within("areas[5].action", richMenuAliasId=ABSENT, data=(ABSENT, "d" * 301)),
        within("areas[5].action", data="d" * 300),
    ),
    of_batch(
        "batch-control-rich-menus-of-users: unlinkAll alone, each `from` once",
        (
            ("operations", [*OPERATIONS, operation("unlinkAll")], "operations[].type"),
            ("operations", [*OPERATIONS, operation("unlink", MENU_A)], "operations[].from"),
        ),
        each("operations", [operation("unlinkAll")]),
    ),
    of_batch(
        "batch-control-rich-menus-of-users: Max 1,000; ids of rich menus; the key's pattern",
        (
            ("operations", MANY),
            *within("operations[0]", **{"from": "richmenu-1", "to": ABSENT}),
            *within("", resumeRequestKey=("", "k" * 101)),
        ),
        within("", operations=MANY[:1_000], resumeRequestKey=("k" * 100, ABSENT)),
    ),
    of_narrowcast(
        "narrowcast-recipient: ten audiences and requests at most, by operators; a limit",
        (
            (f"{WHO}.and", []),
            (f"{WHO}.not", AGAIN, WHO),
            (f"{WHO}.and[0]", {"type": "redelivery"}, f"{WHO}.and[0].requestId"),
            (f"{WHO}.and", [AGAIN] * 11, WHO),
            (WHO, {"type": "operator"}),
            ("limit.max", 0),
        ),
        ((f"{WHO}.and", [{"type": "operator", "not": AGAIN}] * 10), (WHO, AGAIN)),
    ),
    of_narrowcast(
        "narrowcast-demographic-filter: ten attributes at most, by operators; ranges rise",
        (
            (OR, [{"type": "operator", "and": TEN}, AGE], "filter.demographic"),
            (f"{OR}[0].oneOf", []),
            (f"{OR}[0].oneOf", ["jp_48"], f"{OR}[0].oneOf[0]"),
            (f"{OR}[0]", {"type": "appType"}, f"{OR}[0].oneOf"),
            (f"{OR}[0]", {"type": "age"}),
            (f"{OR}[1].gte", "age_25", f"{OR}[1].lt"),
            (f"{OR}[2].gte", "day_365", f"{OR}[2].lt"),
            (f"{OR}[1].gte", "age_21"),
        ),
        ((OR, TEN), (f"{OR}[1].gte", ABSENT), (f"{OR}[2].gte", ABSENT)),
    ),
    of_push(
        "send-push-message: one unit of 30 letters, digits and underscores",
        (
            ("customAggregationUnits", ["a", "b"]),
            *each("customAggregationUnits[0]", "a" * 31, "a-b", ""),
        ),
        (("customAggregationUnits[0]", "A_9" * 10), ("customAggregationUnits", [])),
    ),
    of_coupon(
        "create-coupon: used once or without limit, by as many winners, until an end; a reward",
        (
            *each("maxUseCountPerTicket", 0, 2),
            ("acquisitionCondition.maxAcquireCount", 0),
            ("endTimestamp", 0),
            ("couponCode", "1" * 17),
            *each("reward", ABSENT),
            (f"{PRICE}.fixedAmount", 0),
            (PRICE, {"type": "percentage", "percentage": 100}, f"{PRICE}.percentage"),
            (PRICE, {"type": "explicit", "originalPrice": 2}, f"{PRICE}.priceAfterDiscount"),
        ),
        (
            ("maxUseCountPerTicket", -1),
            ("acquisitionCondition.maxAcquireCount", 999_999),
            ("reward", {"type": "gift"}),
            (PRICE, {"type": "percentage", "percentage": 99}),
        ),
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
