"""`conversations`: one document for each conversation; `jobworker.record` reads and writes it.

Names are searched by parts: `nameParts` has every piece of one to three letters, folded to ignore
width, case and spaces. It has an index.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from linedesk.store.documents import text_of

UNSENT_AT: Final = "unsentAt"
"""When a message of it was last unsent."""
NAME_PARTS: Final = "nameParts"
"""The pieces of its names; absent after a change of a name until they are made again."""

MOST_LETTERS: Final = 3
"""The length of a piece. Shorter pieces would match too many conversations."""
# LINE's limit for a name is 20 letters.
MOST_NAME: Final = 60
MOST_WANTED: Final = 12


def own_name(conversation: Mapping[str, Any]) -> str | None:
    """The user's or group's own name in LINE, if known."""
    return text_of(conversation, "profile", "displayName")


def member_names(conversation: Mapping[str, Any]) -> dict[str, str]:
    """The known names in LINE of the group's members, by their ids."""
    members = conversation.get("members")
    found = members.items() if isinstance(members, Mapping) else ()
    return {user: name for user, told in found if (name := text_of(told, "displayName"))}


def names_in(conversation: Mapping[str, Any]) -> list[str]:
    """All names for searching the conversation, its own first."""
    own = own_name(conversation)
    return [*([own] if own else []), *member_names(conversation).values()]


def folded(text: str) -> str:
    """The text for comparisons: NFKC, without case and spaces. ﾊﾅｺ is ハナコ, ｓａｔｏ is Sato."""
    # Case folding can break the normal form.
    folds = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(folds.split())


def name_parts(names: Iterable[str]) -> list[str]:
    """The value of `nameParts` for these names; [""] for none, since absent means not made yet."""
    texts = {folded(name)[:MOST_NAME] for name in names} - {""}
    pieces = {
        text[start : start + letters]
        for text in texts
        for letters in range(1, MOST_LETTERS + 1)
        for start in range(len(text) - letters + 1)
    }
    return sorted(pieces | {whole_name(text) for text in texts}) or [""]


def whole_name(text: str) -> str:
    """The piece for a whole name, from a folded text."""
    return f"={text[:MOST_NAME]}"


def wanted_parts(text: str) -> list[str]:
    """The pieces that every name containing this folded text has."""
    if len(text) <= MOST_LETTERS:
        return [text]
    text = text[:MOST_NAME]
    pieces = {text[n : n + MOST_LETTERS] for n in range(len(text) - MOST_LETTERS + 1)}
    return sorted(pieces)[:MOST_WANTED]
