"""`deadletters`: events, sends and timers that were given up, with the cause.

A letter is decided as an effect of its conversation. Its row is written with the record, or with
the removal of the send that it replaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from linedesk.store.documents import Document, name_of

DEADLETTER = "deadletter"
"""The `type` of the effect."""
FIRST_AT: Final = "firstAt"
LAST_AT: Final = "lastAt"
REPLAYED_AT: Final = "replayedAt"
EXPIRES_AT: Final = "expiresAt"
"""When MongoDB removes it; set a week ahead."""
TRIES: Final = "tries"
"""In a replay of an event: how many times its handler was called before."""
CARRIED_OUT: Final = "carriedOut"
"""The number of the last replay that was decided."""

REPLAY = "replay"
"""The prefix of a replay's eventId, `replay:<letter>:<n>`, and the type of an effect's replay."""
# A letter has fewer than a million replays.
NUMBER = re.compile("[1-9][0-9]{0,5}")
REPLAYED = re.compile(f"{REPLAY}:(.+):{NUMBER.pattern}", re.DOTALL)
REFUSED = "refused: "
"""The prefix of the cause of a letter whose document requested an effect without a valid letter."""
MOST_COUNTED = 10_000
"""The overview counts letters up to this number."""


@dataclass(frozen=True)
class Cause:
    """Why an event, send or timer was given up: a code, with values of it."""

    code: str
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, letter: Mapping[str, Any]) -> Cause:
        """The cause of a letter. Earlier releases stored a sentence: it counts as the code."""
        about = letter.get("about")
        return cls(str(letter.get("cause") or ""), about if isinstance(about, Mapping) else {})

    def __str__(self) -> str:
        """One line for logs and forms, the same for the same cause."""
        told = json.dumps(self.about, default=str, ensure_ascii=False) if self.about else ""
        return f"{self.code} {told}".rstrip()

    @classmethod
    def from_line(cls, line: str) -> Cause:
        """The cause of such a line."""
        code, begins, rest = line.partition(" {")
        try:
            return cls(code, json.loads("{" + rest)) if begins else cls(line)
        except ValueError:
            return cls(line)

    @property
    def fields(self) -> Document:
        """The fields of a letter."""
        return {"cause": self.code, **({"about": dict(self.about)} if self.about else {})}

    def after_a_send(self, has_sent: bool) -> Cause:
        """The cause of a handler that had called LINE by itself, so that it is not tried again."""
        return Cause(self.code, {**self.about, "calledLine": True}) if has_sent else self


# The codes, which `linedesk.operate.text` says. Those of the first line are known to operators.
QUOTA, LATE, NOT_FETCHED, EXPIRED = map(Cause, ("quota", "late", "not fetched", "expired"))
RELEASED, POISON = Cause("released"), Cause("poison")
NOT_SENT, OUTCOME_UNKNOWN = Cause("not_sent"), Cause("outcome_unknown")
NOT_JSON = Cause("not_json")
NO_LETTER, NO_ROW = Cause(f"{REFUSED}no_letter"), Cause(f"{REFUSED}no_row")
LATER_ROW = Cause("later_row")
HANDLER: Final = "handler_error"
"""With `error`: the class of an error, or a code."""
DROPPED: Final = "dropped"
"""With `by`."""
LINE_REFUSED: Final = "line_refused"
"""With `status` and, if LINE says so, `reason`."""
NO_VERDICT: Final = "no_verdict"
"""With `tries`."""
WRITE_REFUSED: Final = "write_refused"
"""With `error`: why MongoDB refused to store it."""


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


def original_name(name: str) -> str:
    """The name of the event that is replayed under this one; the name itself if it is no replay."""
    while (found := REPLAYED.fullmatch(name)) is not None:
        name = found[1]
    return name


def number_of(document: Mapping[str, Any]) -> int:
    return int(name_of(document).rpartition(":")[2])
