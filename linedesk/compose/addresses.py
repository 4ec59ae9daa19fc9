"""The addresses of linedesk's parts from this machine, and their output for operators."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import click

from linedesk.runtime.thread import BackgroundThread
from linedesk.settings.settings import Settings

# A server that listens on all addresses is reached at this one.
REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}
READY_SECONDS = 2.0
READY_PAUSE_SECONDS = 0.2


def webhook_url(settings: Settings) -> str:
    """The front desk's callback."""
    scheme = "https" if settings.frontdesk_tls_cert else "http"
    host = REACHED_AT.get(settings.frontdesk_host, settings.frontdesk_host)
    return f"{scheme}://{_bracketed(host)}:{settings.frontdesk_port}{settings.frontdesk_path}"


def console_url(settings: Settings) -> str:
    """The URL of the console: CONSOLE_URL if it is set."""
    if settings.console_url is not None:
        return f"{settings.console_url}/"
    host = REACHED_AT.get(settings.console_host, settings.console_host)
    return f"http://{_bracketed(host)}:{settings.console_port}/"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def addresses(settings: Settings) -> list[str]:
    """The lines that `linedesk up` prints: its addresses and further commands."""
    lines = [f"Webhook:    {webhook_url(settings)}"]
    # LINE itself supports only HTTPS.
    if urlsplit(settings.line_api_base).scheme == "http":
        lines.append(f"Simulator:  {settings.line_api_base}/")
    return [*lines, f"Page:       run `linedesk console`, then open {console_url(settings)}"]


class AddressPrinter(BackgroundThread):
    """Prints the addresses as soon as the front desk is ready."""

    def __init__(self, settings: Settings) -> None:
        super().__init__("addresses", self._print)
        self._settings = settings

    def _print(self) -> None:
        while not _is_ready(webhook_url(self._settings)):
            if self._stop.wait(READY_PAUSE_SECONDS):
                return
        for line in addresses(self._settings):
            click.echo(line, err=True)


@contextmanager
def announced(settings: Settings) -> Iterator[None]:
    """Print the addresses in the background as soon as the front desk is ready."""
    printer = AddressPrinter(settings)
    printer.start()
    try:
        yield
    finally:
        printer.stop()
        printer.join()


def _is_ready(url: str) -> bool:
    """Whether the front desk accepts webhooks at this URL."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=READY_SECONDS)
    if parts.scheme == "https":
        # Its certificate is for the name by which LINE calls it.
        unverified = ssl._create_unverified_context()
        connection = HTTPSConnection(
            parts.hostname or "", parts.port, timeout=READY_SECONDS, context=unverified
        )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
