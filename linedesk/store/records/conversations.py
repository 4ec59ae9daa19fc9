"""`conversations`: one document for each conversation; `jobworker.record` reads and writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from linedesk.store.documents import text_of

UNSENT_AT: Final = "unsentAt"
"""When a message of it was last unsent."""
EDITS: Final = "edits"
"""By the id of an edited message, LINE's timestamp of the newest edit that was handled."""
FORMER_NAMES: Final = "nameParts"
"""Releases before kept the pieces of its names here, with an index of this name."""


def own_name(conversation: Mapping[str, Any]) -> str | None:
    """The user's or group's own name in LINE, if known."""
    return text_of(conversation, "profile", "displayName")


def member_names(conversation: Mapping[str, Any]) -> dict[str, str]:
    """The known names in LINE of the group's members, by their ids."""
    members = conversation.get("members")
    found = members.items() if isinstance(members, Mapping) else ()
    return {user: name for user, told in found if (name := text_of(told, "displayName"))}
