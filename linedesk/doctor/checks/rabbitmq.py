"""RabbitMQ, if handlers run in worker processes: whether both users reach it, and their rights.

A client cannot see RabbitMQ's time-outs and the limits of its queues; no check depends on them.
"""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip, warn
from linedesk.operate import health
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import require_pika

CONNECT_SECONDS = 2.0
LOOK_SECONDS = 0.1
FORBIDDEN = 403
MAKE = mark("run `linedesk init --amqp {folder}` on RabbitMQ's machine: it creates the exchange")
MAKE_USERS = mark(
    "run `linedesk init --amqp {folder}` on RabbitMQ's machine: it sets users and rights"
)
FOLDER = "/etc/linedesk/credentials"


def reached(box: DoctorContext) -> Finding:
    """Each node with each URL that this machine has: TLS, user and virtual host."""
    if not box.amqp_urls("dispatcher"):
        return bad(
            _("{name} is not set").format(name="AMQP_URL"), _(MAKE_USERS).format(folder=FOLDER)
        )
    try:
        require_pika()
    except SettingsError as error:
        return bad(str(error), _("correct it, then run `linedesk doctor` again"))
    away, seen = [], []
    for who in ("dispatcher", "worker"):
        for url in box.amqp_urls(who):
            told = _trouble(url)
            where = _("{user} at {url}").format(user=who, url=_node(url))
            seen.append(where)
            away += [f"{where}: {told}"] if told else []
    if not away:
        return ok(f"{', '.join(seen)}{_unsafe(box)}")
    do = _("check that RabbitMQ runs and that host, port and virtual host in AMQP_URL are right")
    do = f"{do}; {_(MAKE_USERS).format(folder=FOLDER)}"
    return bad("; ".join(away), do) if len(away) == len(seen) else warn("; ".join(away), do)


def rights(box: DoctorContext) -> Finding:
    """Whether the exchange exists, the rights are exact, and RabbitMQ accepts messages."""
    from pika.exceptions import ConnectionBlockedTimeout

    try:
        return _rights(_usable(box.amqp_urls("dispatcher")), _usable(box.amqp_urls("worker")))
    except ConnectionBlockedTimeout:
        return of(
            health.broker_away(_("RabbitMQ accepts no messages: it is short of memory or disk"))
        )
    except _errors() as error:
        return bad(_told(error), _(MAKE_USERS).format(folder=FOLDER))


def _usable(urls: Sequence[str]) -> str | None:
    """The first URL whose node accepts its user, else the first URL."""
    return next((url for url in urls if not _trouble(url)), next(iter(urls), None))


def _rights(leader_url: str | None, worker_url: str | None) -> Finding:
    from jobworker.remote.amqp import EXCHANGE, LEADER_QUEUE, WORKER_QUEUE

    if leader_url is None:
        return skip(_("{name} is not set").format(name="AMQP_URL"))
    with _channel(leader_url) as (connection, leader):
        if _refusal(connection, lambda on: on.exchange_declare(EXCHANGE, passive=True)):
            saw = _("the exchange {name} is missing").format(name=EXCHANGE)
            return bad(saw, _(MAKE).format(folder=FOLDER))
        own = f"{LEADER_QUEUE}doctor.{uuid.uuid4().hex}"
        leader.queue_declare(own, exclusive=True, auto_delete=True)
        leader.queue_bind(own, EXCHANGE)
        leader.queue_unbind(own, EXCHANGE)
        leader.confirm_delivery()
        leader.basic_publish("", own, b"x")
        if not _arrives(connection, leader, own):
            saw = _("RabbitMQ delivers no message to the dispatcher's queue")
            return of(health.broker_away(saw))
        if worker_url is None:
            return ok(
                _("the dispatcher has its rights; the worker's AMQP_URL is not on this machine")
            )
        with _channel(worker_url) as (its, worker):
            worker.queue_declare(f"{WORKER_QUEUE}doctor.{uuid.uuid4().hex}", exclusive=True)
            # Leaders ignore messages of a type that they do not know.
            worker.confirm_delivery()
            worker.basic_publish(EXCHANGE, "", b'{"type":"doctor"}')
            wide = {
                _("read the dispatcher's queue"): lambda on: on.basic_get(own),
                _("send to any queue"): lambda on: on.basic_publish("", "linedesk.doctor", b"x"),
                _("create any queue"): lambda on: on.queue_declare(
                    "linedesk.doctor", exclusive=True
                ),
            }
            may = [words for words, act in wide.items() if _refusal(its, act) != FORBIDDEN]
        if may:
            do = _(MAKE_USERS).format(folder=FOLDER)
            saw = _("the worker's user has more rights than it needs: {rights}")
            return warn(saw.format(rights=", ".join(may)), do)
    return ok(_("dispatcher and worker have exactly the rights that they need"))


def _refusal(connection: Any, act: Callable[[Any], Any]) -> int | None:
    """The code with which RabbitMQ refuses an act on a new channel; None if it accepts it."""
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
    """Why a node cannot be used; empty if it can."""
    try:
        with _channel(url):
            return ""
    except _errors() as error:
        return _told(error)


def _told(error: BaseException) -> str:
    from jobworker.remote.amqp import told

    if isinstance(error, ssl.SSLError):
        return _("TLS fails: {error}").format(error=error.reason)
    return known(told(error))


def _node(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}"


def _unsafe(box: DoctorContext) -> str:
    """A note on connections to other machines in plain text."""
    urls: Sequence[str] = box.amqp_urls("dispatcher")
    plain = [
        one
        for one in map(urlsplit, urls)
        if one.scheme == "amqp" and one.hostname not in ("127.0.0.1", "localhost", "::1")
    ]
    return ", " + _("without TLS: use amqps unless the network is private") if plain else ""
