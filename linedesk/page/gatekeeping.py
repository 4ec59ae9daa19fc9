"""The protection of every page: known host names, logins, headers, small bodies, same-site forms.

A page on another site can make a browser send requests here, with the visitor's password, and by
its own DNS even read the answers. The console therefore answers only for its own host names, and
accepts forms only from its own pages. It also chooses the language of each request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linedesk.page.auth import GUESS_SECONDS, Doorkeeper, TooManyGuesses
from linedesk.runtime.language import DEFAULT, LANGUAGES, gettext, language, mark, speaking
from linedesk.runtime.metrics import Refusals

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")
MOST_BODY_BYTES = 256 * 1024
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# The media types of answers in the language of the request; JSON is English,
# but for the words of an event's result.
TEXTS = ("text/html", "text/plain")
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
# A browser asks for name and password, in UTF-8 (RFC 7617).
BASIC = 'Basic realm="linedesk", charset="UTF-8"'
# A proxy that forwards a request sends one of them.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True)
class Console:
    """The settings of the console as plain values."""

    channel: str = "main"
    """The channel of conversations whose rows name none."""
    password: str = ""
    token: str = ""
    host: str = "127.0.0.1"
    port: int = 8010
    url: str | None = None
    """The URL of the page, where it differs from host and port."""
    text: bool = False
    """Whether the text that people wrote is shown."""

    @property
    def is_proxied(self) -> bool:
        """Whether `url` names a proxy: an address other than the console's own."""
        if self.url is None:
            return False
        url = urlsplit(self.url)
        is_elsewhere = is_loopback(self.host) and not is_loopback(url.hostname or "")
        return url.scheme != "http" or (url.port or 80) != self.port or is_elsewhere

    def knows(self, host: str) -> bool:
        """Return whether a Host header, with or without a port, names this console."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        names = {*LOOPBACK_NAMES, self.host.lower(), urlsplit(self.url or "").hostname}
        # Another site's DNS can give a name any address, but cannot turn an address into a name.
        is_any_address = self.host in EVERYWHERE and _address(name) is not None
        return name in names - {*EVERYWHERE} or is_any_address


class Gatekeeper:
    """ASGI middleware around the whole app. `language` is LINEDESK_LANG; None: the browser's."""

    def __init__(
        self,
        app: ASGIApp,
        console: Console,
        refusals: Refusals,
        *,
        guess_seconds: float = GUESS_SECONDS,
        language: str | None = None,
    ) -> None:
        self._app = app
        self._language = language
        self._refusals = refusals
        self._console = console
        self._doorkeeper = Doorkeeper(
            password=console.password, token=console.token, guess_seconds=guess_seconds
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on; add the headers of every answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wanted = Headers(scope=scope).get("accept-language", "")
        with speaking(self._language or of_browser(wanted)):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(message["status"], scope)
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                # A static file has an ETag, by which a browser asks for it again.
                headers["cache-control"] = "no-cache" if "etag" in headers else "no-store"
                if headers.get("content-type", "").startswith(TEXTS):
                    headers["content-language"] = language()
                    headers.add_vary_header("accept-language")
            await send(message)

        refused = refusal(scope["method"], Headers(scope=scope), self._console)
        if refused is None:
            refused = await self._unknown(scope)
        app = self._app if refused is None else self._plain(*refused)
        await app(scope, receive, send_with_headers)

    def _note(self, status: int, scope: Scope) -> None:
        """Log the error of a client, but not the requested path of a stranger."""
        # A browser asks for the password only after a request without one.
        is_question = status == 401 and "authorization" not in Headers(scope=scope)
        if 400 <= status < 500 and not is_question:
            self._refusals.note(f"{status} {HTTPStatus(status).phrase}", client_of(scope))

    async def _unknown(self, scope: Scope) -> tuple[int, str] | None:
        """Put the visitor into the scope; else return status and text. An act needs a name."""
        shown = Headers(scope=scope).get("authorization", "")
        try:
            visitor = await self._doorkeeper.visitor(shown, address=client_of(scope))
        except TooManyGuesses:
            return 429, mark("Too many attempts at once. Try again.")
        if visitor is None:
            return 401, mark("Enter your name, which the audit lists, and the console's password.")
        if not visitor and scope["method"] not in SAFE_METHODS:
            return 401, mark("Enter your name, which the audit lists, and no password.")
        # A connection of a visitor with a password is not closed in favour of others.
        scope.setdefault("state", {}).update(visitor=visitor, proved=self._doorkeeper.asks)
        return None

    def _plain(self, status: int, message: str) -> PlainTextResponse:
        headers = {}
        if status == 401:
            is_basic = self._doorkeeper.takes_names
            headers["www-authenticate"] = BASIC if is_basic else "Bearer"
        return PlainTextResponse(f"{gettext(message)}\n", status, headers)


def visitor_of(request: Request) -> str:
    """Return the name of the visitor of a request that was not refused."""
    return str(request.state.visitor)


def refusal(method: str, headers: Headers, console: Console) -> tuple[int, str] | None:
    """Return status and text for a request that is refused unread; None for others."""
    host = headers.get("host", "")
    if not console.knows(host):
        return 421, mark("This host name is not one of the console's: see CONSOLE_URL.")
    is_closed = bool(console.password or console.token)
    if not is_closed and any(name in headers for name in FORWARDED):
        return 403, mark("Reached through a proxy: set CONSOLE_PASSWORD first.")
    if method in SAFE_METHODS:
        return None
    if not _is_same_site(headers, host):
        return 403, mark("This form does not come from the console's own page.")
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 411, mark("The form has no Content-Length.")
    if int(length) > MOST_BODY_BYTES:
        return 413, mark("The form is too long.")
    return None


def _is_same_site(headers: Headers, host: str) -> bool:
    """Return whether a browser reports the same site; a script has no such header."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def client_of(scope: Scope) -> str:
    """Return the address of the client, also behind a trusted proxy."""
    client = scope.get("client")
    return str(client[0]) if client else "-"


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def of_browser(accept_language: str) -> str:
    """Return the first language of an Accept-Language header that is one of LANGUAGES.

    Browsers list them by preference.
    """
    wanted = (re.split("[-;]", part.strip().lower())[0] for part in accept_language.split(","))
    return next((name for name in wanted if name in LANGUAGES), DEFAULT)
