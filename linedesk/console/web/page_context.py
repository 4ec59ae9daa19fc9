"""What every page and act shares: the visitor, reads and acts, the last message, the templates."""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader
from pymongo.database import Database

from linedesk.console.calls import cost_words, reason_words
from linedesk.console.conversation import with_names
from linedesk.console.lists.conversations import pause_of_everything
from linedesk.console.lists.mass_act import MassAct
from linedesk.console.web.auth import BROWSER_SECONDS, Doorkeeper, Turns, Visitor, name_from
from linedesk.console.web.format import FILTERS, zone
from linedesk.console.web.gatekeeping import Names, is_loopback
from linedesk.console.web.live import Away, LiveReader, LiveReadings
from linedesk.runtime.status_row import HAND, SYSTEMD, UP, started_by
from linedesk.store.documents import Document
from linedesk.store.records.calls import is_taken

Value = TypeVar("Value")

COOKIE = "linedesk_session"
NAME_COOKIE = "linedesk_name"
PAGES = {
    "/": "Overview",
    "/conversations": "Conversations",
    "/events": "Events",
    "/timers": "Timers",
    "/letters": "Dead letters",
    "/calls": "Calls",
    "/pauses": "Pauses",
    "/audit": "Audit",
}
MOST_SAID = 200
# How the console is started again, by what started it.
START = {
    SYSTEMD: "systemctl restart linedesk-console",
    UP: "linedesk up",
    HAND: "linedesk console",
}
# An act is several writes, each on a majority. While MongoDB is away it is answered within 2 s.
ACT_SECONDS, ACT_SPARE_SECONDS = 1.2, 0.3


@dataclass(frozen=True)
class Console:
    """How the page is to be: plain values of the settings."""

    channel: str = "main"
    """The one that a conversation is of where nobody says."""
    password: str = ""
    token: str = ""
    host: str = "127.0.0.1"
    port: int = 8010
    url: str | None = None
    """The URL by which people reach the page, where it is not that of host and port."""
    text: bool = False
    """Whether what people wrote is shown."""

    @property
    def is_proxied(self) -> bool:
        """Whether `url` names a proxy: a place other than the one where the console listens."""
        if self.url is None:
            return False
        url = urlsplit(self.url)
        is_elsewhere = is_loopback(self.host) and not is_loopback(url.hostname or "")
        return url.scheme != "http" or (url.port or 80) != self.port or is_elsewhere


class NotLoggedIn(Exception):
    """Whoever asks has to log in first."""


@dataclass(frozen=True)
class Said:
    """What came of an act."""

    words: str
    well: bool | None = True
    """None while it is not known yet."""
    link: tuple[str, str] | None = None
    """A page that tells more: its path, and its words."""
    typed: Mapping[str, str] = field(default_factory=dict)
    """What stood in a form that was refused, so that it is not typed again."""


class PageContext:
    """One console. `reading` may be a secondary's view, `acting` needs the primary."""

    def __init__(
        self,
        console: Console,
        *,
        reading: Database[Any],
        acting: Database[Any],
        turns: Turns | None = None,
    ) -> None:
        self.console = console
        self.reading = reading
        self.acting = acting
        self.doorkeeper = Doorkeeper(password=console.password, token=console.token)
        self.turns = turns or Turns()
        self.started_by = started_by(os.environ, parent=os.getppid())
        self.names = Names(console.host, url=console.url, open_to_proxies=self.doorkeeper.asks)
        self.reader = LiveReader()
        self.actor = LiveReader(seconds=ACT_SECONDS, spare_seconds=ACT_SPARE_SECONDS)
        self.mass_act = MassAct()
        self.pause = LiveReadings(
            self.reader, lambda: pause_of_everything(reading, own=console.channel)
        )
        self._said: OrderedDict[str, Said] = OrderedDict()
        self._templates = _environment()

    def close(self) -> None:
        """End the threads: reads are left alone, an act under way is waited for."""
        self.mass_act.close()
        self.reader.close()
        self.actor.close(wait=True)

    async def read(self, function: Callable[[Database[Any]], Value]) -> Value:
        """What a function reads of the database. Raises Away."""
        return await self.reader.run(lambda: function(self.reading))

    async def act(self, function: Callable[[], Value]) -> Value:
        """What an act returns. Raises Away, after which it may have been done or not."""
        return await self.actor.run(function)

    def named(self, database: Database[Any], rows: Iterable[Mapping[str, Any]]) -> list[Document]:
        """The rows, each with the `name` of its conversation in LINE."""
        return with_names(database, rows, channel=self.console.channel)

    def visitor(self, request: Request) -> Visitor:
        """Who asks. Raises NotLoggedIn."""
        who = self._known(request)
        if who is None:
            raise NotLoggedIn
        # Its connection is not ended in favour of others then.
        request.scope.get("state", {})["proved"] = self.doorkeeper.asks
        return who

    def _known(self, request: Request) -> Visitor | None:
        """Who asks; where no login has the name, the browser keeps it in a cookie."""
        who = self._logged_in(request)
        if who is None or who.name:
            return who
        return replace(who, name=name_from(unquote(request.cookies.get(NAME_COOKIE, ""))))

    def login_name(self, request: Request) -> str:
        """The name that the visitor logged in with, which no cookie changes; empty without one."""
        who = self._logged_in(request)
        return who.name if who is not None else ""

    def _logged_in(self, request: Request) -> Visitor | None:
        return self.doorkeeper.visitor(
            request.cookies.get(COOKIE), request.headers.get("authorization")
        )

    async def everything_paused(self, request: Request) -> None:
        """Have the page say so if everything is paused; a dependency of every page."""
        request.state.everything_paused = (await self.pause.latest()).value

    def page(
        self, request: Request, template: str, told: Mapping[str, Any], *, status: int = 200
    ) -> HTMLResponse:
        """A page of a template, with what stands on each."""
        everywhere = {
            "visitor": self._known(request),
            "everything_paused": getattr(request.state, "everything_paused", None),
            "has_login": self.doorkeeper.asks,
            "path": _path_of(request),
            "can_log_out": self.doorkeeper.takes_passwords,
            "pages": PAGES.items(),
            "here": request.url.path,
            "word": "",
            "said": self._said.get(request.query_params.get("said", "")),
            "trouble": None,
            "read_at": None,
            "every": None,
            "zone": zone(),
            "start": START[self.started_by],
            "version": version("linedesk"),
            "text": self.console.text,
            "channel": self.console.channel,
        }
        words = self._templates.get_template(template).render({**everywhere, **told})
        return HTMLResponse(words, status_code=status)

    def away(self, request: Request, error: Away) -> HTMLResponse:
        """What is shown while MongoDB does not answer; it is asked again by itself."""
        return self.page(request, "away.html", {"trouble": str(error), "every": 2}, status=503)

    def back(self, to: str, said: Said) -> RedirectResponse:
        """On to a page of ours that tells what came of an act."""
        path, _, query = own_path(to).partition("#")[0].partition("?")
        kept = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "said"]
        query = urlencode([*kept, ("said", self._remembered(said))])
        return RedirectResponse(f"{path}?{query}", status_code=303)

    def unsure(self, to: str, said: Said) -> RedirectResponse:
        """On to a page that needs no MongoDB and tells what is known of an act."""
        query = urlencode({"said": self._remembered(said), "back": own_path(to)})
        return RedirectResponse(f"/unsure?{query}", status_code=303)

    def _remembered(self, said: Said) -> str:
        name = secrets.token_urlsafe(9)
        self._said[name] = said
        while len(self._said) > MOST_SAID:
            self._said.popitem(last=False)
        return name


def _path_of(request: Request) -> str:
    """Where the visitor is, as a form's `back`: without the message of the last act."""
    if request.method != "GET":
        return "/"
    query = urlencode([one for one in request.query_params.multi_items() if one[0] != "said"])
    return f"{quote(request.url.path)}?{query}" if query else quote(request.url.path)


def give_cookie(
    response: Response, request: Request, name: str, value: str, seconds: float
) -> None:
    """A cookie that no script reads and no other site sends."""
    response.set_cookie(
        name,
        value,
        max_age=int(seconds),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def give_name(response: Response, request: Request, name: str) -> None:
    """Have the browser keep the visitor's name for the audit."""
    give_cookie(response, request, NAME_COOKIE, quote(name), BROWSER_SECONDS)


def own_path(to: str) -> str:
    """A path of ours; whatever else was asked for is the overview."""
    is_ours = to.startswith("/") and not to.startswith("//") and "\\" not in to
    return to if is_ours and to.isprintable() else "/"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("linedesk.console.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.filters["cost"] = cost_words
    environment.filters["reason"] = reason_words
    environment.tests["taken"] = is_taken
    return environment
