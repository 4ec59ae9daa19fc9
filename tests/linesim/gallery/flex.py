"""Flex Messages, each for another property of LINE's reference and "Flex Message layout"."""

from __future__ import annotations

from typing import Any

Part = dict[str, Any]


def box(layout: str, *contents: Part, **more: Any) -> Part:
    return {"type": "box", "layout": layout, "contents": [*contents], **more}


def row(*contents: Part, **more: Any) -> Part:
    return box("horizontal", *contents, **more)


def column(*contents: Part, **more: Any) -> Part:
    return box("vertical", *contents, **more)


def text(said: str, **more: Any) -> Part:
    return {"type": "text", "text": said, **more}


def image(of: str = "300x200", **more: Any) -> Part:
    return {"type": "image", "url": f"https://example.com/{of}.png", **more}


def button(label: str, **more: Any) -> Part:
    return {"type": "button", "action": {"type": "message", "label": label, "text": label}, **more}


def bubble(body: Part | None = None, **more: Any) -> Part:
    return {"type": "bubble", **({"body": body} if body else {}), **more}


SEPARATOR = {"type": "separator"}
BUBBLES = {
    "flex-hello": bubble(column(text("hello"), text("world", weight="bold"))),
    "flex-buttons": bubble(
        column(
            button("Primary", style="primary"),
            button("Secondary", style="secondary"),
            button("Link", style="link"),
            spacing="md",
        )
    ),
    "flex-image": bubble(row(image(size="md"))),
}
MESSAGES = {
    name: {"type": "flex", "altText": name, "contents": contents}
    for name, contents in BUBBLES.items()
}
