"""RabbitMQ, if handlers run in worker processes: whether both users reach it, and the exchange.

`linedesk init --amqp` sets the rights. A client cannot see RabbitMQ's time-outs and the limits of
its queues; no check depends on them.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, ok, warn
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import require_pika

CONNECT_SECONDS = 2.0
MAKE = mark(
    "run `linedesk init --amqp {folder}` and the command it prints: exchange, users, rights"
)
FOLDER = "/etc/linedesk/credentials"


def reached(box: DoctorContext) -> Finding:
    """Each node with each URL that this machine has: TLS, user, virtual host and exchange."""
    make = _(MAKE).format(folder=FOLDER)
    if not box.amqp_urls("dispatcher"):
        return bad(_("{name} is not set").format(name="AMQP_URL"), make)
    try:
        require_pika()
    except SettingsError as error:
        return bad(str(error), _("correct it, then run `linedesk doctor` again"))
    away, seen = [], []
    for who in ("dispatcher", "worker"):
        for url in box.amqp_urls(who):
            told = _trouble(url, who)
            where = _("{user} at {url}").format(user=who, url=_node(url))
            seen.append(where)
            away += [f"{where}: {told}"] if told else []
    if not away:
        return ok(", ".join(seen))
    do = _("check that RabbitMQ runs and that host, port and virtual host in AMQP_URL are right")
    return (bad if len(away) == len(seen) else warn)("; ".join(away), f"{do}; {make}")


def _trouble(url: str, who: str) -> str:
    """Why a node cannot be used; empty if it can."""
    import pika

    from jobworker.remote.amqp import EXCHANGE, LOST, told

    parameters: Any = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = CONNECT_SECONDS
    parameters.blocked_connection_timeout = CONNECT_SECONDS
    parameters.client_properties = {"connection_name": "linedesk doctor"}
    try:
        with pika.BlockingConnection(parameters) as connection:
            if who == "dispatcher":
                connection.channel().exchange_declare(EXCHANGE, passive=True)
            return ""
    except ssl.SSLError as error:
        return _("TLS fails: {error}").format(error=error.reason)
    except LOST as error:
        return known(told(error))


def _node(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}"
