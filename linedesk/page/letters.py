"""Dead letters on the page: groups by cause, single letters, and acts on up to MOST_LETTERS."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from pymongo.database import Database

from linedesk.operate.acts import Acts
from linedesk.operate.dead_letters import (
    NEWEST_LETTERS,
    NO_CAUSE,
    Choice,
    LetterGroup,
    found,
    frames,
    ids_in,
    letter_groups,
    moment_of,
    summary,
    whole,
)
from linedesk.operate.errors import (
    ConsoleError,
    NoSuchLetter,
    NotDone,
    NotReplayed,
    Phrase,
)
from linedesk.operate.format import as_json
from linedesk.operate.processes import present_leader
from linedesk.operate.text import known
from linedesk.page.actions import (
    MOST_LETTERS,
    Act,
    RequestedAct,
    doing,
    some,
)
from linedesk.page.live import Away, LiveReadings
from linedesk.page.page_context import PageContext, Said, own_path
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.store.documents import DEADLETTERS
from linedesk.store.errors import translated
from linedesk.store.records.letters import Cause

MOST_LISTED = 100
# A request replays no more letters after this time. Proxies wait for an answer for 60 s.
REQUEST_SECONDS = 30.0
EVERY_SECONDS = 2
# The tracebacks of 2,000 letters are 5 MB.
GROUPS_SECONDS = 5.0


@dataclass(frozen=True)
class Chosen:
    """The letters of a form: some ids, or a group with one cause and one line of code."""

    ids: tuple[str, ...] = ()
    cause: str | None = None
    where: str = ""
    until: str = ""
    """The end of a group: later letters do not belong to it."""

    @property
    def words(self) -> Phrase | str:
        """A description for a person."""
        if self.cause is None:
            one, many = mark("1 chosen letter"), mark("{count} chosen letters")
            return Phrase(one if len(self.ids) == 1 else many, count=len(self.ids))
        cause = known(Cause.from_line(self.cause)) if self.cause else Phrase(NO_CAUSE)
        if not self.where:
            return cause
        return Phrase(mark("{cause} at {where}"), cause=cause, where=self.where)

    def read_ids(self, database: Database[Any]) -> list[str]:
        """Return the ids, the oldest first. Raises ConsoleError, StoreUnavailable."""
        if self.cause is None:
            return list(self.ids)
        try:
            until = datetime.fromisoformat(self.until) if self.until else None
        except ValueError:
            raise ConsoleError(Phrase(mark("{text!r} is not a time"), text=self.until)) from None
        return ids_in(database, self.cause, self.where, until=until)


def letter_routes(context: PageContext) -> APIRouter:
    """Return the routes. The path of one letter takes any id, so it is the last."""
    router = APIRouter()
    _act_routes(router, context)
    shown = APIRouter(dependencies=[Depends(context.everything_paused)])
    _list_route(shown, context)
    _ask_routes(shown, context)

    @shown.get("/letters/{id_:path}")
    async def one_letter(request: Request, id_: str) -> Response:
        row = await context.read(lambda database: whole(database[DEADLETTERS], id_))
        if row is None:
            raise NoSuchLetter([id_])
        (letter,) = await context.read(lambda database: context.named(database, [summary(row)]))
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
    async def letters(
        request: Request, cause: str = "", since: str = "", replayed: bool = False
    ) -> Response:
        choice, problem = _choice(cause, since, replayed)
        rows = await context.read(
            lambda database: found(database[DEADLETTERS], choice, newest_first=True)
        )
        told: dict[str, Any] = {"problem": problem, "most": MOST_LISTED}
        told |= {"most_grouped": NEWEST_LETTERS, "most_chosen": MOST_LETTERS}
        told["letters"] = await context.read(
            lambda database: context.named(database, [summary(row) for row in rows])
        )
        told["groups"] = (await groups.latest()).value or []
        told["wish"] = {"cause": cause, "since": since, "replayed": replayed}
        return context.page(request, "letters.html", {"every": EVERY_SECONDS, **told})


def _ask_routes(router: APIRouter, context: PageContext) -> None:
    @router.get("/letters/ask")
    async def ask(request: Request, act: str = "replay", back: str = "/letters") -> Response:
        query, act = request.query_params, "drop" if act == "drop" else "replay"
        chosen = Chosen(
            tuple(query.getlist("id")[:MOST_LETTERS]), query.get("cause"), query.get("where", "")
        )
        ids = await context.read(chosen.read_ids)
        if not ids:
            return context.back(own_path(back), Said(_("No letter is left to choose"), well=False))
        choice = Choice(ids=ids[:MOST_LISTED])
        rows = await context.read(lambda database: found(database[DEADLETTERS], choice))
        told: dict[str, Any] = {
            "letters": await context.read(
                lambda database: context.named(database, [summary(row) for row in rows])
            ),
            "count": min(len(ids), MOST_LETTERS) if chosen.cause is not None else len(rows),
            "others": max(0, len(ids) - MOST_LETTERS),
            "command": f"linedesk dead {act} --cause {shlex.quote(chosen.cause or '')}",
            "chosen": chosen,
            "until": datetime.now(UTC).isoformat(),
            "act": act,
            "costs": await context.read(lambda database: _costs(database, ids[:MOST_LETTERS])),
            "back": own_path(back),
        }
        return context.page(request, "letters_ask.html", told)


def _act_routes(router: APIRouter, context: PageContext) -> None:
    acts: Mapping[str, Act] = {"replay": _replay, "drop": _drop}
    for name, act in acts.items():
        router.add_api_route(f"/letters/{name}", doing(context, act), methods=["POST"])


async def _replay(acts: Acts, requested: RequestedAct, context: PageContext) -> Said:
    """Replay the letters one by one, each in its own time, and return the message."""
    ids = await _ids(requested, context)
    again, force = bool(requested.word("again")), bool(requested.word("force"))
    replays: dict[str, str] = {}
    refused = []
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
    waits = None
    # The replays are confirmed, also where this cannot be read.
    with suppress(Away):
        waits = await context.act(lambda: acts.waits_for(list(replays)))
    told = _replayed(list(replays.values()), waits) if replays else None
    if refused:
        raise ConsoleError(*([told.words] if told else []), *some(refused))
    assert told is not None
    return told


def _replayed(replays: Sequence[str], waits: str | None) -> Said:
    if len(replays) == 1:
        words = _("replayed as {replay}").format(replay=replays[0])
        link = (f"/event/{quote(replays[0], safe='')}", _("The result"))
    else:
        words = _("{count} letters are replayed").format(count=len(replays))
        link = ("/events", _("The results"))
    if waits:
        words = _("{replayed}; it {waits}").format(replayed=words, waits=waits)
    return Said(words, well=None, link=link)


async def _drop(acts: Acts, requested: RequestedAct, context: PageContext) -> Said:
    ids = await _ids(requested, context)
    dropped = await context.act(lambda: acts.drop(ids))
    words = ngettext(
        "{count} dead letter dropped for good", "{count} dead letters dropped for good", dropped
    )
    return Said(words.format(count=dropped))


async def _ids(requested: RequestedAct, context: PageContext) -> list[str]:
    """Return the ids of a form, the oldest first. Raises NotDone without any."""
    fields = dict(requested.fields)
    chosen = Chosen(
        tuple(requested.words("id")),
        fields.get("cause"),
        fields.get("where", ""),
        fields.get("until", ""),
    )
    ids = await context.act(lambda: chosen.read_ids(context.acting))
    if not ids:
        raise NotDone(Phrase(mark("no letter is left")))
    return ids[:MOST_LETTERS]


def _costs(database: Database[Any], ids: Sequence[str]) -> dict[str, Any] | None:
    """Return how many answers the replays may send, and the month's messages."""
    figures = (present_leader(database) or {}).get("figures") or {}
    quota, used = (figures.get(name) for name in ("quotaMessages", "quotaUsedMessages"))
    with translated():
        answers = database[DEADLETTERS].count_documents(
            {"_id": {"$in": list(ids)}, "effect.type": {"$ne": "timer"}}
        )
    return {"answers": answers, "quota": quota, "used": used} if answers else None


def _choice(cause: str, since: str, replayed: bool) -> tuple[Choice, str | None]:
    try:
        moment = moment_of(since, now=datetime.now(UTC)) if since.strip() else None
    except ValueError:
        problem = _("{text!r} is not a time. Write 30m, 2h, 3d or 2026-11-21T09:00")
        problem = problem.format(text=since)
        return Choice(limit=MOST_LISTED, everything=replayed), problem
    choice = Choice(cause=cause or None, since=moment, everything=replayed, limit=MOST_LISTED)
    return choice, None
