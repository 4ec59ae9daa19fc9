"""`conversations`: one document a conversation; `jobworker.record` reads and writes it.

Names are found by parts of them: `nameParts` holds every piece of one to three letters, folded so
that width, case and spaces do not count, and has an index.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

UNSENT_AT: Final = "unsentAt"
"""When a message of it was taken back last."""
NAME_PARTS: Final = "nameParts"
"""The pieces of its names; absent from the moment a name changes until they are made anew."""

MOST_LETTERS: Final = 3
"""Of one piece. With fewer, common pieces would match too many conversations."""
# LINE takes 20 letters for a name.
MOST_NAME: Final = 60
MOST_WANTED: Final = 12


def own_name(conversation: Mapping[str, Any]) -> str | None:
    """The name in LINE of the user or group itself, where it is known."""
    return _name_in(conversation.get("profile"))


def member_names(conversation: Mapping[str, Any]) -> dict[str, str]:
    """Names in LINE of the group's members by their ids, as far as they are known."""
    members = conversation.get("members")
    found = members.items() if isinstance(members, Mapping) else ()
    return {user: name for user, told in found if (name := _name_in(told))}


def names_in(conversation: Mapping[str, Any]) -> list[str]:
    """All names by which the conversation is found, its own first."""
    own = own_name(conversation)
    return [*([own] if own else []), *member_names(conversation).values()]


def _name_in(profile: Any) -> str | None:
    name = profile.get("displayName") if isinstance(profile, Mapping) else None
    return name if isinstance(name, str) and name else None


def folded(text: str) -> str:
    """A text as it is compared: NFKC, without case and spaces. ﾊﾅｺ is ハナコ, ｓａｔｏ is Sato."""
    # Folding the case can undo the normal form.
    folds = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(folds.split())


def name_parts(names: Iterable[str]) -> list[str]:
    """What `nameParts` holds for these names; [""] for none, since absent means not made yet."""
    texts = {folded(name)[:MOST_NAME] for name in names} - {""}
    pieces = {
        text[start : start + letters]
        for text in texts
        for letters in range(1, MOST_LETTERS + 1)
        for start in range(len(text) - letters + 1)
    }
    return sorted(pieces | {whole_name(text) for text in texts}) or [""]


def whole_name(text: str) -> str:
    """The piece that is a whole name, of a folded text."""
    return f"={text[:MOST_NAME]}"


def wanted_parts(text: str) -> list[str]:
    """Pieces that every name with this folded text in it has."""
    if len(text) <= MOST_LETTERS:
        return [text]
    text = text[:MOST_NAME]
    pieces = {text[n : n + MOST_LETTERS] for n in range(len(text) - MOST_LETTERS + 1)}
    return sorted(pieces)[:MOST_WANTED]
