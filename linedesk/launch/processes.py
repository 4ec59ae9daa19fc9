"""Starts each process of linedesk from its settings: one function for each `linedesk <process>`."""

from __future__ import annotations

import gc
import logging
import os
import socket
from typing import Any

from prometheus_client import CollectorRegistry

from linedesk.launch.systemd import service_from, sockets_from
from linedesk.runtime.garbage import spare_the_collector
from linedesk.settings.addresses import webhook_url
from linedesk.settings.errors import CannotServe
from linedesk.settings.settings import Settings, require, require_pika, require_server

log = logging.getLogger(__name__)


def frontdesk_process(settings: Settings, *, share_port: bool = False) -> int:
    """Serve webhooks until a signal; returns the exit code. Raises SettingsError, CannotListen."""
    # The server enables it again after all imports: clients may be waiting already.
    gc.disable()
    from frontdesk.app import WebhookSettings
    from frontdesk.process import SpoolAt, serve
    from frontdesk.server import Address
    from linedesk.launch.metrics_server import serve_metrics

    _warn_of_removed(settings)
    registry = CollectorRegistry()
    service, inherited = service_from(os.environ), _sockets()
    require(settings, "line_channel_secret")
    require_server(settings)
    desk = WebhookSettings(
        secrets=tuple(secret.encode() for secret in settings.channel_secrets),
        channel=settings.line_channel,
        path=settings.frontdesk_path,
        max_body_bytes=settings.max_body_kb * 1024,
        token=settings.console_token.get_secret_value() if settings.console_token else "",
    )
    address = Address(
        host=settings.frontdesk_host,
        port=settings.frontdesk_port,
        reuse_port=share_port,
        tls_cert=settings.frontdesk_tls_cert,
        tls_key=settings.frontdesk_tls_key,
    )
    with serve_metrics(registry, settings.metrics_host, settings.frontdesk_metrics_port):
        code = serve(
            desk,
            address,
            mongodb_uri=settings.mongodb_uri,
            database=settings.mongodb_database,
            spool=SpoolAt(settings.spool_path, settings.spool_max_mb * 1024 * 1024),
            service=service,
            inherited=inherited,
            registry=registry,
        )
    if inherited:
        # Clients already wait for the next process, and closing the driver alone takes 0.5 s.
        logging.shutdown()
        os._exit(code)
    return code


def _sockets() -> list[socket.socket]:
    from frontdesk.errors import CannotListen

    try:
        return sockets_from(os.environ)
    except OSError as error:
        raise CannotListen(f"the socket unit passed no socket: {error}") from error


def dispatcher_process(settings: Settings) -> int:
    """Run the bot on stored events until a signal; returns the exit code.

    Raises SettingsError, SetupError.
    """
    # The garbage collector takes a fifth of the start to scan the SDK's thousands of classes.
    # Frozen classes cost later collections nothing, either.
    gc.disable()
    from linedesk.launch.dispatcher import run_dispatcher

    spare_the_collector()
    _warn_of_removed(settings)
    require(settings, "line_channel_access_token")
    require_server(settings)
    return run_dispatcher(settings)


def worker_process(settings: Settings, *, command: str | None) -> int:
    """Run a bot's handlers for a dispatcher until a signal; returns the exit code.

    Raises SettingsError.
    """
    require_pika()
    from linedesk.launch.worker import run_worker

    _warn_of_removed(settings)
    return run_worker(settings, command=command)


def _warn_of_removed(settings: Settings) -> None:
    for name, what_to_do in settings.removed.items():
        log.warning('setting has no effect in this release name=%s reason="%s"', name, what_to_do)


def sim_process(settings: Settings, *, port: int, webhook: str | None, **options: Any) -> int:
    """Serve the simulator until a signal; returns the exit code. Raises CannotServe."""
    import linesim

    require(settings, "line_channel_secret", "line_channel_access_token")
    try:
        return linesim.serve(
            secret=settings.channel_secrets[0],
            token=settings.access_token,
            port=port,
            webhook_url=webhook or webhook_url(settings),
            **options,
        )
    except OSError as error:
        raise CannotServe(f"the simulator cannot use port {port}: {error.strerror}") from error
