"""`linedesk pause`, `resume`, `release` and `audit`: orders, and whether the dispatcher obeys."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from pymongo.database import Database

from linedesk.cli.listing import Column, moment, show_rows, zoned
from linedesk.cli.people import NAME_CELLS, Names, cut, known_names, short
from linedesk.compose.database import open_database, open_to_act, operator
from linedesk.console import processes
from linedesk.console.acts import Acts, Kind, heads, newest, only
from linedesk.console.errors import NotDone
from linedesk.console.facts import present_leader
from linedesk.console.format import echo_json, local, visible
from linedesk.console.search import scope_of
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import Settings
from linedesk.store.control import Control, Scope

# A dispatcher reads its orders twice a second and reports what it obeys once a second.
OBEY_SECONDS = 4.0
CAME_SECONDS = 10.0
LOOK_SECONDS = 0.2
Found = TypeVar("Found")
# What an act is on, where that is a conversation.
CONVERSATION = re.compile(r"[^/ ]+/[UCR]")
NOT_CONFIRMED = "no dispatcher has confirmed yet; {} takes effect when one runs"
EVERYTHING = "all"


def pause(
    settings: Settings,
    word: str | None,
    *,
    why: str,
    as_json: bool,
    yes: bool = False,
    obey_seconds: float = OBEY_SECONDS,
) -> None:
    """Pause everything, a channel or a conversation, and wait until the dispatcher confirms it.

    Everything only with `yes`, or with the word typed on a terminal.
    """
    if word in (None, EVERYTHING) and not yes:
        _agree_to_everything()
    with open_to_act(settings, app_name="linedesk-pause") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        is_new = _acts(database).pause(scope, why=why)
        obeyed = _within(obey_seconds, lambda: scope in (_obeyed(database) or ()))
    if as_json:
        echo_json({"paused": str(scope), "isNew": is_new, "obeyed": obeyed})
        return
    click.echo(f"{'paused' if is_new else 'was paused already:'} {visible(str(scope))}")
    held = "new events are held until you resume"
    click.echo(held if obeyed else NOT_CONFIRMED.format("the pause"))


def _agree_to_everything() -> None:
    """Ask before everything is paused. Raises click's Abort, or UsageError in a pipe."""
    if not sys.stdin.isatty():
        raise click.UsageError("this pauses every conversation of every channel: add --yes")
    click.echo("This pauses every conversation of every channel: no user gets an answer.", err=True)
    typed = click.prompt(f"Type {EVERYTHING} to pause everything", err=True, default="")
    if typed.strip() != EVERYTHING:
        click.echo("nothing was paused", err=True)
        raise click.Abort


def resume(
    settings: Settings,
    word: str | None,
    *,
    why: str,
    as_json: bool,
    obey_seconds: float = OBEY_SECONDS,
) -> int:
    """End one pause; returns 1 if there was none like it."""
    with open_to_act(settings, app_name="linedesk-resume") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        was = _acts(database).resume(scope, why=why)
        left = Control(database).read()
        obeyed = was and _within(obey_seconds, lambda: _has_ended(database, scope))
    still = [str(one.scope) for one in left.rows]
    if as_json:
        echo_json({"resumed": str(scope), "wasPaused": was, "obeyed": obeyed, "paused": still})
    else:
        click.echo(
            f"resumed {visible(str(scope))}" if was else f"{visible(str(scope))} was not paused"
        )
        for one in still:
            click.echo(f"still paused: {visible(one)}")
        if was and not obeyed:
            click.echo(NOT_CONFIRMED.format("the end of the pause"))
    return Exit.OK if was else Exit.FAILED


def release(settings: Settings, word: str, *, kind: Kind | None, why: str, as_json: bool) -> int:
    """Give up what a conversation is stuck on; returns 1 while no dispatcher has done it."""
    with open_to_act(settings, app_name="linedesk-release") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        if scope.channel is None or scope.key is None:
            raise NotDone(f"{scope} is not a conversation: name one, such as main/U4af49806")
        found = heads(database, scope.channel, scope.key)
        if not found and _obeyed(database) is None:
            raise NotDone("no dispatcher runs, so it is not known what waits")
        head = only(found, kind)
        if not head.is_stuck(datetime.now(UTC)):
            why_not = f": {head.why}" if head.why else ""
            raise NotDone(f"the {head.kind} {head.id} is not stuck{why_not}; nothing was released")
        acts = _acts(database)
        order = acts.release(scope.channel, scope.key, head, why=why)
        came = _within(CAME_SECONDS, lambda: acts.came(order))
    told = {"release": str(scope), head.kind: head.id, "came": came}
    if as_json:
        echo_json(told)
    else:
        click.echo(visible(f"{scope}: to be given up: the {head.kind} {head.id} ({head.why})"))
        click.echo(visible(came) if came else NOT_CONFIRMED.format("the release"))
    return Exit.OK if came else Exit.FAILED


def list_audit(settings: Settings, *, limit: int, as_json: bool) -> None:
    """Print what operators did, the newest first."""
    with open_database(settings, app_name="linedesk-audit") as database:
        rows = newest(database, limit=limit)
        names = known_names(database, {id_ for row in rows for id_ in _conversations(row)})
    if as_json:
        for row in rows:
            row["id"] = row.pop("_id")
            echo_json({**row, "name": _name(row, names)})
        return
    act = Column("act", lambda row: row.get("act"))
    outcome = Column("outcome", lambda row: row.get("outcome"), fold=8)
    why = Column("why", lambda row: row.get("why") or "-", fold=8)
    show_rows(
        rows,
        screen=(
            Column(zoned("at"), lambda row: moment(row.get("at"))),
            Column("by", lambda row: row.get("by"), fold=8),
            Column("via", lambda row: row.get("via"), left_out=1),
            act,
            Column("on", lambda row: _on_screen(row, names), fold=28),
            outcome,
            why,
        ),
        pipe=(
            Column("at", lambda row: local(row.get("at"))),
            Column("by", lambda row: row.get("by")),
            Column("via", lambda row: row.get("via")),
            act,
            Column("on", lambda row: ", ".join(_on(row))),
            outcome,
            why,
            Column("name", lambda row: _name(row, names) or "-"),
        ),
        nothing="No acts yet.",
    )


def _on(row: Mapping[str, Any]) -> list[str]:
    on = row.get("on")
    return [str(one) for one in on] if isinstance(on, list) else [str(on)]


def _conversations(row: Mapping[str, Any]) -> list[str]:
    """The conversations that an act was on: `main/U…`, before what was released of it."""
    return [one.partition(" ")[0] for one in _on(row) if CONVERSATION.match(one)]


def _name(row: Mapping[str, Any], names: Names) -> str | None:
    return next((names[id_] for id_ in _conversations(row) if id_ in names), None)


def _on_screen(row: Mapping[str, Any], names: Names) -> str:
    first, *others = _on(row) or ["-"]
    name = _name(row, names)
    more = f" and {len(others)} more" if others else ""
    return f"{cut(name, NAME_CELLS)} {short(first)}{more}" if name else f"{short(first)}{more}"


def _acts(database: Database[Any]) -> Acts:
    return Acts(database, by=operator(), via="command")


def _obeyed(database: Database[Any]) -> list[Scope] | None:
    """The pauses that the leading dispatcher has confirmed; None where no dispatcher runs."""
    row = present_leader(database)
    if row is None:
        return None
    return [Scope(one.get("channel"), one.get("key")) for one in processes.listed(row, "paused")]


def _has_ended(database: Database[Any], scope: Scope) -> bool:
    told = _obeyed(database)
    return told is not None and scope not in told


def _within(seconds: float, look: Callable[[], Found]) -> Found:
    """What is found in time, else what was found last."""
    deadline, rest = time.monotonic() + seconds, threading.Event()
    while not (found := look()) and time.monotonic() < deadline:
        rest.wait(LOOK_SECONDS)
    return found
