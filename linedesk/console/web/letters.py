"""Dead letters on the page: groups by cause, single letters, and acts on one or hundreds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request, Response
from pymongo.database import Database

from linedesk.console.acts import Acts
from linedesk.console.dead_letters import Choice, found, frames, moment_of, summary, whole
from linedesk.console.errors import (
    ConsoleError,
    KnownPhrase,
    NoSuchLetter,
    NotDone,
    NotReplayed,
    Phrase,
)
from linedesk.console.facts import present_leader
from linedesk.console.format import as_json
from linedesk.console.lists.letter_groups import (
    NEWEST_LETTERS,
    NO_CAUSE,
    LetterGroup,
    ids_in,
    letter_groups,
)
from linedesk.console.lists.mass_act import ActName, Progress
from linedesk.console.lists.replays import replays_lately, replays_named
from linedesk.console.web.actions import (
    MOST_LETTERS,
    Act,
    RequestedAct,
    doing,
    requested_act,
    some,
)
from linedesk.console.web.browse import shown_events
from linedesk.console.web.live import LiveReadings
from linedesk.console.web.page_context import PageContext, Said, own_path
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.store.documents import DEADLETTERS
from linedesk.store.errors import translated

MOST_LISTED = 100
# At most so many are done before the page answers; more run in the background.
MOST_AT_ONCE = 5
EVERY_SECONDS = 2
RUN_SECONDS = 1
# The tracebacks of 2,000 letters are 5 MB.
GROUPS_SECONDS = 5.0
# The list shows the last act on many letters for so long.
LATELY_SECONDS = 600.0


@dataclass(frozen=True)
class Chosen:
    """The letters of a form: some ids, or a group with one cause and one line of code."""

    ids: tuple[str, ...] = ()
    cause: str | None = None
    where: str = ""
    until: str = ""
    """The end of a group: later letters do not belong to it."""

    @property
    def words(self) -> Phrase:
        """A description for a person."""
        if self.cause is None:
            one, many = mark("1 chosen letter"), mark("{count} chosen letters")
            return Phrase(one if len(self.ids) == 1 else many, count=len(self.ids))
        cause = KnownPhrase(self.cause) if self.cause else Phrase(NO_CAUSE)
        if not self.where:
            return cause
        return Phrase(mark("{cause} at {where}"), cause=cause, where=self.where)

    @property
    def query(self) -> str:
        """The same as the query of an address."""
        if self.cause is None:
            return urlencode([("id", id_) for id_ in self.ids])
        return urlencode({"cause": self.cause, "where": self.where})

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
        replays = [letter["replay"]] if letter["replay"] else []
        told["replays"] = await context.read(lambda database: replays_named(database, replays))
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
    replays = LiveReadings(
        context.reader, lambda: replays_lately(context.reading), every_seconds=EVERY_SECONDS
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
        told["most_grouped"] = NEWEST_LETTERS
        told["letters"] = await context.read(
            lambda database: context.named(database, [summary(row) for row in rows])
        )
        told["groups"] = (await groups.latest()).value or []
        told["replays"] = (await replays.latest()).value
        told["wish"] = {"cause": cause, "since": since, "replayed": replayed}
        told["run"] = _lately(context.mass_act.progress)
        return context.page(request, "letters.html", {"every": EVERY_SECONDS, **told})

    @router.get("/letters/replays")
    async def replayed(request: Request, result: str = "") -> Response:
        found = await context.read(replays_lately)
        told = await shown_events(context, found.lines, result)
        told |= {"replays": found, "every": EVERY_SECONDS}
        return context.page(request, "replays.html", told)


def _ask_routes(router: APIRouter, context: PageContext) -> None:
    @router.get("/letters/ask")
    async def ask(request: Request, act: str = "replay", back: str = "/letters") -> Response:
        query = request.query_params
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
            "count": len(ids) if chosen.cause is not None else len(rows),
            "chosen": chosen,
            "until": datetime.now(UTC).isoformat(),
            "act": "drop" if act == "drop" else "replay",
            "costs": await context.read(lambda database: _costs(database, ids)),
            "is_many": chosen.cause is not None or len(rows) > MOST_AT_ONCE,
            "back": own_path(back),
        }
        return context.page(request, "letters_ask.html", told)

    @router.get("/letters/run")
    async def run(request: Request, result: str = "") -> Response:
        progress = context.mass_act.progress
        told: dict[str, Any] = {"run": progress, "replays": None, "every": RUN_SECONDS}
        if progress is not None and progress.act == "replay":
            names = progress.replays
            found = await context.read(lambda database: replays_named(database, names))
            told |= await shown_events(context, found.lines, result)
            told["replays"] = found
        return context.page(request, "letters_run.html", told)


def _act_routes(router: APIRouter, context: PageContext) -> None:
    acts: Mapping[ActName, Act] = {"replay": _replay, "drop": _drop}
    for name, act in acts.items():
        router.add_api_route(f"/letters/{name}", _few_or_many(context, name, act), methods=["POST"])


def _few_or_many(
    context: PageContext, name: ActName, act: Act
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler: a few letters are done before the answer, many in the background."""
    few, many = doing(context, act), doing(context, partial(_begin, name))

    async def do(request: Request) -> Response:
        requested = await requested_act(request)
        is_group = "cause" in dict(requested.fields)
        return await (many if is_group or len(requested.words("id")) > MOST_AT_ONCE else few)(
            request
        )

    return do


def _begin(name: ActName, acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    """Start an act on many letters and return the message."""
    fields = dict(requested.fields)
    chosen = Chosen(
        tuple(requested.words("id")[:MOST_LETTERS]),
        fields.get("cause"),
        fields.get("where", ""),
        fields.get("until", ""),
    )
    ids = chosen.read_ids(context.acting)
    if not ids:
        raise NotDone(Phrase(mark("no letter is left")))
    again, force = bool(requested.word("again")), bool(requested.word("force"))
    waits = acts.waits_for(ids[:MOST_LETTERS]) if name == "replay" else None
    context.mass_act.begin(
        name, ids, acts=acts, by=requested.by, about=chosen.words, again=again, force=force
    )
    if name == "replay":
        begun = ngettext(
            "Replay of {count} letter has begun", "Replay of {count} letters has begun", len(ids)
        )
    else:
        begun = ngettext(
            "Drop of {count} letter has begun", "Drop of {count} letters has begun", len(ids)
        )
    begun = begun.format(count=len(ids))
    if not waits:
        return begun
    return _("{begun}; each replay {waits}").format(begun=begun, waits=waits)


def _replay(acts: Acts, requested: RequestedAct, context: PageContext) -> str | Said:
    done, replays, refused = [], [], []
    again, force = bool(requested.word("again")), bool(requested.word("force"))
    for id_ in requested.words("id")[:MOST_AT_ONCE]:
        try:
            replays.append(acts.replay(id_, again=again, force=force))
            done.append(id_)
        except NotReplayed as error:
            words = _("{id} was not replayed: {reason}")
            refused.append(words.format(id=id_, reason=error))
    told = []
    if replays:
        waits = acts.waits_for(done)
        words = _("replayed as {replay}").format(replay=", ".join(replays))
        told = [_("{replayed}; it {waits}").format(replayed=words, waits=waits) if waits else words]
    if refused:
        raise ConsoleError(*told, *some(refused))
    if not told:
        return _("no letter was chosen")
    return Said(told[0], well=None, link=("/letters/replays", _("The result")))


def _drop(acts: Acts, requested: RequestedAct, context: PageContext) -> str:
    dropped = acts.drop(requested.words("id")[:MOST_AT_ONCE])
    return ngettext(
        "{count} dead letter dropped for good", "{count} dead letters dropped for good", dropped
    ).format(count=dropped)


def _costs(database: Database[Any], ids: Sequence[str]) -> dict[str, Any] | None:
    """Return how many answers the replays may send, and the month's messages."""
    figures = (present_leader(database) or {}).get("figures") or {}
    quota, used = (figures.get(name) for name in ("quotaMessages", "quotaUsedMessages"))
    with translated():
        answers = database[DEADLETTERS].count_documents(
            {"_id": {"$in": list(ids)}, "effect.type": {"$ne": "timer"}}
        )
    return {"answers": answers, "quota": quota, "used": used} if answers else None


def _lately(progress: Progress | None) -> Progress | None:
    if progress is None or progress.ended is None:
        return progress
    age = (datetime.now(UTC) - progress.ended).total_seconds()
    return progress if age < LATELY_SECONDS else None


def _choice(cause: str, since: str, replayed: bool) -> tuple[Choice, str | None]:
    try:
        moment = moment_of(since, now=datetime.now(UTC)) if since.strip() else None
    except ValueError:
        problem = _("{text!r} is not a time. Write 30m, 2h, 3d or 2026-11-21T09:00")
        problem = problem.format(text=since)
        return Choice(limit=MOST_LISTED, everything=replayed), problem
    choice = Choice(cause=cause or None, since=moment, everything=replayed, limit=MOST_LISTED)
    return choice, None
