"""Commands that were removed: each says what to do instead, and no help lists them."""

from __future__ import annotations

import click

from linedesk.commands.failure import Command
from linedesk.commands.options import with_settings
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import SettingsError


@click.command(cls=Command, hidden=True)
@with_settings
def scheduler(settings: object) -> None:
    """Print what to do instead: the dispatcher fires timers."""
    disable = "run `systemctl disable --now linedesk-scheduler`"
    # The unit of an earlier release does not restart a process that ends with this exit code.
    raise SettingsError(
        [f"the dispatcher fires timers: {disable} and delete SCHEDULER from the settings"]
    )


@click.command(cls=Command, hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1)
def history(options: tuple[str, ...]) -> int:
    """Print what to do instead: the console has curves."""
    told = "`history` was removed: see the curves of `linedesk console`, or Prometheus (/metrics)"
    click.echo(f"linedesk: {told}; `linedesk status --json` has the present figures", err=True)
    return Exit.FAILED
