"""The common parts of pages and acts: reads, acts, last message, templates, texts."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from pymongo.database import Database

from linedesk.operate.format import UNITS
from linedesk.operate.pauses import COST_OF_PAUSE, pause_of_everything
from linedesk.operate.text import known
from linedesk.page.format import FILTERS, number, zone
from linedesk.page.gatekeeping import Console, visitor_of
from linedesk.page.live import LiveReader, LiveReadings
from linedesk.runtime.language import gettext, language, mark, ngettext, of_environment
from linedesk.store.records.calls import is_taken

Value = TypeVar("Value")

PAGES = {
    "/": mark("Overview"),
    "/conversations": mark("Conversations"),
    "/events": mark("Events"),
    "/letters": mark("Dead letters"),
    "/calls": mark("Calls"),
    "/pauses": mark("Pauses"),
    "/audit": mark("Audit"),
}
# The texts of console.js, by the names that it uses.
SCRIPT_TEXTS = {
    "offline": mark(
        "No connection to the console since {time}. This page shows data that is {age}. Retrying. "
        "If the console has ended, start it again."
    ),
    "lost": mark("no connection"),
    "notLive": mark("Not live."),
    "unknown": mark("State unknown."),
    "below": mark("The numbers below are {age}."),
    "zone": mark("Times in {zone}, this browser's zone."),
    "old": mark("{time} old"),
    "two": mark("{larger} {smaller}"),
    "hours": UNITS[1][1],
    "minutes": UNITS[2][1],
    "seconds": UNITS[3][1],
}
MOST_SAID = 200
# An act is several writes, each on a majority. While MongoDB is away a form is answered in 2 s.
ACT_SECONDS, ACT_SPARE_SECONDS = 1.2, 0.3


@dataclass(frozen=True)
class Said:
    """The outcome of an act."""

    words: str
    well: bool | None = True
    """None while it is not known."""
    link: tuple[str, str] | None = None
    """A page with more about it: its path and its name."""


class PageContext:
    """One console. `reading` may read from a secondary, `acting` needs the primary."""

    def __init__(self, console: Console, *, reading: Database[Any], acting: Database[Any]) -> None:
        self.console = console
        self.reading = reading
        self.acting = acting
        # Raises UnknownLanguage.
        self.language = of_environment()
        self.reader = LiveReader()
        self.actor = LiveReader(seconds=ACT_SECONDS, spare_seconds=ACT_SPARE_SECONDS)
        self.pause = LiveReadings(
            self.reader, lambda: pause_of_everything(reading, own=console.channel)
        )
        self._said: OrderedDict[str, Said] = OrderedDict()
        self._templates = environment()

    def close(self) -> None:
        """End the threads; a running act is waited for, a running read is not."""
        self.reader.close()
        self.actor.close(wait=True)

    async def read(self, function: Callable[[Database[Any]], Value]) -> Value:
        """Return the result of a function that reads the database. Raises Away."""
        return await self.reader.run(lambda: function(self.reading))

    async def act(self, function: Callable[[], Value]) -> Value:
        """Return the result of an act. Raises Away, after which its outcome is unknown."""
        return await self.actor.run(function)

    async def everything_paused(self, request: Request) -> None:
        """Read whether everything is paused, for the banner; a dependency of every page."""
        request.state.everything_paused = (await self.pause.latest()).value

    def page(
        self, request: Request, template: str, told: Mapping[str, Any], *, status: int = 200
    ) -> HTMLResponse:
        """Return a page of a template, with the common parts."""
        everywhere = {
            "visitor": visitor_of(request),
            "everything_paused": getattr(request.state, "everything_paused", None),
            "pages": PAGES.items(),
            "here": request.url.path,
            "word": "",
            "said": self._said.get(request.query_params.get("said", "")),
            "trouble": None,
            "lang": language(),
            # Between sentences.
            "gap": "" if language() == "ja" else " ",
            "read_at": None,
            "every": None,
            "zone": zone(),
            "version": version("linedesk"),
            "text": self.console.text,
            "script_texts": {name: gettext(one) for name, one in SCRIPT_TEXTS.items()},
            "channel": self.console.channel,
        }
        values = {**everywhere, **told}
        if values["trouble"]:
            values["trouble"] = known(values["trouble"])
        words = self._templates.get_template(template).render(values)
        return HTMLResponse(words, status_code=status)

    def show(self, path: str, said: Said) -> RedirectResponse:
        """Redirect to one of our pages, which shows the outcome of an act."""
        name = secrets.token_urlsafe(9)
        self._said[name] = said
        while len(self._said) > MOST_SAID:
            self._said.popitem(last=False)
        return RedirectResponse(f"{path}?said={name}", status_code=303)


def text_of(message: str, **values: Any) -> Markup:
    """Return a translated text with its values; `_` of the templates. Values are escaped."""
    return Markup(gettext(message)).format(**values)


def count_of(singular: str, plural: str, count: Any, **values: Any) -> Markup:
    """As `text_of`, for a text that depends on a number; `ngettext` of the templates."""
    of = round(count) if isinstance(count, (int, float)) else 0
    return Markup(ngettext(singular, plural, of)).format(count=number(count), **values)


def environment() -> Environment:
    """Return the templates with their filters and texts."""
    made = Environment(
        loader=PackageLoader("linedesk.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(_=text_of, ngettext=count_of, cost_of_pause=COST_OF_PAUSE)
    made.tests["taken"] = is_taken
    return made
