"""The worker process: a bot's handlers for a dispatcher on another machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from queue import Empty, SimpleQueue

from prometheus_client import CollectorRegistry

from jobworker.bot.messages import SEND_CHECKS
from jobworker.remote.amqp import AmqpBroker
from jobworker.remote.program import ProgramBot, ProgramFailed, WrongProgram
from jobworker.remote.python_bot import PythonBot
from jobworker.remote.worker import WorkerProcess
from linedesk.bots.load import load
from linedesk.launch.metrics_server import serve_metrics
from linedesk.launch.reload import reloading
from linedesk.launch.systemd import service_from, take_signals
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.logging import masking
from linedesk.runtime.service_manager import ServiceManager, word_seconds
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings, require
from linedesk.settings.sources import CREDENTIALS

log = logging.getLogger(__name__)

# The time of a stop after the drain.
END_SECONDS = 15.0
# A tenth of Python's own. bench/workers.py measures its effect for handlers that compute.
SWITCH_SECONDS = 0.0005
# Programs get none of these in their environment; they get the bot's secrets in the first line.
KEPT_SECRET = {*(name.upper() for name in CREDENTIALS), "CREDENTIALS_DIRECTORY"}


def run_worker(settings: Settings, *, command: str | None = None) -> int:
    """Run handlers until a signal; returns the exit code. Raises SettingsError.

    With `command` programs in another language run the handlers.
    """
    # A computing thread holds Python's lock for this time, and the sending and receiving threads
    # wait.
    sys.setswitchinterval(SWITCH_SECONDS)
    service = service_from(os.environ)
    require(settings, "amqp_url")
    try:
        with reloading(os.environ):
            bot = _bot(settings, command)
    except ProgramFailed as error:
        log.error("the program of --command %s", error)  # noqa: TRY400
        return Exit.STUCK
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    take_signals(inbox)
    threading.excepthook = lambda args: inbox.put(args.exc_value or SystemExit())
    registry = CollectorRegistry()
    worker = WorkerProcess(
        bot,
        partial(AmqpBroker, settings.amqp_urls, name="worker"),
        threads=settings.worker_threads,
        name=f"{socket.gethostname()}/{os.getpid()}",
        release=version("linedesk"),
        registry=registry,
    )
    with ExitStack() as stack:
        stack.enter_context(
            serve_metrics(registry, settings.metrics_host, settings.worker_metrics_port)
        )
        worker.start()
        log.info("ready bot=%s threads=%d", bot.version, settings.worker_threads)
        code = _until_signal(worker, inbox, service)
        limit = settings.drain_seconds
        service.stopping("stopping", seconds=limit + END_SECONDS)
        if not worker.leave(time.monotonic() + limit):
            log.warning("handlers did not end within the drain; they are handed out again")
    return code


def _until_signal(
    worker: WorkerProcess, inbox: SimpleQueue[int | BaseException], service: ServiceManager
) -> int:
    """Feed the watchdog while there is progress, or a known reason for having none."""
    every = word_seconds(service)
    is_ready = False
    while True:
        stalled = worker.stalled()
        if stalled is not None:
            service.unwell(stalled)
        elif is_ready:
            service.alive(worker.status())
        else:
            service.ready(worker.status())
            is_ready = True
        try:
            message = inbox.get(timeout=every)
        except Empty:
            if not worker.has_threads_left:
                log.error("as many handlers hang as there are threads, stopping")  # noqa: TRY400
                return Exit.STUCK
            if worker.is_outdated:
                log.error("the bot's program has another version now, stopping")  # noqa: TRY400
                return Exit.STUCK
            continue
        if isinstance(message, BaseException):
            log.error("a thread died error=%s", type(message).__name__)
            return Exit.SOFTWARE
        return Exit.OK


def _bot(settings: Settings, command: str | None) -> PythonBot | ProgramBot:
    """Raises SettingsError, and ProgramFailed for errors that a restart may fix."""
    masked = masking(settings.secret_values)
    if command is not None:
        given = {name: one.get_secret_value() for name, one in settings.bot_secrets.items()}
        try:
            return ProgramBot(
                command,
                settings=settings.bot_settings,
                secrets=given,
                environ={name: one for name, one in os.environ.items() if name not in KEPT_SECRET},
                masked=masked,
            )
        except WrongProgram as error:
            raise SettingsError([f"--command: the program {error}"]) from error
    bot, bot_settings, secrets = load(settings)
    if bot.sends_by_itself:
        raise SettingsError(
            [
                f"BOT names {settings.bot}, a WebhookHandler that calls LINE by itself: it runs in "
                "the dispatcher only (DISPATCHER_WORKERS=local), not in a worker process"
            ]
        )
    return PythonBot(
        bot,
        settings=bot_settings,
        secrets=secrets,
        masked=masked,
        check=SEND_CHECKS[settings.send_check],
        most_async=settings.async_handlers,
    )
