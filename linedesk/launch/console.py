"""`linedesk console`: the operator's page, put together from settings."""

from __future__ import annotations

import logging
import math
import os
import socket
from contextlib import suppress
from typing import NoReturn
from urllib.parse import urlsplit

import click
import uvicorn
from fastapi import FastAPI
from pymongo import ReadPreference

from frontdesk.http import HEAD_SECONDS, Connection, Overload
from frontdesk.metrics import FrontdeskMetrics
from linedesk.launch.systemd import service_from
from linedesk.page.app import create_app
from linedesk.page.gatekeeping import Console, is_loopback
from linedesk.page.serve import ConsoleServer, config_of
from linedesk.settings.addresses import console_url
from linedesk.settings.errors import CannotServe, SettingsError
from linedesk.settings.settings import Settings, require_server
from linedesk.setup.kept_mongod import beside_up
from linedesk.store.client import connect
from linedesk.store.collections import require_schema
from linedesk.store.errors import AccessRefused, StoreUnavailable

# The page reports after this time that MongoDB is down; the command line waits longer.
SELECTION_SECONDS = 2.0
SOCKET_SECONDS = 10.0
BACKLOG = 64
# Each takes a file descriptor, of which there are 1,024 by default.
MOST_CONNECTIONS = 400
# More than the requests that wait for their turn to log in.
MOST_REQUESTS = 200


def run_console(settings: Settings) -> NoReturn:
    """Serve the page until a signal, then exit. Raises SettingsError, CannotServe."""
    service = service_from(os.environ)
    settings = beside_up(settings)
    require_server(settings)
    console = console_of(settings)
    with (
        _listen(settings) as listener,
        connect(
            settings.mongodb_uri,
            app_name="linedesk-console",
            server_selection_seconds=SELECTION_SECONDS,
            socket_seconds=SOCKET_SECONDS,
        ) as client,
    ):
        name, url = settings.mongodb_database, console_url(settings)
        # The page also starts without MongoDB; each action tries again.
        with suppress(StoreUnavailable, AccessRefused):
            require_schema(client[name])
        # Operators look at the page while the replica set has no primary.
        reading = client.get_database(name, read_preference=ReadPreference.PRIMARY_PREFERRED)
        click.echo(f"Page:       {url}", err=True)
        app = create_app(console, reading=reading, acting=client[name])
        config, refusals = server_config(app, console), app.state.refusals
        server = ConsoleServer(config, url=url, refusals=refusals, service=service)
        server.run(sockets=[listener])
    # Skip reads that wait for MongoDB: they would only delay the exit.
    logging.shutdown()
    os._exit(0)


def server_config(
    app: FastAPI,
    console: Console,
    *,
    most_connections: int = MOST_CONNECTIONS,
    most_requests: int = MOST_REQUESTS,
    head_seconds: float = HEAD_SECONDS,
) -> uvicorn.Config:
    """The app with the front desk's server and its limits for heads and time.

    No request is refused for having waited: a late page is better than none.
    """
    figures = FrontdeskMetrics()
    figures.refusals = app.state.refusals
    bounded = Overload(
        app,
        figures,
        most_connections=most_connections,
        most_requests=most_requests,
        late_seconds=math.inf,
        head_seconds=head_seconds,
    )
    return config_of(bounded, is_proxied=console.is_proxied, http=Connection)


def console_of(settings: Settings) -> Console:
    """The console's plain values. Raises SettingsError if every client on the network could act."""
    password, token = (
        one.get_secret_value() if one is not None else ""
        for one in (settings.console_password, settings.console_token)
    )
    reached = [settings.console_host]
    if settings.console_url is not None:
        reached.append(urlsplit(settings.console_url).hostname or "")
    open_to = [host for host in reached if not is_loopback(host)]
    if open_to and not (password or token):
        raise SettingsError(
            [
                f"every client that reaches {open_to[0]} could use the console without a password "
                "and act: set CONSOLE_PASSWORD for people or CONSOLE_TOKEN for scripts, or "
                "leave CONSOLE_HOST at 127.0.0.1 and connect by `ssh -L "
                f"{settings.console_port}:127.0.0.1:{settings.console_port}`"
            ]
        )
    return Console(
        channel=settings.line_channel,
        password=password,
        token=token,
        host=settings.console_host,
        port=settings.console_port,
        url=settings.console_url,
        text=settings.console_text,
    )


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.console_host, settings.console_port
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(target[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotServe(
            f"the console cannot use {host} port {port} (CONSOLE_HOST, CONSOLE_PORT): "
            f"{error.strerror or error}"
        ) from error
