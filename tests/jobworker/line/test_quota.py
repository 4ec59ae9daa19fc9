"""Reading the month's messages from LINE: when, how often, and the figures afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import linesim
from jobworker.bot.talk import Talk
from jobworker.errors import LineError, OutcomeUnknown
from jobworker.line import quota
from jobworker.line.answer import LineAnswer
from jobworker.line.month import EVERY_SECONDS, SOON_SECONDS, MonthlyQuota
from jobworker.line.quota import Quota
from jobworker.metrics import WorkerMetrics
from linedesk import Bot
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.store.documents import Document
from linesim import Sim
from tests.jobworker.line.test_gate import Hand, Note
from tests.jobworker.line.test_gate import hand as hand
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

Rooms = Callable[..., Room]
ONE_READING = [quota.LIMIT, quota.USED]
# At 100 s by the hand's clock it is ten in the evening in Japan, two hours before a month's end.
BEGINNING = datetime(2027, 1, 31, 13, 0, tzinfo=UTC) - timedelta(seconds=100)


class Account:
    """LINE's two endpoints of the quota, and a Quota that asks them by hand."""

    def __init__(self, hand: Hand) -> None:
        self.answers: dict[str, LineAnswer | LineError] = {}
        self.asked: list[tuple[str, float]] = []
        self.registry = CollectorRegistry()
        self.hand = hand
        self.set_by = timedelta()
        self.during: Callable[[str], None] = lambda path: None
        line = replace(
            hand.line(get=self._get),
            figures=WorkerMetrics(self.registry),
            now=lambda: BEGINNING + self.set_by + timedelta(seconds=hand.now),
        )
        self.quota = Quota(line)
        self.has({"type": "limited", "value": 500}, {"totalUsage": 123})

    def has(self, limit: Any, used: Any) -> None:
        for path, told in ((quota.LIMIT, limit), (quota.USED, used)):
            is_ready = isinstance(told, (LineAnswer, LineError))
            self.answers[path] = told if is_ready else LineAnswer(200, json.dumps(told))

    def uses_up(self) -> None:
        self.has({"type": "limited", "value": 500}, {"totalUsage": 500})

    def closes(self) -> None:
        """A push meets the monthly limit, and a reading shows that all is used."""
        self.uses_up()
        self.quota.met()
        self.hand.advance(5)
        assert self.quota.month.is_closed

    def _get(self, path: str) -> LineAnswer:
        self.asked.append((path, self.hand.now))
        self.during(path)
        answer = self.answers[path]
        if isinstance(answer, LineError):
            raise answer
        return answer

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    @property
    def figures(self) -> Document:
        return MetricsSnapshots(self.registry).take().figures

    @property
    def shown(self) -> tuple[Any, Any]:
        return self.figures.get("quotaMessages"), self.figures.get("quotaUsedMessages")


@pytest.fixture
def account(hand: Hand) -> Account:
    return Account(hand)


# When it is read.


def test_it_is_read_a_minute_after_the_start_and_then_each_ten(account: Account) -> None:
    account.quota.start()
    account.hand.advance(quota.FIRST_SECONDS - 1)
    assert (account.paths, account.shown) == ([], (None, None))
    account.hand.advance(5)
    assert (account.paths, account.shown) == (ONE_READING, (500, 123))
    account.hand.advance(EVERY_SECONDS)
    assert account.paths == ONE_READING * 2


def test_it_is_read_at_midnight_in_japan(account: Account) -> None:
    account.quota.start()
    account.hand.advance(2 * 3600 + 30)
    midnight = 100 + 2 * 3600
    assert [at for path, at in account.asked if midnight - 5 < at < midnight + 30] == [
        pytest.approx(midnight, abs=0.1),
        pytest.approx(midnight + 1, abs=0.1),
    ]
    before = max(at for _, at in account.asked if at < midnight)
    assert midnight - before < EVERY_SECONDS


def test_a_clock_that_is_set_back_delays_no_reading(account: Account) -> None:
    account.quota.start()
    account.hand.advance(quota.FIRST_SECONDS + 5)
    account.set_by = timedelta(days=-3)
    account.hand.advance(EVERY_SECONDS + 5)
    assert account.paths == ONE_READING * 2
    assert account.shown == (500, 123)


def test_it_is_read_in_the_line_of_the_pushes(account: Account) -> None:
    """Otherwise a busy gate would never read it."""
    hand = account.hand
    pushes = [Note(hand, str(n), place=hand.now + place) for n, place in enumerate((0, 59, 61))]
    pushes[0].enter()
    account.quota.met()
    hand.advance(0)
    for push in pushes[1:]:
        push.enter()
    hand.advance(2.5)
    assert (pushes[1].called, len(account.asked), pushes[2].called) == ([101.0], 1, [])
    hand.advance(5)
    assert (len(account.asked), pushes[2].called) == (2, [103.0])


def test_while_line_is_away_one_reading_waits(account: Account) -> None:
    hand = account.hand
    hand.held_until = hand.now + 5_000
    account.quota.start()
    hand.advance(4_000)
    account.quota.met()
    hand.advance(100)
    assert (hand.gate.waiting, account.asked) == (1, [])
    hand.advance(2_000)
    assert account.paths[:2] == ONE_READING


def test_a_turn_that_may_not_be_used_is_asked_for_again(account: Account) -> None:
    account.quota.start()
    account.hand.advance(quota.FIRST_SECONDS - 1)
    fresh = iter([True, False])
    account.hand.gate._lease_is_fresh = lambda: next(fresh, True)  # type: ignore[method-assign]
    account.hand.advance(10)
    assert (account.paths, account.shown) == (ONE_READING, (500, 123))


def test_refused_pushes_have_it_read_at_once_and_then_once_a_minute(account: Account) -> None:
    for _ in range(3):
        account.quota.met()
        account.hand.advance(10)
    # The reading showed room, so the second refusal asks for another one, after its minute.
    assert account.paths == ONE_READING
    account.hand.advance(SOON_SECONDS)
    assert account.paths == ONE_READING * 2
    assert account.asked[2][1] - account.asked[0][1] == pytest.approx(SOON_SECONDS, abs=0.1)
    # All is settled now.
    account.hand.advance(SOON_SECONDS * 3)
    assert account.paths == ONE_READING * 2


def test_a_refused_push_is_followed_by_readings_until_one_succeeds(account: Account) -> None:
    account.has(LineAnswer(500), {"totalUsage": 500})
    account.quota.met()
    account.hand.advance(3 * SOON_SECONDS + 5)
    assert account.paths == [quota.LIMIT] * 4
    assert not account.quota.month.is_closed
    account.uses_up()
    account.hand.advance(SOON_SECONDS)
    assert account.quota.month.is_closed


# The known figures.


def test_a_plan_without_limit_has_no_figure_of_it(account: Account) -> None:
    account.has({"type": "none"}, {"totalUsage": 7})
    account.quota.start()
    account.hand.advance(90)
    assert account.shown == (None, 7)
    assert account.quota.month == MonthlyQuota(None, 7)
    assert (account.quota.month.left, account.quota.month.is_closed) == (None, False)


@pytest.mark.parametrize(
    ("limit", "used", "asked"),
    [
        (LineAnswer(500), {"totalUsage": 1}, 1),
        (OutcomeUnknown("gone"), {"totalUsage": 1}, 1),
        (LineAnswer(200, "<html>"), {"totalUsage": 1}, 1),
        (["limited"], {"totalUsage": 1}, 1),
        ({"type": "limited", "value": "many"}, {"totalUsage": 1}, 1),
        ({"type": "limited", "value": 500}, LineAnswer(429), 2),
        ({"type": "limited", "value": 500}, {"totalUsage": True}, 2),
    ],
)
def test_a_reading_that_fails_is_not_repeated_and_what_is_known_grows_stale(
    account: Account, limit: Any, used: Any, asked: int
) -> None:
    account.quota.start()
    account.hand.advance(90)
    account.has(limit, used)
    account.hand.advance(EVERY_SECONDS)
    assert (len(account.asked), account.shown) == (2 + asked, (500, 123))
    account.hand.advance(quota.STALE_SECONDS - EVERY_SECONDS)
    assert account.shown == (None, None)
    assert account.quota.month.left is None


def test_sends_are_counted_down_between_readings(account: Account) -> None:
    account.quota.start()
    account.hand.advance(90)
    account.quota.paid(300)
    assert (account.quota.month.left, account.shown) == (77, (500, 423))
    account.has({"type": "limited", "value": 500}, {"totalUsage": 420})
    account.during = lambda path: account.quota.paid(1)
    account.hand.advance(EVERY_SECONDS)
    # Two went out while LINE was asked: they are counted twice rather than not at all.
    assert account.quota.month.left == 78


# The month is closed.


def test_the_month_is_closed_by_a_refusal_and_a_reading_after_it(account: Account) -> None:
    account.uses_up()
    account.quota.start()
    account.hand.advance(90)
    assert (account.quota.month.left, account.quota.month.is_closed) == (0, False)
    assert "quotaClosedSinceSeconds" not in account.figures
    account.quota.met()
    assert not account.quota.month.is_closed
    account.hand.advance(SOON_SECONDS + 5)
    assert account.quota.month == MonthlyQuota(500, 500, is_closed=True)
    since = account.figures["quotaClosedSinceSeconds"]
    assert datetime.fromtimestamp(since, UTC) - BEGINNING == timedelta(seconds=account.asked[-1][1])


def test_a_refusal_during_a_reading_is_settled_by_the_next_one(account: Account) -> None:
    account.uses_up()

    def refuse(path: str) -> None:
        account.during = lambda path: None
        account.quota.met()

    account.during = refuse
    account.quota.start()
    account.hand.advance(quota.FIRST_SECONDS + 5)
    assert (len(account.asked), account.quota.month.is_closed) == (2, False)
    account.hand.advance(SOON_SECONDS)
    assert (len(account.asked), account.quota.month.is_closed) == (4, True)


def test_a_call_that_merely_did_not_fit_closes_nothing(account: Account) -> None:
    account.quota.met()
    account.hand.advance(SOON_SECONDS * 3)
    assert (account.paths, account.quota.month.left) == (ONE_READING, 377)
    assert not account.quota.month.is_closed


def test_a_closed_month_is_read_every_ten_minutes_and_opened_by_more_room(
    account: Account,
) -> None:
    account.closes()
    account.hand.advance(2 * EVERY_SECONDS + 10)
    assert (account.paths, account.quota.month.is_closed) == (ONE_READING * 3, True)
    account.has({"type": "limited", "value": 1_000}, {"totalUsage": 500})
    account.hand.advance(EVERY_SECONDS)
    assert (account.quota.month.is_closed, account.quota.month.left) == (False, 500)
    assert "quotaClosedSinceSeconds" not in account.figures


def test_a_closed_month_stays_closed_while_line_says_nothing(account: Account) -> None:
    account.closes()
    account.has(LineAnswer(503), {"totalUsage": 0})
    account.hand.advance(quota.STALE_SECONDS * 2)
    assert account.quota.month == MonthlyQuota(500, 500, is_closed=True)
    # But not into the next month.
    account.hand.advance(2 * 3600)
    assert account.quota.month == MonthlyQuota(None, None)


def test_a_closed_month_ends_at_midnight_in_japan(account: Account) -> None:
    account.closes()
    left = 100 + 2 * 3600 - account.hand.now
    account.hand.advance(left - 1)
    assert account.quota.month.is_closed
    account.has({"type": "limited", "value": 500}, {"totalUsage": 0})
    account.hand.advance(5)
    assert account.quota.month == MonthlyQuota(500, 0)


def test_it_is_said_once_that_the_month_is_closed_and_that_it_is_open(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jobworker.line.quota")
    account.closes()
    account.hand.advance(EVERY_SECONDS * 3)
    account.has({"type": "limited", "value": 700}, {"totalUsage": 500})
    account.hand.advance(EVERY_SECONDS * 2)
    assert [(one.levelname, one.getMessage().partition(":")[0]) for one in caplog.records] == [
        ("WARNING", "the month's messages are used up"),
        ("INFO", "the month has room again limit=700 used=500"),
    ]


# The whole worker.


def a_bot() -> Bot:
    """Pushes each text, and replies with the rest to 何通."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if event.message.text == "何通":
            found = talk.quota
            talk.reply(f"{found.used}/{found.limit} {found.left} {found.is_closed}")
        else:
            talk.push(event.message.text)

    return bot


def test_a_used_up_month_is_known_to_the_bot_and_opened_by_a_greater_plan(
    database: Any,
) -> None:
    with linesim.running(rate_limits=False, quota=2) as sim, Room(database, sim, a_bot()) as desk:
        user = sim.add_user("花子")

        def hears(text: str) -> str:
            desk.says(user, text)
            desk.until_quiet()
            return str(sim.answers(user)[-1].text)

        assert hears("何通") == "None/None None False"
        for text in "一二三":
            desk.says(user, text)
            desk.until_quiet()
        eventually(lambda: desk.desk.line.quota.month.is_closed)
        # The third push was refused; replies continue.
        assert hears("何通") == "2/2 0 True"
        assert desk.figures()["quotaClosedSinceSeconds"] <= datetime.now(UTC).timestamp()
        assert [letter["cause"] for letter in desk.letters()] == ["quota"]


def test_a_restart_in_a_closed_month_learns_it_by_one_refused_push(database: Any) -> None:
    with linesim.running(rate_limits=False, quota=1) as sim:
        user = sim.add_user("花子")
        for epoch, texts in enumerate(("一二", "三"), 1):
            with Room(database, sim, a_bot(), epoch=epoch) as desk:
                for text in texts:
                    desk.says(user, text)
                    # Otherwise both share one push.
                    desk.until_quiet()
                eventually(lambda desk=desk: desk.desk.line.quota.month.is_closed)  # type: ignore[misc]
        assert [call.status for call in sim.calls_to("push")] == [200, 429, 429]


def test_a_push_that_met_the_monthly_limit_has_it_read(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot())
    sim.answer_next("push", 429, {"message": "You have reached your monthly limit."})
    desk.says(sim.add_user("花子"), "?")
    eventually(lambda: "quotaUsedMessages" in desk.figures())
    assert "quotaMessages" not in desk.figures()
    assert desk.figures()["calls"]["api"][quota.USED] == {"200": 1}
    assert not desk.desk.line.quota.month.is_closed
