"""How commands show who is meant: the name in LINE beside a short id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pymongo.database import Database
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from linedesk.console.conversation import names_of
from linedesk.console.format import one_line
from linedesk.store.documents import Document
from linedesk.store.errors import translated

# A user, group or room of LINE, within a text.
ID = re.compile(r"[UCR][0-9a-f]{32}")
ID_SHOWN = 9
NAME_CELLS = 12

Names = Mapping[str, str]
"""Names in LINE by `<channel>/<key>`, as far as they are known."""


def known_names(database: Database[Any], ids: Iterable[str]) -> Names:
    """Those of conversations `<channel>/<key>`, by one query; none without the right to read them.

    Raises StoreUnavailable.
    """
    with translated():
        return names_of(database, ids)


def names_beside(database: Database[Any], rows: Iterable[Mapping[str, Any]]) -> Names:
    """Those of the conversations of rows with channel and key. Raises StoreUnavailable."""
    ids = {conversation_id(row.get("channel"), row.get("key")) for row in rows}
    return known_names(database, ids - {""})


def conversation_id(channel: object, key: object) -> str:
    """The `_id` of a conversation; empty where no key is known."""
    return f"{channel}/{key}" if key else ""


def name_in(names: Names, row: Mapping[str, Any]) -> str | None:
    """The name that belongs to a row with channel and key."""
    return names.get(conversation_id(row.get("channel"), row.get("key")))


def named(row: Mapping[str, Any], names: Names) -> Document:
    """A row for programs, with `name`: null where it is not known."""
    return {**row, "name": name_in(names, row)}


def short(text: str) -> str:
    """LINE's ids in it as their beginnings, which every command takes for the whole."""
    return ID.sub(lambda found: f"{found[0][:ID_SHOWN]}…", text)


def shortened(line: Text) -> Text:
    """The same of a text with styles."""
    for found in reversed(list(ID.finditer(line.plain))):
        line = line[: found.start() + ID_SHOWN] + Text("…") + line[found.end() :]
    return line


def who(names: Names, channel: object, key: object) -> str:
    """A conversation on a screen: its name, and its id in short."""
    if not key:
        return "-"
    shown = short(one_line(key))
    name = names.get(conversation_id(channel, key))
    return f"{cut(one_line(name), NAME_CELLS)} {shown}" if name else shown


def who_briefly(names: Names, channel: object, key: object) -> str:
    """The same for a narrow terminal: the name, or the id in short where no name is known."""
    name = names.get(conversation_id(channel, key))
    return cut(one_line(name), NAME_CELLS) if name else who(names, channel, key)


def cut(text: str, cells: int) -> str:
    """So much of it as fits; a Japanese letter takes two cells."""
    if cell_len(text) <= cells:
        return text
    return f"{set_cell_size(text, cells - 1).rstrip()}…"


def endpoint_words(endpoint: object) -> str:
    """An endpoint of LINE without the part that all have: `reply`, `push`, `profile/{}`."""
    return str(endpoint or "-").removeprefix("/v2/bot/").removeprefix("message/")
