"""How commands show a conversation: its name in LINE beside a short id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pymongo.database import Database
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from linedesk.operate.conversation import names_of
from linedesk.operate.format import one_line
from linedesk.store.documents import Document
from linedesk.store.errors import translated

# A user, group or room of LINE, within a text.
ID = re.compile(r"[UCR][0-9a-f]{32}")
ID_SHOWN = 9
NAME_CELLS = 12

Names = Mapping[str, str]
"""The known names in LINE, by `<channel>/<key>`."""


def known_names(database: Database[Any], ids: Iterable[str]) -> Names:
    """The names of conversations `<channel>/<key>`, by one query; none without the right to read.

    Raises StoreUnavailable.
    """
    with translated():
        return names_of(database, ids)


def names_beside(database: Database[Any], rows: Iterable[Mapping[str, Any]]) -> Names:
    """The names for rows with channel and key. Raises StoreUnavailable."""
    ids = {conversation_id(row.get("channel"), row.get("key")) for row in rows}
    return known_names(database, ids - {""})


def conversation_id(channel: object, key: object) -> str:
    """The `_id` of a conversation; empty if no key is known."""
    return f"{channel}/{key}" if key else ""


def name_in(names: Names, row: Mapping[str, Any]) -> str | None:
    """The name that belongs to a row with channel and key."""
    return names.get(conversation_id(row.get("channel"), row.get("key")))


def named(row: Mapping[str, Any], names: Names) -> Document:
    """A row for programs, with `name`: null if it is not known."""
    return {**row, "name": name_in(names, row)}


def short(text: str) -> str:
    """The text with LINE's ids shortened to their starts, which every command accepts."""
    return ID.sub(lambda found: f"{found[0][:ID_SHOWN]}…", text)


def shortened(line: Text) -> Text:
    """The same for a text with styles."""
    for found in reversed(list(ID.finditer(line.plain))):
        line = line[: found.start() + ID_SHOWN] + Text("…") + line[found.end() :]
    return line


def who(names: Names, channel: object, key: object) -> str:
    """A conversation on a terminal: its name and its short id."""
    if not key:
        return "-"
    shown = short(one_line(key))
    name = names.get(conversation_id(channel, key))
    return f"{cut(one_line(name), NAME_CELLS)} {shown}" if name else shown


def who_briefly(names: Names, channel: object, key: object) -> str:
    """The same for a narrow terminal: the name, or the short id if no name is known."""
    name = names.get(conversation_id(channel, key))
    return cut(one_line(name), NAME_CELLS) if name else who(names, channel, key)


def cut(text: str, cells: int) -> str:
    """The text cut to this width; a Japanese character takes two cells."""
    if cell_len(text) <= cells:
        return text
    return f"{set_cell_size(text, cells - 1).rstrip()}…"


def endpoint_words(endpoint: object) -> str:
    """An endpoint of LINE without the common prefix: `reply`, `push`, `profile/{}`."""
    return str(endpoint or "-").removeprefix("/v2/bot/").removeprefix("message/")
