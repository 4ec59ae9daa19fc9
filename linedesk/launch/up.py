"""`linedesk up`: all processes of a small server under one supervisor, optionally with a mongod."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from linedesk.launch.reload import RELOAD_VARIABLE
from linedesk.launch.supervisor import Program, Signals, Supervisor, signals_on
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.service_manager import STARTED_BY_VARIABLE, UP
from linedesk.settings.addresses import console_url, webhook_url
from linedesk.settings.settings import EMBEDDED, Settings, require, require_pika
from linedesk.setup import children
from linedesk.setup.database import require_default
from linedesk.setup.kept_mongod import KeptMongod
from linedesk.setup.private_mongod import STOP_SECONDS, state_dir

FRONTDESK_STOP_SECONDS = 10.0
# After its drain the dispatcher joins threads, saves its progress and releases the lease.
DISPATCHER_MARGIN_SECONDS = 15.0
WORKER_MARGIN_SECONDS = 20.0


def run_all(settings: Settings, *, config_path: Path | None, verbose: bool, reload: bool) -> int:
    """Run all processes until SIGTERM or SIGINT. Returns the exit code.

    The bot is imported first: nothing starts if that fails. With `reload` an edit replaces it.
    The dispatcher stops after the processes that store events: no new events arrive while it
    drains. A worker stops after the dispatcher: its running handlers can end.
    """
    require(settings, "line_channel_secret", "line_channel_access_token")
    if settings.dispatcher_workers == "amqp":
        require(settings, "amqp_url")
        require_pika()
    # In a child, since a bot may start threads; the child ends with what is wrong.
    if (child := os.fork()) == 0:
        from linedesk.bots.load import load

        load(settings)
        os._exit(Exit.OK)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        return code
    if "mongodb_uri" not in settings.model_fields_set:
        require_default(settings.mongodb_uri)
    signals = Signals()
    with signals_on(signals):
        programs = room_programs(settings, config_path=config_path, verbose=verbose)
        # A bot's output appears at once, and advice to operators names this command.
        environ = {**os.environ, "PYTHONUNBUFFERED": "1", STARTED_BY_VARIABLE: UP}
        environ |= {RELOAD_VARIABLE: "1"} if reload else {}
        # A child must not report its readiness to systemd as that of this process.
        environ.pop("NOTIFY_SOCKET", None)
        if settings.mongodb_uri == EMBEDDED:
            mongod = KeptMongod(state_dir())
            mongod.prepare(settings.mongodb_database, audit_days=settings.audit_days)
            command, locks = mongod.command(), mongod.locks
            programs.append(Program("mongod", command, STOP_SECONDS, locks, mongod.process))
            used: dict[str, object] = {"mongodb_uri": mongod.uri}
            if "spool_path" not in settings.model_fields_set:
                # Beside the data: a small server has no folder for the service.
                used["spool_path"] = state_dir().parent / "spool.db"
            environ |= {name.upper(): str(value) for name, value in used.items()}
            mongod.note(settings.model_copy(update=used))
        click.echo("\n".join(addresses(settings)), err=True)
        return Supervisor(programs, environ, signals).run()


def room_programs(settings: Settings, *, config_path: Path | None, verbose: bool) -> list[Program]:
    """The processes that run, in the order in which they stop."""
    options = ["--config", str(config_path)] if config_path else []
    options += ["--verbose"] if verbose else []

    def program(module: str, stop_seconds: float) -> Program:
        return Program(module, children.of_module(module, *options), stop_seconds)

    programs = [
        program("frontdesk", FRONTDESK_STOP_SECONDS),
        program("dispatcher", settings.drain_seconds + DISPATCHER_MARGIN_SECONDS),
    ]
    if settings.dispatcher_workers == "amqp":
        command = children.of_module("linedesk", "worker", *options)
        programs.append(Program("worker", command, settings.drain_seconds + WORKER_MARGIN_SECONDS))
    return programs


def addresses(settings: Settings) -> list[str]:
    """The lines that `linedesk up` prints: its addresses and further commands."""
    lines = [f"Webhook:    {webhook_url(settings)}"]
    # LINE itself supports only HTTPS.
    if urlsplit(settings.line_api_base).scheme == "http":
        lines.append(f"Simulator:  {settings.line_api_base}/")
    return [*lines, f"Page:       run `linedesk console`, then open {console_url(settings)}"]
