"""Messages of the other kinds, each for another property of LINE's reference."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def picture(of: str) -> str:
    return f"https://example.com/{of}.png"


def template(kind: str, **parts: Any) -> Message:
    return {"type": "template", "altText": kind, "template": {"type": kind, **parts}}


def says(text: str) -> Message:
    return {"type": "message", "label": text, "text": text}


def emoji(**where: Any) -> Message:
    return {**where, "productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001"}


def sent(kind: str, of: str) -> Message:
    return {"type": kind, "originalContentUrl": picture(of), "previewImageUrl": picture(of)}


def area(*numbers: int) -> dict[str, int]:
    return dict(zip(("x", "y", "width", "height"), numbers, strict=True))


SHORT = {"title": "Coffee", "text": "Freshly roasted", "thumbnailImageUrl": picture("300x300")}
LONG = {**SHORT, "text": "Beans from the highlands of Ethiopia, roasted today"}
BUY = [says("Buy"), says("Details")]
MAP = {"type": "imagemap", "altText": "Map", "baseSize": {"width": 1040, "height": 700}}
MESSAGES = {
    "buttons": template("buttons", **SHORT, actions=[*BUY, says("Share"), says("Close")]),
    "buttons-square-contain": template(
        "buttons",
        **{**SHORT, "thumbnailImageUrl": picture("300x150")},
        **{"imageAspectRatio": "square", "imageSize": "contain", "imageBackgroundColor": "#336699"},
        actions=BUY,
    ),
    "buttons-text-only": template("buttons", text="Which one would you like?", actions=BUY),
    "confirm": template("confirm", text="Are you sure?", actions=[says("Yes"), says("No")]),
    "carousel": template("carousel", columns=[{**SHORT, "actions": BUY}, {**LONG, "actions": BUY}]),
    "image-carousel": template(
        "image_carousel",
        columns=[
            {"imageUrl": picture("300x200"), "action": says("Left")},
            {"imageUrl": picture("200x200"), "action": {"type": "uri", "uri": "https://line.me"}},
        ],
    ),
    "imagemap": {**MAP, "baseUrl": "https://example.com/1040x700.png?", "actions": []},
    "text-links": {"type": "text", "text": "See https://example.com/a_(b), tel:0312345678."},
    "text-emoji": {"type": "text", "text": "$ Hello $", "emojis": [emoji(index=0), emoji(index=8)]},
    "text-v2-emoji": {
        "type": "textV2",
        "text": "{{Hello}} {face}",
        "substitution": {"face": emoji(type="emoji")},
    },
    "sticker": {"type": "sticker", "packageId": "446", "stickerId": "1990"},
    "image": sent("image", "600x300"),
    "image-missing": sent("image", "missing"),
    "location": {
        "type": "location",
        **{"title": "Office", "address": "1-3 Kioicho", "latitude": 35.67, "longitude": 139.73},
    },
    "coupon": {"type": "coupon", "couponId": "01JYNW8JMQVFBNWF1APF8Z3FS7"},
}
