"""What an operator sees when a command cannot go on: one clear line and a named exit code."""

from __future__ import annotations

import logging
import select
import sys
from typing import Any

import click
from pymongo.errors import PyMongoError

from frontdesk.errors import CannotListen
from linedesk.compose.private_mongod import MongodFailed, MongodNotFound
from linedesk.console.errors import ConsoleError
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import (
    BackupError,
    CannotServe,
    DataInUse,
    DemoFailed,
    NotImported,
    SettingsError,
)
from linedesk.store.errors import (
    AccessRefused,
    NewerSchema,
    NotAScope,
    QueueError,
    RecvqClosed,
    SetupError,
)

log = logging.getLogger(__name__)

# The first that fits counts, so the special stand before the general.
KNOWN: tuple[tuple[type[Exception], Exit, str], ...] = (
    (SettingsError, Exit.CONFIG, ""),
    # Not CONFIG: systemd hands a replaced password to the process that it starts next.
    (AccessRefused, Exit.UNAVAILABLE, ""),
    (NewerSchema, Exit.NEWER, ""),
    (SetupError, Exit.CONFIG, ""),
    (NotAScope, Exit.FAILED, ""),
    (CannotListen, Exit.CONFIG, ""),
    (RecvqClosed, Exit.UNAVAILABLE, ""),
    (
        QueueError,
        Exit.UNAVAILABLE,
        "MongoDB cannot be reached (is it running, and MONGODB_URI right?): ",
    ),
    (PyMongoError, Exit.UNAVAILABLE, "MongoDB refused: "),
    (CannotServe, Exit.UNAVAILABLE, ""),
    (DataInUse, Exit.CONFIG, ""),
    (MongodNotFound, Exit.UNAVAILABLE, ""),
    (MongodFailed, Exit.UNAVAILABLE, ""),
    (DemoFailed, Exit.FAILED, "demo: "),
    (ConsoleError, Exit.FAILED, ""),
    (BackupError, Exit.FAILED, ""),
    (NotImported, Exit.FAILED, ""),
)


class Command(click.Command):
    """A command that always ends in an exit code of `linedesk.runtime.exit_codes`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it returns becomes the exit code."""
        try:
            code = super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except BrokenPipeError as error:
            if _somebody_reads():
                code = report(error)
            else:
                # As click ends it: quietly, with 1.
                raise
        except Exception as error:  # noqa: BLE001 - main: the one place where all errors end
            code = report(error)
        ctx.exit(Exit.OK if code is None else code)


def _somebody_reads() -> bool:
    """Not so where standard output is a pipe whose reader, such as `head`, had enough."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poller.poll(0))


def report(error: Exception) -> Exit:
    """Say what went wrong; only an error that nobody foresaw is logged with its traceback."""
    for kind, code, introduction in KNOWN:
        if isinstance(error, kind):
            for problem in getattr(error, "problems", (error,)):
                click.echo(f"linedesk: {introduction}{problem}", err=True)
            return code
    log.critical("unexpected error, please report it", exc_info=error)
    return Exit.SOFTWARE
