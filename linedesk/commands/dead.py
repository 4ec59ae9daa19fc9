"""`linedesk dead`: shows, replays and drops dead letters. A terminal gets a table, a pipe tabs.

Lists contain no message texts, and no error messages, which may quote them. `--text` shows both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
from pymongo.database import Database
from rich.console import Console
from rich.progress import Progress

from linedesk.commands.listing import Column, lately, moment, show_rows, zoned
from linedesk.commands.people import Names, name_in, named, names_beside, who, who_briefly
from linedesk.operate.acts import Acts
from linedesk.operate.dead_letters import (
    Choice,
    Letter,
    Replays,
    all_of,
    explained,
    found,
    frames,
    query_of,
    replayed,
    summary,
    what,
    whole,
)
from linedesk.operate.errors import NotDone, NotReplayed, Phrase
from linedesk.operate.format import echo_json, local, plain, visible
from linedesk.operate.text import known
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database, open_to_act, operator
from linedesk.store.documents import DEADLETTERS, Document
from linedesk.store.errors import translated
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import FIRST_AT, LAST_AT, REPLAYED_AT


def show_list(letters: Sequence[Letter], names: Names, *, as_json: bool) -> None:
    """Print one line for each letter."""
    if as_json:
        for letter in letters:
            echo_json(named(summary(letter), names))
        return

    def who_of(letter: Letter) -> str:
        return who(names, letter.get("channel"), letter.get("key"))

    id_ = Column("id", lambda letter: letter["_id"])
    about = Column("what", lambda letter: known(what(letter)), fold=8)
    tries = Column("tries", lambda letter: letter.get("attempts", "-"), left_out=2)
    again = Column("replayed", lambda letter: known(replayed(letter)), left_out=3)
    show_rows(
        letters,
        nothing=NOTHING,
        narrow=_narrow(id_, about, names),
        screen=(
            id_,
            Column(zoned("last"), lambda letter: moment(letter.get(LAST_AT)), left_out=1),
            about,
            Column("who", who_of, fold=WHO_CELLS),
            Column("cause", lambda letter: explained(letter), fold=CAUSE_CELLS),
            tries,
            again,
        ),
        pipe=(
            id_,
            Column("last", lambda letter: local(letter.get(LAST_AT))),
            about,
            Column("key", lambda letter: letter.get("key", "-")),
            Column("cause", lambda letter: letter.get("cause", "-")),
            tries,
            again,
            Column("name", lambda letter: name_in(names, letter) or "-"),
        ),
    )


def _narrow(id_: Column, about: Column, names: Names) -> tuple[Column, ...]:
    """The columns for a width of 80: tries and replays are beside the cause."""

    def cause(letter: Letter) -> str:
        tries, again = letter.get("attempts"), replayed(letter)
        parts = [
            _replays(again),
            "" if tries is None else _many_tries(tries),
            explained(letter),
        ]
        return ", ".join(filter(None, parts))

    return (
        id_,
        Column(zoned("last"), lambda letter: lately(letter.get(LAST_AT))),
        about,
        Column("who", lambda one: who_briefly(names, one.get("channel"), one.get("key"))),
        Column("cause", cause, fold=CAUSE_CELLS),
    )


def _replays(replays: str) -> str:
    if replays == "-":
        return ""
    if replays == "begun":
        return "replay begun"
    return f"replayed {replays}"


def _many_tries(count: Any) -> str:
    return ("{count} try" if count == 1 else "{count} tries").format(count=count)


def show_one(letter: Letter, names: Names, *, text: bool, as_json: bool) -> None:
    """Print everything about a letter; message texts only with `text`."""
    told = named(summary(letter), names)
    if text:
        told |= {name: letter[name] for name in ("document", "effect") if name in letter}
    traceback = letter.get("traceback")
    told["traceback"] = traceback if text else frames(traceback, id_=str(letter["_id"]))
    if as_json:
        echo_json(told)
        return
    if told["explained"] == told["cause"]:
        del told["explained"]
    if told["about"] is None:
        del told["about"]
    times = {FIRST_AT: local(letter.get(FIRST_AT)), LAST_AT: local(letter.get(LAST_AT))}
    if letter.get(REPLAYED_AT):
        times[REPLAYED_AT] = local(letter[REPLAYED_AT])
    for name, value in (told | times).items():
        for line in _lines(name, value):
            click.echo(visible(line))


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = "\n" + json.dumps(value, ensure_ascii=False, indent=2, default=plain)
    elif isinstance(value, str) and "\n" in value:
        value = "\n" + value
    yield f"{name:<11} {'-' if value is None else value}"


NOTHING = "no dead letters match"
WHO_CELLS, CAUSE_CELLS = 12, 14
# A terminal shows the progress from this number of letters on.
MANY = 20
# The option that replays a refused letter anyway.
UNLESS = {
    "again": "--all replays it again",
    "force": "--force replays it anyway",
}


def list_letters(settings: Settings, choice: Choice, *, as_json: bool) -> None:
    """Print the letters, newest first."""
    with open_database(settings, app_name="linedesk-dead") as database:
        letters = database[DEADLETTERS]
        rows = found(letters, choice, newest_first=True)
        show_list(rows, names_beside(database, rows), as_json=as_json)
        if choice.limit and len(rows) == choice.limit:
            with translated():
                count = letters.count_documents(query_of(letters, choice))
            if count > len(rows):
                told = "{shown} of {count} shown; --limit shows more"
                click.echo(told.format(shown=len(rows), count=count), err=True)
    if as_json and not rows:
        click.echo(NOTHING, err=True)


def show_letters(settings: Settings, ids: Sequence[str], *, text: bool, as_json: bool) -> None:
    """Print everything about each letter; message texts only with `text`."""
    choice = Choice(ids=ids)
    with open_database(settings, app_name="linedesk-dead") as database:
        letters = database[DEADLETTERS]
        rows = all_of(found(letters, choice), choice)
        names = names_beside(database, rows)
        for row in rows:
            letter = whole(letters, row["_id"])
            if letter is not None:
                show_one(letter, names, text=text, as_json=as_json)


def replay_letters(
    settings: Settings, choice: Choice, *, force: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Put the letters into recvq again, oldest first. Returns the exit code."""
    with open_to_act(settings, app_name="linedesk-dead") as database:
        letters = database[DEADLETTERS]
        rows = _some(all_of(found(letters, choice), choice))
        if not dry_run:
            _agree(len(rows), _replay_question(len(rows)), yes=yes)
        replay = _rehearsal(database) if dry_run else _acts(database).replay
        refused = 0
        replayed_ids = []
        for row in _slowly(rows, "replaying"):
            told = {"id": row["_id"]}
            try:
                told["replay"] = replay(row["_id"], again=choice.everything, force=force)
                replayed_ids.append(row["_id"])
            except NotReplayed as error:
                refused += 1
                told["refused"] = _words(error)
            _tell(told, as_json=as_json, dry_run=dry_run)
        waits = _acts(database).waits_for(replayed_ids)
        if waits and not dry_run:
            click.echo(waits, err=True)
    return Exit.FAILED if refused else Exit.OK


def drop_letters(
    settings: Settings, choice: Choice, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete the letters for good."""
    with open_to_act(settings, app_name="linedesk-dead") as database:
        letters = database[DEADLETTERS]
        rows = _some(all_of(found(letters, choice), choice))
        if dry_run:
            show_list(rows, names_beside(database, rows), as_json=as_json)
            click.echo(f"{len(rows)} would be dropped", err=True)
            return
        _agree(len(rows), _drop_question(len(rows)), yes=yes)
        dropped = _acts(database).drop([row["_id"] for row in rows])
    click.echo(f"dropped {dropped}")


def _some(rows: list[Document]) -> list[Document]:
    """Return the rows. Raises NotDone if there are none."""
    if not rows:
        raise NotDone(Phrase(NOTHING))
    return rows


def _acts(database: Database[Any]) -> Acts:
    return Acts(database, by=operator(), via="command")


def _rehearsal(database: Database[Any]) -> Callable[..., str]:
    """Return a function that checks a replay and writes nothing."""
    replaying = Replays(database)

    def rehearse(id_: str, *, again: bool, force: bool) -> str:
        _, document = replaying.prepared(id_, again=again, force=force)
        return str(document[EVENT_ID])

    return rehearse


def _words(error: NotReplayed) -> str:
    return f"{error}; {UNLESS[error.unless]}" if error.unless else str(error)


# Questions and answers.


def _replay_question(count: int) -> str:
    return f"Replay {count} dead letters?"


def _drop_question(count: int) -> str:
    return f"Drop {count} dead letters?"


def _agree(count: int, question: str, *, yes: bool) -> None:
    """Ask before changing more than one letter. Raises click's Abort, or UsageError in a pipe."""
    if count <= 1 or yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{count} dead letters match: add --yes")
    click.confirm(question, abort=True, err=True)


def _slowly(rows: list[Document], words: str) -> Iterator[Document]:
    """Yield the rows; a terminal shows a progress bar if there are many."""
    console = Console(stderr=True)
    with Progress(console=console, disable=len(rows) < MANY or not console.is_terminal) as bar:
        yield from bar.track(rows, description=words)


def _tell(told: Mapping[str, str], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        echo_json(told)
    elif "refused" in told:
        refusal = "linedesk: {id} not replayed: {refused}"
        click.echo(refusal.format(id=told["id"], refused=told["refused"]), err=True)
    else:
        done = "would replay {id} as {replay}" if dry_run else "replayed {id} as {replay}"
        click.echo(done.format(id=told["id"], replay=told["replay"]))
