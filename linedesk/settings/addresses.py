"""The addresses of linedesk's parts from this machine."""

from __future__ import annotations

from base64 import b64encode

from linedesk.settings.settings import Settings

# A server that listens on all addresses is reached at this one.
REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}


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


def console_login(settings: Settings) -> str | None:
    """The Authorization header for the console; None if it needs no login."""
    if settings.console_token is not None:
        return f"Bearer {settings.console_token.get_secret_value()}"
    if settings.console_password is not None:
        pair = f"linesim:{settings.console_password.get_secret_value()}"
        return f"Basic {b64encode(pair.encode()).decode()}"
    return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
