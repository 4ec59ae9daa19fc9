"""`linedesk dead`: shows, replays and drops dead letters.

Lists contain no message texts, and no error messages, which may quote them. `--text` shows both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import (
    json_option,
    moment_option,
    shown_option,
    with_database,
)
from linedesk.operate.format import echo_json, local, plain
from linedesk.operate.known import known
from linedesk.runtime.exit_codes import Exit
from linedesk.store.documents import DEADLETTERS
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import FIRST_AT, LAST_AT, REPLAYED_AT

if TYPE_CHECKING:
    from pymongo.database import Database

    from linedesk.commands.options import Opened
    from linedesk.operate.dead_letters import Choice
    from linedesk.operate.errors import NotReplayed
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
    """Give a command that changes letters its options, and its function a choice that is narrow."""

    @click.argument("ids", nargs=-1, metavar="[ID]...")
    @option("--limit", type=click.IntRange(1), help="The most letters to take.")
    @option("--dry-run", is_flag=True, help="Only print what would be done.")
    @option("--yes", is_flag=True, help="Do not ask for confirmation.")
    @json_option
    @with_database
    @choosing
    @wraps(function)
    def command(own: Opened, choice: Choice, **options: bool) -> Any:
        if choice.is_open:
            raise click.UsageError("name the letters: ids, --cause, --since or --until")
        if choice.ids and (choice.cause or choice.since or choice.until):
            raise click.UsageError("give either ids, or --cause, --since and --until")
        return function(own, choice, **options)

    return command


@dead.command("list", cls=Command)
@shown_option
@json_option
@with_database
@choosing
def list_letters(own: Opened, choice: Choice, as_json: bool) -> None:
    """List dead letters, newest first; with --all also replayed ones."""
    from linedesk.operate.dead_letters import found
    from linedesk.store.errors import translated

    letters = own.database[DEADLETTERS]
    rows = found(letters, choice, newest_first=True)
    _show_list(own, rows, as_json=as_json)
    if len(rows) == choice.limit:
        with translated():
            count = letters.count_documents(choice.query())
        if count > len(rows):
            click.echo(f"{len(rows)} of {count} shown; --limit shows more", err=True)


def _show_list(own: Opened, letters: Sequence[Document], *, as_json: bool) -> None:
    """Print one line for each letter."""
    from linedesk.commands.listing import show_rows, who
    from linedesk.operate.conversation import with_names
    from linedesk.operate.dead_letters import explained, replayed, summary, what

    rows = with_names(own.database, letters, channel=own.channel)
    if as_json:
        rows = [summary(row) | {"name": row["name"]} for row in rows]
    columns = {
        "id": lambda row: row["_id"],
        "last": lambda row: local(row.get(LAST_AT)),
        "what": lambda row: known(what(row)),
        "tries": lambda row: row.get("attempts", "-"),
        "replayed": lambda row: known(replayed(row)),
        "who": who,
        "cause": lambda row: explained(row.get("cause", "-")),
    }
    show_rows(rows, columns, nothing=NOTHING, as_json=as_json)


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
    times = (FIRST_AT, LAST_AT, REPLAYED_AT)
    told |= {time: local(letter[time]) for time in times if letter.get(time)}
    show_page((label, _lines(value)) for label, value in told.items())


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        value = json.dumps(value, ensure_ascii=False, indent=2, default=plain)
    return ["-"] if value is None else str(value).splitlines()


@dead.command("replay", cls=Command)
@option("--force", is_flag=True, help="Also send messages that may arrive twice.")
@acting
def replay_letters(
    own: Opened, choice: Choice, force: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Put dead letters into the queue again, oldest first.

    A replayed event runs its handler again. A replayed send is sent without its handler.
    """
    from linedesk.operate.errors import NotReplayed

    rows = _chosen(own.database, choice)
    if not dry_run:
        _agree(len(rows), "Replay", yes=yes)
    replay = _rehearsal(own.database) if dry_run else own.acts.replay
    done = []
    for row in _slowly(rows):
        told = {"id": row["_id"]}
        try:
            told["replay"] = replay(row["_id"], again=choice.everything, force=force)
            done.append(row["_id"])
        except NotReplayed as error:
            told["refused"] = _words(error)
        _tell(told, as_json=as_json, dry_run=dry_run)
    if not dry_run and (waits := own.acts.waits_for(done)):
        click.echo(waits, err=True)
    return Exit.OK if len(done) == len(rows) else Exit.FAILED


@dead.command("drop", cls=Command)
@acting
def drop_letters(own: Opened, choice: Choice, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete dead letters for good."""

    rows = _chosen(own.database, choice)
    if dry_run:
        _show_list(own, rows, as_json=as_json)
        click.echo(f"{len(rows)} would be dropped", err=True)
        return
    _agree(len(rows), "Drop", yes=yes)
    dropped = own.acts.drop([row["_id"] for row in rows])
    click.echo(f"dropped {dropped}")


def _chosen(database: Database[Any], choice: Choice) -> list[Document]:
    """Return the letters, the oldest first. Raises NotDone if there are none."""
    from linedesk.operate.dead_letters import all_of, found
    from linedesk.operate.errors import NotDone, Phrase

    rows = all_of(found(database[DEADLETTERS], choice), choice)
    if not rows:
        raise NotDone(Phrase(NOTHING))
    return rows


def _rehearsal(database: Database[Any]) -> Callable[..., str]:
    """Return a function that checks a replay and writes nothing."""
    from linedesk.operate.dead_letters import Replays

    replaying = Replays(database)

    def rehearse(id_: str, *, again: bool, force: bool) -> str:
        _, document = replaying.prepared(id_, again=again, force=force)
        return str(document[EVENT_ID])

    return rehearse


def _words(error: NotReplayed) -> str:
    return f"{error}; {UNLESS[error.unless]}" if error.unless else str(error)


def _agree(count: int, act: str, *, yes: bool) -> None:
    """Ask before changing more than one letter. Raises click's Abort, or UsageError in a pipe."""
    if count <= 1 or yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{count} dead letters match: add --yes")
    click.confirm(f"{act} {count} dead letters?", abort=True, err=True)


def _slowly(rows: list[Document]) -> Iterator[Document]:
    """Yield the rows; a terminal shows a progress bar if there are many."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=len(rows) < MANY or not console.is_terminal) as bar:
        yield from bar.track(rows, description="replaying")


def _tell(told: Mapping[str, str], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        echo_json(told)
    elif "refused" in told:
        click.echo(f"linedesk: {told['id']} not replayed: {told['refused']}", err=True)
    else:
        done = "would replay" if dry_run else "replayed"
        click.echo(f"{done} {told['id']} as {told['replay']}")
