"""The options of every command, --config and -v; the settings and the log that follow from them.

Settings and log are imported when a command runs, so that help and completion answer at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
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
