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


def _removed(name: str, instead: str) -> click.Command:
    def tell(options: tuple[str, ...]) -> int:
        click.echo(f"linedesk: `{name}` was removed: {instead}", err=True)
        return Exit.FAILED

    given = click.Argument(["options"], nargs=-1)
    free = {"ignore_unknown_options": True}
    return Command(name, callback=tell, params=[given], hidden=True, context_settings=free)


history = _removed(
    "history",
    "see the curves of `linedesk console`, or Prometheus (/metrics); `linedesk status --json` has "
    "the present figures",
)
recent = _removed("recent", "`linedesk conversation show` lists the newest events")
