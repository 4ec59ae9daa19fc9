"""The commands `linedesk export` and `linedesk import`: what they take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linedesk.cli.failure import Command
from linedesk.compose.options import with_settings

if TYPE_CHECKING:
    from linedesk.settings.settings import Settings


@click.command("export", cls=Command)
@click.argument("target", metavar="FILE")
@with_settings
def export_command(settings: Settings, target: str) -> None:
    """Save conversations, timers and dead letters as of one moment, while everything runs.

    FILE must not exist. In a folder the file is named after database and time; - is stdout. The
    file has message texts, so only its owner may read it. `zcat FILE` shows it.
    """
    from linedesk.backup.export import export_database

    export_database(settings, target)


@click.command("import", cls=Command)
@click.argument("source", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Only check FILE and print what it has.")
@click.option(
    "--replace",
    type=click.Path(path_type=Path),
    metavar="NEWFILE",
    help="Replace conversations and timers that are there; all is exported to NEWFILE before.",
)
@click.option(
    "--recvq",
    type=click.Choice(["handle", "skip"]),
    help="Whether to handle the events in recvq, if there is no progress that decides it.",
)
@click.option("--take-over", is_flag=True, help="Go on after an import that another machine began.")
@with_settings
def import_command(settings: Settings, source: str, dry_run: bool, **wishes: Any) -> None:
    """Put an export into the database, with the dispatcher stopped. May be run again.

    FILE may be - for stdin; all of it is checked before anything is written. What was to be sent
    or handled at the moment of the export becomes dead letters (`linedesk dead list --cause
    restored`), and so does a timer whose time has passed. Dead letters and recvq stay: events
    there are handled afterwards. A new database needs no option; where one is needed, it is said.
    """
    from linedesk.backup.restore import RestoreOptions, import_export

    import_export(settings, source, RestoreOptions(**wishes), dry_run=dry_run)
