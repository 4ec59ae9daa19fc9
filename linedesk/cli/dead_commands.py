"""The commands of `linedesk dead`: what they take; `linedesk.cli.dead` does the work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from linedesk.cli.failure import Command
from linedesk.compose.options import with_settings

if TYPE_CHECKING:
    from linedesk.console.dead_letters import Choice
    from linedesk.settings.settings import Settings


Function = TypeVar("Function", bound=Callable[..., Any])


@click.group()
def dead() -> None:
    """List, show, replay or drop dead letters.

    Times are 45s, 30m, 2h or 3d (ago), or 2026-01-31T09:00, which is local without a zone.
    """


def choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options by which dead letters are chosen, and its function the choice."""

    @click.option("--cause", metavar="TEXT", help="Only letters whose cause contains this.")
    @moment_option("--since", help="Given up last at this time or later.")
    @moment_option("--until", help="Given up last before this time.")
    @click.option("--all", "everything", is_flag=True, help="Also those that were replayed.")
    @wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        from linedesk.console.dead_letters import Choice

        names = ("ids", "cause", "since", "until", "everything", "limit")
        given = {name: options.pop(name) for name in names if name in options}
        chosen = {name: value for name, value in given.items() if value is not None}
        return function(*args, Choice(**chosen), **options)

    return command


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    from linedesk.console.dead_letters import moment_of

    try:
        return None if value is None else moment_of(value, now=datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter("neither like 2h nor like 2026-01-31T09:00") from error


def moment_option(name: str, *, help: str) -> Callable[[Function], Function]:  # noqa: A002
    """An option that takes a moment, as 2h ago or as a date."""
    return click.option(name, callback=_moment, help=help)


ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only print what would be done.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
limit_option = click.option("--limit", type=click.IntRange(1), help="At most so many.")


@dead.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@json_option
@with_settings
@choosing
def dead_list(settings: Settings, choice: Choice, as_json: bool) -> None:
    """List dead letters, the newest first; those that were replayed only with --all."""
    from linedesk.cli.dead import list_letters

    list_letters(settings, choice, as_json=as_json)


@dead.command("show", cls=Command)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--text", is_flag=True, help="Also message texts and error messages.")
@json_option
@with_settings
def dead_show(settings: Settings, ids: tuple[str, ...], text: bool, as_json: bool) -> None:
    """Show everything about dead letters except message texts."""
    from linedesk.cli.dead import show_letters

    show_letters(settings, ids, text=text, as_json=as_json)


@dead.command("replay", cls=Command)
@ids_argument
@limit_option
@click.option("--force", is_flag=True, help="Also send what may arrive twice.")
@dry_run_option
@yes_option
@json_option
@with_settings
@choosing
def dead_replay(settings: Settings, choice: Choice, **options: bool) -> int:
    """Put dead letters into the queue again, the oldest first.

    A replayed event runs its handler again. A replayed send is sent without its handler.
    """
    from linedesk.cli.dead import replay_letters

    return replay_letters(settings, _narrow(choice), **options)


@dead.command("drop", cls=Command)
@ids_argument
@limit_option
@dry_run_option
@yes_option
@json_option
@with_settings
@choosing
def dead_drop(settings: Settings, choice: Choice, **options: bool) -> None:
    """Delete dead letters for good."""
    from linedesk.cli.dead import drop_letters

    drop_letters(settings, _narrow(choice), **options)


def _narrow(choice: Choice) -> Choice:
    if choice.is_open:
        raise click.UsageError("say which: ids, --cause, --since or --until")
    if choice.ids and (choice.cause or choice.since or choice.until):
        raise click.UsageError("either ids, or --cause, --since and --until")
    return choice
