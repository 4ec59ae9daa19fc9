"""`linedesk status`: the overview on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from linedesk.commands.failure import Speaking
from linedesk.commands.options import json_option, with_database
from linedesk.runtime.exit_codes import Exit

if TYPE_CHECKING:
    from linedesk.commands.options import Opened


@click.command(cls=Speaking, examples=("status", "status --json"))
@json_option
@with_database
def status(own: Opened, as_json: bool) -> int:
    """Show health, rates and waiting events on one screen, problems first.

    Exit code 1 if any problem is Critical, for example while everything is paused, else 0.
    """
    from linedesk.commands.listing import show_page
    from linedesk.commands.screen import sections
    from linedesk.operate.format import echo_json
    from linedesk.operate.health import overview_as_json, problems_of
    from linedesk.operate.overview import read_overview

    seen = read_overview(own.database)
    if as_json:
        echo_json(overview_as_json(seen))
    else:
        show_page(sections(seen))
    return Exit.FAILED if any(one.level == "bad" for one in problems_of(seen)) else Exit.OK
