"""`linedesk tail`: events, runs, calls and dead letters as they happen."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option, key_option, text_option, with_database
from linedesk.operate.format import brief, clock, echo_json, one_line
from linedesk.store.documents import text_of
from linedesk.store.records.calls import CallRecord
from linedesk.store.records.runs import WAITED_MS

if TYPE_CHECKING:
    from pymongo.database import Database
    from rich.text import Text

    from linedesk.commands.options import Opened
    from linedesk.operate.following import Came
    from linedesk.store.documents import Document

COLOURS = {"event": "cyan", "run": "green", "call": "blue", "dead": "red"}
# A tail may run for days.
MOST_NAMES = 10_000


@click.command(cls=Command, examples=("tail", "tail --key U4af49806 --text"))
@key_option
@text_option
@json_option
@with_database
def tail(own: Opened, key: str | None, text: bool, as_json: bool) -> None:
    """Show events, runs, calls and dead letters as they happen, until Ctrl-C.

    Lines are in order of time. For this each line is delayed by one second.
    """
    from linedesk.commands.listing import flowed, show, width
    from linedesk.operate.find import key_of
    from linedesk.operate.following import coming

    if key is not None:
        key = key_of(own.database, key, channel=own.channel)
    names: dict[str, str] = {}
    for came in coming(own.database, key=key, text=text):
        name = _name(own.database, names, came, channel=own.channel)
        if as_json:
            echo_json({**told(came, text=text), "name": name})
        else:
            show(flowed(line(came, name, text=text).split("  "), width()))


def _name(
    database: Database[Any], names: dict[str, str], came: Came, *, channel: str
) -> str | None:
    """The name of its conversation, which is kept among the names."""
    from linedesk.operate.conversation import names_of
    from linedesk.store.errors import StoreUnavailable, translated

    # A row of `calls` has no channel.
    id_ = f"{came.row.get('channel') or channel}/{came.row.get('key')}"
    if id_ not in names and came.row.get("key"):
        if len(names) >= MOST_NAMES:
            names.clear()
        with suppress(StoreUnavailable), translated():
            names |= names_of(database, [id_])
    return names.get(id_)


def told(came: Came, *, text: bool) -> Document:
    """The row for programs, with the field names of the collection."""
    from linedesk.operate.dead_letters import what

    row = dict(came.row)
    if came.kind in ("event", "dead"):
        document = row.pop("document", None) or row
        row["what"] = what({"effect": row.get("effect"), "document": document})
        if text and (words := text_of(document, "event", "message", "text")) is not None:
            row["text"] = words
        row.pop("event", None)
    if "_id" in row:
        row["id"] = row.pop("_id")
    return {"kind": came.kind, **row}


def line(came: Came, name: str | None, *, text: bool) -> Text:
    """The line for people, with the name of the conversation or else its key."""
    from rich.text import Text

    whom = name or came.row.get("key") or "-"
    cells = (clock(came.at), f"{came.kind:<5}", came.event_id, _words(came, text=text), whom)
    return Text("  ".join(map(one_line, cells)), "red" if came.has_failed else COLOURS[came.kind])


def _words(came: Came, *, text: bool) -> str:
    from linedesk.commands.listing import endpoint_words
    from linedesk.operate.dead_letters import explained
    from linedesk.operate.text import known

    row = came.row
    if came.kind == "call":
        call = CallRecord.from_document(row)
        answer = call.status or "no answer"
        return f"{endpoint_words(call.endpoint)} {answer} in {brief(call.ms / 1000)}"
    if came.kind == "run":
        # Of a row made by hand any field may be missing.
        outcome = " ".join(filter(None, (known(row.get("outcome") or "-"), row.get("error"))))
        count = row.get("effects") or 0
        effects = f", {count} effect{'s' if count > 1 else ''}" if count else ""
        took, waited = (brief((row.get(name) or 0.0) / 1000) for name in ("ms", WAITED_MS))
        return f"{row.get('type') or '-'}: {outcome}{effects} in {took} after {waited}"
    shown = told(came, text=text)
    cause = f": {explained(row)}" if came.kind == "dead" else ""
    said = f" 「{shown['text']}」" if "text" in shown else ""
    return f"{known(shown['what'])}{cause}{said}"
