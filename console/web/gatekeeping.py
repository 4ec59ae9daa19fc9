"""What no page has to think of: known host names, headers, small bodies, and same-site forms.

A page on another site can make a browser send requests here, and by its own DNS even read the
answers. So only names that are ours are answered, and a form must come from our own pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")
MOST_BODY_BYTES = 256 * 1024
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# Who forwards a request says so in one of them.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True)
class Names:
    """The host names under which the page answers, and whether a proxy may stand before it."""

    host: str = "127.0.0.1"
    url: str | None = None
    proxied: bool = False

    def knows(self, host: str) -> bool:
        """Whether a Host header, a port with it or not, is one of ours."""
        name = host_name(host)
        if name in {*LOOPBACK_NAMES, self.host.lower()} - {*EVERYWHERE}:
            return True
        if self.url is not None and name == (urlsplit(self.url).hostname or ""):
            return True
        # Another site's DNS can give a name any address, but cannot make an address a name.
        return self.host in EVERYWHERE and _is_address(name)


class Gatekeeper:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with the headers that every answer has."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = refusal(scope["method"], Headers(scope=scope), self._names)
        app = self._app if refused is None else PlainTextResponse(refused[1], refused[0])
        await app(scope, receive, send_with_headers)


def refusal(method: str, headers: Headers, names: Names) -> tuple[int, str] | None:
    """Status and words for what is not even looked at; None for what is."""
    host = headers.get("host", "")
    if not names.knows(host):
        return 421, "This host name is not one of the console's: see CONSOLE_URL.\n"
    if not names.proxied and any(name in headers for name in FORWARDED):
        return 403, "Reached through a proxy: set CONSOLE_PASSWORD, so that not anybody can.\n"
    if method in SAFE_METHODS:
        return None
    if not _is_same_site(headers, host):
        return 403, "This form does not come from the console's own page.\n"
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 411, "The form does not say how long it is.\n"
    if int(length) > MOST_BODY_BYTES:
        return 413, "The form is too long.\n"
    return None


def _is_same_site(headers: Headers, host: str) -> bool:
    """As browsers say it; a script says nothing of the kind, and has no cookie either."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def host_name(host: str) -> str:
    """The name or address of a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower() if host.count(":") < 2 else host.lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
