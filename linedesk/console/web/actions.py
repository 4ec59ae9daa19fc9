"""What forms do: each act once, noted in `audit`, and then a page that tells what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import HTTPException
from starlette.datastructures import FormData, UploadFile

from linedesk.console.acts import Acts, Head, Kind, heads
from linedesk.console.dead_letters import Choice, found, summary
from linedesk.console.errors import ConsoleError, NotReplayed
from linedesk.console.format import scope_words
from linedesk.console.search import key_of
from linedesk.console.web.auth import Visitor, is_form_of
from linedesk.console.web.live import Away
from linedesk.console.web.page_context import PageContext, Said
from linedesk.store.control import Scope
from linedesk.store.documents import DEADLETTERS

OLD_PAGE = "nothing was done: the page was older than this console; it is fresh now, try again"
UNKNOWN = (
    "MongoDB did not confirm it in time; if the audit shows it as begun it may be done, else it is "
    "not"
)
# As many letters as one confirmation is about.
MOST_LETTERS = 200


def act_routes(context: PageContext) -> APIRouter:
    """Every form that changes something."""
    router = APIRouter()
    for path, act in {
        "/pause": _pause,
        "/resume": _resume,
        "/release": _release,
        "/letters/replay": _replay,
        "/letters/drop": _drop,
    }.items():
        router.add_api_route(path, _doing(context, act), methods=["POST"])

    @router.post("/release/ask")
    async def ask_release(request: Request) -> Response:
        requested = await _wish(context, request)
        channel, key = requested.word("channel"), requested.word("key")
        stuck = await context.read(lambda database: heads(database, channel, key))
        told = {"whose": {"channel": channel, "key": key}, "heads": stuck, "back": requested.back}
        return context.page(request, "release.html", told)

    @router.post("/letters/ask")
    async def ask_letters(request: Request) -> Response:
        requested = await _wish(context, request)
        ids, act = requested.words("id")[:MOST_LETTERS], requested.word("act")
        if not ids:
            return context.back(requested.back, Said("no letter was chosen", well=False))
        choice = Choice(ids=ids)
        rows = await context.read(lambda database: found(database[DEADLETTERS], choice))
        told = {"letters": [summary(row) for row in rows], "act": act, "back": requested.back}
        return context.page(request, "letters_ask.html", told)

    return router


class RequestedAct:
    """A form that came from a page of ours, and whose it is."""

    def __init__(self, visitor: Visitor, form: FormData) -> None:
        self.visitor = visitor
        self._form = form

    def word(self, name: str) -> str:
        """A field without blanks around it; empty where it is not there."""
        value = self._form.get(name, "")
        return "" if isinstance(value, UploadFile) else value.strip()

    def words(self, name: str) -> list[str]:
        """All values of a field that may stand there several times."""
        return [value for value in self._form.getlist(name) if isinstance(value, str)]

    @property
    def back(self) -> str:
        """Where to go on afterwards."""
        return self.word("back") or "/"


Act = Callable[[Acts, RequestedAct, PageContext], str]
"""Does it, and returns what to say. Raises ConsoleError."""


async def _wish(context: PageContext, request: Request) -> RequestedAct:
    """Raises NotLoggedIn; HTTPException for a form that no page of ours has shown to him."""
    visitor = context.visitor(request)
    requested = RequestedAct(visitor, await request.form(max_files=0, max_fields=2 * MOST_LETTERS))
    if not is_form_of(visitor, requested.word("form")):
        raise HTTPException(403, OLD_PAGE)
    return requested


def _doing(context: PageContext, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def do(request: Request) -> Response:
        requested = await _wish(context, request)
        acts = Acts(context.acting, by=requested.visitor.name, via="page")
        try:
            said = Said(await context.act(lambda: act(acts, requested, context)))
        except ConsoleError as error:
            said = Said("; ".join(error.problems), well=False)
        except Away as error:
            said = Said(str(error) if error.refused else f"{error}: {UNKNOWN}", well=False)
        return context.back(requested.back, said)

    return do


def _scope(requested: RequestedAct, context: PageContext) -> Scope:
    channel, key = requested.word("channel"), requested.word("key")
    if "/" in channel:
        raise ConsoleError("a channel's name has no slash")
    return Scope(channel or (context.console.channel if key else None), key or None)


def _pause(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    scope = _scope(requested, context)
    if scope.channel is not None and scope.key is not None:
        # It may be typed by hand: a name, or the start of an id.
        scope = Scope(scope.channel, key_of(context.acting, scope.key, channel=scope.channel))
    what = scope_words(scope.channel, scope.key)
    if not acts.pause(scope, why=requested.word("why")):
        return f"{what} was paused before"
    return f"{what} is paused: what comes waits, and nothing else does"


def _resume(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    scope = _scope(requested, context)
    what = scope_words(scope.channel, scope.key)
    if not acts.resume(scope, why=requested.word("why")):
        return f"{what} was not paused any more"
    if still := [scope_words(*one) for one in acts.still_paused(scope)]:
        return f"{what}: that pause is over, but paused yet: {', '.join(_some(still))}"
    return f"{what} goes on"


def _release(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    kind: Kind = "send" if requested.word("kind") == "send" else "event"
    channel, key, id_ = requested.word("channel"), requested.word("key"), requested.word("id")
    if not (channel and key and id_):
        raise ConsoleError("a release names a conversation, and what is stuck")
    acts.release(channel, key, Head(kind, id_, ""), why=requested.word("why"))
    return f"{channel}/{key}: the dispatcher is asked to give up the {kind} {id_}, if it is stuck"


def _replay(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    done, refused = [], []
    for id_ in requested.words("id")[:MOST_LETTERS]:
        try:
            again, force = bool(requested.word("again")), bool(requested.word("force"))
            done.append(acts.replay(id_, again=again, force=force))
        except NotReplayed as error:
            refused.append(f"{id_} not: {error}")
    told = [f"replayed as {', '.join(done)}" if len(done) < 4 else f"{len(done)} replayed"]
    if refused:
        raise ConsoleError(*(told if done else []), *_some(refused))
    return told[0]


def _drop(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    dropped = acts.drop(requested.words("id")[:MOST_LETTERS])
    return f"{dropped} dead letter{'s' if dropped != 1 else ''} dropped for good"


def _some(lines: Sequence[str], most: int = 5) -> list[str]:
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]
