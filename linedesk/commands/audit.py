"""`linedesk audit`: what operators did."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option, shown_option, with_database
from linedesk.operate.format import local

if TYPE_CHECKING:
    from linedesk.commands.options import Opened


# The object of an act, if it is a conversation; a release also names the event or send.
CONVERSATION = re.compile(r"([^/ ]+/[UCR]\S*)")


@click.command(cls=Command, examples=("audit --limit 10",))
@shown_option
@json_option
@with_database
def audit(own: Opened, limit: int, as_json: bool) -> None:
    """List the acts of operators on the console and the command line, newest first."""
    from linedesk.commands.listing import show_rows
    from linedesk.operate.acts import newest
    from linedesk.operate.conversation import names_of
    from linedesk.operate.text import known
    from linedesk.store.errors import translated

    rows = newest(own.database, limit=limit)
    with translated():
        names = names_of(own.database, {id_ for row in rows for id_ in _conversations(row)})
    for row in rows:
        row["id"] = row.pop("_id")
        row["name"] = next((names[id_] for id_ in _conversations(row) if id_ in names), None)
    columns = {
        "at": lambda row: local(row.get("at")),
        "by": lambda row: row.get("by"),
        "via": lambda row: known(str(row.get("via"))),
        "act": lambda row: known(str(row.get("act"))),
        "outcome": lambda row: known(row.get("outcome")),
        "on": _target,
        "why": lambda row: row.get("why") or "-",
    }
    show_rows(rows, columns, nothing="no acts yet", as_json=as_json)


def _target(row: Mapping[str, Any]) -> str:
    first, *others = _on(row) or ["-"]
    more = f"and {len(others)} more" if others else None
    return " ".join(filter(None, (row["name"], first, more)))


def _on(row: Mapping[str, Any]) -> list[str]:
    on = row.get("on")
    return [str(one) for one in on] if isinstance(on, list) else [str(on)]


def _conversations(row: Mapping[str, Any]) -> list[str]:
    return [found[1] for one in _on(row) if (found := CONVERSATION.match(one))]
