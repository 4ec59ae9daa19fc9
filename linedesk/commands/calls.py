"""`linedesk calls`: the newest calls of LINE's API."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import (
    json_option,
    key_option,
    moment_option,
    shown_option,
    with_database,
)
from linedesk.operate.format import brief, local
from linedesk.store.records.calls import REQUEST_ID, is_taken
from linedesk.store.records.events import EVENT_ID

if TYPE_CHECKING:
    from linedesk.commands.options import Opened


@click.command(cls=Command, examples=("calls --failed --since 1h",))
@moment_option("--since", help="Show calls since this time: 30m, 2h, or 2026-01-31T09:00.")
@key_option
@option("--failed", is_flag=True, help="Show only calls that LINE refused or did not answer.")
@shown_option
@json_option
@with_database
def calls(own: Opened, since: datetime | None, as_json: bool, **wanted: Any) -> None:
    """List the newest calls of LINE's API."""
    from rich.text import Text

    from linedesk.commands.listing import endpoint_words, show_rows, who
    from linedesk.operate.calls import Wanted, newest_calls, reason_words
    from linedesk.operate.conversation import with_names

    found = newest_calls(own.database, Wanted(since=since, **wanted))
    rows = with_names(own.database, found, channel=own.channel)

    def status(row: Any) -> Text:
        code = row.get("status")
        return Text(str(code or "no answer"), "" if is_taken(code) else "red")

    columns = {
        "at": lambda row: local(row.get("at")),
        "call": lambda row: endpoint_words(row.get("endpoint")),
        "status": status,
        "took": lambda row: brief((row.get("ms") or 0.0) / 1000),
        "event": lambda row: row.get(EVENT_ID) or "-",
        "try": lambda row: row.get("attempt") or 1,
        "who": who,
        "request id": lambda row: row.get(REQUEST_ID) or "-",
        "reason": lambda row: reason_words(row) or "-",
    }
    show_rows(rows, columns, nothing="no calls match", as_json=as_json)
