"""The simulator's own HTTP interface under /sim, for its chat page and for other processes.

It has no password: serve it on loopback. Pages of other sites cannot use it: every POST needs a
content type that browsers send across sites only after a preflight request, and no route answers
that.

Other processes act as users, read and move its clock, report their next timer, make LINE misbehave,
and read the records and the verdict.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from linesim.http import unanswered
from linesim.http.answers import Answer, Body
from linesim.http.line_api import media_type_of
from linesim.http.stopping import Stopped, Stopping
from linesim.judge.checker import check
from linesim.model import faults, ids, views
from linesim.model.deliveries import Event
from linesim.model.errors import LineError, NotPossible, StateError, UnknownChat
from linesim.model.faults import BadMember, Close, Late, Outcome, Rule
from linesim.model.ids import Recent
from linesim.model.media import Medium, medium
from linesim.model.sent import JAPAN
from linesim.model.views import Strict, View
from linesim.model.world import GroupKind
from linesim.people import recording, saving
from linesim.people.acts import Act, draft
from linesim.people.sim import Sim
from linesim.people.stops import Due
from linesim.people.webhooks import Probability, Unruly

MOST_UPLOAD_BYTES = 20 * 1024 * 1024
MOST_UPLOADS = 20
MOST_ROWS = 10_000
SANDBOXED = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Which browsers send across sites without asking.
SIMPLE_TYPES = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")


class NewUser(Strict):
    name: str = Field(min_length=1, max_length=100)
    friend: bool = True


class NewGroup(Strict):
    name: str = Field(min_length=1, max_length=100)
    members: list[str] = Field(default_factory=list, max_length=500)
    kind: GroupKind = "group"
    present: bool = True


class NewDelivery(Strict):
    """One webhook POST: the events of these acts; none at all is LINE's connectivity check."""

    acts: list[Act] = Field(default_factory=list, max_length=1_000)


class NewKey(Strict):
    """The public half of a key that signs assertions, as LINE's console takes it: RSA of 2,048
    bits, either `use` or `key_ops`, and no `kid`.
    """

    kty: Literal["RSA"]
    alg: Literal["RS256"]
    n: str = Field(pattern=r"^[g-z0-9_-][A-Za-z0-9_-]{341}$")
    e: str = Field(pattern=r"^[A-Za-z0-9_-]{2,6}$")
    use: Literal["sig"] | None = None
    key_ops: tuple[Literal["verify"]] | None = None


class Advance(Strict):
    """The seconds by which to move the clock ahead, with stops (linesim.people.stops)."""

    advance: float


class NewRule(Strict):
    """A rule of linesim.model.faults. `seconds` applies to late answers, `retryAfter` to rate
    limits, `status` to HTML pages and garbage, `property` to the 400 for a message.
    """

    outcome: str
    endpoint: str = "*"
    user: str | None = None
    probability: Probability = 1.0
    count: int | None = Field(default=None, ge=1)
    accept: bool = False
    seconds: float = Field(default=1.0, ge=0, le=3_600)
    retryAfter: int | None = Field(default=None, ge=0)  # noqa: N815 (as LINE writes its JSON)
    status: int | None = Field(default=None, ge=200, le=599)
    property: str = Field(default="messages[0].text", min_length=1, max_length=200)


class Misbehaviour(Strict):
    rules: list[NewRule] = Field(min_length=1, max_length=100)
    seed: int = 0


def control_routes(sim: Sim, stopping: Stopping) -> APIRouter:
    control = Control(sim, stopping)
    routes: Sequence[tuple[str, str, Callable[..., Any]]] = (
        ("GET", "/state", control.state),
        ("POST", "/users", control.add_user),
        ("POST", "/groups", control.add_group),
        ("POST", "/keys", control.add_key),
        ("POST", "/media", control.upload),
        ("POST", "/deliveries", control.deliver),
        ("GET", "/deliveries", control.deliveries),
        ("POST", "/deliveries/{number}/redeliver", control.redeliver),
        ("GET", "/chats/{chat_id}", control.chat),
        ("GET", "/events/{event_id}", control.event),
        ("GET", "/chats/{chat_id}/test", control.recorded),
        ("GET", "/saved", control.saved),
        ("POST", "/saved", control.load),
        ("GET", "/calls", control.calls),
        ("GET", "/contents/{message_id}", control.content),
        ("GET", "/users/{user_id}/menu", control.menu),
        ("GET", "/menus/{rich_menu_id}/image", control.menu_image),
        ("GET", "/clock", control.clock),
        ("POST", "/clock", control.advance),
        ("POST", "/clock/due", control.due),
        ("POST", "/misbehave", control.misbehave),
        ("DELETE", "/misbehave", control.behave),
        ("POST", "/unruly", control.unruly),
        ("GET", "/verdict", control.verdict),
    )
    router = APIRouter(prefix="/sim", dependencies=[Depends(control.own_pages_only)])
    for method, path, answer in routes:
        router.add_api_route(path, answer, methods=[method])
    router.add_api_route("/stream", control.stream, response_class=EventSourceResponse)
    return router


class Control:
    def __init__(self, sim: Sim, stopping: Stopping) -> None:
        self._sim = sim
        self._platform = sim.platform
        self._stopping = stopping
        self._uploads: Recent[str, Medium] = Recent(MOST_UPLOADS)  # event loop only

    async def own_pages_only(self, request: Request) -> None:
        """Refuses pages of other sites, also those whose name leads to this machine."""
        host, own = request.url.hostname, self._platform.options.host
        is_own = own not in LOOPBACK or host in LOOPBACK
        if not is_own or request.headers.get("sec-fetch-site") == "cross-site":
            raise HTTPException(403, "not for pages of other sites")

    async def state(self) -> View:
        platform = self._platform
        with platform.watch.reading():
            return {
                "bot": {"userId": platform.bot_user_id, "name": platform.options.bot_name},
                "users": [views.user_view(user) for user in platform.world.users.values()],
                "groups": [views.group_view(group) for group in platform.world.groups.values()],
                "last": [views.bubble_view(bubble) for bubble in platform.chats.last()],
                "clock": views.clock_view(platform.clock),
                "quota": {"limit": platform.quota.limit, "used": platform.quota.used},
                "calls": platform.calls.count,
                "closestStarts": platform.calls.closest_starts(),
                "deliveries": len(platform.deliveries),
            }

    async def add_user(self, new: NewUser) -> View:
        return views.user_view(self._sim.add_user(new.name, friend=new.friend))

    async def add_group(self, new: NewGroup) -> View:
        with self._platform.watch.reading():
            members = [self._platform.world.user(user_id) for user_id in new.members]
        group = self._sim.add_group(new.name, members, kind=new.kind, present=new.present)
        return views.group_view(group)

    async def add_key(self, new: NewKey) -> View:
        if (new.use is None) == (new.key_ops is None):
            raise HTTPException(422, "either use or key_ops")
        return {"kid": self._sim.add_key(new.model_dump(include={"n", "e"}))}

    async def upload(self, request: Request, name: str = "photo.jpg") -> View:
        """Keeps the raw body for an act that names it; a form's content types are refused (see the
        module).
        """
        if (media_type := media_type_of(request)) in SIMPLE_TYPES:
            raise HTTPException(415, "name the medium's content type, or application/octet-stream")
        data = await _read(request, MOST_UPLOAD_BYTES)
        key = ids.request_id()
        self._uploads[key] = medium(data, name=name, media_type=media_type)
        return {"medium": key}

    async def deliver(self, new: NewDelivery) -> View:
        drafted = [self._draft(act) for act in new.acts]
        delivery = await self._stopping.in_thread(lambda: self._sim.deliver(*drafted))
        return views.delivery_view(delivery)

    def _draft(self, act: Act) -> Event:
        if act.medium is not None and act.medium not in self._uploads:
            raise UnknownChat(f"no medium {act.medium}")
        medium = self._uploads[act.medium] if act.medium else None
        return draft(self._sim.drafts, act, medium)

    async def redeliver(self, number: int) -> View:
        known = [each for each in self._sim.deliveries if each.number == number]
        if not known:
            raise UnknownChat(f"no delivery {number}")
        delivery = await self._stopping.in_thread(lambda: self._sim.redeliver(known[0]))
        return views.delivery_view(delivery)

    async def deliveries(self, after: int = 0) -> list[View]:
        found = [each for each in self._sim.deliveries if each.number > after]
        return [views.delivery_view(each) for each in found[:MOST_ROWS]]

    async def chat(self, chat_id: str) -> list[View]:
        return [views.bubble_view(bubble) for bubble in self._sim.chat(chat_id)]

    async def event(self, event_id: str) -> View:
        """Why the event has no answer: what is known here, and by the console if there is one."""
        known = self._platform.read(lambda platform: unanswered.reasons(platform, event_id))
        options = self._platform.options
        told = await self._stopping.in_thread(lambda: unanswered.of_console(options, event_id))
        return {**known, "console": told}

    async def calls(self, after: int = 0) -> list[View]:
        with self._platform.watch.reading():
            found = self._platform.calls.since(after)[:MOST_ROWS]
            return [views.call_view(call) for call in found]

    async def content(self, message_id: str) -> Response:
        """A sent medium for the page. A file is always a download and never runs as a page here."""
        with self._platform.watch.reading():
            found = self._platform.contents.find(message_id)
        shown = found.kind != "file" and found.medium.media_type.startswith(f"{found.kind}/")
        media_type = found.medium.media_type if shown else "application/octet-stream"
        return Body(Answer(200, b"", media_type, SANDBOXED, medium=found.medium))

    async def menu(self, user_id: str) -> View:
        with self._platform.watch.reading():
            menus, user = self._platform.menus, self._platform.world.user(user_id)
            seen = menus.of(user.user_id)
            return {"menu": menus.view(seen) if seen else None}

    async def menu_image(self, rich_menu_id: str) -> Response:
        with self._platform.watch.reading():
            menu = self._platform.menus.menus.get(rich_menu_id)
        if menu is None or menu.image is None:
            raise UnknownChat(f"no image of a rich menu {rich_menu_id}")
        return Response(menu.image.data, headers=SANDBOXED, media_type=menu.image.media_type)

    async def recorded(self, chat_id: str) -> Response:
        """The chat as a test, in a Python file for pytest."""
        with self._platform.watch.reading():
            code, now = recording.as_test(self._platform, chat_id), self._now()
        return _download(code.encode(), f"test_recorded_{now:%m%d_%H%M}.py", "text/x-python")

    async def saved(self) -> Response:
        """The state as a file that `load` takes."""
        data = await self._stopping.in_thread(lambda: saving.dump(self._platform))
        return _download(data, f"linesim-{self._now():%Y-%m-%d}.json", "application/json")

    async def load(self, request: Request) -> View:
        """Replaces the state by a saved one, whole or not at all."""
        if media_type_of(request) != "application/json":
            raise HTTPException(415, "the content type is application/json")
        data = await _read(request, saving.MOST_BYTES)
        try:
            await self._stopping.in_thread(lambda: saving.load(self._platform, data))
        except StateError as error:
            raise StateError(f"the file {error}; nothing was changed") from error
        return {}

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._platform.clock.time(), UTC) + JAPAN

    async def stream(self) -> AsyncIterator[ServerSentEvent]:
        watch, stream = self._platform.watch, self._platform.stream
        with watch.reading():
            subscriber = stream.subscribe()
        try:
            yield ServerSentEvent(comment="open")
            async for change in subscriber.changes():
                yield ServerSentEvent(event=change.kind, data=change.data)
        finally:
            with watch.reading():
                stream.unsubscribe(subscriber)

    # Its clock.

    async def clock(self) -> View:
        return {**views.clock_view(self._platform.clock), "goal": self._sim.stops.goal}

    async def due(self, new: Due) -> View:
        self._sim.stops.report(new)
        return await self.clock()

    async def advance(self, new: Advance) -> View:
        try:
            await self._stopping.in_thread(lambda: self._sim.stops.advance(new.advance))
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        return views.clock_view(self._platform.clock)

    # LINE's misbehaviour, and the verdict.

    async def misbehave(self, new: Misbehaviour) -> View:
        try:
            made = [_rule(each) for each in new.rules]
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        self._sim.misbehave(*made, seed=new.seed)
        return {"added": len(made)}

    async def behave(self) -> View:
        self._sim.behave()
        return {}

    async def unruly(self, new: Unruly) -> View:
        self._sim.unruly(**dict(new))
        return {}

    async def verdict(
        self,
        since: Annotated[int, Query(ge=0)] = 0,
        least_interval_ms: Annotated[float, Query(ge=0)] = 0.0,
    ) -> dict[str, Any]:
        """The checker's report on an echo bot, from a thread: a long run takes a moment."""
        how = {"since": since, "least_interval_seconds": least_interval_ms / 1000}
        report = await self._stopping.in_thread(lambda: check(self._sim, **how))
        return report.as_document()


async def _read(request: Request, most: int) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise HTTPException(413, f"at most {most} bytes")
    return bytes(data)


def _download(content: bytes, name: str, media_type: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type=media_type)


async def refused(request: Request, error: Exception) -> Response:
    """The answer for this interface's own errors."""
    status = error.status if isinstance(error, LineError) else STATUSES[type(error)]
    is_stopping = isinstance(error, Stopped)
    words = "the simulator is stopping" if is_stopping else str(error.args[0])
    return JSONResponse({"error": words}, status)


async def not_valid(request: Request, error: Any) -> Response:
    """Without the values themselves: not each can be written as JSON."""
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return JSONResponse({"error": ascii("; ".join(told))[1:-1]}, 422)


STATUSES: dict[type[Exception], int] = {
    UnknownChat: 404,
    NotPossible: 409,
    StateError: 422,
    Stopped: 503,
}
REFUSALS = (*STATUSES, LineError)


_OUTCOMES: dict[str, Callable[[NewRule], Outcome | BadMember]] = {
    "server_error": lambda new: faults.server_error(),
    "html_error": lambda new: faults.html_error(new.status or 502),
    "garbage": lambda new: faults.garbage(new.status or 200),
    "too_many": lambda new: faults.too_many(new.retryAfter),
    "monthly_limit": lambda new: faults.monthly_limit(),
    "too_many_to_one": lambda new: faults.too_many_to_one(),
    "too_many_at_once": lambda new: faults.too_many_at_once(),
    "unauthorized": lambda new: faults.unauthorized(),
    "bad_request": lambda new: faults.bad_request(new.property),
    "bad_member": lambda new: BadMember(),
    "close": lambda new: Close(),
    "late": lambda new: Late(new.seconds),
}


def _rule(new: NewRule) -> Rule:
    if new.outcome not in _OUTCOMES:
        raise ValueError(f"no outcome {new.outcome!r}; there are {', '.join(_OUTCOMES)}")
    same = new.model_dump(include={"endpoint", "user", "probability", "count", "accept"})
    return Rule(outcome=_OUTCOMES[new.outcome](new), **same)
