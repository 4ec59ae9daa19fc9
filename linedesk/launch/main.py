"""The command line: reads settings, sets up the log, and hands over to a package.

A command imports its package when it runs: `linedesk --help` answers at once.
"""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.audit import audit
from linedesk.commands.backup import export_command, import_command
from linedesk.commands.calls import calls
from linedesk.commands.check import check
from linedesk.commands.conversation import conversation
from linedesk.commands.dead import dead
from linedesk.commands.failure import Command, Speaking
from linedesk.commands.options import config_option, set_up_logging, verbose_option, with_settings
from linedesk.commands.orders import accept, pause, release, resume, timers
from linedesk.commands.removed import history, scheduler
from linedesk.commands.status import status
from linedesk.commands.tail import tail
from linedesk.commands.trace import trace
from linedesk.store.documents import SCHEMA

if TYPE_CHECKING:
    from linedesk.settings.settings import Settings

log = logging.getLogger("linedesk.launch")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    package_name="linedesk",
    prog_name="linedesk",
    message=f"%(prog)s, version %(version)s, schema {SCHEMA}",
)
def linedesk() -> None:
    """A LINE bot server that loses no event.

    Settings come from environment variables such as LINE_CHANNEL_SECRET, from systemd credentials,
    or from a TOML file: --config or LINEDESK_CONFIG names it.

    LINEDESK_LANG sets the language of `status`, `doctor` and the page: en or ja.
    """


@linedesk.command(cls=Command)
@option(
    "--capped-mb",
    type=click.IntRange(1, 1_048_576),
    default=1024,
    show_default=True,
    help="Size of the capped collection recvq, if it does not exist yet.",
)
@option(
    "--users",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also create MongoDB's users, each with the rights that it needs. Write their URIs to "
    "FOLDER/{admin,frontdesk,dispatcher,operator,console}/MONGODB_URI.",
)
@option(
    "--amqp",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Instead describe RabbitMQ's virtual host, exchange and users with the rights that they "
    "need, and name the command that makes them. Write the users' URLs to "
    "FOLDER/{dispatcher,worker}/AMQP_URL.",
)
@option(
    "--new-passwords",
    is_flag=True,
    help="With --users or --amqp: give the users new passwords, all but MongoDB's administrator.",
)
@with_settings
def init(
    settings: Settings,
    capped_mb: int,
    users: Path | None,
    amqp: Path | None,
    new_passwords: bool,
) -> None:
    """Prepare MongoDB: replica set, collections, indexes, lease, users. May be run again."""
    if amqp is not None:
        from linedesk.settings.settings import require_pika

        require_pika()
        from linedesk.launch.rabbitmq import init_rabbitmq

        if users is not None:
            raise click.UsageError(
                "--amqp prepares RabbitMQ and --users MongoDB: run the command once for each"
            )
        init_rabbitmq(settings, amqp, new_passwords=new_passwords)
        return
    from linedesk.setup.database import with_server
    from linedesk.setup.init import init_database

    if new_passwords and users is None:
        raise click.UsageError("--new-passwords needs --users FOLDER or --amqp FOLDER")
    if users is None:
        settings = with_server(settings)
    init_database(settings, capped_mb=capped_mb, users=users, new_passwords=new_passwords)


@linedesk.command(cls=Command)
@with_settings
def schema(settings: Settings) -> None:
    """Print the schema version of the documents in the database."""
    from linedesk.setup.database import open_database
    from linedesk.store.collections import require_schema

    with open_database(settings, app_name="linedesk-schema") as database:
        # Before the first dispatcher runs, an older release cannot misread anything.
        click.echo(require_schema(database) or 1)


@linedesk.command(cls=Command)
@option(
    "--share-port",
    is_flag=True,
    help="Share the port with other front desks. Start each of them with this option.",
)
@with_settings
def frontdesk(settings: Settings, share_port: bool) -> int:
    """Receive LINE's webhooks and store them."""
    # The server enables it again after all imports: clients may be waiting already.
    gc.disable()
    from linedesk.launch.frontdesk import run_frontdesk

    _warn_of_removed(settings)
    return run_frontdesk(settings, share_port=share_port)


@linedesk.command(cls=Command)
@with_settings
def dispatcher(settings: Settings) -> int:
    """Run the bot on stored events, in order, within LINE's rate limits."""
    # The garbage collector takes a fifth of the start to scan the SDK's thousands of classes.
    # Frozen classes cost later collections nothing, either.
    gc.disable()
    from linedesk.launch.dispatcher import run_dispatcher
    from linedesk.runtime.garbage import spare_the_collector
    from linedesk.settings.settings import require, require_server

    spare_the_collector()
    _warn_of_removed(settings)
    require(settings, "line_channel_access_token")
    require_server(settings)
    return run_dispatcher(settings)


@linedesk.command(cls=Command)
@option(
    "--command",
    metavar="COMMAND",
    help="Run handlers written in another language: one program for each thread, with JSON lines "
    "on standard input and output (docs/reference/worker-contract.md).",
)
@with_settings
def worker(settings: Settings, command: str | None) -> int:
    """Run the bot's handlers for a dispatcher with DISPATCHER_WORKERS=amqp, on any machine."""
    from linedesk.settings.settings import require_pika

    require_pika()
    from linedesk.launch.worker import run_worker

    _warn_of_removed(settings)
    return run_worker(settings, command=command)


def _warn_of_removed(settings: Settings) -> None:
    for name, what_to_do in settings.removed.items():
        log.warning('setting has no effect in this release name=%s reason="%s"', name, what_to_do)


@linedesk.command(cls=Command)
@with_settings
def console(settings: Settings) -> int:
    """Serve the operator's web page, and print its address.

    CONSOLE_HOST and CONSOLE_PORT set the address, http://127.0.0.1:8010/ by default. If other
    machines can reach the address, CONSOLE_PASSWORD or CONSOLE_TOKEN is required.
    """
    from linedesk.launch.console import run_console

    return run_console(settings)


class _Sim(Command):
    """It has the options and the epilog of the command `linesim`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from linesim.http.command import OPTIONS

        return [*OPTIONS, *super().get_params(ctx)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from linesim.http.command import EXAMPLE

        self.epilog = EXAMPLE
        super().format_epilog(ctx, formatter)


@linedesk.command(cls=_Sim)
@with_settings
def sim(settings: Settings, port: int, webhook_url: str | None, **options: Any) -> int:
    """Run the LINE simulator, with its chat page, on this machine.

    Without --webhook its webhooks go to the front desk. A bot uses the simulator's clock if
    SIM_CLOCK is http://127.0.0.1:PORT/sim/clock.
    """
    import linesim
    from linedesk.settings import addresses
    from linedesk.settings.errors import CannotServe
    from linedesk.settings.settings import require

    require(settings, "line_channel_secret", "line_channel_access_token")
    try:
        return linesim.serve(
            secret=settings.channel_secrets[0],
            token=settings.access_token,
            port=port,
            webhook_url=webhook_url or addresses.webhook_url(settings),
            console_url=addresses.console_url(settings),
            console_login=addresses.console_login(settings),
            bot=settings.bot if "bot" in settings.model_fields_set else None,
            **options,
        )
    except linesim.StateError as error:
        raise click.BadParameter(str(error), param_hint="--state") from error
    except OSError as error:
        raise CannotServe(f"the simulator cannot use port {port}: {error.strerror}") from error


@linedesk.command(cls=Command)
@option(
    "--bot",
    type=click.Choice(["parrot", "timer"]),
    default="parrot",
    show_default=True,
    help="The bot to chat with.",
)
@option("--once", is_flag=True, help="Play one conversation, print it, and end.")
@option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Port of the chat page. Default: any free port.",
)
def demo(bot: str, once: bool, port: int | None) -> int:
    """Chat with a bot in the browser, without any set-up.

    Everything runs on this machine, in a temporary folder, with a private mongod. To try timers,
    move the clock of the chat page forward.
    """
    from linedesk.launch.demo import run_demo

    return run_demo(bot, once=once, port=port)


@linedesk.command(cls=Command)
@config_option
@verbose_option
@option("--reload", is_flag=True, help="Replace the bot after an edit of its .py files.")
def up(config_path: Path | None, verbose: bool, reload: bool) -> int:
    """Run front desk, dispatcher and a worker together; restart any that ends.

    With MONGODB_URI=embedded the command also runs a private mongod and keeps its data. It prints
    the addresses of webhook and simulator, then the log.
    """
    from linedesk.launch.up import run_all
    from linedesk.settings.settings import load_settings

    settings = load_settings(os.environ, config_path=config_path)
    set_up_logging(settings, verbose=verbose)
    return run_all(settings, config_path=config_path, verbose=verbose, reload=reload)


@linedesk.command(cls=Speaking)
@config_option
@verbose_option
@option("--no-line", is_flag=True, help="Make no calls of LINE's API.")
@option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
@option("--strict", is_flag=True, help="Exit with code 1 at a warning, too.")
def doctor(config_path: Path | None, no_line: bool, **wish: bool) -> int:
    """Check everything from end to end, and show what to do.

    Checks settings, bot, clock, MongoDB, disks, processes, certificate and the LINE account. LINE
    is asked to call the webhook once. Changes nothing. Exit code 1 if any check is bad, else 0.
    """
    from linedesk.doctor.doctor import run_doctor

    return run_doctor(os.environ, config_path, line=not no_line, **wish)


@linedesk.command(cls=Command, examples=("new mybot", "new mybot --language ja"))
@click.argument("name")
@option(
    "--language",
    type=click.Choice(["en", "ja"]),
    default="en",
    show_default=True,
    help="The language of the README.",
)
def new(name: str, language: str) -> None:
    """Make a folder with a bot and its tests, which run and pass at once."""
    from linedesk.launch.new import make_bot

    folder = make_bot(name, language=language)
    click.echo(f"{folder}/ has a bot and its tests: read {folder}/README.md")


OPERATOR_COMMANDS = (status, tail, trace, calls, check, pause, resume, release, accept, audit)
OTHERS = (dead, conversation, timers, export_command, import_command, scheduler, history)
for command in (*OPERATOR_COMMANDS, *OTHERS):
    linedesk.add_command(command)
