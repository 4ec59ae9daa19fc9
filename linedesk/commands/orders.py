"""`linedesk pause`, `resume`, `release`, `accept`, `timers set`: orders, and their confirmation."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option, to_act, why_option
from linedesk.operate.format import echo_json, visible
from linedesk.runtime.exit_codes import Exit

if TYPE_CHECKING:
    from pymongo.database import Database

    from linedesk.commands.options import Opened
    from linedesk.operate.acts import Kind
    from linedesk.store.control import Scope

# A dispatcher reads its orders twice a second and confirms them once a second.
OBEY_SECONDS = 4.0
CAME_SECONDS = 10.0
LOOK_SECONDS = 0.2
EVERYTHING = "all"
Found = TypeVar("Found")

scope_argument = click.argument("scope", required=False, metavar="[CHANNEL[/KEY]]")


@click.command(
    cls=Command, examples=("pause main", 'pause main/U4af --why "loops"', "pause all --yes")
)
@scope_argument
@why_option
@option("--yes", is_flag=True, help="Pause everything, or a conversation that was never seen.")
@json_option
@to_act
def pause(own: Opened, scope: str | None, why: str, yes: bool, as_json: bool) -> None:
    """Stop processing everything, a channel or a conversation.

    New events are held in order until `linedesk resume`, also over restarts. Answers that were
    decided before are still sent. The command shows what waits, and what late answers cost.

    Without CHANNEL, or with `all`, everything is paused, which needs --yes. KEY is the id of a
    conversation, the start of the id, or a name in LINE.
    """
    from linedesk.operate.find import is_seen, scope_of
    from linedesk.operate.pauses import COST_OF_PAUSE, read_waiting
    from linedesk.operate.text import NotDone

    where = scope_of(own.database, scope, channel=own.channel)
    if where.key is not None and not yes and not is_seen(own.database, where):
        message = (
            "{scope} is not known: no event of it was seen; check its id, or add --yes to "
            "pause it before its first message"
        )
        raise NotDone(message.format(scope=where))
    waiting = read_waiting(own.database, where)
    click.echo(COST_OF_PAUSE, err=True)
    if waiting.events:
        click.echo(waiting, err=True)
    if scope in (None, EVERYTHING) and not yes:
        raise click.UsageError("this pauses every conversation of every channel: add --yes")
    is_new = own.acts.pause(where, why=why)
    obeyed = _within(OBEY_SECONDS, lambda: where in (_obeyed(own.database) or ()))
    if as_json:
        echo_json({"paused": str(where), "isNew": is_new, "obeyed": obeyed})
        return
    words = visible(str(where))
    click.echo(f"paused {words}" if is_new else f"{words} was already paused")
    click.echo(
        "new events are held until you resume (`linedesk resume`)"
        if obeyed
        else "no dispatcher has confirmed yet; the pause takes effect when one runs"
    )


@click.command(
    cls=Command, examples=("resume", "resume main/U4af49806", "resume main/U4af49806 --drop")
)
@scope_argument
@why_option
@option("--drop", is_flag=True, help="Handle no event that waits: make each a dead letter.")
@option("--yes", is_flag=True, help="Resume without a question.")
@json_option
@to_act
def resume(own: Opened, scope: str | None, why: str, drop: bool, yes: bool, as_json: bool) -> int:
    """End a pause. Give the same CHANNEL or conversation as to `linedesk pause`; default: all.

    It shows what waits and what the answers cost, and asks on a terminal. With --drop each event
    that was stored until now becomes a dead letter, which `linedesk dead replay` puts back.
    """
    from linedesk.operate.acts import OperatorControl
    from linedesk.operate.find import scope_of
    from linedesk.operate.pauses import read_waiting
    from linedesk.setup.database import operator

    where = scope_of(own.database, scope, channel=own.channel)
    words = visible(str(where))
    waiting = read_waiting(own.database, where)
    click.echo(waiting, err=True)
    if waiting.events and not yes and sys.stdin.isatty():
        cost = ", and make each waiting event a dead letter" if drop else ""
        click.confirm(f"Resume {words}{cost}?", abort=True, err=True)
    was = own.acts.resume(where, why=why, drop=drop)
    left = OperatorControl(own.database).read()
    obeyed = was and _within(OBEY_SECONDS, lambda: _has_ended(own.database, where))
    still = [str(one.scope) for one in left.rows]
    if as_json:
        echo_json({"resumed": str(where), "wasPaused": was, "obeyed": obeyed, "paused": still})
    else:
        click.echo(f"resumed {words}" if was else f"{words} was not paused")
        if was and drop:
            letters = f"`linedesk dead list --cause 'dropped by {visible(operator())}'`"
            click.echo(f"what waited becomes dead letters: {letters}")
        for one in still:
            click.echo(f"still paused: {visible(one)}")
        if was and not obeyed:
            click.echo("no dispatcher has confirmed yet; the pause ends when one runs")
    return Exit.OK if was else Exit.FAILED


@click.command(cls=Command, examples=("accept 1.1-4af49806",))
@click.argument("version", metavar="VERSION")
@why_option
@json_option
@to_act
def accept(own: Opened, version: str, why: str, as_json: bool) -> None:
    """Let workers with a new version of the bot get jobs (DISPATCHER_WORKERS=amqp).

    `linedesk status` names the version. Accept only one that you have deployed: its workers get
    the texts of your users. The first version ever needs no command.
    """
    is_new = own.acts.accept(version, why=why)
    words = visible(version)
    if as_json:
        echo_json({"accepted": version, "isNew": is_new})
    else:
        click.echo(f"accepted {words}" if is_new else f"{words} was already accepted")


@click.command(cls=Command, examples=("release main/U4af49806 --why broken",))
@click.argument("conversation", metavar="CHANNEL/KEY")
@option("--event", "kind", flag_value="event", help="Give up the first event in its queue.")
@option("--send", "kind", flag_value="send", help="Give up the first send in its outbox.")
@why_option
@json_option
@to_act
def release(own: Opened, conversation: str, kind: Kind | None, why: str, as_json: bool) -> int:
    """Give up the event or send that blocks a conversation. The next one is then processed.

    It becomes a dead letter, which `linedesk dead replay` puts back. Exit code 1 if none has been
    given up yet.
    """
    from linedesk.operate.acts import heads, only
    from linedesk.operate.find import scope_of
    from linedesk.operate.text import NotDone, known

    scope = scope_of(own.database, conversation, channel=own.channel)
    if scope.channel is None or scope.key is None:
        message = "{scope} is not a conversation: name one, such as main/U4af49806"
        raise NotDone(message.format(scope=scope))
    found = heads(own.database, scope.channel, scope.key)
    if not found and _obeyed(own.database) is None:
        raise NotDone("no dispatcher runs, and only a dispatcher knows what waits")
    head = only(found, kind)
    named = {"kind": head.kind, "id": head.id, "why": known(head.why) or "-"}
    if not head.is_stuck(datetime.now(UTC)):
        message = "{kind} {id} is not stuck ({why}); nothing was released"
        raise NotDone(message.format(**named))
    acts = own.acts
    order = acts.release(scope.channel, scope.key, head, why=why)
    came = _within(CAME_SECONDS, lambda: acts.came(order))
    if as_json:
        echo_json({"release": str(scope), head.kind: head.id, "came": came})
    else:
        ordered = "{scope}: release of {kind} {id} ordered ({why})"
        click.echo(visible(ordered.format(scope=scope, **named)))
        not_yet = "no dispatcher has confirmed yet; the release takes effect when one runs"
        click.echo(visible(known(came)) if came else not_yet)
    return Exit.OK if came else Exit.FAILED


@click.group()
def timers() -> None:
    """Set a timer in many conversations."""


@timers.command("set", cls=Command, examples=('timers set news --all-friends --at "月 12:00"',))
@click.argument("name")
@option("--all-friends", is_flag=True, required=True, help="For all known users.")
@option(
    "--at", "when", required=True, metavar="WHEN", help="A rule, as in `talk.every`, or a moment."
)
@option("--tz", default="Asia/Tokyo", show_default=True, help="The time zone of WHEN.")
@why_option
@json_option
@to_act
def timers_set(
    own: Opened, name: str, when: str, tz: str, why: str, as_json: bool, **_: Any
) -> int:
    """Set the timer NAME for each known user who has not blocked the bot, about 200 a second.

    The bot needs a handler for it (`@bot.timer`). Exit code 1 if not all are set within 10 s.
    """
    from linedesk.operate.text import known

    acts = own.acts
    order = acts.set_timers(name, _timer(name, when, tz), why=why)
    came = _within(CAME_SECONDS, lambda: acts.came(order))
    if as_json:
        echo_json({"timer": name, "came": came})
    else:
        not_yet = "ordered; the leading dispatcher sets it in one conversation after another"
        click.echo(visible(known(came)) if came else not_yet)
    is_set = isinstance(came, dict) and came.get("code") == "timers_set"
    return Exit.OK if is_set else Exit.FAILED


def _timer(name: str, when: str, tz: str) -> dict[str, Any]:
    """The timer of an order, as in `schedule`. Raises UsageError."""
    from linedesk.store.recurrence import Recurrence
    from linedesk.store.timers import check_name

    moment = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(when)
    try:
        check_name(name)
        rule = Recurrence.parse("0:00" if moment else when, tz, now=datetime.now(UTC))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    now = datetime.now(UTC)
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=rule.zone)
    if rule.after(now) is None if moment is None else moment <= now:
        raise click.UsageError(f"no time that comes: {when!r}")
    return {"runAt": moment, "every": None if moment else rule.as_document(), "data": {}}


def _obeyed(database: Database[Any]) -> list[Scope] | None:
    """The pauses that the leading dispatcher has confirmed; None if no dispatcher runs."""
    from linedesk.operate.processes import listed, present_leader
    from linedesk.store.control import Scope

    row = present_leader(database)
    if row is None:
        return None
    return [Scope(one.get("channel"), one.get("key")) for one in listed(row, "paused")]


def _has_ended(database: Database[Any], scope: Scope) -> bool:
    told = _obeyed(database)
    return told is not None and scope not in told


def _within(seconds: float, look: Callable[[], Found]) -> Found:
    """Call `look` until it finds something or the time is over; return the last result."""
    deadline, rest = time.monotonic() + seconds, threading.Event()
    while not (found := look()) and time.monotonic() < deadline:
        rest.wait(LOOK_SECONDS)
    return found
