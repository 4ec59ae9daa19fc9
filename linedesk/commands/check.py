"""`linedesk check`: messages of a file, checked as LINE checks them."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option
from linedesk.runtime.exit_codes import Exit

if TYPE_CHECKING:
    from linemessages import Finding


@click.command(cls=Command, examples=("check messages.json", "check - --json < messages.json"))
@click.argument("file")
@json_option
def check(file: str, as_json: bool) -> Exit:
    """Check the messages in a JSON file as LINE checks them, without LINE.

    FILE, or standard input for -, has a message, a list of messages, or the body of a request. A
    finding is `wrong`, or `unknown`: a type or property that this release does not know, and that
    LINE may have added.

    Ends with 1 if there are findings.
    """
    from linedesk.commands.listing import show_rows
    from linemessages import check_messages

    found = check_messages(_messages(file))
    rows = [{"finding": _kind(one), **one.as_detail()} for one in found]
    columns = {name: itemgetter(name) for name in ("finding", "property", "message")}
    show_rows(rows, columns, nothing="no findings", as_json=as_json)
    return Exit.FAILED if found else Exit.OK


def _messages(file: str) -> Any:
    try:
        with click.open_file(file, encoding="utf-8") as opened:
            given = json.load(opened)
    except OSError as error:
        raise click.FileError(file, error.strerror) from error
    except ValueError as error:
        raise click.UsageError(f"{file} is not JSON: {error}") from error
    return given.get("messages", [given]) if isinstance(given, dict) else given


def _kind(finding: Finding) -> str:
    return "unknown" if finding.is_unknown else "wrong"
