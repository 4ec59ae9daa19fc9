"""The figures of a worker: they report events, and never a user's text."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import linebot.v3
import pytest
from linebot.v3.webhooks import FollowEvent
from prometheus_client import CollectorRegistry, generate_latest
from pymongo.database import Database

from dispatcher.commit.committer import Committer
from jobworker.bot.talk import Talk
from jobworker.effects import of_effect
from jobworker.line.breaker import FAILURES_TO_OPEN
from jobworker.line.gate import Gate
from jobworker.line.gate_order import Standing, Ticket
from jobworker.line.hosts import Hosts
from jobworker.metrics import OTHER, Use, WorkerMetrics, endpoint_of
from jobworker.record.dead_letters import DeadLetters
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.operate.text import known
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.store.documents import Document
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.letters import Cause
from linesim import Sim
from tests.jobworker.line.test_gate import Hand, Note
from tests.jobworker.line.test_gate import hand as hand
from tests.jobworker.worker_harness import Room, a_send, lead
from tests.rows import rows_of
from tests.waiting import eventually

Rooms = Callable[..., Room]
PUSH, REPLY = "/v2/bot/message/push", "/v2/bot/message/reply"
PROFILE = "/v2/bot/profile/{}"
SECRET_WORDS = "秘密の言葉"
SDK_PATH = re.compile(r"['\"](/v2/bot/[^'\"]+)['\"]")


def figures_of(registry: CollectorRegistry) -> Document:
    return MetricsSnapshots(registry).take().figures


def a_bot() -> Bot:
    """Fails on 壊, answers all other texts."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if event.message.text.startswith("壊"):
            raise ValueError(f"{event.message.text} of {talk.user_id}")
        if event.message.text != "黙":
            talk.reply(event.message.text)

    return bot


@contextmanager
def busy(gate: Gate) -> Iterator[None]:
    """Another call has the gate meanwhile."""
    granted = threading.Event()
    ticket = Ticket(Standing(TurnClass.LIVE, 0.0), granted=lambda _: granted.set())
    gate.enter(ticket)
    assert granted.wait(15)
    with gate.holding(ticket):
        yield


# Events.


def test_an_answer_is_counted_all_the_way_and_names_no_user(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot(), tries=2)
    user = sim.add_user("花子")
    sim.answer_next("reply", 500)
    desk.says(user, SECRET_WORDS)
    desk.says(user, f"壊{SECRET_WORDS}")
    desk.says(user, "黙")
    desk.until_quiet()
    jobs = eventually(lambda: len(found := rows_of(desk.database.jobs)) == 4 and found)
    eventually(lambda: desk.figures().get("deadLettersKept") == 1)
    assert desk.figures()["deadLettersOpen"] == 1

    found = desk.figures()
    assert found["decidedEvents"] == {"recorded": 2, "finished": 1, "applied": 0, "unheard": 0}
    assert found["failedHandlers"] == {"error": 2, "timeout": 0}
    assert found["deadLetters"] == {"event": 1, "send": 0, "timer": 0}
    assert found["calls"] == {"api": {REPLY: {"200": 1, "500": 1}}}
    assert (found["sendRetries"], found["unprovedReplies"]) == (1, 0)
    assert (found["gateTurns"], found["gateWaiting"]) == ({"api": 2}, {"api": 0})
    assert (found["outboxEffects"], found["unwrittenRows"]) == (0, {"calls": 0, "jobs": 0})
    # Of each event the first start, and of the one that failed both runs.
    seconds = {name: found[f"{name}Seconds"]["count"] for name in ("wait", "handler")}
    assert seconds == {"wait": 3, "handler": 4}
    assert found["callSeconds"][REPLY]["count"] == found["gateWaitSeconds"]["api"]["count"] == 2

    metrics = generate_latest(desk.registry).decode()
    rows = json.dumps(jobs, default=str, ensure_ascii=False)
    for text in (SECRET_WORDS, sim.token, "花子", "replyToken"):
        assert text not in metrics + rows
    assert user.user_id not in metrics
    for row in jobs:
        assert row.pop("key") == user.user_id
        assert user.user_id not in str(row)


def test_no_answer_counts_under_a_word_of_its_own(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot())
    sim.close_next("reply")
    desk.says(sim.add_user("花子"), "?")
    desk.until_quiet()
    assert desk.figures()["calls"]["api"][REPLY] == {"none": 1, "200": 1}


def test_a_send_that_is_given_up_is_a_dead_letter(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot())
    sim.answer_next("reply", 400, {"message": "The request body has 1 error"})
    desk.says(sim.add_user("花子"), "?")
    desk.until_quiet()
    assert len(desk.letters()) == 1
    assert desk.figures()["deadLetters"] == {"event": 0, "send": 1, "timer": 0}


def test_sends_that_travel_together_are_one_call_and_cost_what_line_counts(
    room: Rooms, sim: Sim
) -> None:
    desk = room(a_bot())
    user = sim.add_user("花子")
    with busy(desk.desk.gate):
        for number in range(4):
            desk.says(user, f"{number}")
        desk.until_decided()
        eventually(lambda: desk.figures()["gateClassWaiting"]["api"]["live"] == 1)
        assert desk.figures()["gateClassLongestSeconds"]["api"]["live"] > 0
    desk.until_quiet()
    found = desk.figures()
    assert found["callSends"][REPLY] == {"count": 1, "sum": 4.0}
    assert found["countedMessages"] == {"push": 0, "multicast": 0, "group": 0}
    assert found["gateClassWaiting"]["api"] == {"live": 0, "chat": 0, "other": 0, "idle": 0}
    lately = MetricsSnapshots(desk.registry).take().lately["callSends"][REPLY]
    assert (lately["count"], lately["sum"]) == (1, 4.0)


def test_line_s_counts_are_reported_by_kind_and_for_today() -> None:
    registry = CollectorRegistry()
    figures = WorkerMetrics(registry)
    figures.set("counted_today_messages", lambda: 304)
    figures.sent(REPLY, sends=5, people=0)
    figures.sent(PUSH, sends=2, people=1)
    figures.sent(PUSH, sends=1, people=20, is_group=True)
    figures.sent("/v2/bot/message/multicast", sends=300, people=300)
    figures.sent("/v2/bot/message/broadcast", sends=1, people=1)
    found = figures_of(registry)
    assert found["countedMessages"] == {"push": 1, "multicast": 300, "group": 20}
    assert found["countedTodayMessages"] == 304


def test_sends_given_up_for_money_or_time_are_counted_by_cause(database: Database[Any]) -> None:
    registry = CollectorRegistry()
    committer, figures = lead(Committer(database)), WorkerMetrics(registry)
    letters = DeadLetters(committer, is_unsent=lambda document: False, figures=figures)
    for cause in ("quota", "late", "late", "expired", "400"):
        effect = a_send(id=f"E{len(letters_of(database))}/0").as_document()
        letters.write(of_effect(effect, "main/U1", cause=Cause(cause), attempts=1))
    assert figures_of(registry)["givenUpSends"] == {"quota": 1, "late": 2, "expired": 1}


def letters_of(database: Database[Any]) -> list[Document]:
    return list(database.deadletters.find())


# Calls of LINE by their end points.


def sdk_paths() -> set[str]:
    """The templates of all paths that line-bot-sdk calls."""
    files = Path(linebot.v3.__file__).parent.rglob("api/*.py")
    return {path for file in files for path in SDK_PATH.findall(file.read_text("utf-8"))}


def test_every_end_point_of_the_messaging_api_has_a_label_of_its_own() -> None:
    paths = sdk_paths()
    assert "/v2/bot/profile/{userId}" in paths
    assert [path for path in paths if endpoint_of(path) == OTHER] == []
    assert endpoint_of("/v2/bot/profile/{userId}") == endpoint_of(PROFILE) == PROFILE


@pytest.mark.parametrize(
    "path",
    [
        "/v2/bot/profile/U" + "1" * 32,
        "/v2/bot/richmenu/alias/main-menu",
        "/v2/bot/message/push?to=U1",
        "/v2/oauth/accessToken",
        "/elsewhere",
        "",
    ],
)
def test_a_path_with_an_id_in_it_makes_no_series(path: str) -> None:
    assert endpoint_of(path) == OTHER


# The gate.


def test_the_gate_is_in_use_while_it_is_busy_and_while_it_keeps_its_interval(hand: Hand) -> None:
    for entry in (Note(hand, "a", takes=0.25), Note(hand, "b", place=1, takes=3.0)):
        entry.enter()
    hand.run()
    # The first call took 0.25 s, and the interval is a second.
    assert hand.used_seconds == pytest.approx(0.25)
    hand.now += 0.5
    assert hand.used_seconds == pytest.approx(0.75)
    hand.now -= 0.5
    hand.advance(10)
    # The second one took longer than the interval; there was no call after it.
    assert hand.used_seconds == pytest.approx(1.0 + 3.0)


def test_a_wait_at_the_gate_counts_from_the_first_entering() -> None:
    waits: list[float] = []
    hand = Hand(turn_taken=waits.append)
    first, hurried = Note(hand, "first"), Note(hand, "hurried", place=9)
    first.enter()
    ticket = hurried.enter()
    hand.run()
    hand.now += 0.5
    hand.gate.move(ticket, Standing(TurnClass.CHAT, 1.0))
    hand.advance(0.5)
    assert waits == [0.0, pytest.approx(1.0)]


def test_use_is_that_of_the_last_ten_seconds() -> None:
    use = Use(100.0)
    assert use.share(100.0) == 0.0
    for now in range(101, 121):
        use.begin(now - 1.0)
        use.end(now - 0.75)
        assert use.share(now) == pytest.approx(0.25)
    for now in range(121, 131):
        use.share(now)
    assert use.share(130.0) == 0.0


def test_use_that_ends_in_the_time_to_come_counts_as_time_passes() -> None:
    used = Use(0.0)
    used.begin(0.0)
    used.begin(5.0)
    used.end(10.0)
    assert (used.seconds(4.0), used.seconds(12.0)) == (4.0, 10.0)
    used.begin(8.0)
    assert used.seconds(9.0) == 9.0
    used.end(9.0)
    used.end(50.0)
    assert used.seconds(60.0) == 10.0


def test_breaker_and_token_are_distinguished() -> None:
    registry = CollectorRegistry()
    hosts = Hosts.of(
        "http://api",
        "http://data",
        interval_seconds=0.0,
        step=lambda step: None,
        later=lambda seconds, step: None,
        lease_is_fresh=lambda: True,
        figures=WorkerMetrics(registry),
    )

    def told() -> tuple[Any, Any]:
        found = figures_of(registry)
        return found["breakerOpen"], found["tokenRefused"]

    assert told() == ({"api": 0, "data": 0}, 0)
    for number in range(FAILURES_TO_OPEN):
        hosts.data.gate.breaker.failed(f"U{number}")
    assert told() == ({"api": 0, "data": 1}, 0)
    hosts.data.gate.breaker.answered()
    hosts.api.gate.breaker.unauthorized()
    assert told() == ({"api": 0, "data": 0}, 1)
    # Until the next call of the host may begin.
    pauses = figures_of(registry)["breakerPauseSeconds"]
    assert pauses["data"] == 0
    assert 59 < pauses["api"] <= 60


# Why sends wait.


def test_a_send_at_the_gate_reports_its_class_and_what_goes_first(room: Rooms, sim: Sim) -> None:
    bot = a_bot()

    @bot.add(FollowEvent)
    def greet(event: Any, talk: Talk) -> None:
        talk.push("ようこそ")

    desk = room(bot)
    first, second, third = (sim.add_user(name) for name in ("花子", "太郎", "次郎"))
    behind = {first.user_id: 2, second.user_id: 0, third.user_id: 0}
    told = {key: {"code": "gate", "behind": count} for key, count in behind.items()}
    with busy(desk.desk.gate):
        desk.send(sim.drafts.follow(first))
        for user in (second, third):
            desk.says(user, "?")
        eventually(lambda: {row["key"]: row["why"] for row in desk.desk.waiting()} == told)
        # Since the arrival of the first event, and not since an answer was decided.
        oldest = desk.desk.outbox.boxes.oldest_seconds()
        since = min(row["since"] for row in desk.desk.waiting())
        assert 0 < oldest <= (datetime.now(UTC) - since).total_seconds() + 0.001
        assert {row["sends"] for row in desk.desk.waiting()} == {1}
    desk.until_quiet()
    assert desk.desk.waiting() == []
    assert desk.desk.outbox.boxes.oldest_seconds() == 0


def test_a_send_in_a_multicast_reports_how_many_it_travels_with(room: Rooms, sim: Sim) -> None:
    bot = Bot()

    @bot.add(FollowEvent)
    def greet(event: Any, talk: Talk) -> None:
        talk.push("ようこそ")

    desk = room(bot, send_limits=LONG_PAUSES)
    users = [sim.add_user(f"{number}") for number in range(3)]
    sim.answer_next("multicast", 500)
    with busy(desk.desk.gate):
        for user in users:
            desk.send(sim.drafts.follow(user))
        eventually(lambda: desk.figures()["gateClassWaiting"]["api"]["chat"] == 3)

    def travels(why: dict[str, Any]) -> bool:
        return (why["code"], why.get("status"), why.get("people")) == ("line_answered", 500, 3)

    eventually(lambda: sum(travels(row["why"]) for row in desk.desk.waiting()) == 3)


def test_a_send_that_met_the_month_s_limit_waits_for_the_reading(room: Rooms, sim: Sim) -> None:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.push(event.message.text)

    desk = room(bot, send_limits=LONG_PAUSES)
    sim.answer_next("push", 429, {"message": "You have reached your monthly limit."})
    desk.says(sim.add_user("花子"), "?")
    why = (
        "LINE answered 429 for the month's limit, and LINE's count of this month has to be read, "
        "next try at "
    )
    eventually(lambda: [row for row in desk.desk.waiting() if known(row["why"]).startswith(why)])


# Pauses are drawn between nothing and the first one, so none ends within the test.
LONG_PAUSES = SendLimits(first_pause_seconds=1e9, longest_pause_seconds=1e9)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (500, "LINE answered 500, next try at "),
        (429, "LINE answered 429, next try at "),
        (None, "LINE did not answer, next try at "),
        (401, "LINE refuses the access token"),
    ],
)
def test_a_send_that_rests_says_why(room: Rooms, sim: Sim, status: int | None, why: str) -> None:
    desk = room(a_bot(), send_limits=LONG_PAUSES)
    user = sim.add_user("花子")
    if status is None:
        sim.close_next("reply")
    else:
        sim.answer_next("reply", status, headers={"Retry-After": "300"})
    document = desk.says(user, SECRET_WORDS)
    (row,) = eventually(
        lambda: [one for one in desk.desk.waiting() if known(one["why"]).startswith(why)]
    )
    assert (row["channel"], row["key"]) == ("main", user.user_id)
    assert row["eventId"] == document["eventId"]
    assert row["effectId"] == desk.effects()[0]["id"]
    assert row["since"] >= document["acceptTime"]
    assert SECRET_WORDS not in str(row)


def test_those_that_wait_longest_are_reported_first(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot(), lease_is_fresh=lambda: fresh)
    fresh = True
    users = [sim.add_user(f"{number}") for number in range(3)]
    sim.answer_next("reply", 429, headers={"Retry-After": "300"})
    for user in users:
        desk.says(user, "?")
        desk.until_decided()
    keys = [user.user_id for user in users]
    eventually(lambda: [row["key"] for row in desk.desk.waiting()] == keys)
    assert [row["key"] for row in desk.desk.outbox.boxes.waiting(1, at_gate=str)] == keys[:1]
