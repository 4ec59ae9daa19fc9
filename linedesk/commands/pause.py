"""`linedesk pause`, `resume`, `release` and `audit`: orders, and the dispatcher's confirmation."""

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

from linedesk.commands.listing import Column, moment, show_rows, zoned
from linedesk.commands.people import NAME_CELLS, Names, cut, known_names, short
from linedesk.operate import processes
from linedesk.operate.acts import Acts, Head, Kind, OperatorControl, heads, newest, only
from linedesk.operate.errors import NotDone, Phrase
from linedesk.operate.events.rows import present_leader
from linedesk.operate.format import echo_json, local, visible
from linedesk.operate.lists.waiting import COST_OF_PAUSE, read_waiting
from linedesk.operate.search import is_seen, scope_of
from linedesk.operate.text import known
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database, open_to_act, operator
from linedesk.store.control import Scope

# A dispatcher reads its orders twice a second and confirms them once a second.
OBEY_SECONDS = 4.0
CAME_SECONDS = 10.0
LOOK_SECONDS = 0.2
Found = TypeVar("Found")
KINDS: Mapping[Kind, str] = {"event": "event", "send": "send"}
# The object of an act, if it is a conversation.
CONVERSATION = re.compile(r"[^/ ]+/[UCR]")
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
    """Pause everything, a channel or a conversation, and wait for the dispatcher's confirmation.

    The cost is shown first. Everything is paused only with `yes`, or after the operator has typed
    `all` on a terminal, and a conversation that was never seen only with `yes`. Raises NotDone.
    """
    with open_to_act(settings, app_name="linedesk-pause") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        if scope.key is not None and not yes and not is_seen(database, scope):
            message = (
                "{scope} is not known: no event of it was seen; check its id, or add --yes to "
                "pause it before its first message"
            )
            raise NotDone(Phrase(message, scope=scope))
        waiting = read_waiting(database, scope)
        click.echo(COST_OF_PAUSE, err=True)
        if waiting.events:
            click.echo(waiting, err=True)
        if word in (None, EVERYTHING) and not yes:
            _agree_to_everything()
        is_new = _acts(database).pause(scope, why=why)
        obeyed = _within(obey_seconds, lambda: scope in (_obeyed(database) or ()))
    if as_json:
        echo_json({"paused": str(scope), "isNew": is_new, "obeyed": obeyed})
        return
    told = "paused {scope}" if is_new else "{scope} was already paused"
    click.echo(told.format(scope=visible(str(scope))))
    click.echo(
        "new events are held until you resume (`linedesk resume`)"
        if obeyed
        else "no dispatcher has confirmed yet; the pause takes effect when one runs"
    )


def _agree_to_everything() -> None:
    """Ask before pausing everything. Raises click's Abort, or UsageError in a pipe."""
    if not sys.stdin.isatty():
        raise click.UsageError("this pauses every conversation of every channel: add --yes")
    click.echo("This pauses every conversation of every channel: no user gets an answer.", err=True)
    question = f"Type {EVERYTHING} to pause everything"
    typed = click.prompt(question, err=True, default="")
    if typed.strip() != EVERYTHING:
        click.echo("nothing was paused", err=True)
        raise click.Abort


def resume(
    settings: Settings,
    word: str | None,
    *,
    why: str,
    as_json: bool,
    drop: bool = False,
    yes: bool = False,
    obey_seconds: float = OBEY_SECONDS,
) -> int:
    """End one pause, after a question on a terminal. Returns 1 if there was no such pause."""
    with open_to_act(settings, app_name="linedesk-resume") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        waiting = read_waiting(database, scope)
        click.echo(waiting, err=True)
        if waiting.events and not yes and sys.stdin.isatty():
            asked = "Resume {scope}?"
            if drop:
                asked = "Resume {scope}, and make each waiting event a dead letter?"
            click.confirm(asked.format(scope=visible(str(scope))), abort=True, err=True)
        was = _acts(database).resume(scope, why=why, drop=drop)
        left = OperatorControl(database).read()
        obeyed = was and _within(obey_seconds, lambda: _has_ended(database, scope))
    still = [str(one.scope) for one in left.rows]
    if as_json:
        echo_json({"resumed": str(scope), "wasPaused": was, "obeyed": obeyed, "paused": still})
    else:
        told = "resumed {scope}" if was else "{scope} was not paused"
        click.echo(told.format(scope=visible(str(scope))))
        if was and drop:
            told = (
                "what waited becomes dead letters: `linedesk dead list --cause 'dropped by {name}'`"
            )
            click.echo(told.format(name=visible(operator())))
        for one in still:
            click.echo(f"still paused: {visible(one)}")
        if was and not obeyed:
            click.echo("no dispatcher has confirmed yet; the pause ends when one runs")
    return Exit.OK if was else Exit.FAILED


def accept(settings: Settings, version: str, *, why: str, as_json: bool) -> None:
    """Let workers with this version of the bot get jobs."""
    with open_to_act(settings, app_name="linedesk-accept") as database:
        is_new = _acts(database).accept(version, why=why)
    if as_json:
        echo_json({"accepted": version, "isNew": is_new})
        return
    told = "accepted {version}" if is_new else "{version} was already accepted"
    click.echo(told.format(version=visible(version)))


def release(settings: Settings, word: str, *, kind: Kind | None, why: str, as_json: bool) -> int:
    """Give up the event or send that blocks a conversation. Returns 1 if none has done it yet."""
    with open_to_act(settings, app_name="linedesk-release") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        if scope.channel is None or scope.key is None:
            message = "{scope} is not a conversation: name one, such as main/U4af49806"
            raise NotDone(Phrase(message, scope=scope))
        found = heads(database, scope.channel, scope.key)
        if not found and _obeyed(database) is None:
            raise NotDone(Phrase("no dispatcher runs, and only a dispatcher knows what waits"))
        head = only(found, kind)
        if not head.is_stuck(datetime.now(UTC)):
            message = "{kind} {id} is not stuck ({why}); nothing was released"
            raise NotDone(Phrase(message, **_named(head)))
        acts = _acts(database)
        order = acts.release(scope.channel, scope.key, head, why=why)
        came = _within(CAME_SECONDS, lambda: acts.came(order))
    told = {"release": str(scope), head.kind: head.id, "came": came}
    if as_json:
        echo_json(told)
    else:
        ordered = "{scope}: release of {kind} {id} ordered ({why})"
        click.echo(visible(ordered.format(scope=scope, **_named(head))))
        click.echo(
            visible(known(came))
            if came
            else "no dispatcher has confirmed yet; the release takes effect when one runs"
        )
    return Exit.OK if came else Exit.FAILED


def _named(head: Head) -> Mapping[str, str]:
    return {"kind": KINDS[head.kind], "id": head.id, "why": known(head.why) or "-"}


def list_audit(settings: Settings, *, limit: int, as_json: bool) -> None:
    """Print the acts of operators, newest first."""
    with open_database(settings, app_name="linedesk-audit") as database:
        rows = newest(database, limit=limit)
        names = known_names(database, {id_ for row in rows for id_ in _conversations(row)})
    if as_json:
        for row in rows:
            row["id"] = row.pop("_id")
            echo_json({**row, "name": _name(row, names)})
        return
    act = Column("act", _act)
    outcome = Column("outcome", _outcome, fold=8)
    why = Column("why", lambda row: row.get("why") or "-", fold=8)
    show_rows(
        rows,
        screen=(
            Column(zoned("at"), lambda row: moment(row.get("at"))),
            Column("by", lambda row: row.get("by"), fold=8),
            Column("via", _way, left_out=1),
            act,
            Column("target", lambda row: _on_screen(row, names), fold=28),
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
        nothing="no acts yet",
    )


def _on(row: Mapping[str, Any]) -> list[str]:
    on = row.get("on")
    return [str(one) for one in on] if isinstance(on, list) else [str(on)]


def _act(row: Mapping[str, Any]) -> str:
    return known(str(row.get("act")))


def _outcome(row: Mapping[str, Any]) -> str:
    return known(row.get("outcome"))


def _way(row: Mapping[str, Any]) -> str:
    return known(str(row.get("via")))


def _conversations(row: Mapping[str, Any]) -> list[str]:
    """The conversations of an act: `main/U…`, without the id of the released event or send."""
    return [one.partition(" ")[0] for one in _on(row) if CONVERSATION.match(one)]


def _name(row: Mapping[str, Any], names: Names) -> str | None:
    return next((names[id_] for id_ in _conversations(row) if id_ in names), None)


def _on_screen(row: Mapping[str, Any], names: Names) -> str:
    first, *others = _on(row) or ["-"]
    name = _name(row, names)
    shown = f"{cut(name, NAME_CELLS)} {short(first)}" if name else short(first)
    if not others:
        return shown
    more = "{first} and {count} more"
    return more.format(first=shown, count=len(others))


def _acts(database: Database[Any]) -> Acts:
    return Acts(database, by=operator(), via="command")


def _obeyed(database: Database[Any]) -> list[Scope] | None:
    """The pauses that the leading dispatcher has confirmed; None if no dispatcher runs."""
    row = present_leader(database)
    if row is None:
        return None
    return [Scope(one.get("channel"), one.get("key")) for one in processes.listed(row, "paused")]


def _has_ended(database: Database[Any], scope: Scope) -> bool:
    told = _obeyed(database)
    return told is not None and scope not in told


def _within(seconds: float, look: Callable[[], Found]) -> Found:
    """Call `look` until it finds something or the time is over; return the last result."""
    deadline, rest = time.monotonic() + seconds, threading.Event()
    while not (found := look()) and time.monotonic() < deadline:
        rest.wait(LOOK_SECONDS)
    return found
