"""RabbitMQ, where handlers run in worker processes: whether both users reach it, and their rights.

A client sees neither RabbitMQ's time-outs nor its queues' limits; nothing here rests on them.
"""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from linedesk.console import health
from linedesk.console.overview import MOST_ROWS
from linedesk.console.processes import (
    DISPATCHER,
    WorkersView,
    combined,
    is_fresh,
    leading,
    workers_of,
)
from linedesk.console.reading import reported
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip, warn
from linedesk.store.documents import STATUS

CONNECT_SECONDS = 2.0
LOOK_SECONDS = 0.1
FORBIDDEN = 403
MAKE = "`linedesk init --amqp {folder}` on RabbitMQ's machine makes it"
MAKE_USERS = "`linedesk init --amqp {folder}` on RabbitMQ's machine sets users and rights"
FOLDER = "/etc/linedesk/credentials"


def reached(box: DoctorContext) -> Finding:
    """Each node, by each URL that is known here: TLS, user and virtual host."""
    if not box.amqp_urls("dispatcher"):
        return bad("AMQP_URL is not set", MAKE_USERS.format(folder=FOLDER))
    away, seen = [], []
    for who in ("dispatcher", "worker"):
        for url in box.amqp_urls(who):
            told = _trouble(url)
            seen.append(f"{who} at {_node(url)}")
            away += [f"{who} at {_node(url)}: {told}"] if told else []
    if not away:
        return ok(f"{', '.join(seen)}{_unsafe(box)}")
    do = "is RabbitMQ running, are host, port and virtual host in AMQP_URL right? " + (
        MAKE_USERS.format(folder=FOLDER)
    )
    return bad("; ".join(away), do) if len(away) == len(seen) else warn("; ".join(away), do)


def rights(box: DoctorContext) -> Finding:
    """Whether exchange and rights are there, none are too wide, and RabbitMQ takes messages."""
    from pika.exceptions import ConnectionBlockedTimeout

    try:
        return _rights(_usable(box.amqp_urls("dispatcher")), _usable(box.amqp_urls("worker")))
    except ConnectionBlockedTimeout:
        return of(health.broker_away("RabbitMQ takes nothing: it is short of memory or disk"))
    except _errors() as error:
        return bad(_told(error), MAKE_USERS.format(folder=FOLDER))


def workers(box: DoctorContext) -> Finding:
    """The workers that the leader knows, by its row."""
    rows = reported(box.database, STATUS).find({"role": DISPATCHER}).limit(MOST_ROWS)
    row = leading(row for row in rows if is_fresh(row, now=box.now))
    found = None if row is None else workers_of(row, combined([row]))
    if found is None:
        return skip("no dispatcher with DISPATCHER_WORKERS=amqp is the leader")
    return judge_workers(found, dispatcher_threads=box.settings.dispatcher_threads)


def judge_workers(found: WorkersView, *, dispatcher_threads: int) -> Finding:
    """By what the leader knows of them and its own DISPATCHER_THREADS."""
    if found.broker:
        return of(health.broker_away(found.broker))
    if not found.working:
        return of(health.no_worker(found.processes))
    idle = health.idle_worker(found.processes)
    if idle is not None:
        return of(idle)
    most = dispatcher_threads - 1
    if found.threads > most:
        return warn(
            f"the workers have {found.threads:,} threads, and DISPATCHER_THREADS "
            f"{dispatcher_threads:,}: at most {most:,} jobs are out at a time",
            f"raise DISPATCHER_THREADS to {found.threads + 1:,} or more; a thread of the "
            "dispatcher waits for each job",
        )
    return ok(found.words())


def _usable(urls: Sequence[str]) -> str | None:
    """The first URL whose node lets its user in, else the first of all."""
    return next((url for url in urls if not _trouble(url)), next(iter(urls), None))


def _rights(leader_url: str | None, worker_url: str | None) -> Finding:
    from jobworker.remote.amqp import EXCHANGE, LEADER_QUEUE, WORKER_QUEUE

    if leader_url is None:
        return skip("AMQP_URL is not set")
    with _channel(leader_url) as (connection, leader):
        if _refusal(connection, lambda on: on.exchange_declare(EXCHANGE, passive=True)):
            return bad(f"the exchange {EXCHANGE} is missing", MAKE.format(folder=FOLDER))
        own = f"{LEADER_QUEUE}doctor.{uuid.uuid4().hex}"
        leader.queue_declare(own, exclusive=True, auto_delete=True)
        leader.queue_bind(own, EXCHANGE)
        leader.queue_unbind(own, EXCHANGE)
        leader.confirm_delivery()
        leader.basic_publish("", own, b"x")
        if not _arrives(connection, leader, own):
            return of(health.broker_away("RabbitMQ delivers no message to the dispatcher's queue"))
        if worker_url is None:
            return ok(
                "the dispatcher may do its work; the worker's AMQP_URL is not on this machine"
            )
        with _channel(worker_url) as (its, worker):
            worker.queue_declare(f"{WORKER_QUEUE}doctor.{uuid.uuid4().hex}", exclusive=True)
            # Leaders ignore messages of a type that they do not know.
            worker.confirm_delivery()
            worker.basic_publish(EXCHANGE, "", b'{"type":"doctor"}')
            wide = {
                "read the dispatcher's queue": lambda on: on.basic_get(own),
                "send to any queue": lambda on: on.basic_publish("", "linedesk.doctor", b"x"),
                "make any queue": lambda on: on.queue_declare("linedesk.doctor", exclusive=True),
            }
            may = [words for words, act in wide.items() if _refusal(its, act) != FORBIDDEN]
        if may:
            do = MAKE_USERS.format(folder=FOLDER)
            return warn(f"the worker's user may {', '.join(may)}", do)
    return ok("dispatcher and worker may do their work, and the worker nothing else")


def _refusal(connection: Any, act: Callable[[Any], Any]) -> int | None:
    """The code with which RabbitMQ refuses an act, on a channel of its own; None: it does not."""
    from pika.exceptions import ChannelClosedByBroker

    channel = connection.channel()
    try:
        channel.confirm_delivery()
        act(channel)
    except ChannelClosedByBroker as error:
        code: int = error.reply_code
        return code
    channel.close()
    return None


def _arrives(connection: Any, channel: Any, queue: str) -> bool:
    until = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < until:
        if channel.basic_get(queue, auto_ack=True)[0] is not None:
            return True
        connection.process_data_events(LOOK_SECONDS)
    return False


@contextmanager
def _channel(url: str) -> Iterator[tuple[Any, Any]]:
    import pika

    parameters = pika.URLParameters(url)
    parameters.socket_timeout = CONNECT_SECONDS
    parameters.stack_timeout = CONNECT_SECONDS
    parameters.blocked_connection_timeout = CONNECT_SECONDS
    parameters.client_properties = {"connection_name": "linedesk doctor"}
    with pika.BlockingConnection(parameters) as connection:
        yield connection, connection.channel()


def _errors() -> tuple[type[BaseException], ...]:
    from jobworker.remote.amqp import LOST

    return LOST


def _trouble(url: str) -> str:
    """Why a node cannot be used, in words; empty where it can."""
    try:
        with _channel(url):
            return ""
    except _errors() as error:
        return _told(error)


def _told(error: BaseException) -> str:
    from jobworker.remote.amqp import told

    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason}"
    return told(error)


def _node(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}"


def _unsafe(box: DoctorContext) -> str:
    """A word on connections that leave this machine in plain text."""
    urls: Sequence[str] = box.amqp_urls("dispatcher")
    plain = [
        one
        for one in map(urlsplit, urls)
        if one.scheme == "amqp" and one.hostname not in ("127.0.0.1", "localhost", "::1")
    ]
    return ", without TLS: use amqps unless the network is your own" if plain else ""
