"""`linedesk pause`, `resume` and `release`: what an operator orders, and whether it is obeyed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from pymongo.database import Database

from linedesk.compose.database import open_database, operator
from linedesk.console import processes
from linedesk.console.acts import Acts, Kind, heads, newest, only
from linedesk.console.errors import NotDone
from linedesk.console.facts import leader
from linedesk.console.format import echo_json, local, tabbed, visible
from linedesk.console.search import scope_of
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import Settings
from linedesk.store.control import Control, Scope

# A dispatcher reads its orders twice a second and tells what it obeys once a second.
OBEY_SECONDS = 4.0
CAME_SECONDS = 10.0
LOOK_SECONDS = 0.2
Found = TypeVar("Found")
AUDIT_HEAD = ("at", "by", "via", "act", "on", "outcome", "why")
NOBODY = "no dispatcher has said yet that it obeys; the next one that runs will"


def pause(
    settings: Settings,
    word: str | None,
    *,
    why: str,
    as_json: bool,
    obey_seconds: float = OBEY_SECONDS,
) -> None:
    """Pause everything, a channel or a conversation, and wait until the dispatcher says so."""
    with open_database(settings, app_name="linedesk-pause") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        is_new = _acts(database).pause(scope, why=why)
        obeyed = _within(obey_seconds, lambda: scope in (_obeyed(database) or ()))
    if as_json:
        echo_json({"paused": str(scope), "isNew": is_new, "obeyed": obeyed})
        return
    click.echo(f"{'paused' if is_new else 'was paused already:'} {visible(str(scope))}")
    click.echo("nothing of it is decided any more" if obeyed else NOBODY)


def resume(
    settings: Settings,
    word: str | None,
    *,
    why: str,
    as_json: bool,
    obey_seconds: float = OBEY_SECONDS,
) -> int:
    """End one pause; returns 1 if there was none like it."""
    with open_database(settings, app_name="linedesk-resume") as database:
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
            click.echo(NOBODY)
    return Exit.OK if was else Exit.FAILED


def release(settings: Settings, word: str, *, kind: Kind | None, why: str, as_json: bool) -> int:
    """Give up what a conversation is stuck on; returns 1 while no dispatcher has done it."""
    with open_database(settings, app_name="linedesk-release") as database:
        scope = scope_of(database, word, channel=settings.line_channel)
        if scope.channel is None or scope.key is None:
            raise NotDone(f"{scope} is no conversation: one is released at a time")
        found = heads(database, scope.channel, scope.key)
        if not found and _obeyed(database) is None:
            raise NotDone("no dispatcher runs, and only that would tell what waits")
        head = only(found, kind)
        acts = _acts(database)
        order = acts.release(scope.channel, scope.key, head, why=why)
        came = _within(CAME_SECONDS, lambda: acts.came(order))
    told = {"release": str(scope), head.kind: head.id, "came": came}
    if as_json:
        echo_json(told)
    else:
        click.echo(visible(f"to be given up of {scope}: the {head.kind} {head.id} ({head.why})"))
        click.echo(visible(came) if came else f"ordered; {NOBODY}")
    return Exit.OK if came else Exit.FAILED


def list_audit(settings: Settings, *, limit: int, as_json: bool) -> None:
    """Print what operators did, the newest first."""
    with open_database(settings, app_name="linedesk-audit") as database:
        acts = newest(database, limit=limit)
    if not as_json:
        click.echo("\t".join(AUDIT_HEAD))
    for row in acts:
        row["id"] = row.pop("_id")
        if as_json:
            echo_json(row)
        else:
            on = row.get("on")
            named = ", ".join(map(str, on)) if isinstance(on, list) else on
            parts = [local(row.get("at")), *(row.get(n) for n in ("by", "via", "act")), named]
            parts += [row.get("outcome"), row.get("why") or "-"]
            click.echo(tabbed(parts))


def _acts(database: Database[Any]) -> Acts:
    return Acts(database, by=operator(), via="command")


def _obeyed(database: Database[Any]) -> list[Scope] | None:
    """What the dispatcher that leads says that it obeys; None where none says anything."""
    row = leader(database) or {}
    if not processes.is_fresh(row, now=datetime.now(UTC)):
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
