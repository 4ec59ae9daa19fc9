"""The simulator's clock: moved ahead by a test, the page or another process, and never back."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

import linesim
from linesim.people import stops
from tests.linesim.conftest import BotServer, Line
from tests.waiting import eventually

YEAR = 366 * 24 * 3600


@pytest.fixture
def sim(bot: BotServer) -> Iterator[linesim.Sim]:
    """On the default clock of a served simulator."""
    with linesim.running(webhook_url=bot.url) as sim:
        yield sim


def told(sim: linesim.Sim) -> dict[str, float]:
    answer = requests.get(f"{sim.url}/sim/clock", timeout=10)
    answer.raise_for_status()
    times: dict[str, float] = answer.json()
    return times


def advance(sim: linesim.Sim, body: Any) -> requests.Response:
    return requests.post(f"{sim.url}/sim/clock", json=body, timeout=10)


def test_another_process_reads_and_moves_the_clock(sim: linesim.Sim) -> None:
    before = told(sim)
    assert before["ahead"] == 0
    assert before["now"] == pytest.approx(time.time(), abs=5)
    assert advance(sim, {"advance": 86_400}).json()["ahead"] == 86_400
    assert told(sim)["now"] == pytest.approx(time.time() + 86_400, abs=5)
    assert requests.get(f"{sim.url}/sim/state", timeout=10).json()["clock"]["ahead"] == 86_400


def test_messages_webhooks_tokens_and_keys_go_by_the_moved_clock(
    sim: linesim.Sim, bot: BotServer
) -> None:
    line, taro = Line(sim), sim.add_user("太郎")
    sim.say(taro, "やあ")
    token = bot.last.events[0]["replyToken"]
    key = "00000000-0000-4000-8000-000000000000"
    assert line.push(taro.user_id, retry_key=key).status_code == 200
    sim.advance(24 * 3600)
    assert line.reply(token).status_code == 400
    assert line.push(taro.user_id, retry_key=key).status_code == 200
    sim.say(taro, "翌日です")
    line.session.close()
    told_later = bot.last.events[0]["timestamp"] / 1000
    assert told_later == pytest.approx(time.time() + 24 * 3600, abs=5)
    said = [bubble.at for bubble in sim.chat(taro)]
    assert said[-1] - said[0] == pytest.approx(24 * 3600, abs=5)
    assert sim.calls[-1].at - sim.calls[0].at == pytest.approx(24 * 3600, abs=5)


def test_a_bots_server_that_is_never_done_or_gone_holds_up_no_move_of_the_clock(
    sim: linesim.Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stops, "DONE_SECONDS", 0.05)
    monkeypatch.setattr(stops, "REPORT_SECONDS", 1.0)
    due, seen = time.time() + 100, set[float]()
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.wait(0.01):
            ahead = told(sim)["ahead"]
            seen.add(ahead)
            at = due if ahead < 99 else None
            report = {"ahead": ahead, "at": at, "done": False}
            requests.post(f"{sim.url}/sim/clock/due", json=report, timeout=10)

    thread = threading.Thread(target=follow)
    thread.start()
    assert eventually(lambda: sim.stops.is_followed)
    assert advance(sim, {"advance": 3_600}).json()["ahead"] == 3_600
    is_over.set()
    thread.join(10)
    assert any(ahead == pytest.approx(100, abs=5) for ahead in seen)
    monkeypatch.setattr(stops, "REPORT_SECONDS", 0.05)
    assert advance(sim, {"advance": 3_600}).json()["ahead"] == 7_200
    assert not sim.stops.is_followed


def test_a_stop_ends_a_move_that_waits_for_the_bots_server() -> None:
    with linesim.running() as sim:
        sim.stops.report(stops.Due(ahead=0.0, at=None, done=False))
        move = threading.Thread(target=sim.stops.advance, args=(60.0,))
        move.start()
        assert eventually(lambda: sim.stops.goal is not None)
    move.join(3)
    assert not move.is_alive()
