"""How a command fails: one clear line for the operator, and a named exit code."""

from __future__ import annotations

import logging
import select
import sys
from collections.abc import Sequence
from typing import Any

import click

from linedesk.commands.interrupts import interruptible
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.language import (
    DEFAULT,
    UnknownLanguage,
    gettext,
    mark,
    of_environment,
    speaking,
)

log = logging.getLogger(__name__)

# Errors by their names: importing all of them would delay every command by a quarter of a second.
# The exit code is that of the nearest class of the error.
KNOWN: dict[str, tuple[Exit, str]] = {
    "linedesk.settings.errors.SettingsError": (Exit.CONFIG, ""),
    # Not CONFIG: systemd gives a replaced password to the process that it starts next.
    "linedesk.store.errors.AccessRefused": (Exit.UNAVAILABLE, ""),
    "linedesk.store.errors.OtherSchema": (Exit.SCHEMA, ""),
    "linedesk.store.errors.SetupError": (Exit.CONFIG, ""),
    "linedesk.store.errors.NotAScope": (Exit.FAILED, ""),
    "frontdesk.errors.CannotListen": (Exit.CONFIG, ""),
    "linedesk.store.errors.RecvqClosed": (Exit.UNAVAILABLE, ""),
    "linedesk.store.errors.QueueError": (
        Exit.UNAVAILABLE,
        mark("MongoDB cannot be reached; check that it runs and that MONGODB_URI is right: "),
    ),
    "pymongo.errors.PyMongoError": (Exit.UNAVAILABLE, mark("MongoDB refuses the request: ")),
    "linedesk.settings.errors.CannotServe": (Exit.UNAVAILABLE, ""),
    "linedesk.settings.errors.DataInUse": (Exit.CONFIG, ""),
    "linedesk.setup.private_mongod.MongodNotFound": (Exit.UNAVAILABLE, ""),
    "linedesk.setup.private_mongod.MongodFailed": (Exit.UNAVAILABLE, ""),
    "linedesk.settings.errors.DemoFailed": (Exit.FAILED, "demo: "),
    "linedesk.operate.text.NotDone": (Exit.FAILED, ""),
    "linedesk.settings.errors.BackupError": (Exit.FAILED, ""),
    "linedesk.settings.errors.NotImported": (Exit.FAILED, ""),
}


class Command(click.Command):
    """A command that always ends with an exit code of `linedesk.runtime.exit_codes`.

    `examples` are its arguments in some examples, for its help.
    """

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        if examples:
            lines = (f"  linedesk {one}" for one in examples)
            self.epilog = "\n".join(["\b", "Examples:", *lines])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and end with the exit code that it returns."""
        try:
            with interruptible():
                code = super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        except click.Abort as error:
            # Ctrl-C at a question. click handles every other answer that aborts.
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            code = Exit.INTERRUPTED
        except BrokenPipeError as error:
            if _has_reader():
                code = report(error)
            else:
                # click ends without a message, with exit code 1.
                raise
        except Exception as error:  # noqa: BLE001 - main: all errors end here
            code = report(error)
        ctx.exit(Exit.OK if code is None else code)


class Speaking(Command):
    """A command whose output is in the language of LINEDESK_LANG, and in English with --json."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Exit code 78 for an unknown language."""
        try:
            language = of_environment() or DEFAULT
        except UnknownLanguage as error:
            click.echo(f"linedesk: {error}", err=True)
            ctx.exit(Exit.CONFIG)
        with speaking(DEFAULT if ctx.params.get("as_json") else language):
            return super().invoke(ctx)


def _has_reader() -> bool:
    """Whether standard output is not a pipe whose reader, such as `head`, has closed it."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poller.poll(0))


def report(error: Exception) -> Exit:
    """Print the error and return the exit code. An unknown error is logged with its traceback."""
    for kind in type(error).__mro__:
        known = KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")
        if known is not None:
            code, introduction = known
            before = gettext(introduction) if introduction else ""
            for problem in getattr(error, "problems", (error,)):
                click.echo(f"linedesk: {before}{problem}", err=True)
            return code
    log.critical("unexpected error, please report it", exc_info=error)
    return Exit.SOFTWARE
