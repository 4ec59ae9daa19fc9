"""`linedesk status`: the overview on one screen; `--watch` shows it anew each second."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click
from click import option

from linedesk.commands.failure import Speaking
from linedesk.commands.options import json_option, with_database
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.language import gettext as _

if TYPE_CHECKING:
    from linedesk.commands.options import Opened
    from linedesk.operate.overview import Overview

EVERY_SECONDS = 1.0


@click.command(cls=Speaking, examples=("status", "status --watch", "status --json"))
@option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@json_option
@with_database
def status(own: Opened, watch: bool, as_json: bool) -> int:
    """Show health, rates and waiting events on one screen, problems first.

    Exit code 1 if any problem is Critical, for example while everything is paused, else 0.
    """
    from linedesk.operate.health import problems_of
    from linedesk.operate.overview import read_overview

    def look() -> Overview:
        return read_overview(own.database, channel=own.channel)

    if watch:
        _watch(look, as_json=as_json)
    seen = look()
    _show(seen, as_json=as_json)
    return Exit.FAILED if any(one.level == "bad" for one in problems_of(seen)) else Exit.OK


def _watch(look: Callable[[], Overview], *, as_json: bool) -> NoReturn:
    from linedesk.store.errors import StoreUnavailable

    is_screen, pause = sys.stdout.isatty() and not as_json, threading.Event()
    while True:
        try:
            seen = look()
        except StoreUnavailable as error:
            told = _("MongoDB does not answer ({error}); retrying, Ctrl-C ends")
            click.secho(told.format(error=error), fg="red", err=True)
        else:
            if is_screen:
                click.clear()
            _show(seen, as_json=as_json, is_screen=is_screen)
        pause.wait(EVERY_SECONDS)


def _show(seen: Overview, *, as_json: bool, is_screen: bool = False) -> None:
    """Print the overview; on a screen the first lines, with the number of those that follow."""
    from linedesk.commands.listing import page_lines, show, width
    from linedesk.commands.screen import sections
    from linedesk.operate.format import echo_json
    from linedesk.operate.health import overview_as_json

    if as_json:
        echo_json(overview_as_json(seen))
        return
    lines = list(page_lines(sections(seen), width()))
    # The cursor takes the last line.
    room = shutil.get_terminal_size().lines - 1
    is_cut = is_screen and len(lines) > room
    show(lines[: room - 1] if is_cut else lines)
    if is_cut:
        click.echo(_("and {count} more lines").format(count=len(lines) - room + 1))
