"""The front desk process, put together from settings."""

from __future__ import annotations

import os
import socket

from prometheus_client import CollectorRegistry

from frontdesk.app import WebhookSettings
from frontdesk.errors import CannotListen
from frontdesk.process import SpoolAt, serve
from frontdesk.server import Address
from linedesk.launch.metrics_server import serve_metrics
from linedesk.launch.systemd import service_from, sockets_from
from linedesk.runtime.service_manager import UP, started_by
from linedesk.settings.settings import Settings, require, require_server


def run_frontdesk(settings: Settings, *, share_port: bool) -> int:
    """Serve webhooks until a signal; returns the exit code. Raises SettingsError, CannotListen."""
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
        return serve(
            desk,
            address,
            mongodb_uri=settings.mongodb_uri,
            database=settings.mongodb_database,
            spool=SpoolAt(settings.spool_path, settings.spool_max_mb * 1024 * 1024),
            service=service,
            inherited=inherited,
            registry=registry,
            # Behind that of `linedesk up` no other one serves its clients.
            lingers=started_by(os.environ, parent=os.getppid()) != UP,
        )


def _sockets() -> list[socket.socket]:
    try:
        return sockets_from(os.environ)
    except OSError as error:
        raise CannotListen(f"the socket unit passed no socket: {error}") from error
