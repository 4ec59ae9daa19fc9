"""`linedesk dead`: shows, replays and drops dead letters.

Lists contain no message texts, and no error messages, which may quote them. `--text` shows both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import (
    json_option,
    moment_option,
    shown_option,
    to_act,
    with_database,
)
from linedesk.operate.format import as_json, echo_json, local
from linedesk.runtime.exit_codes import Exit
from linedesk.store.documents import DEADLETTERS
from linedesk.store.records.letters import FIRST_AT, LAST_AT, REPLAYED_AT

if TYPE_CHECKING:
    from linedesk.commands.options import Opened
    from linedesk.operate.dead_letters import Choice
    from linedesk.store.documents import Document

NOTHING = "no dead letters match"
# A terminal shows the progress from this number of letters on.
MANY = 20
# The option that replays a refused letter anyway.
UNLESS = {"again": "--all replays it again", "force": "--force replays it anyway"}


@click.group()
def dead() -> None:
    """List, show, replay or drop dead letters.

    A time is an age (45s, 30m, 2h or 3d) or a date such as 2026-01-31T09:00. A date without a zone
    is local time.
    """


def choosing(function: Callable[..., Any]) -> Any:
    """Give a command the options that choose dead letters, and its function the choice."""

    @option("--cause", metavar="TEXT", help="Only letters whose cause contains TEXT.")
    @moment_option("--since", help="Only letters that were last given up at this time or later.")
    @moment_option("--until", help="Only letters that were last given up before this time.")
    @option("--all", "everything", is_flag=True, help="Also letters that were replayed.")
    @wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        from linedesk.operate.dead_letters import Choice

        names = ("ids", "cause", "since", "until", "everything", "limit")
        given = {name: options.pop(name, None) for name in names}
        chosen = {name: value for name, value in given.items() if value is not None}
        return function(*args, Choice(**chosen), **options)

    return command


def acting(function: Callable[..., Any]) -> Any:
    """Give a command that changes letters its options, and its function the chosen letters.

    More than one is changed only with --yes, or after a question on a terminal. Raises NotDone if
    there are none, click's Abort, and UsageError in a pipe.
    """

    @click.argument("ids", nargs=-1, metavar="[ID]...")
    @option("--limit", type=click.IntRange(1), help="The most letters to take.")
    @option("--yes", is_flag=True, help="Do not ask for confirmation.")
    @json_option
    @to_act
    @choosing
    @wraps(function)
    def command(own: Opened, choice: Choice, yes: bool, **options: bool) -> Any:
        from linedesk.operate.dead_letters import all_of, found
        from linedesk.operate.text import NotDone

        if choice.is_open:
            raise click.UsageError("name the letters: ids, --cause, --since or --until")
        if choice.ids and (choice.cause or choice.since or choice.until):
            raise click.UsageError("give either ids, or --cause, --since and --until")
        rows = all_of(found(own.database[DEADLETTERS], choice), choice)
        if not rows:
            raise NotDone(NOTHING)
        if len(rows) > 1 and not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(f"{len(rows)} dead letters match: add --yes")
            name = str(click.get_current_context().info_name)
            click.confirm(f"{name.title()} {len(rows)} dead letters?", abort=True, err=True)
        return function(own, rows, again=choice.everything, **options)

    return command


@dead.command("list", cls=Command)
@shown_option
@json_option
@with_database
@choosing
def list_letters(own: Opened, choice: Choice, as_json: bool) -> None:
    """List dead letters, newest first; with --all also replayed ones."""
    from linedesk.commands.listing import show_rows, who
    from linedesk.operate.conversation import with_names
    from linedesk.operate.dead_letters import explained, found, query_of, replayed, summary, what
    from linedesk.operate.text import known
    from linedesk.store.errors import translated

    letters = own.database[DEADLETTERS]
    rows = with_names(own.database, found(letters, choice, newest_first=True), channel=own.channel)
    if as_json:
        rows = [summary(row) | {"name": row["name"]} for row in rows]
    columns = {
        "id": lambda row: row["_id"],
        "last": lambda row: local(row.get(LAST_AT)),
        "what": lambda row: known(what(row)),
        "tries": lambda row: row.get("attempts", "-"),
        "replayed": lambda row: known(replayed(row)),
        "who": who,
        "cause": lambda row: explained(row),
    }
    show_rows(rows, columns, nothing=NOTHING, as_json=as_json)
    if len(rows) == choice.limit:
        with translated():
            count = letters.count_documents(query_of(letters, choice))
        if count > len(rows):
            click.echo(f"{len(rows)} of {count} shown; --limit shows more", err=True)


@dead.command("show", cls=Command)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@option("--text", is_flag=True, help="Also show message texts and error messages.")
@json_option
@with_database
def show_letters(own: Opened, ids: tuple[str, ...], text: bool, as_json: bool) -> None:
    """Show everything about dead letters except message texts."""
    from linedesk.operate.conversation import with_names
    from linedesk.operate.dead_letters import Choice, all_of, found, whole

    choice = Choice(ids=ids)
    letters = own.database[DEADLETTERS]
    rows = all_of(found(letters, choice), choice)
    for row in with_names(own.database, rows, channel=own.channel):
        letter = whole(letters, row["_id"])
        if letter is not None:
            _show_one(letter, row["name"], text=text, as_json=as_json)


def _show_one(letter: Document, name: str | None, *, text: bool, as_json: bool) -> None:
    """Print everything about a letter; message texts only with `text`."""
    from linedesk.commands.listing import show_page
    from linedesk.operate.dead_letters import frames, summary

    told = summary(letter) | {"name": name}
    if text:
        told |= {part: letter[part] for part in ("document", "effect") if part in letter}
    traceback = letter.get("traceback")
    told["traceback"] = traceback if text else frames(traceback, id_=str(letter["_id"]))
    if as_json:
        echo_json(told)
        return
    if told["explained"] == told["cause"]:
        del told["explained"]
    if told["about"] is None:
        del told["about"]
    times = (FIRST_AT, LAST_AT, REPLAYED_AT)
    told |= {time: local(letter[time]) for time in times if letter.get(time)}
    show_page((label, _lines(value)) for label, value in told.items())


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        value = json.dumps(as_json(value), ensure_ascii=False, indent=2)
    return ["-"] if value is None else str(value).splitlines()


@dead.command("replay", cls=Command)
@option("--force", is_flag=True, help="Also send messages that may arrive twice.")
@acting
def replay(own: Opened, rows: list[Document], again: bool, force: bool, as_json: bool) -> int:
    """Put dead letters into the queue again, oldest first.

    A replayed event runs its handler again. A replayed send is sent without its handler.
    """
    from rich.console import Console
    from rich.progress import track

    from linedesk.operate.text import NotReplayed

    acts, done = own.acts, []
    console = Console(stderr=True)
    is_quiet = len(rows) < MANY or not console.is_terminal
    for row in track(rows, "replaying", console=console, disable=is_quiet):
        id_ = row["_id"]
        told = {"id": id_}
        try:
            told["replay"] = acts.replay(id_, again=again, force=force)
            done.append(id_)
        except NotReplayed as error:
            told["refused"] = f"{error}; {UNLESS[error.unless]}" if error.unless else str(error)
        if as_json:
            echo_json(told)
        elif "replay" in told:
            click.echo(f"replayed {id_} as {told['replay']}")
        else:
            click.echo(f"linedesk: {id_} not replayed: {told['refused']}", err=True)
    if waits := acts.waits_for(done):
        click.echo(waits, err=True)
    return Exit.OK if len(done) == len(rows) else Exit.FAILED


@dead.command("drop", cls=Command)
@acting
def drop(own: Opened, rows: list[Document], again: bool, as_json: bool) -> None:
    """Delete dead letters for good."""
    click.echo(f"dropped {own.acts.drop([row['_id'] for row in rows])}")
