"""What an operator sees when a command cannot go on: one clear line and a named exit code."""

from __future__ import annotations

import logging
import select
import sys
from typing import Any

import click

from linedesk.cli.interrupts import interruptible
from linedesk.runtime.exit_codes import Exit

log = logging.getLogger(__name__)

# Each error by its name, as importing them all would take every command a quarter of a second.
# The nearest of the classes of an error decides its exit code.
KNOWN: dict[str, tuple[Exit, str]] = {
    "linedesk.settings.errors.SettingsError": (Exit.CONFIG, ""),
    # Not CONFIG: systemd hands a replaced password to the process that it starts next.
    "linedesk.store.errors.AccessRefused": (Exit.UNAVAILABLE, ""),
    "linedesk.store.errors.NewerSchema": (Exit.NEWER, ""),
    "linedesk.store.errors.SetupError": (Exit.CONFIG, ""),
    "linedesk.store.errors.NotAScope": (Exit.FAILED, ""),
    "frontdesk.errors.CannotListen": (Exit.CONFIG, ""),
    "linedesk.store.errors.RecvqClosed": (Exit.UNAVAILABLE, ""),
    "linedesk.store.errors.QueueError": (
        Exit.UNAVAILABLE,
        "MongoDB cannot be reached (is it running, and MONGODB_URI right?): ",
    ),
    "pymongo.errors.PyMongoError": (Exit.UNAVAILABLE, "MongoDB refused: "),
    "linedesk.settings.errors.CannotServe": (Exit.UNAVAILABLE, ""),
    "linedesk.settings.errors.DataInUse": (Exit.CONFIG, ""),
    "linedesk.compose.private_mongod.MongodNotFound": (Exit.UNAVAILABLE, ""),
    "linedesk.compose.private_mongod.MongodFailed": (Exit.UNAVAILABLE, ""),
    "linedesk.settings.errors.DemoFailed": (Exit.FAILED, "demo: "),
    "linedesk.console.errors.ConsoleError": (Exit.FAILED, ""),
    "linedesk.settings.errors.BackupError": (Exit.FAILED, ""),
    "linedesk.settings.errors.NotImported": (Exit.FAILED, ""),
}


class Command(click.Command):
    """A command that always ends in an exit code of `linedesk.runtime.exit_codes`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it returns becomes the exit code."""
        try:
            with interruptible():
                code = super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        except click.Abort as error:
            # Ctrl-C at a question. Any other answer that aborts is click's.
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            code = Exit.INTERRUPTED
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
    """Say what went wrong; only an unforeseen error is logged with its traceback."""
    for kind in type(error).__mro__:
        known = KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")
        if known is not None:
            code, introduction = known
            for problem in getattr(error, "problems", (error,)):
                click.echo(f"linedesk: {introduction}{problem}", err=True)
            return code
    log.critical("unexpected error, please report it", exc_info=error)
    return Exit.SOFTWARE
