"""The demo's judgement of its bot, with linesim and without the other parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import requests

import linesim
from linedesk.launch.play import Play, says
from linedesk.settings.errors import DemoFailed
from linesim import Sim
from linesim.model.world import User


class Stage:
    """A front desk that takes everything, and rows of timers; its bot says what the test says."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.rows: list[dict[str, Any]] = []
        self.bot: Callable[[], None] = lambda: None

    def deliver(self, *events: Any) -> Any:
        return self.sim.deliver(*events)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.sim.platform.clock.time(), UTC)

    @property
    def database(self) -> Any:
        return {"schedule": self}

    def find(self, query: object) -> Any:
        return self

    def sort(self, field: str) -> list[dict[str, Any]]:
        return sorted(self.rows, key=lambda row: row[field])

    def log_of(self, name: str) -> str:
        ids = [id_ for delivery in self.sim.deliveries for id_ in delivery.event_ids]
        return "".join(f" started event_id={id_} since_accept_ms=2.0\n" for id_ in ids)

    def wait_for(self, look: Callable[[], Any], concerned: str, *, seconds: float) -> Any:
        self.bot()
        if found := look():
            return found
        raise DemoFailed("no result")

    def pushes(self, who: User, *texts: str) -> None:
        messages = [{"type": "text", "text": text} for text in texts]
        self._call("push", to=who.user_id, messages=messages)

    def replies(self, *texts: str) -> None:
        """To the last event."""
        token = self.sim.deliveries[-1].events[-1]["replyToken"]
        self._call("reply", replyToken=token, messages=[{"type": "text", "text": t} for t in texts])

    def _call(self, endpoint: str, **body: Any) -> None:
        url = f"{self.sim.url}/v2/bot/message/{endpoint}"
        headers = {"authorization": f"Bearer {self.sim.token}"}
        assert requests.post(url, json=body, headers=headers, timeout=10).ok


class Desk(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *told: object) -> None: ...


@pytest.fixture
def stage() -> Iterator[Stage]:
    desk = HTTPServer(("127.0.0.1", 0), Desk)
    thread = threading.Thread(target=desk.serve_forever, args=(0.01,))
    thread.start()
    with linesim.running(webhook_url=f"http://127.0.0.1:{desk.server_port}/") as sim:
        yield Stage(sim)
    desk.shutdown()
    thread.join()
    desk.server_close()


@pytest.fixture
def play(stage: Stage) -> Play:
    return Play(stage)  # type: ignore[arg-type]


@pytest.fixture
def hanako(stage: Stage) -> User:
    return stage.sim.add_user("佐藤花子")


def test_an_answer_in_other_words_is_a_failure_that_says_them(
    stage: Stage, play: Play, hanako: User
) -> None:
    stage.bot = lambda: stage.replies("180秒後にお知らせします")
    with pytest.raises(DemoFailed, match=r"a timer: not answered: 佐藤花子 180; .*: 180秒後に"):
        play.act("a timer", says(hanako, "180", "3分後にお知らせします"))


def test_an_answer_that_comes_twice_is_a_failure(stage: Stage, play: Play, hanako: User) -> None:
    stage.bot = lambda: (stage.replies("はい"), stage.pushes(hanako, "はい"))[1]
    with pytest.raises(DemoFailed, match="hello: 1 answered twice"):
        play.act("hello", says(hanako, "やあ", "はい"))


def waits(stage: Stage, who: User, *seconds: float) -> None:
    """Timers that are due after these seconds."""
    now = stage.sim.platform.clock.time()
    dues = [datetime.fromtimestamp(now + one, UTC) for one in seconds]
    stage.rows = [{"key": who.user_id, "runAt": due} for due in dues]


def test_messages_of_timers_are_matched_in_order_also_in_one_call(
    stage: Stage, play: Play, hanako: User
) -> None:
    waits(stage, hanako, 60, 60.1, 600)

    def both() -> None:
        if stage.sim.platform.clock.ahead:
            stage.sim.advance(0.8)
            stage.pushes(hanako, "a", "b")

    stage.bot = both
    scene = play.fire("a minute later", (hanako, "a"), (hanako, "b"), waiting=3)
    assert scene.advanced == pytest.approx(59.5, abs=0.3)
    assert [(ring.who, ring.text) for ring in scene.rings] == [("佐藤花子", "a"), ("佐藤花子", "b")]
    a, b = (ring.late_ms for ring in scene.rings)
    assert 0 < b == pytest.approx(a - 100, abs=1)


@pytest.mark.parametrize(
    ("texts", "told"),
    [(("a",), "1 timers early"), (("a", "a"), "came twice"), (("a", "b"), "not expected: b")],
)
def test_a_message_too_early_twice_or_too_many_is_a_failure(
    stage: Stage, play: Play, hanako: User, texts: tuple[str, ...], told: str
) -> None:
    waits(stage, hanako, 600)
    stage.bot = lambda: stage.pushes(hanako, *texts) if stage.sim.platform.clock.ahead else None
    with pytest.raises(DemoFailed, match=f"later: .*{told}"):
        play.fire("later", (hanako, "a"), waiting=1)


def test_the_clock_waits_until_all_timers_are_set(stage: Stage, play: Play, hanako: User) -> None:
    waits(stage, hanako, 180)
    with pytest.raises(DemoFailed, match="later: no result"):
        play.fire("later", (hanako, "a"), waiting=2)
    assert stage.sim.platform.clock.ahead == 0
