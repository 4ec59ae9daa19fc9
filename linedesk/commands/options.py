"""The options that commands share, and the settings and the log that follow from --config and -v.

A command imports its work when it runs, so that help and completion answer at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pymongo.database import Database

    from linedesk.operate.acts import Acts
    from linedesk.settings.settings import Settings

config_option = click.option(
    "--config",
    "config_path",
    # The wrapper of an installed linedesk sets it: the option may be at any place.
    envvar="LINEDESK_CONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file with settings. Environment variables override it.",
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Write a detailed log.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
text_option = click.option("--text", is_flag=True, help="Also show message texts.")
why_option = click.option("--why", default="", metavar="TEXT", help="The reason, for the audit.")
key_option = click.option("--key", metavar="KEY", help="Show only one user, group or room.")
shown_option = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="The most rows to show.",
)


def moment_option(name: str, *, help: str) -> Callable[..., Any]:  # noqa: A002
    """Return an option that takes a time, as an age or as a date."""
    return click.option(name, callback=_moment, metavar="TIME", help=help)


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    from linedesk.operate.dead_letters import moment_of

    try:
        return None if value is None else moment_of(value, now=datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter("give an age such as 2h, or 2026-01-31T09:00") from error


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --config and -v, and its function the settings, with logging set up."""

    @config_option
    @verbose_option
    @wraps(function)
    def command(config_path: Path | None, verbose: bool, **options: Any) -> Any:
        from linedesk.settings.settings import load_settings
        from linedesk.setup.uri import Uri
        from linedesk.store.errors import AccessRefused

        settings = load_settings(os.environ, config_path=config_path)
        set_up_logging(settings, verbose=verbose)
        try:
            return function(settings, **options)
        except AccessRefused as error:
            user = Uri.parse(settings.mongodb_uri).user
            raise AccessRefused(error.code, error.user or user) from error

    return command


@dataclass(frozen=True)
class Opened:
    """The open database of a command, and the channel of ids that name none."""

    database: Database[Any]
    channel: str

    @property
    def acts(self) -> Acts:
        """The acts of the operator who runs the command."""
        from linedesk.operate.acts import Acts
        from linedesk.setup.database import operator

        return Acts(self.database, by=operator(), via="command")


def _opening(function: Callable[..., Any], *, to_act: bool) -> Callable[..., Any]:
    @with_settings
    @wraps(function)
    def command(settings: Settings, **options: Any) -> Any:
        from linedesk.setup.database import open_database

        name = click.get_current_context().command_path.replace(" ", "-")
        with open_database(settings, app_name=name, to_act=to_act) as database:
            return function(Opened(database, settings.line_channel), **options)

    return command


with_database = partial(_opening, to_act=False)
"""Give a command --config and -v, and its function the open database."""
to_act = partial(_opening, to_act=True)
"""The same for a command that changes something: MongoDB has to answer at once."""


def set_up_logging(settings: Settings, *, verbose: bool) -> None:
    """Set up the log by the settings; it masks their secrets."""
    from linedesk.runtime.logging import configure_logging

    configure_logging(
        level=settings.log_level,
        verbose=verbose,
        secrets=settings.secret_values,
        own=[settings.bot.partition(":")[0]],
        environ=os.environ,
    )
