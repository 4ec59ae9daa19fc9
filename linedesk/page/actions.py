"""Forms and their acts: each act is done once, recorded in `audit`, and its outcome is shown.

A form for a question is a GET that can be reloaded and shared; only the act itself is a POST.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from starlette.datastructures import FormData, UploadFile

from linedesk.operate.acts import Acts, Head, Kind, OperatorControl, heads
from linedesk.operate.conversation import channels_of, names_of
from linedesk.operate.errors import ConsoleError, Phrase
from linedesk.operate.find import is_seen, key_of
from linedesk.operate.format import scope_words
from linedesk.operate.pauses import MOST_ON_PAGE, read_waiting
from linedesk.operate.processes import listed, present_leader
from linedesk.operate.text import known
from linedesk.page.gatekeeping import visitor_of
from linedesk.page.live import Away
from linedesk.page.page_context import PageContext, Said, own_path
from linedesk.page.view_models import choices_of
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import NOTHING_STUCK, Release, Scope
from linedesk.store.documents import Document
from linedesk.store.records.waits import code_of

UNKNOWN = mark(
    "{problem}. MongoDB did not confirm it in time. If the audit lists it as begun, it may be "
    "done; if the audit does not list it, it was not done"
)
# The most letters that one form names.
MOST_LETTERS = 200
# The operator types this to pause everything.
EVERYTHING = mark("pause everything")
# A form waits so long for a dispatcher's outcome, which takes half a second.
OUTCOME_SECONDS, POLL_SECONDS = 1.5, 0.1
REFRESH_SECONDS = 2
# The list shows what waits for this many of the pauses.
MOST_COUNTED = 10


def act_routes(context: PageContext) -> APIRouter:
    """Return the routes of pauses and releases."""
    router = APIRouter()
    acts: dict[str, Write] = {"/pause": _pause, "/resume": _resume, "/release": _release}
    for path, write in acts.items():
        router.add_api_route(path, doing(context, _in_one_step(write)), methods=["POST"])
    shown = APIRouter(dependencies=[Depends(context.everything_paused)])

    @shown.get("/release")
    async def ask_release(
        request: Request, channel: str = "", key: str = "", back: str = "/"
    ) -> Response:
        stuck = await context.read(lambda database: heads(database, channel, key))
        whose = {"channel": channel, "key": key}
        told = {"whose": whose, "heads": choices_of(stuck), "back": own_path(back)}
        return context.page(request, "release.html", told)

    @shown.get("/pauses")
    async def pauses(request: Request) -> Response:
        told = await context.read(lambda database: _paused(database, context.console.channel))
        told |= {"every": REFRESH_SECONDS, "everything": _(EVERYTHING)}
        return context.page(request, "pauses.html", told)

    @router.get("/unsure")
    async def unsure(request: Request, back: str = "/") -> Response:
        return context.page(request, "unsure.html", {"back": own_path(back)})

    router.include_router(shown)
    return router


class RequestedAct:
    """A form from one of our pages, and its visitor."""

    def __init__(self, by: str, form: FormData) -> None:
        self.by = by
        """The visitor's name, for the audit."""
        self._form = form

    def word(self, name: str) -> str:
        """Return a field without blanks around it; empty where it is missing."""
        value = self._form.get(name, "")
        return "" if isinstance(value, UploadFile) else value.strip()

    def words(self, name: str) -> list[str]:
        """Return all values of a repeated field."""
        return [value for value in self._form.getlist(name) if isinstance(value, str)]

    @property
    def back(self) -> str:
        """The page to show afterwards."""
        return self.word("back") or "/"

    @property
    def fields(self) -> list[tuple[str, str]]:
        """All fields, to show the form again."""
        items = self._form.multi_items()
        return [(name, value) for name, value in items if isinstance(value, str)]


Write = Callable[[Acts, RequestedAct, PageContext], str | Release]
"""Writes to MongoDB; returns the message, or the ordered release. Raises ConsoleError."""
Act = Callable[[Acts, RequestedAct, PageContext], Awaitable[str | Said | Release]]
"""Does the same through the context, in one step or more. Raises ConsoleError, Away."""


def _in_one_step(write: Write) -> Act:
    async def act(acts: Acts, requested: RequestedAct, context: PageContext) -> str | Release:
        return await context.act(lambda: write(acts, requested, context))

    return act


async def requested_act(request: Request) -> RequestedAct:
    """Read a form."""
    form = await request.form(max_files=0, max_fields=2 * MOST_LETTERS)
    return RequestedAct(visitor_of(request).name, form)


def doing(context: PageContext, act: Act) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a form: act, and show the outcome."""

    async def do(request: Request) -> Response:
        requested = await requested_act(request)
        acts = Acts(context.acting, by=requested.by, via="page")
        try:
            said = await _said(context, acts, await act(acts, requested, context))
        except ConsoleError as error:
            problems = "; ".join(error.problems)
            said = Said(problems, well=False, typed=dict(requested.fields))
        except Away as error:
            if not error.refused:
                words = _(UNKNOWN).format(problem=known(str(error)))
                return context.unsure(requested.back, Said(words, well=False))
            said = Said(known(str(error)), well=False)
        return context.back(requested.back, said)

    return do


async def _said(context: PageContext, acts: Acts, came: str | Said | Release) -> Said:
    if isinstance(came, Release):
        return await _outcome(context, acts, came)
    return came if isinstance(came, Said) else Said(came)


async def _outcome(context: PageContext, acts: Acts, release: Release) -> Said:
    """Wait for a release's outcome, for a bounded time, and return the message."""
    page = f"/conversation/{quote(release.channel, safe='')}/{quote(release.key, safe='')}"
    try:
        came = await _confirmed(context, acts, release)
        asked = _("The dispatcher is asked to release {id}. It has not confirmed yet")
        asked = asked.format(id=release.name)
    except Away as error:
        came = None
        asked = _("The dispatcher is asked to release {id}. The outcome is not known: {problem}")
        asked = asked.format(id=release.name, problem=known(str(error)))
    if came is None:
        return Said(asked, well=None, link=(page, _("The conversation's page shows the outcome")))
    if code_of(came) == NOTHING_STUCK:
        return Said(_("Not released: nothing was stuck any more"), well=False)
    return Said(_("Released: {outcome}").format(outcome=known(came)))


async def _confirmed(context: PageContext, acts: Acts, release: Release) -> Document | str | None:
    """Return the outcome; None where no dispatcher confirms it in time. Raises Away."""
    until = time.monotonic() + OUTCOME_SECONDS
    while (came := await context.act(lambda: acts.came(release))) is None:
        if time.monotonic() > until:
            return None
        await asyncio.sleep(POLL_SECONDS)
    return came


def _paused(database: Any, own_channel: str) -> dict[str, Any]:
    """Return the values of the page of pauses."""
    pauses = OperatorControl(database).read()
    row = present_leader(database)
    obeyed = [(one.get("channel"), one.get("key")) for one in listed(row or {}, "paused")]
    conversations = [str(one.scope) for one in pauses.rows if one.scope.key]
    return {
        "pauses": pauses.rows,
        "waiting": {
            one.scope: read_waiting(database, one.scope, most=MOST_ON_PAGE)
            for one in pauses.rows[:MOST_COUNTED]
        },
        "is_obeyed": lambda one: row is not None and (one.scope.channel, one.scope.key) in obeyed,
        "channels": channels_of(database, own=own_channel, pauses=pauses),
        "names": names_of(database, conversations),
    }


def _scope(requested: RequestedAct, context: PageContext) -> Scope:
    channel, key = requested.word("channel"), requested.word("key")
    if "/" in channel:
        raise ConsoleError(Phrase(mark("a channel's name has no slash")))
    return Scope(channel or (context.console.channel if key else None), key or None)


def _pause(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    scope = _scope(requested, context)
    if scope.key is None:
        _require_pausable(scope, requested, context)
    if scope.channel is not None and scope.key is not None:
        # The operator may have typed a name, or the start of an id.
        scope = Scope(scope.channel, key_of(context.acting, scope.key, channel=scope.channel))
    what = scope_words(scope.channel, scope.key)
    if not acts.pause(scope, why=requested.word("why")):
        return _("{scope} was already paused").format(scope=what)
    if scope.key is not None and not is_seen(context.acting, scope):
        told = _("{scope} is paused, but it is not known: no event of it was seen. Check its id")
        return told.format(scope=what)
    return _("{scope} is paused. New events are held until you resume").format(scope=what)


def _require_pausable(scope: Scope, requested: RequestedAct, context: PageContext) -> None:
    """Raise ConsoleError for an unknown channel, and for everything without its confirmation.

    A pause of the only channel is a pause of everything.
    """
    pauses = OperatorControl(context.acting).read()
    channels = channels_of(context.acting, own=context.console.channel, pauses=pauses)
    if scope.channel is not None and scope.channel not in channels:
        message = mark("Nothing was paused: no channel {name!r}, only {names}")
        names = ", ".join(channels)
        raise ConsoleError(Phrase(message, name=scope.channel, names=names))
    if scope.channel is not None and len(channels) > 1:
        return
    typed, problems = requested.word("sure"), []
    if typed.lower() not in (EVERYTHING, _(EVERYTHING).lower()):
        message = _("to pause everything, type “{words}”")
        if typed:
            message = _("to pause everything, type “{words}”, not “{typed}”")
        problems.append(message.format(words=_(EVERYTHING), typed=typed))
    if not requested.word("why"):
        problems.append(_("write a reason, for other operators and the audit"))
    if problems:
        message = mark("Nothing was paused: {problems}")
        raise ConsoleError(Phrase(message, problems=_("; ").join(problems)))


def _resume(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    scope, is_drop = _scope(requested, context), bool(requested.word("drop"))
    what = scope_words(scope.channel, scope.key)
    if not acts.resume(scope, why=requested.word("why"), drop=is_drop):
        return _("{scope} was not paused").format(scope=what)
    if still := [scope_words(*one) for one in acts.still_paused(scope)]:
        words = _("{scope} is resumed, but other pauses remain: {pauses}")
        return words.format(scope=what, pauses=_(", ").join(some(still)))
    if is_drop:
        return _("{scope} is resumed, and what waited becomes dead letters").format(scope=what)
    return _("{scope} is resumed").format(scope=what)


def _release(acts: Acts, requested: RequestedAct, context: PageContext) -> Release:
    kind: Kind = "send" if requested.word("kind") == "send" else "event"
    channel, key, id_ = requested.word("channel"), requested.word("key"), requested.word("id")
    if not (channel and key and id_):
        raise ConsoleError(Phrase(mark("a release names a conversation and its event or send")))
    return acts.release(channel, key, Head(kind, id_, ""), why=requested.word("why"))


def some(lines: Sequence[str], most: int = 5) -> list[str]:
    """Return the first lines, and the number of the others."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], _("and {count} more").format(count=len(lines) - most)]
