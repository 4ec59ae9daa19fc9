"""Forms and their acts: each act is done once, recorded in `audit`, and its outcome is shown.

A form for a question is a GET that can be reloaded and shared; only the act itself is a POST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from starlette.requests import ClientDisconnect

from linedesk.operate.acts import Acts, Head, Kind
from linedesk.operate.conversation import channels_of, names_of
from linedesk.operate.format import scope_words
from linedesk.operate.pauses import MOST_ON_PAGE, read_waiting
from linedesk.operate.processes import listed, present_leader
from linedesk.operate.text import NotDone, known
from linedesk.page.gatekeeping import visitor_of
from linedesk.page.live import Away
from linedesk.page.page_context import PageContext, Said
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import Control, Scope

UNKNOWN = mark(
    "{problem}. MongoDB did not confirm it in time. If the audit lists it as begun, it may be "
    "done; if the audit does not list it, it was not done"
)
# From the end of the head to the end of the form.
FORM_SECONDS = 5.0
# The most letters that one form names.
MOST_LETTERS = 200
# The operator types this to pause everything.
EVERYTHING = mark("pause everything")
REFRESH_SECONDS = 2
# The list shows what waits for this many of the pauses.
MOST_COUNTED = 10


def act_routes(context: PageContext) -> APIRouter:
    """Return the routes of pauses and releases."""
    router = APIRouter()
    acts = {"/pause": (_pause, None), "/resume": (_resume, "/pauses"), "/release": (_release, None)}
    for path, (act, page) in acts.items():
        router.add_api_route(path, doing(context, in_one_step(act), page), methods=["POST"])
    shown = APIRouter(dependencies=[Depends(context.everything_paused)])

    @shown.get("/pauses")
    async def pauses(request: Request) -> Response:
        told = await context.read(lambda database: _paused(database, context.console.channel))
        told |= {"every": REFRESH_SECONDS, "everything": _(EVERYTHING)}
        return context.page(request, "pauses.html", told)

    router.include_router(shown)
    return router


@dataclass(frozen=True)
class RequestedAct:
    """A form from one of our pages, with the acts of its visitor."""

    context: PageContext
    acts: Acts
    fields: Mapping[str, str]
    ids: Sequence[str]
    """The values of `id`, which a form may have more than once."""

    def word(self, name: str) -> str:
        """Return a field without blanks around it; empty where it is missing."""
        return self.fields.get(name, "").strip()


Act = Callable[[RequestedAct], Awaitable[Said]]
"""Writes to MongoDB through the context, in one step or more. Raises NotDone, Away."""


def in_one_step(write: Callable[[RequestedAct], Said]) -> Act:
    """Return an act whose writes have one time limit together."""

    async def act(requested: RequestedAct) -> Said:
        return await requested.context.act(lambda: write(requested))

    return act


def doing(
    context: PageContext, act: Act, page: str | None
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a form: act, and show the outcome on the page.

    None: on the page of the conversation that the form names, without one on that of the pauses.
    """

    async def do(request: Request) -> Response:
        try:
            async with asyncio.timeout(FORM_SECONDS):
                form = await request.form(max_files=0, max_fields=2 * MOST_LETTERS)
        except (TimeoutError, ClientDisconnect):
            raise HTTPException(408, mark("the form did not arrive in time")) from None
        items = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        acts = Acts(context.acting, by=visitor_of(request), via="page")
        ids = [value for name, value in items if name == "id"]
        requested = RequestedAct(context, acts, dict(items), ids)
        to = page or _page_of(_scope(requested))
        try:
            said = await act(requested)
        except NotDone as error:
            said = Said("; ".join(error.problems), well=False)
        except Away as error:
            said = Said(known(str(error)), well=False)
            if not error.refused:
                # The visitor's own page may need MongoDB.
                said = Said(_(UNKNOWN).format(problem=said.words), well=False)
                told = {"said": said, "back": to}
                return context.page(request, "unsure.html", told, status=503)
        return context.show(to, said)

    return do


def _paused(database: Any, own_channel: str) -> dict[str, Any]:
    """Return the values of the page of pauses."""
    pauses = Control(database).read()
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


def _scope(requested: RequestedAct) -> Scope:
    channel, key = requested.word("channel"), requested.word("key")
    return Scope(channel or (requested.context.console.channel if key else None), key or None)


def _page_of(scope: Scope) -> str:
    if scope.channel is None or scope.key is None:
        return "/pauses"
    return f"/conversation/{quote(scope.channel, safe='')}/{quote(scope.key, safe='')}"


def _pause(requested: RequestedAct) -> Said:
    scope = _scope(requested)
    if scope.key is None:
        _require_pausable(scope, requested)
    is_new = requested.acts.pause(scope, why=requested.word("why"))
    told = _("{scope} is paused. New events are held until you resume")
    told = told if is_new else _("{scope} was already paused")
    return Said(told.format(scope=scope_words(scope.channel, scope.key)))


def _require_pausable(scope: Scope, requested: RequestedAct) -> None:
    """Raise NotDone for an unknown channel, and for everything without its confirmation.

    A pause of the only channel is a pause of everything.
    """
    database, own = requested.context.acting, requested.context.console.channel
    channels = channels_of(database, own=own, pauses=Control(database).read())
    if scope.channel is not None and scope.channel not in channels:
        message = _("Nothing was paused: no channel {name!r}, only {names}")
        names = ", ".join(channels)
        raise NotDone(message.format(name=scope.channel, names=names))
    if scope.channel is not None and len(channels) > 1:
        return
    problems = []
    if requested.word("sure").lower() not in (EVERYTHING, _(EVERYTHING).lower()):
        words = _("to pause everything, type “{words}”")
        problems.append(words.format(words=_(EVERYTHING)))
    if not requested.word("why"):
        problems.append(_("write a reason, for other operators and the audit"))
    if problems:
        message = _("Nothing was paused: {problems}")
        raise NotDone(message.format(problems=_("; ").join(problems)))


def _resume(requested: RequestedAct) -> Said:
    scope, is_drop, acts = _scope(requested), bool(requested.word("drop")), requested.acts
    what = scope_words(scope.channel, scope.key)
    if not acts.resume(scope, why=requested.word("why"), drop=is_drop):
        return Said(_("{scope} was not paused").format(scope=what))
    if still := [scope_words(*one) for one in acts.still_paused(scope)]:
        words = _("{scope} is resumed, but other pauses remain: {pauses}")
        return Said(words.format(scope=what, pauses=_(", ").join(some(still))))
    if is_drop:
        words = _("{scope} is resumed, and what waited becomes dead letters")
        return Said(words.format(scope=what))
    return Said(_("{scope} is resumed").format(scope=what))


def _release(requested: RequestedAct) -> Said:
    """Order a release; the page of the conversation shows its outcome."""
    kind: Kind = "send" if requested.word("kind") == "send" else "event"
    channel, key, id_ = (requested.word(name) for name in ("channel", "key", "id"))
    if not (channel and key and id_):
        raise NotDone(_("a release names a conversation and its event or send"))
    requested.acts.release(channel, key, Head(kind, id_, ""), why=requested.word("why"))
    words = _("The dispatcher is asked to release {id}. This page shows the outcome")
    return Said(words.format(id=id_), well=None)


def some(lines: Sequence[str], most: int = 5) -> list[str]:
    """Return the first lines, and the number of the others."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[:most], _("and {count} more").format(count=len(lines) - most)]
