"""The commands by which operators watch and act: their options. Other modules do the work."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.dead_commands import moment_option
from linedesk.commands.failure import Command, Speaking
from linedesk.commands.options import with_settings

if TYPE_CHECKING:
    from linedesk.operate.acts import Kind
    from linedesk.settings.settings import Settings

json_option = option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
text_option = option("--text", is_flag=True, help="Also show message texts.")
why_option = option("--why", default="", metavar="TEXT", help="The reason, for the audit.")
key_option = option("--key", metavar="KEY", help="Show only one user, group or room.")
scope_argument = click.argument("scope", required=False, metavar="[CHANNEL[/KEY]]")


@click.command(cls=Speaking, examples=("status", "status --watch", "status --json"))
@option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@json_option
@with_settings
def status(settings: Settings, watch: bool, as_json: bool) -> int:
    """Show health, rates and waiting events on one screen, problems first.

    Exit code 1 if any problem is Critical, for example while everything is paused, else 0.
    """
    from linedesk.commands.status import show_status

    return show_status(settings, watch=watch, as_json=as_json)


@click.command(cls=Command, examples=("history --hours 6",))
@option(
    "--hours",
    type=click.FloatRange(0.01, 24 * 14),
    default=1.0,
    show_default=True,
    help="How many hours to show.",
)
@json_option
@with_settings
def history(settings: Settings, hours: float, as_json: bool) -> None:
    """Show queue depth, lag and rates of the last hours."""
    from linedesk.commands.status import show_history

    show_history(settings, hours=hours, as_json=as_json)


@click.command(cls=Command, examples=("tail", "tail --key U4af49806 --text"))
@key_option
@text_option
@json_option
@with_settings
def tail(settings: Settings, key: str | None, text: bool, as_json: bool) -> int:
    """Show events, runs, calls and dead letters as they happen, until Ctrl-C.

    Lines are in order of time. For this each line is delayed by one second.
    """
    from linedesk.commands.tail import tail as show

    return show(settings, key=key, text=text, as_json=as_json)


@click.command(cls=Command, examples=("trace 01HEV3K9QW", "trace 5a0c2f31-x-line-request-id"))
@click.argument("id_", metavar="ID")
@text_option
@json_option
@with_settings
def trace(settings: Settings, id_: str, text: bool, as_json: bool) -> None:
    """Show what happened to one event, from the webhook to LINE's request id.

    ID is the id of an event, a message, a document of recvq, an effect, a dead letter or a timer,
    or the x-line-request-id of a call.
    """
    from linedesk.commands.trace import trace as show

    show(settings, id_, text=text, as_json=as_json)


@click.command(cls=Command, examples=("calls --failed --since 1h", "calls --status 429"))
@moment_option("--since", help="Show calls since this time: 30m, 2h, or 2026-01-31T09:00.")
@option("--endpoint", metavar="TEXT", help="Show only endpoints that contain TEXT.")
@option("--status", type=click.IntRange(0, 599), help="Show only this status. 0: no answer.")
@key_option
@option("--failed", is_flag=True, help="Show only calls that LINE refused or did not answer.")
@option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="The most rows to show.",
)
@json_option
@with_settings
def calls(settings: Settings, since: datetime | None, as_json: bool, **narrow: Any) -> None:
    """List the newest calls of LINE's API."""
    from linedesk.commands.trace import list_calls
    from linedesk.operate.calls import Wanted

    list_calls(settings, Wanted(since=since, **narrow), as_json=as_json)


@click.command(
    cls=Command, examples=("pause main", 'pause main/U4af --why "loops"', "pause all --yes")
)
@scope_argument
@why_option
@option("--yes", is_flag=True, help="Pause everything, or a conversation that was never seen.")
@json_option
@with_settings
def pause(settings: Settings, scope: str | None, why: str, yes: bool, as_json: bool) -> None:
    """Stop processing everything, a channel or a conversation.

    New events are held in order until `linedesk resume`. Answers that were decided before the pause
    are still sent. A pause survives restarts. Later answers cost counted pushes, and above a daily
    limit they become dead letters: the command shows the rule and what waits now.

    Without CHANNEL, or with `all`, everything is paused: type `all` when asked, or add --yes. Name
    a conversation by its id, by the start of its id, or by its name in LINE.
    """
    from linedesk.commands.pause import pause as order

    order(settings, scope, why=why, yes=yes, as_json=as_json)


@click.command(
    cls=Command, examples=("resume", "resume main/U4af49806", "resume main/U4af49806 --drop")
)
@scope_argument
@why_option
@option("--drop", is_flag=True, help="Handle no event that waits: make each a dead letter.")
@option("--yes", is_flag=True, help="Resume without a question.")
@json_option
@with_settings
def resume(
    settings: Settings, scope: str | None, why: str, drop: bool, yes: bool, as_json: bool
) -> int:
    """End a pause. Give the same CHANNEL or conversation as to `linedesk pause`; default: all.

    It shows what waits and what the answers cost, and asks on a terminal. With --drop each event
    that was stored until now becomes a dead letter with the cause `dropped by NAME`, for example
    because a person has answered. `linedesk dead replay` puts it back.
    """
    from linedesk.commands.pause import resume as order

    return order(settings, scope, why=why, as_json=as_json, drop=drop, yes=yes)


@click.command(cls=Command, examples=("release main/U4af49806 --why broken",))
@click.argument("conversation", metavar="CHANNEL/KEY")
@option("--event", "kind", flag_value="event", help="Give up the first event in its queue.")
@option("--send", "kind", flag_value="send", help="Give up the first send in its outbox.")
@why_option
@json_option
@with_settings
def release(
    settings: Settings, conversation: str, kind: Kind | None, why: str, as_json: bool
) -> int:
    """Give up the event or send that blocks a conversation. The next one is then processed.

    It becomes a dead letter, which `linedesk dead replay` puts back.
    """
    from linedesk.commands.pause import release as order

    return order(settings, conversation, kind=kind, why=why, as_json=as_json)


@click.command(cls=Command, examples=("accept 1.1-4af49806",))
@click.argument("version", metavar="VERSION")
@why_option
@json_option
@with_settings
def accept(settings: Settings, version: str, why: str, as_json: bool) -> None:
    """Let workers with a new version of the bot get jobs (DISPATCHER_WORKERS=amqp).

    `linedesk status` names the version. Accept only one that you have deployed: its workers get
    the texts of your users. The first version ever needs no command.
    """
    from linedesk.commands.pause import accept as order

    order(settings, version, why=why, as_json=as_json)


@click.command(cls=Command, examples=("audit --limit 10",))
@option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="The most rows to show.",
)
@json_option
@with_settings
def audit(settings: Settings, limit: int, as_json: bool) -> None:
    """List the acts of operators on the console and the command line, newest first."""
    from linedesk.commands.pause import list_audit

    list_audit(settings, limit=limit, as_json=as_json)


OPERATOR_COMMANDS = (status, history, tail, trace, calls, pause, resume, release, accept, audit)
