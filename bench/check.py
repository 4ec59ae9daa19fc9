"""The processor time of checking a message, beside LINE's OpenAPI under a validator of schemas.

The limits that only LINE's reference names are no part of the OpenAPI, so the validator does less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.console import Console

from bench.report import Figures, Report, by_turns
from linemessages import check_messages
from tests.line_openapi import check_messaging

Message = dict[str, Any]
OURS, OPENAPI = "linemessages", "OpenAPI validator"
COST = "ms"


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench has no options of its own."""


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """A short text, and a carousel of nearly 50 kB."""
    rows = []
    for name, message, times in (("text", text(), 1_000), ("carousel", carousel(), 10)):
        variants = {
            OPENAPI: partial(cost, partial(check_messaging, "Message", message), times // 5),
            OURS: partial(cost, partial(check_messages, [message]), times),
        }
        rows += by_turns(variants, options.rounds, console, case={"message": name})
    return [Report("processor time of a check", rows, baseline=OPENAPI)]


def cost(check: Callable[[], object], times: int) -> Figures:
    """Milliseconds of processor time a check, after a first one that is not counted."""
    check()
    began = time.process_time()
    for _ in range(times):
        check()
    return {COST: (time.process_time() - began) / times * 1_000}


def text() -> Message:
    """A text with a quick reply."""
    action = {"type": "message", "label": "はい", "text": "はい"}
    items = {"items": [{"type": "action", "action": action}]}
    return {"type": "text", "text": "こんにちは" * 20, "quickReply": items}


def carousel() -> Message:
    """Ten bubbles with 52 lines each, 48,822 bytes."""
    style = {"size": "sm", "color": "#112233", "margin": "md", "wrap": True}
    lines = [{"type": "text", "text": f"行 {number}", **style} for number in range(52)]
    open_ = {"type": "uri", "label": "見る", "uri": "https://example.com"}
    picture = {"url": "https://example.com/a.jpg", "size": "full", "aspectRatio": "20:13"}
    bubble = {
        "type": "bubble",
        "hero": {"type": "image", **picture},
        "body": {"type": "box", "layout": "vertical", "contents": lines},
        "footer": {
            "type": "box",
            "layout": "horizontal",
            "contents": [{"type": "button", "action": open_}],
        },
    }
    contents = {"type": "carousel", "contents": [bubble] * 10}
    return {"type": "flex", "altText": "予定", "contents": contents}
