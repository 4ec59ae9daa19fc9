"""`deadletters`: events, sends and timers that were given up, with the cause.

A letter is decided as an effect of its conversation. Its row is written with the record, or with
the removal of the send that it replaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from linedesk.store.documents import Document, name_of

DEADLETTER = "deadletter"
"""The `type` of the effect."""
FIRST_AT: Final = "firstAt"
LAST_AT: Final = "lastAt"
REPLAYED_AT: Final = "replayedAt"
EXPIRES_AT: Final = "expiresAt"
"""When MongoDB removes it; set a week ahead."""
CARRIED_OUT: Final = "carriedOut"
"""The number of the last replay that was decided."""

REPLAY = "replay"
"""The prefix of a replay's eventId, `replay:<letter>:<n>`, and the type of an effect's replay."""
# A letter has fewer than a million replays.
NUMBER = re.compile("[1-9][0-9]{0,5}")
REFUSED = "refused: "
"""The prefix of the cause of a letter whose document requested an effect without a valid letter."""


def row_of(effect: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a letter from its effect, also from an incomplete one made by hand."""
    rest = {name: value for name, value in effect.items() if name not in ("id", "type")}
    return {"_id": effect["id"], **rest}


def asks_for_effect(document: Mapping[str, Any]) -> bool:
    """Whether it is a document of an effect's replay, or one that contains its own effect."""
    return "effect" in document or document["event"].get("type") == REPLAY


def under_replay(document: Mapping[str, Any]) -> Document | None:
    """A filter for the letter whose begun replay this is; None by any name but a replay's."""
    id_, _, number = name_of(document).removeprefix(f"{REPLAY}:").rpartition(":")
    if not name_of(document).startswith(f"{REPLAY}:") or not NUMBER.fullmatch(number):
        return None
    place = {part: document[part] for part in ("channel", "key")}
    return {"_id": id_, **place, "replays": {"$gte": int(number)}}


def number_of(document: Mapping[str, Any]) -> int:
    return int(name_of(document).rpartition(":")[2])
