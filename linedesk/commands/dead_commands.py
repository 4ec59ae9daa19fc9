"""The commands of `linedesk dead`: their options. `linedesk.commands.dead` does the work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import with_settings

if TYPE_CHECKING:
    from linedesk.operate.dead_letters import Choice
    from linedesk.settings.settings import Settings


Function = TypeVar("Function", bound=Callable[..., Any])


@click.group()
def dead() -> None:
    """List, show, replay or drop dead letters.

    A time is an age (45s, 30m, 2h or 3d) or a date such as 2026-01-31T09:00. A date without a zone
    is local time.
    """


def choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that choose dead letters, and its function the choice."""

    @option("--cause", metavar="TEXT", help="Only letters whose cause contains TEXT.")
    @moment_option("--since", help="Only letters that were last given up at this time or later.")
    @moment_option("--until", help="Only letters that were last given up before this time.")
    @option("--all", "everything", is_flag=True, help="Also letters that were replayed.")
    @wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        from linedesk.operate.dead_letters import Choice

        names = ("ids", "cause", "since", "until", "everything", "limit")
        given = {name: options.pop(name) for name in names if name in options}
        chosen = {name: value for name, value in given.items() if value is not None}
        return function(*args, Choice(**chosen), **options)

    return command


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    from linedesk.operate.dead_letters import moment_of

    try:
        return None if value is None else moment_of(value, now=datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter("give an age such as 2h, or 2026-01-31T09:00") from error


def moment_option(name: str, *, help: str) -> Callable[[Function], Function]:  # noqa: A002
    """Return an option that takes a time, as an age or as a date."""
    return option(name, callback=_moment, metavar="TIME", help=help)


ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...")
json_option = option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
dry_run_option = option("--dry-run", is_flag=True, help="Only print what would be done.")
yes_option = option("--yes", is_flag=True, help="Do not ask for confirmation.")
limit_option = option("--limit", type=click.IntRange(1), help="The most letters to take.")


@dead.command("list", cls=Command)
@option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="The most letters to show.",
)
@json_option
@with_settings
@choosing
def dead_list(settings: Settings, choice: Choice, as_json: bool) -> None:
    """List dead letters, newest first; with --all also replayed ones."""
    from linedesk.commands.dead import list_letters

    list_letters(settings, choice, as_json=as_json)


@dead.command("show", cls=Command)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@option("--text", is_flag=True, help="Also show message texts and error messages.")
@json_option
@with_settings
def dead_show(settings: Settings, ids: tuple[str, ...], text: bool, as_json: bool) -> None:
    """Show everything about dead letters except message texts."""
    from linedesk.commands.dead import show_letters

    show_letters(settings, ids, text=text, as_json=as_json)


@dead.command("replay", cls=Command)
@ids_argument
@limit_option
@option("--force", is_flag=True, help="Also send messages that may arrive twice.")
@dry_run_option
@yes_option
@json_option
@with_settings
@choosing
def dead_replay(settings: Settings, choice: Choice, **options: bool) -> int:
    """Put dead letters into the queue again, oldest first.

    A replayed event runs its handler again. A replayed send is sent without its handler.
    """
    from linedesk.commands.dead import replay_letters

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
    from linedesk.commands.dead import drop_letters

    drop_letters(settings, _narrow(choice), **options)


def _narrow(choice: Choice) -> Choice:
    if choice.is_open:
        raise click.UsageError("name the letters: ids, --cause, --since or --until")
    if choice.ids and (choice.cause or choice.since or choice.until):
        raise click.UsageError("give either ids, or --cause, --since and --until")
    return choice
