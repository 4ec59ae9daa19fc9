"""What a dead letter tells without its contents. Pure.

What people wrote is no part of it: neither message text nor the words of an error, which may
quote it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

Letter = Mapping[str, Any]

# What a list needs of each letter: the contents stay where they are.
LISTED = (
    *("_id", "channel", "key", "cause", "attempts", "firstAt", "lastAt"),
    *("document.event.type", "document.event.message.type", "document.unsent"),
    *("effect.way", "effect.type", "replays", "replaying", "replayedAt"),
)
# The lines of a traceback that Python itself makes, and after each the line of code.
FRAME = re.compile(r'^\s*File ".*", line \d+')


def what(letter: Letter) -> str:
    """What was given up: an event by its type, a send by its way, or the setting of a timer."""
    effect = letter.get("effect")
    if effect is not None:
        return "timer" if effect.get("type") == "timer" else f"send {effect.get('way', '-')}"
    document = letter.get("document") or {}
    event = document.get("event")
    if not isinstance(event, Mapping):
        return "-"
    kind = str(event.get("type", "-"))
    message = event.get("message")
    if isinstance(message, Mapping) and isinstance(message.get("type"), str):
        kind += f" {message['type']}"
    return f"{kind} (unsent)" if document.get("unsent") else kind


def replayed(letter: Letter) -> str:
    """Whether it was replayed, and how often."""
    if letter.get("replaying"):
        return "begun"
    times = letter.get("replays", 0)
    return f"{times}x" if times else "-"


def last_replay(letter: Letter) -> str | None:
    """The eventId of its newest replay, confirmed or not; None where there is none."""
    times = letter.get("replays")
    return f"replay:{letter['_id']}:{times}" if times else None


def summary(letter: Letter) -> dict[str, Any]:
    """What a list tells of a letter, as JSON."""
    return {
        "id": letter["_id"],
        "what": what(letter),
        "channel": letter.get("channel"),
        "key": letter.get("key"),
        "cause": letter.get("cause"),
        "attempts": letter.get("attempts"),
        "firstAt": _iso(letter.get("firstAt")),
        "lastAt": _iso(letter.get("lastAt")),
        "replays": letter.get("replays", 0),
        "replayedAt": _iso(letter.get("replayedAt")),
        "replay": last_replay(letter),
    }


def frames(traceback: str | None) -> str | None:
    """A traceback without the words of its errors: files, lines and code only."""
    if traceback is None:
        return None
    lines = traceback.splitlines()
    kept = [n for n, line in enumerate(lines) if FRAME.match(line)]
    code = [n + 1 for n in kept if n + 1 < len(lines) and lines[n + 1].startswith("    ")]
    return "\n".join(lines[n] for n in sorted({*kept, *code}))


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone().isoformat() if moment else None
