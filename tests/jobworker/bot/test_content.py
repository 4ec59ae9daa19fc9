"""Downloads of users' content: complete or not at all, in pieces, despite any failure of LINE."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from linebot.v3.webhooks import ContentProvider, ImageMessageContent
from pymongo.read_concern import ReadConcern

from jobworker.bot.content import ENDPOINT, ContentDownloads, content_id
from jobworker.bot.talk import Talk
from jobworker.errors import (
    BotError,
    ContentFailed,
    ContentGone,
    ContentNotFound,
    ContentNotReady,
    ContentRefused,
    ContentTooLarge,
    ExternalContent,
    LineAway,
    PermanentError,
)
from jobworker.line.breaker import BreakerState
from jobworker.line.call_log import CallLog
from jobworker.line.gate import Gate
from jobworker.line.hosts import Host
from linedesk import Bot, Content
from linedesk.store.documents import Document
from linesim import Rule, Sim
from linesim.model.faults import Cut, Drip
from linesim.model.media import Medium
from tests.jobworker.line.test_client import Wire, hang_up
from tests.jobworker.line.test_client import wire as wire
from tests.jobworker.worker_harness import Rooms, texts
from tests.rows import rows_of
from tests.waiting import eventually

MEGABYTE = 1024 * 1024


QUICK = {
    "jobworker.bot.content.FIRST_PAUSE_SECONDS": 0.01,
    "jobworker.bot.content.LONGEST_PAUSE_SECONDS": 0.02,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in QUICK.items():
        monkeypatch.setattr(name, seconds)


class Lone:
    """Contents by themselves, with a gate of their own."""

    def __init__(self, url: str, token: str, collection: Any) -> None:
        def step(action: Callable[[], None]) -> None:
            threading.Thread(target=action).start()

        self.gate = Gate(0.0, step=step, later=lambda seconds, f: f(), lease_is_fresh=lambda: True)
        self._collection = collection.with_options(read_concern=ReadConcern("local"))
        self._calls = CallLog(collection)
        self.stopping = threading.Event()
        self.contents = ContentDownloads(
            Host(url, self.gate), token, calls=self._calls, stopping=self.stopping
        )

    @property
    def calls(self) -> list[Document]:
        """The rows of all calls until now."""
        self._calls.write()
        return rows_of(self._collection)

    @property
    def rows(self) -> list[tuple[str, int | None]]:
        return [(row["endpoint"], row["status"]) for row in self.calls]


@pytest.fixture
def lone(sim: Sim, database: Any) -> Iterator[Lone]:
    made = Lone(sim.url, sim.token, database.calls)
    yield made
    made.contents.close()


@pytest.fixture
def lone_at(wire: Callable[..., Wire], database: Any) -> Iterator[Callable[[bytes], Lone]]:
    """On a server that gives each connection the same raw answer, and hangs up."""
    with ExitStack() as stack:

        def make(raw: bytes) -> Lone:
            def answer(connection: socket.socket) -> None:
                connection.sendall(raw)
                hang_up(connection)

            made = Lone(wire(answer).url, "t", database.calls)
            stack.callback(made.contents.close)
            return made

        yield make


def sent(sim: Sim, data: bytes = b"0123456789" * 1000, **more: Any) -> str:
    """The message id of a photo that a user has sent."""
    medium = Medium(data, "image/jpeg", "photo.jpg")
    event = sim.drafts.medium(more.pop("kind", "image"), sim.add_user("花子"), medium, **more)
    return str(event["message"]["id"])


def test_it_comes_whole_under_its_name(lone: Lone, sim: Sim, tmp_path: Path) -> None:
    id_, to = sent(sim), tmp_path / "photo.jpg"
    got = lone.contents.fetch(id_, to)
    assert got == Content(to, "image/jpeg", 10_000)
    assert to.read_bytes() == b"0123456789" * 1000
    assert list(tmp_path.iterdir()) == [to]
    assert lone.rows == [("/v2/bot/message/{messageId}/content", 200)]
    assert lone.calls[0]["requestId"] == sim.calls_to("content")[-1].request_id


def resident(name: str) -> int:
    """A figure of this process's memory in bytes, as reported by Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def test_40_mb_go_through_a_few_mb_of_memory(lone: Lone, sim: Sim, tmp_path: Path) -> None:
    block = bytes(range(256)) * 4096
    event = sim.drafts.medium(
        "video", sim.add_user("花子"), Medium(block, "video/mp4", "long.mp4", repeats=40)
    )
    lone.contents.fetch(sent(sim), tmp_path / "first")
    # The kernel counts the maximum again from here on.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    got = lone.contents.fetch(event["message"]["id"], tmp_path / "long.mp4")
    grown = resident("VmHWM") - before
    assert (got.size, got.path.stat().st_size) == (40 * MEGABYTE, 40 * MEGABYTE)
    assert grown < 20 * MEGABYTE, f"{grown / MEGABYTE:.0f} MB"
    whole, expected = hashlib.md5(usedforsecurity=False), hashlib.md5(usedforsecurity=False)
    with got.path.open("rb") as file:
        while piece := file.read(MEGABYTE):
            whole.update(piece)
            expected.update(block)
    assert whole.digest() == expected.digest()
    got.path.unlink()


def test_a_video_in_preparation_is_waited_for_without_the_gate(
    lone: Lone, sim: Sim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = sent(sim, kind="video")
    sim.answer_next("content", 202, b"", times=3)
    turns: list[bool] = []
    pause = ContentDownloads._pause

    def paused(self: ContentDownloads, count: int, **more: Any) -> None:
        with lone.gate.turn():
            turns.append(True)
        pause(self, count, **more)

    monkeypatch.setattr(ContentDownloads, "_pause", paused)
    assert lone.contents.fetch(id_, tmp_path / "v.mp4").size == 10_000
    assert [status for _, status in lone.rows] == [202, 202, 202, 200]
    assert turns == [True] * 3
    assert lone.gate.breaker.state is BreakerState.CLOSED


def test_a_video_that_is_not_ready_in_time_is_not_ready(
    lone: Lone, sim: Sim, tmp_path: Path
) -> None:
    id_ = sent(sim, kind="video", preparing_seconds=600)
    began = time.monotonic()
    with pytest.raises(ContentNotReady):
        lone.contents.fetch(id_, tmp_path / "v.mp4", ready_seconds=0.2)
    assert 0.15 < time.monotonic() - began < 5
    assert list(tmp_path.iterdir()) == []
    assert not issubclass(ContentNotReady, PermanentError)


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, ContentNotFound), (410, ContentGone), (400, ContentRefused), (403, ContentRefused)],
)
def test_a_refusal_is_distinguished_and_asked_once(
    lone: Lone, sim: Sim, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    id_ = sent(sim)
    sim.answer_next("content", status)
    with pytest.raises(ContentRefused) as raised:
        lone.contents.fetch(id_, tmp_path / "photo.jpg")
    assert raised.type is error
    assert issubclass(error, PermanentError)
    assert [got for _, got in lone.rows] == [status]
    assert list(tmp_path.iterdir()) == []


def broken_off(sim: Sim, times: int) -> None:
    sim.misbehave(Rule(outcome=Cut(5_000), endpoint="content", count=times))


def unanswered(sim: Sim, times: int) -> None:
    sim.close_next("content", times=times)


def failing(sim: Sim, times: int) -> None:
    sim.answer_next("content", 503, times=times)


def limited(sim: Sim, times: int) -> None:
    sim.answer_next("content", 429, times=times)


@pytest.mark.parametrize("trouble", [broken_off, unanswered, failing, limited])
def test_an_interrupted_download_begins_again(
    lone: Lone, sim: Sim, tmp_path: Path, trouble: Callable[[Sim, int], None]
) -> None:
    id_, to = sent(sim), tmp_path / "photo.jpg"
    trouble(sim, 2)
    assert lone.contents.fetch(id_, to).size == 10_000
    assert to.read_bytes() == b"0123456789" * 1000
    assert len(lone.rows) == 3


def test_a_download_interrupted_each_time_leaves_nothing_behind(
    lone: Lone, sim: Sim, tmp_path: Path
) -> None:
    id_, to = sent(sim), tmp_path / "photo.jpg"
    to.write_bytes(b"before")
    broken_off(sim, 3)
    with pytest.raises(ContentFailed):
        lone.contents.fetch(id_, to)
    assert to.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [to]
    assert not issubclass(ContentFailed, PermanentError)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Content-Length: 10\r\n\r\n01234",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n012",
        OK + b"\r\n01234",
        OK + b"Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\n01234",
        b"no http",
        b"",
    ],
    ids=["short", "no last chunk", "half a chunk", "no end", "gzip", "garbage", "none"],
)
def test_a_download_not_proved_complete_is_not_accepted(
    lone_at: Callable[[bytes], Lone], raw: bytes, tmp_path: Path
) -> None:
    lone = lone_at(raw)
    with pytest.raises(ContentFailed):
        lone.contents.fetch("1", tmp_path / "photo.jpg")
    assert list(tmp_path.iterdir()) == []
    assert len(lone.rows) == 3


@pytest.mark.parametrize(
    ("short", "drips"), [({"READ_SECONDS": 0.2}, 30.0), ({"DOWNLOAD_SECONDS": 0.3}, 0.01)]
)
def test_a_silent_or_dripping_answer_ends_in_time(
    sim: Sim,
    database: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    short: dict[str, float],
    drips: float,
) -> None:
    """Each read is limited, and the whole: pieces that arrive in time do not continue without
    limit.
    """
    for name, value in {"TRIES": 1, **short}.items():
        monkeypatch.setattr(f"jobworker.bot.content.{name}", value)
    lone = Lone(sim.url, sim.token, database.calls)
    id_ = sent(sim)
    began = time.monotonic()
    sim.misbehave(Rule(outcome=Drip(1, drips), endpoint="content", count=1))
    with pytest.raises(ContentFailed):
        lone.contents.fetch(id_, tmp_path / "a")
    assert time.monotonic() - began < 5
    with lone.gate.turn():
        pass
    lone.contents.close()


def test_downloads_that_break_open_the_data_host_s_breaker_only(
    room: Rooms, sim: Sim, tmp_path: Path
) -> None:
    data_base = sim.url.replace("127.0.0.1", "localhost")
    desk = room(Bot(), data_base=data_base)
    hosts = desk.desk.line.hosts
    for _ in range(4):
        hosts.data.gate.breaker.failed("another")
    broken_off(sim, 1)
    with pytest.raises(LineAway):
        desk.desk.line.contents.fetch(sent(sim), tmp_path / "a")
    assert hosts.data.gate.breaker.state is not BreakerState.CLOSED
    assert hosts.api.gate.breaker.state is BreakerState.CLOSED


def test_a_download_that_is_too_large_ends_at_its_limit(
    lone: Lone, lone_at: Callable[[bytes], Lone], sim: Sim, tmp_path: Path
) -> None:
    with pytest.raises(ContentTooLarge):
        lone.contents.fetch(sent(sim), tmp_path / "a", most_bytes=9_999)
    assert lone.contents.fetch(sent(sim), tmp_path / "a", most_bytes=10_000).size == 10_000
    endless = OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"5\r\n01234\r\n" * 10
    other = lone_at(endless)
    with pytest.raises(ContentTooLarge):
        other.contents.fetch("1", tmp_path / "b", most_bytes=20)
    assert len(other.rows) == 1
    assert not (tmp_path / "b").exists()


def test_what_is_no_content_of_line_s_is_a_mistake_or_external() -> None:
    for nothing in ({"type": "sticker", "id": "1"}, {"type": "image"}, {}, "", None, 7):
        with pytest.raises(BotError, match="not a photo"):
            content_id(nothing)
    external = ContentProvider(type="external", originalContentUrl="https://example.com/a.jpg")
    with pytest.raises(ExternalContent):
        content_id(ImageMessageContent(id="1", contentProvider=external, quoteToken="q"))


def saving_bot(
    to: Path | None, after: Callable[[Content], None] = lambda got: None, **bounds: float
) -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        got = talk.content(event.message, to, **bounds)
        after(got)
        talk.reply(f"{got.type} {got.size}")

    return bot


def test_a_handler_gets_a_file_that_goes_when_it_ends(room: Rooms, sim: Sim) -> None:
    user, paths = sim.add_user("花子"), []

    def look(got: Content) -> None:
        assert got.path.stat().st_size == got.size
        paths.append(got.path)
        if len(paths) == 1:
            raise RuntimeError("planted")

    desk = room(saving_bot(None, look))
    document = desk.send(sim.drafts.medium("image", user))
    desk.until_quiet()
    assert len(texts(sim, user)) == 1
    assert len(set(paths)) == 2
    assert not any(path.exists() for path in paths)
    asked = {"endpoint": ENDPOINT, "eventId": document["eventId"], "key": user.user_id}
    assert len(eventually(lambda: rows_of(desk.database.calls, **asked))) == 2


def test_a_stop_ends_a_download_and_loses_nothing(room: Rooms, sim: Sim, tmp_path: Path) -> None:
    user = sim.add_user("花子")
    sim.misbehave(Rule(outcome=Drip(16, 0.02), endpoint="content", count=1))
    first = room(saving_bot(tmp_path / "photo"))
    calls = len(sim.calls_to("content"))
    document = first.send(sim.drafts.medium("image", user))
    eventually(lambda: len(sim.calls_to("content")) > calls)
    began = time.monotonic()
    first.__exit__()
    assert time.monotonic() - began < 10
    assert list(tmp_path.iterdir()) == []
    second = room(saving_bot(tmp_path / "photo"), epoch=2)
    second.put_document(document, again=True)
    second.until_quiet()
    assert len(texts(sim, user)) == 1
