"""Dead letters on the page: groups by cause, single letters, and acts on up to MOST_LETTERS."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from pymongo.database import Database

from linedesk.operate.conversation import with_names
from linedesk.operate.dead_letters import (
    NEWEST_LETTERS,
    NO_CAUSE,
    Choice,
    LetterGroup,
    found,
    frames,
    ids_in,
    letter_groups,
    no_letters,
    summary,
    whole,
)
from linedesk.operate.format import as_json
from linedesk.operate.processes import present_leader
from linedesk.operate.text import NotDone, NotReplayed, known
from linedesk.page.actions import MOST_LETTERS, RequestedAct, doing, in_one_step, some
from linedesk.page.live import Away, LiveReadings
from linedesk.page.page_context import PageContext, Said
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.store.documents import DEADLETTERS, Document
from linedesk.store.errors import translated
from linedesk.store.records.letters import Cause

MOST_LISTED = 100
# A request replays no more letters after this time. Proxies wait for an answer for 60 s.
REQUEST_SECONDS = 30.0
EVERY_SECONDS = 2
# The tracebacks of 2,000 letters are 5 MB.
GROUPS_SECONDS = 5.0


def letter_routes(context: PageContext) -> APIRouter:
    """Return the routes. The path of one letter takes any id, so it is the last."""
    router = APIRouter()
    for name, act in (("replay", _replay), ("drop", in_one_step(_drop))):
        handler = doing(context, act, "/letters")
        router.add_api_route(f"/letters/{name}", handler, methods=["POST"])
    shown = APIRouter(dependencies=[Depends(context.everything_paused)])
    _list_route(shown, context)
    _ask_routes(shown, context)

    @shown.get("/letters/{id_:path}")
    async def one_letter(request: Request, id_: str) -> Response:
        row = await context.read(lambda database: whole(database[DEADLETTERS], id_))
        if row is None:
            raise no_letters([id_])
        (letter,) = await _summaries(context, [row])
        told: dict[str, Any] = {"letter": letter, "held": None}
        told["traceback"] = frames(row.get("traceback"), id_=id_)
        if context.console.text:
            contents = {name: row[name] for name in ("document", "effect") if name in row}
            told |= {"traceback": row.get("traceback"), "held": as_json(contents)}
        return context.page(request, "letter.html", told)

    router.include_router(shown)
    return router


def _list_route(router: APIRouter, context: PageContext) -> None:
    groups = LiveReadings[list[LetterGroup]](
        context.reader, lambda: letter_groups(context.reading), every_seconds=GROUPS_SECONDS
    )

    @router.get("/letters")
    async def letters(request: Request, cause: str = "", replayed: bool = False) -> Response:
        choice = Choice(cause=cause or None, everything=replayed, limit=MOST_LISTED)
        rows = await context.read(
            lambda database: found(database[DEADLETTERS], choice, newest_first=True)
        )
        told: dict[str, Any] = {"most": MOST_LISTED, "most_chosen": MOST_LETTERS}
        told["most_grouped"] = NEWEST_LETTERS
        told["letters"] = await _summaries(context, rows)
        told["groups"] = (await groups.latest()).value or []
        told["wish"] = {"cause": cause, "replayed": replayed}
        return context.page(request, "letters.html", {"every": EVERY_SECONDS, **told})


def _ask_routes(router: APIRouter, context: PageContext) -> None:
    @router.get("/letters/ask")
    async def ask(
        request: Request, act: str = "replay", cause: str | None = None, where: str = ""
    ) -> Response:
        """Show the letters, whose ids the form then names."""
        act, ids = "drop" if act == "drop" else "replay", request.query_params.getlist("id")
        if cause is not None:
            ids = await context.read(lambda database: ids_in(database, cause, where))
        if not ids:
            return context.show("/letters", Said(_("No letter is left to choose"), well=False))
        choice = Choice(ids=(asked := ids[:MOST_LETTERS]))
        rows = await context.read(lambda database: found(database[DEADLETTERS], choice))
        told: dict[str, Any] = {
            "letters": await _summaries(context, rows),
            "others": len(ids) - len(asked),
            "command": f"linedesk dead {act} --cause {shlex.quote(cause or '')}",
            "cause": cause,
            "group": "" if cause is None else _group(cause, where),
            "act": act,
            "costs": await context.read(lambda database: _costs(database, asked)),
        }
        return context.page(request, "letters_ask.html", told)


async def _summaries(context: PageContext, rows: Sequence[Document]) -> list[Document]:
    told, channel = [summary(row) for row in rows], context.console.channel
    return await context.read(lambda database: with_names(database, told, channel=channel))


def _group(cause: str, where: str) -> str:
    """Return a group for a person: its cause, and its line of code if there is one."""
    said = known(Cause.from_line(cause)) if cause else _(NO_CAUSE)
    return _("{cause} at {where}").format(cause=said, where=where) if where else said


async def _replay(requested: RequestedAct) -> Said:
    """Replay the letters one by one, each in its own time, and return the message."""
    context, acts, ids = requested.context, requested.acts, _ids(requested)
    again, force = bool(requested.word("again")), bool(requested.word("force"))
    replays, refused = dict[str, str](), list[str]()
    until = time.monotonic() + REQUEST_SECONDS
    for id_ in ids:
        if time.monotonic() > until:
            refused.append(_("the time for one request is over; the other letters are still open"))
            break
        try:
            replay = partial(acts.replay, id_, again=again, force=force)
            replays[id_] = await context.act(replay)
        except NotReplayed as error:
            words = _("{id} was not replayed: {reason}")
            refused.append(words.format(id=id_, reason=error))
        except Away as error:
            done = _("{count} of {total} letters are replayed, then: {problem}")
            problem = known(str(error))
            words = done.format(count=len(replays), total=len(ids), problem=problem)
            raise Away(words if len(ids) > 1 else str(error), refused=error.refused) from error
    if not replays:
        raise NotDone(*some(refused))
    one, first = len(replays) == 1, next(iter(replays.values()))
    words = _("replayed as {replay}") if one else _("{count} letters are replayed")
    words = words.format(replay=first, count=len(replays))
    # The replays are confirmed, also where this cannot be read.
    with suppress(Away):
        if waits := await context.act(lambda: acts.waits_for(list(replays))):
            words = _("{replayed}; it {waits}").format(replayed=words, waits=waits)
    if refused:
        raise NotDone(words, *some(refused))
    path = f"/event/{quote(first, safe='')}" if one else "/events"
    return Said(words, well=None, link=(path, _("The result") if one else _("The results")))


def _drop(requested: RequestedAct) -> Said:
    dropped = requested.acts.drop(_ids(requested))
    words = ngettext(
        "{count} dead letter dropped for good", "{count} dead letters dropped for good", dropped
    )
    return Said(words.format(count=dropped))


def _ids(requested: RequestedAct) -> Sequence[str]:
    """Return the ids of a form, the oldest first. Raises NotDone without any."""
    if not requested.ids:
        raise NotDone(_("no letter is left"))
    return requested.ids[:MOST_LETTERS]


def _costs(database: Database[Any], ids: Sequence[str]) -> dict[str, Any] | None:
    """Return how many answers the replays may send, and the month's messages."""
    figures = (present_leader(database) or {}).get("figures") or {}
    quota, used = (figures.get(name) for name in ("quotaMessages", "quotaUsedMessages"))
    with translated():
        answers = database[DEADLETTERS].count_documents(
            {"_id": {"$in": list(ids)}, "effect.type": {"$ne": "timer"}}
        )
    return {"answers": answers, "quota": quota, "used": used} if answers else None
