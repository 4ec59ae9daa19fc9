"""The circuit breaker: when it opens, and how it finds that LINE is back."""

import itertools
import threading
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.line.breaker import Breaker, BreakerState
from jobworker.line.client import LineClient
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linesim import Sim
from tests.jobworker.worker_harness import Rooms, echo, texts
from tests.waiting import Now, eventually


@pytest.fixture
def line(now: Now) -> Breaker:
    return Breaker(threading.Lock(), monotonic=now)


def fails(line: Breaker, times: int, *whose: str) -> None:
    names = whose or ("U1", "U2")
    for n in range(times):
        line.failed(names[n % len(names)])


def test_each_failed_probe_lengthens_the_pause_up_to_a_minute(line: Breaker, now: Now) -> None:
    fails(line, 5)
    pauses = [line.held_seconds()]
    for _ in range(10):
        now.seconds += line.held_seconds()
        assert (line.state, line.held_seconds()) == (BreakerState.OPEN, 0.0)
        line.failed("U1")
        pauses.append(line.held_seconds())
        assert line.state is BreakerState.OPEN
    longest = [1, 2, 4, 8, 16, 32, *[60] * 5]
    assert all(0.8 * most <= got <= most for got, most in zip(pauses, longest, strict=True))


def test_an_answered_probe_closes_it_and_the_next_pause_is_short_again(
    line: Breaker, now: Now
) -> None:
    fails(line, 5)
    for _ in range(6):
        now.seconds += line.held_seconds()
        line.failed("U1")
    now.seconds += line.held_seconds()
    line.answered()
    assert (line.state, line.held_seconds()) == (BreakerState.CLOSED, 0.0)
    fails(line, 5)
    assert line.held_seconds() <= 1.0


def test_calls_of_before_a_pause_count_as_one_failure(line: Breaker, now: Now) -> None:
    for n in range(20):
        line.failed(f"U{n}", began=now.seconds)
    assert 0.8 <= line.held_seconds() <= 1.0
    # Of some it is heard only while a probe is under way, or after it.
    now.seconds += 1.0
    line.failed("U1", began=1000.0)
    assert (line.state, line.held_seconds()) == (BreakerState.OPEN, 0.0)
    line.failed("U1", began=now.seconds)
    assert 1.6 <= line.held_seconds() <= 2.0


BREAKER = "jobworker.line.breaker"
SHORT = {
    f"{BREAKER}.FIRST_PAUSE_SECONDS": 0.05,
    f"{BREAKER}.LONGEST_PAUSE_SECONDS": 0.1,
    f"{BREAKER}.UNAUTHORIZED_PAUSE_SECONDS": 0.1,
}


@pytest.mark.parametrize("accept", [False, True], ids=["not accepted", "accepted"])
@pytest.mark.parametrize("way", ["push", "reply"])
def test_an_outage_burns_nothing_and_all_arrive_once_after_it(
    room: Rooms, sim: Sim, way: str, accept: bool
) -> None:
    users = [sim.add_user(f"客{n}") for n in range(30)]
    sim.answer_next(way, 503, times=10, accept=accept)
    before = len(sim.calls)
    desk = room(echo(way, "はい"), line=SHORT)
    for user in users:
        desk.says(user, "?")
    eventually(lambda: desk.desk.gate.breaker.state is not BreakerState.CLOSED)
    desk.until_quiet()
    assert [texts(sim, user) for user in users] == [["はい"]] * 30
    assert desk.desk.gate.breaker.state is BreakerState.CLOSED
    assert len(sim.calls) - before == 40
    assert desk.letters() == []


def test_while_it_is_open_only_probes_go_out_and_no_thread_waits(room: Rooms, sim: Sim) -> None:
    long = dict.fromkeys(
        (f"{BREAKER}.FIRST_PAUSE_SECONDS", f"{BREAKER}.LONGEST_PAUSE_SECONDS"), 3600.0
    )
    users = [sim.add_user(f"客{n}") for n in range(50)]
    sim.answer_next("push", 500, times=1000)
    desk = room(echo("push", "はい"), line=long)
    for user in users[:20]:
        desk.says(user, "?")
    eventually(lambda: desk.desk.gate.breaker.state is BreakerState.OPEN)
    made = len(sim.calls)
    for user in users[20:]:
        desk.says(user, "?")
    desk.until_decided()
    # All four threads are free, and fifty sends wait.
    barrier = threading.Barrier(5)
    for _ in range(4):
        desk.pool.step(lambda: barrier.wait(5) and None)
    barrier.wait(5)
    assert len(sim.calls) == made
    assert len(desk.effects()) == 50


def test_a_message_on_which_line_always_fails_does_not_keep_it_open(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was recorded first and is back at the gate at once, but has gone behind the others."""
    ill, well = sim.add_user("病"), [sim.add_user(f"客{n}") for n in range(5)]
    limits = SendLimits(push_seconds=0.0, first_pause_seconds=0.0)
    post = LineClient.post

    def call(client: LineClient, path: str, body: dict[str, Any], **more: Any) -> Any:
        if body["to"] == ill.user_id:
            sim.answer_next("push", 500)
        return post(client, path, body, **more)

    monkeypatch.setattr(LineClient, "post", call)
    desk = room(echo("push", "はい"), send_limits=limits, line=SHORT)
    with desk.desk.gate.turn():
        desk.says(ill, "?")
        desk.until_decided()
        for user in well:
            desk.says(user, "?")
        desk.until_decided()
        for whose in ("U1", "U2", "U1", "U2", "U1"):
            desk.desk.gate.breaker.failed(whose)
    sim.wait_for(lambda: all(texts(sim, user) == ["はい"] for user in well))
    assert texts(sim, ill) == []


def test_a_refused_token_stops_the_channel_and_burns_nothing(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    users = [sim.add_user(f"客{n}") for n in range(20)]
    sim.answer_next("reply", 401, times=4)
    before = len(sim.calls)
    desk = room(echo("reply", "はい"), line=SHORT)
    for user in users:
        desk.says(user, "?")
    desk.until_quiet()
    assert [texts(sim, user) for user in users] == [["はい"]] * 20
    made = sim.calls[before:]
    assert [call.endpoint for call in made] == ["reply"] * 24
    refused = [call.started for call in made if call.status == 401]
    assert [call.status for call in made[:4]] == [401] * 4
    assert min(b - a for a, b in itertools.pairwise(refused)) >= 0.09
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert desk.letters() == []


def test_a_handler_s_own_call_while_it_is_open_costs_it_no_try(room: Rooms, sim: Sim) -> None:
    limits = {f"{BREAKER}.UNAUTHORIZED_PAUSE_SECONDS": 0.5}
    runs: list[str] = []
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        runs.append(talk.key)
        talk.reply(talk.api.get_profile(str(talk.user_id)).display_name)

    user = sim.add_user("花子")
    desk = room(bot, tries=1, line=limits)
    desk.desk.gate.breaker.unauthorized()
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["花子"]
    assert len(runs) > 1
    assert desk.letters() == []
