"""The dispatcher process: its clients, its bot and its signals, put together from settings."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any

from prometheus_client import CollectorRegistry
from pymongo.database import Database

from dispatcher.conversations.leader import Leader
from dispatcher.feed.change_stream import ChangeStreamFeed
from dispatcher.feed.feed import Feed, feed_client
from dispatcher.feed.oplog import OplogFeed
from dispatcher.feed.rescan import Rescan
from dispatcher.lease import Lease
from dispatcher.process import Dispatcher, DispatcherLimits, ExitReason
from dispatcher.status import StatusReporter
from dispatcher.timers import Timers, system_now
from jobworker.assembly import BotSettings, BotWorker, LineSettings
from jobworker.bot.messages import SEND_CHECKS
from jobworker.remote.leader import Workers
from jobworker.sending.button import SlowAnswers
from jobworker.sending.conversation_outbox import SendLimits
from jobworker.sending.verdict import ReplyUnknown
from linedesk.bots.load import load
from linedesk.launch.metrics_server import serve_metrics
from linedesk.launch.reload import reloading
from linedesk.launch.sim_clock import SimClock
from linedesk.launch.systemd import let_time_pass, service_from, take_signals
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.logging import masking
from linedesk.runtime.service_manager import UP, ServiceManager, started_by
from linedesk.settings.settings import Settings, require, require_pika
from linedesk.setup.neighbours import Neighbours
from linedesk.store.client import Client, connect
from linedesk.store.control import Control
from linedesk.store.documents import RECVQ
from linedesk.store.errors import AccessRefused

log = logging.getLogger(__name__)

# The wait for workers ends this long before the drain, so that the threads of their jobs have time
# to end.
THREADS_END_SECONDS = 2.0

EXITS: Mapping[ExitReason, Exit] = {
    ExitReason.STOPPED: Exit.OK,
    ExitReason.STUCK: Exit.STUCK,
    ExitReason.REPLACED: Exit.REPLACED,
    ExitReason.REFUSED: Exit.UNAVAILABLE,
    ExitReason.WRONG_RECVQ: Exit.CONFIG,
    ExitReason.FAILED: Exit.SOFTWARE,
}


def run_dispatcher(settings: Settings) -> int:
    """Run until a signal; returns the exit code. Raises SettingsError, SetupError."""
    # Before the bot is loaded: programs that it starts must not notify systemd in this process's
    # name.
    service = service_from(os.environ)
    is_remote = settings.dispatcher_workers == "amqp"
    if is_remote:
        require(settings, "amqp_url")
        require_pika()
    # With separate worker processes no code of the bot runs here.
    with nullcontext() if is_remote else reloading(os.environ):
        bot, bot_settings, bot_secrets = (None, {}, {}) if is_remote else load(settings)
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    take_signals(inbox)
    clock = None if settings.sim_clock is None else SimClock(settings.sim_clock)
    now = system_now if clock is None else clock.now
    registry = CollectorRegistry()
    desks: list[BotWorker] = []

    handling = BotSettings(
        tries=settings.handler_tries,
        letter_days=settings.dead_letter_days,
        settings=bot_settings,
        secrets=bot_secrets,
        masked=masking(settings.secret_values),
        check=SEND_CHECKS[settings.send_check],
        most_async=settings.async_handlers,
    )

    def make_desk(leader: Leader) -> BotWorker:
        desk = BotWorker(
            bot,
            handling,
            _line_settings(settings),
            leader,
            now=now,
            timer_set=timers.set,
            registry=registry,
            workers=_workers(settings, database) if is_remote else None,
        )
        desks.append(desk)
        return desk

    with (
        serve_metrics(registry, settings.metrics_host, settings.dispatcher_metrics_port),
        connect(settings.mongodb_uri, app_name="linedesk-dispatcher") as client,
        feed_client(settings.mongodb_uri, app_name="linedesk-feed") as feeds,
    ):
        database = client[settings.mongodb_database]
        lease = Lease(database)
        timers = Timers(database, lease_is_fresh=lease.is_fresh, now=now, registry=registry)
        if clock is not None:
            clock.when_moved(timers.wake)
            clock.report(database)
        reporter = StatusReporter(
            lease,
            service,
            repair=Neighbours(database).look,
            registry=registry,
            about={"handlerTries": settings.handler_tries},
        )
        dispatcher = Dispatcher(
            make_feed(settings.dispatcher_feed, feeds, settings.mongodb_database),
            Rescan(database[RECVQ]),
            make_desk,
            limits=DispatcherLimits(
                threads=settings.dispatcher_threads,
                drain_seconds=settings.drain_seconds,
                handler_seconds=settings.handler_limit_seconds,
            ),
            lease=lease,
            reporter=reporter,
            inbox=inbox,
            components=[timers] if clock is None else [clock, timers],
        )
        ending = run_until_end(dispatcher, inbox, service)
        for desk in desks:
            desk.close()
    return EXITS[ending]


def _workers(settings: Settings, database: Database[Any]) -> Workers:
    """The worker processes over RabbitMQ. pika is imported only when used: it takes 0.1 s."""
    from jobworker.remote.amqp import AmqpBroker

    # The worker of `linedesk up` has the dispatcher's own bot.
    confirms_bots = started_by(os.environ, parent=os.getppid()) != UP
    return Workers(
        partial(AmqpBroker, settings.amqp_urls, name="dispatcher"),
        stop_seconds=max(0.0, settings.drain_seconds - THREADS_END_SECONDS),
        control=Control(database) if confirms_bots else None,
    )


def run_until_end(
    dispatcher: Dispatcher, inbox: SimpleQueue[int | BaseException], service: ServiceManager
) -> ExitReason:
    """Run the dispatcher; if MongoDB refuses access, exit slowly enough for systemd. Raises
    AccessRefused.
    """
    began = time.monotonic()
    try:
        ending = dispatcher.run()
    except AccessRefused as error:
        let_time_pass(began, inbox, service, why=str(error))
        raise
    if ending is ExitReason.REFUSED:
        let_time_pass(began, inbox, service, why="MongoDB refuses access, see above")
    return ending


def make_feed(name: str, client: Client, database: str) -> Feed:
    """The feed of DISPATCHER_FEED, with its own client."""
    if name == OplogFeed.name:
        return OplogFeed(client, database)
    return ChangeStreamFeed(client[database][RECVQ])


def _line_settings(settings: Settings) -> LineSettings:
    return LineSettings(
        api_base=settings.line_api_base,
        data_base=settings.line_api_data_base,
        token=settings.access_token,
        interval_seconds=settings.line_access_interval_ms / 1000,
        concurrency=settings.line_concurrency,
        threads=settings.dispatcher_threads,
        handler_seconds=settings.handler_limit_seconds,
        send_limits=SendLimits(
            reply_unknown=ReplyUnknown(settings.reply_unknown),
            late_replies_a_day=settings.late_replies_a_day,
        ),
        loading_animation=settings.loading_animation,
        slow_answers=SlowAnswers(settings.slow_answers),
    )
