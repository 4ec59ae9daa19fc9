"""The dispatcher process: its clients, its bot and its signals, put together from settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from dispatcher.changestream import ChangeStreamFeed
from dispatcher.feed import Feed, feed_client
from dispatcher.history import History
from dispatcher.lease import Lease
from dispatcher.oplog import OplogFeed
from dispatcher.process import Dispatcher, Ending, Limits
from jobworker.assembly import Desk, LineSettings
from jobworker.delivery import ReplyUnknown
from linedesk.botloader import load_bot
from linedesk.exits import Exit
from linedesk.settings import Settings
from recvq.connect import Client, connect
from recvq.documents import RECVQ

EXITS: Mapping[Ending, Exit] = {
    Ending.STOPPED: Exit.OK,
    Ending.STUCK: Exit.STUCK,
    Ending.REPLACED: Exit.REPLACED,
    Ending.FAILED: Exit.SOFTWARE,
}


def run_dispatcher(settings: Settings) -> int:
    """Run until a signal; returns the exit code. Raises SettingsError, SetupError."""
    bot = load_bot(settings.bot)
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    _take_signals(inbox)
    threads = settings.dispatcher_threads
    desks: list[Desk] = []

    def make_desk(**tools: Callable[..., Any]) -> Desk:
        desk = Desk(
            bot,
            database,
            _line_settings(settings),
            tries=settings.handler_tries,
            **tools,
        )
        desks.append(desk)
        return desk

    with (
        connect(settings.mongodb_uri, app_name="linedesk-dispatcher") as client,
        feed_client(settings.mongodb_uri, app_name="linedesk-feed") as feeds,
    ):
        database = client[settings.mongodb_database]
        dispatcher = Dispatcher(
            database,
            make_feed(settings.dispatcher_feed, feeds, settings.mongodb_database),
            History(database[RECVQ]),
            make_desk,
            limits=Limits(
                threads=threads,
                drain_seconds=settings.drain_seconds,
                handler_seconds=settings.handler_limit_seconds,
            ),
            lease=Lease(database),
            inbox=inbox,
        )
        ending = dispatcher.run()
        for desk in desks:
            desk.close()
    return EXITS[ending]


def make_feed(name: str, client: Client, database: str) -> Feed:
    """The feed that DISPATCHER_FEED names, on a client of its own."""
    if name == OplogFeed.name:
        return OplogFeed(client, database)
    return ChangeStreamFeed(client[database][RECVQ])


def _line_settings(settings: Settings) -> LineSettings:
    return LineSettings(
        api_base=settings.line_api_base,
        token=settings.access_token,
        interval_seconds=settings.line_access_interval_ms / 1000,
        threads=settings.dispatcher_threads,
        reply_unknown=ReplyUnknown(settings.reply_unknown),
    )


def _take_signals(inbox: SimpleQueue[int | BaseException]) -> None:
    """The first SIGTERM or SIGINT asks for an orderly end, the second ends at once."""
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        # SimpleQueue.put is the one hand-over that is safe inside a signal handler.
        inbox.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
