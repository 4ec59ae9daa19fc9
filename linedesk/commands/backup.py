"""The commands `linedesk export` and `linedesk import`: their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import with_settings

if TYPE_CHECKING:
    from linedesk.settings.settings import Settings


@click.command("export", cls=Command)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@with_settings
def export_command(settings: Settings, target: Path) -> None:
    """Save conversations, timers and dead letters as of one moment, while everything runs.

    FILE must not exist, or be a folder. The file contains message texts: only its owner may read
    it. `zcat FILE` shows it.
    """
    from linedesk.backup.export import export_database

    export_database(settings, target)


@click.command("import", cls=Command)
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@option(
    "--replace",
    type=click.Path(path_type=Path),
    metavar="NEWFILE",
    help="Replace existing conversations and timers. All data is exported to NEWFILE first.",
)
@option(
    "--take-over",
    is_flag=True,
    help="Complete an import that another machine began, or this one before a restart.",
)
@with_settings
def import_command(settings: Settings, source: Path, replace: Path | None, take_over: bool) -> None:
    """Put an export into the database while the dispatcher is stopped. May be run again.

    The whole file is checked before anything is written. A new database needs no option; otherwise
    the command names the option that it needs.

    Events and sends that were waiting at the time of the export become dead letters (`linedesk dead
    list --cause restored`). So do timers whose time has passed. Existing dead letters and recvq
    stay; events in recvq are handled afterwards.
    """
    from linedesk.backup.restore import import_export

    import_export(settings, source, replace=replace, take_over=take_over)
