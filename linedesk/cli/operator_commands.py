"""The commands by which an operator looks and acts: what they take; others do the work."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from linedesk.cli.dead_commands import moment_option
from linedesk.cli.failure import Command
from linedesk.compose.options import with_settings

if TYPE_CHECKING:
    from linedesk.console.acts import Kind
    from linedesk.settings.settings import Settings

json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")
text_option = click.option("--text", is_flag=True, help="Also message texts.")
why_option = click.option("--why", default="", metavar="TEXT", help="For the audit.")
scope_argument = click.argument("scope", required=False, metavar="[CHANNEL[/KEY]]")


def example(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  linedesk {line}" for line in lines)


@click.command(cls=Command, epilog=example("status", "status --watch", "status --json"))
@click.option("--watch", is_flag=True, help="Refresh each second, until Ctrl-C.")
@json_option
@with_settings
def status(settings: Settings, watch: bool, as_json: bool) -> int:
    """Show health, rates and what waits on one screen, problems first.

    Exit code 1 if any problem is Critical, for example while everything is paused, else 0.
    """
    from linedesk.cli.status import show_status

    return show_status(settings, watch=watch, as_json=as_json)


@click.command(cls=Command, epilog=example("history --hours 6"))
@click.option("--hours", type=click.FloatRange(0.01, 24 * 14), default=1.0, show_default=True)
@json_option
@with_settings
def history(settings: Settings, hours: float, as_json: bool) -> None:
    """Show queue depth, lag and rates of the last hours."""
    from linedesk.cli.status import show_history

    show_history(settings, hours=hours, as_json=as_json)


@click.command(cls=Command, epilog=example("tail", "tail --key U4af49806 --text"))
@click.option("--key", metavar="KEY", help="Only of one user, group or room.")
@text_option
@json_option
@with_settings
def tail(settings: Settings, key: str | None, text: bool, as_json: bool) -> int:
    """Show events, runs, calls and dead letters as they happen, until Ctrl-C.

    Lines are in the order of happening, which delays each by a second.
    """
    from linedesk.cli.tail import tail as show

    return show(settings, key=key, text=text, as_json=as_json)


@click.command(cls=Command, epilog=example("trace 01HEV3K9QW", "trace 5a0c2f31-x-line-request-id"))
@click.argument("id_", metavar="ID")
@text_option
@json_option
@with_settings
def trace(settings: Settings, id_: str, text: bool, as_json: bool) -> None:
    """Show what happened to one event, from the webhook to LINE's request id.

    ID is the id of an event, a message, a document of recvq, an effect, a dead letter or a timer,
    or the x-line-request-id of a call.
    """
    from linedesk.cli.trace import trace as show

    show(settings, id_, text=text, as_json=as_json)


@click.command(cls=Command, epilog=example("calls --failed --since 1h", "calls --status 429"))
@moment_option("--since", help="Since then: 30m, 2h, or 2026-01-31T09:00.")
@click.option("--endpoint", metavar="TEXT", help="Only endpoints that contain this.")
@click.option("--status", type=click.IntRange(0, 599), help="Only this one; 0: no answer.")
@click.option("--key", metavar="KEY", help="Only of one user, group or room.")
@click.option("--failed", is_flag=True, help="Only calls that LINE refused or did not answer.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@json_option
@with_settings
def calls(settings: Settings, since: datetime | None, as_json: bool, **narrow: Any) -> None:
    """List the newest calls of LINE's API."""
    from linedesk.cli.trace import list_calls
    from linedesk.console.calls import Wanted

    list_calls(settings, Wanted(since=since, **narrow), as_json=as_json)


@click.command(
    cls=Command, epilog=example("pause main", 'pause main/U4af --why "loops"', "pause all --yes")
)
@scope_argument
@why_option
@click.option("--yes", is_flag=True, help="Pause everything without a question.")
@json_option
@with_settings
def pause(settings: Settings, scope: str | None, why: str, yes: bool, as_json: bool) -> None:
    """Stop processing everything, a channel or a conversation.

    New events are held in order until `linedesk resume`, and nothing is lost. Answers that were
    decided before the pause are still sent. A pause survives restarts. Without CHANNEL, or with
    `all`, everything is paused, which needs --yes or the typed word. Name a conversation by its
    id, by the start of its id, or by its name in LINE.
    """
    from linedesk.cli.pause import pause as order

    order(settings, scope, why=why, yes=yes, as_json=as_json)


@click.command(cls=Command, epilog=example("resume", "resume main/U4af49806"))
@scope_argument
@why_option
@json_option
@with_settings
def resume(settings: Settings, scope: str | None, why: str, as_json: bool) -> int:
    """End a pause; SCOPE is as it was for `linedesk pause`, and `all` by default."""
    from linedesk.cli.pause import resume as order

    return order(settings, scope, why=why, as_json=as_json)


@click.command(cls=Command, epilog=example("release main/U4af49806 --why broken"))
@click.argument("conversation", metavar="CHANNEL/KEY")
@click.option("--event", "kind", flag_value="event", help="The first event in its queue.")
@click.option("--send", "kind", flag_value="send", help="The first send in its outbox.")
@why_option
@json_option
@with_settings
def release(
    settings: Settings, conversation: str, kind: Kind | None, why: str, as_json: bool
) -> int:
    """Give up the event or send that blocks a conversation, so that the next one proceeds.

    It becomes a dead letter, which `linedesk dead replay` puts back.
    """
    from linedesk.cli.pause import release as order

    return order(settings, conversation, kind=kind, why=why, as_json=as_json)


@click.command(cls=Command, epilog=example("audit --limit 10"))
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
@with_settings
def audit(settings: Settings, limit: int, as_json: bool) -> None:
    """List the acts of operators on page and command line, the newest first."""
    from linedesk.cli.pause import list_audit

    list_audit(settings, limit=limit, as_json=as_json)


OPERATOR_COMMANDS = (status, history, tail, trace, calls, pause, resume, release, audit)
