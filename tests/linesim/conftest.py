"""A bot server of a few lines, a simulator that talks to it, and a plain client of LINE's API."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

import linesim
from linesim.model.world import User
from tests.linesim.gallery.stage import Stage

Event = dict[str, Any]


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def events(self) -> list[Event]:
        events: list[Event] = json.loads(self.body)["events"]
        return events


@dataclass
class BotServer:
    """Records each POST, hands it to `store`, answers `status` (None: hangs up), and then hands the
    events to `handle`.
    """

    url: str = ""
    status: int | None = 200
    received: list[Received] = field(default_factory=list)
    store: Callable[[Received], None] = lambda received: None
    handle: Callable[[Event], None] = lambda event: None

    @property
    def last(self) -> Received:
        return self.received[-1]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


@contextmanager
def bot_server() -> Iterator[BotServer]:
    bot = BotServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            received = Received({k.lower(): v for k, v in self.headers.items()}, raw)
            bot.received.append(received)
            bot.store(received)
            if bot.status is None:
                return
            self.send_response(bot.status)
            self.send_header("content-length", "0")
            self.end_headers()
            if bot.status == 200:
                for event in received.events:
                    bot.handle(event)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # so that server_close waits for them

    server = Server(("127.0.0.1", 0), Handler)
    bot.url = f"http://127.0.0.1:{server.server_port}/callback"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield bot
    server.shutdown()
    thread.join(5)
    server.server_close()


@pytest.fixture
def bot() -> Iterator[BotServer]:
    with bot_server() as bot:
        yield bot


@pytest.fixture
def clock() -> linesim.HandClock:
    return linesim.HandClock()


@pytest.fixture
def sim(
    bot: BotServer, clock: linesim.HandClock, request: pytest.FixtureRequest
) -> Iterator[linesim.Sim]:
    """On a hand-moved clock, so that no rule of time depends on how fast the machine is. A test may
    give it options as its parameter.
    """
    options = getattr(request, "param", {})
    with linesim.running(webhook_url=bot.url, clock=clock, **options) as sim:
        yield sim


@pytest.fixture
def taro(sim: linesim.Sim) -> User:
    return sim.add_user("太郎")


@pytest.fixture
def hanako(sim: linesim.Sim) -> User:
    return sim.add_user("花子")


class Line:
    """Calls to LINE's API with a bearer token."""

    def __init__(self, sim: linesim.Sim) -> None:
        self.sim = sim
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers["authorization"] = f"Bearer {sim.token}"

    def get(self, path: str) -> requests.Response:
        return self.session.get(self.sim.url + path, timeout=10)

    def post(self, path: str, body: Any, *, retry_key: str | None = None) -> requests.Response:
        headers = {} if retry_key is None else {"x-line-retry-key": retry_key}
        return self.session.post(self.sim.url + path, json=body, headers=headers, timeout=10)

    def put(self, path: str, body: Any) -> requests.Response:
        return self.session.put(self.sim.url + path, json=body, timeout=10)

    def make_menu(self, menu: Any, picture: bytes, *, alias: str) -> str:
        """The id of a new rich menu with its image."""
        made: str = self.post("/v2/bot/richmenu", menu).json()["richMenuId"]
        url, head = f"/v2/bot/richmenu/{made}/content", {"content-type": "image/png"}
        assert self.session.post(self.sim.url + url, headers=head, data=picture, timeout=10).ok
        self.post("/v2/bot/richmenu/alias", {"richMenuAliasId": alias, "richMenuId": made})
        return made

    def reply(self, token: str, *texts: str, **more: Any) -> requests.Response:
        body = {"replyToken": token, "messages": messages(*(texts or ("はい",)))}
        return self.post("/v2/bot/message/reply", body, **more)

    def push(self, to: str, *texts: str, **more: Any) -> requests.Response:
        body = {"to": to, "messages": messages(*(texts or ("はい",)))}
        return self.post("/v2/bot/message/push", body, **more)

    def multicast(self, to: list[str], *texts: str, **more: Any) -> requests.Response:
        body = {"to": to, "messages": messages(*(texts or ("はい",)))}
        return self.post("/v2/bot/message/multicast", body, **more)


def messages(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.fixture
def line(sim: linesim.Sim) -> Iterator[Line]:
    line = Line(sim)
    yield line
    line.session.close()


@pytest.fixture(scope="module")
def stage(browser: Any) -> Iterator[Stage]:
    """The chat page in Chromium, for messages to be drawn on."""
    with linesim.running() as sim:
        stage = Stage(browser, sim)
        try:
            yield stage
        finally:
            stage.close()
        assert not stage.errors, stage.errors
