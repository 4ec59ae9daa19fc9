"""`linedesk dead`: looking at what was given up, and putting it back or dropping it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from pymongo.collection import Collection
from rich.console import Console
from rich.progress import Progress

from jobworker.errors import MayArriveTwice
from jobworker.replay import anew, is_sound
from linedesk.choice import Choice, all_of, found, open_database, whole
from linedesk.errors import NotReplayed
from linedesk.exits import Exit
from linedesk.letters import Letter, echo_json, local, show_list, show_one
from linedesk.settings import Settings
from recvq.documents import DEADLETTERS, Document
from recvq.errors import translated
from recvq.guard import Guard
from recvq.replay import Replays, effect_again, event_again, replay_name

# From so many letters on, a terminal shows how far the work is.
MANY = 20
SLICE = 1_000


def list_letters(settings: Settings, choice: Choice, *, as_json: bool) -> None:
    """Print the newest letters first."""
    with open_database(settings) as database:
        letters = database[DEADLETTERS]
        rows = found(letters, choice, newest_first=True)
        show_list(rows, as_json=as_json)
        if choice.limit and len(rows) == choice.limit:
            with translated():
                count = letters.count_documents(choice.query())
            if count > len(rows):
                click.echo(f"{len(rows)} of {count} shown, --limit shows more", err=True)


def show_letters(settings: Settings, ids: Sequence[str], *, text: bool, as_json: bool) -> None:
    """Print each letter whole, but what people wrote only with `text`."""
    choice = Choice(ids=ids)
    with open_database(settings) as database:
        letters = database[DEADLETTERS]
        for row in all_of(found(letters, choice), choice):
            letter = whole(letters, row["_id"])
            if letter is not None:
                show_one(letter, text=text, as_json=as_json)


def replay_letters(
    settings: Settings, choice: Choice, *, force: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Put the letters into recvq again, the oldest first; returns the exit code."""
    with open_database(settings) as database:
        letters = database[DEADLETTERS]
        rows = all_of(found(letters, choice), choice)
        if not dry_run:
            _agree(len(rows), "Replay", yes=yes)
        replays = Replays(database, Guard(database))
        refused = 0
        for row in _slowly(rows, "replaying"):
            told = {"id": row["_id"]}
            try:
                told["replay"] = _replay(
                    letters, replays, row["_id"], choice, force=force, dry_run=dry_run
                )
            except NotReplayed as error:
                refused += 1
                told["refused"] = str(error)
            _tell(told, as_json=as_json, dry_run=dry_run)
    return Exit.FAILED if refused else Exit.OK


def drop_letters(
    settings: Settings, choice: Choice, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete the letters for good."""
    with open_database(settings) as database:
        letters = database[DEADLETTERS]
        rows = all_of(found(letters, choice), choice)
        if dry_run:
            show_list(rows, as_json=as_json)
            click.echo(f"{len(rows)} would be dropped", err=True)
            return
        _agree(len(rows), "Drop", yes=yes)
        ids = [row["_id"] for row in rows]
        dropped = 0
        with translated():
            for start in range(0, len(ids), SLICE):
                some = {"_id": {"$in": ids[start : start + SLICE]}}
                dropped += letters.delete_many(some).deleted_count
    click.echo(f"dropped {dropped}")


def _replay(
    letters: Collection[Any],
    replays: Replays,
    id_: str,
    choice: Choice,
    *,
    force: bool,
    dry_run: bool,
) -> str:
    """The eventId under which a letter was replayed. Raises NotReplayed."""
    letter = whole(letters, id_)
    if letter is None:
        raise NotReplayed("it was dropped meanwhile")
    if letter.get("replayedAt") and not choice.everything:
        raise NotReplayed(f"it was replayed at {local(letter['replayedAt'])}; --all does it again")
    document = _document(letter, now=datetime.now(UTC), force=force)
    if not dry_run and not replays.replay(letter, document):
        raise NotReplayed("somebody else replayed or dropped it meanwhile")
    return str(document["eventId"])


def _document(letter: Letter, *, now: datetime, force: bool) -> Document:
    """What goes into recvq. Raises NotReplayed, also for a letter that a person has changed."""
    name = replay_name(letter)
    if "effect" in letter:
        return effect_again(letter, _effect(letter, name, now, force=force), name=name, now=now)
    document = letter.get("document")
    if not isinstance(document, Mapping) or not isinstance(document.get("event"), Mapping):
        raise NotReplayed("it holds neither an event nor a send")
    if document.get("unsent"):
        raise NotReplayed("its message was taken back by its sender")
    return event_again(letter, name=name, now=now)


def _effect(letter: Letter, name: str, now: datetime, *, force: bool) -> Document:
    if not is_sound(letter) or not all(isinstance(letter.get(n), str) for n in ("channel", "key")):
        raise NotReplayed("its send is not whole, or names no conversation")
    try:
        return anew(letter["effect"], name=name, now=now, force=force)
    except MayArriveTwice as error:
        raise NotReplayed(f"{error}, so it may arrive twice; --force accepts that") from error


# The operator.


def _agree(count: int, verb: str, *, yes: bool) -> None:
    """Ask before more than one letter is touched. Raises click's Abort, or UsageError in a pipe."""
    if count <= 1 or yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{count} dead letters match: say --yes")
    click.confirm(f"{verb} {count} dead letters?", abort=True, err=True)


def _slowly(rows: list[Document], words: str) -> Iterator[Document]:
    """The rows one by one, with a bar on a terminal where there are many."""
    console = Console(stderr=True)
    with Progress(console=console, disable=len(rows) < MANY or not console.is_terminal) as bar:
        yield from bar.track(rows, description=words)


def _tell(told: Mapping[str, str], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        echo_json(told)
    elif "refused" in told:
        click.echo(f"linedesk: {told['id']} not replayed: {told['refused']}", err=True)
    else:
        click.echo(f"{'would replay' if dry_run else 'replayed'} {told['id']} as {told['replay']}")
