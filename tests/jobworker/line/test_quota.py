"""Reading the month's messages from LINE: when, how often, and the figures afterwards."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import linesim
from jobworker.bot.talk import Talk
from jobworker.line import quota
from jobworker.line.answer import LineAnswer
from jobworker.line.month import EVERY_SECONDS, SOON_SECONDS, MonthlyQuota
from jobworker.line.quota import Quota
from jobworker.metrics import WorkerMetrics
from linedesk import Bot
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.store.documents import Document
from tests.jobworker.line.test_gate import Hand
from tests.jobworker.line.test_gate import hand as hand
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

ONE_READING = [quota.LIMIT, quota.USED]
# At 100 s by the hand's clock it is ten in the evening in Japan, two hours before a month's end.
BEGINNING = datetime(2027, 1, 31, 13, 0, tzinfo=UTC) - timedelta(seconds=100)


class Account:
    """LINE's two endpoints of the quota, and a Quota that asks them by hand."""

    def __init__(self, hand: Hand) -> None:
        self.answers: dict[str, LineAnswer] = {}
        self.asked: list[tuple[str, float]] = []
        self.registry = CollectorRegistry()
        self.hand = hand
        line = replace(
            hand.line(get=self._get),
            figures=WorkerMetrics(self.registry),
            now=lambda: BEGINNING + timedelta(seconds=hand.now),
        )
        self.quota = Quota(line)
        self.has({"type": "limited", "value": 500}, {"totalUsage": 123})

    def has(self, limit: Any, used: Any) -> None:
        for path, told in ((quota.LIMIT, limit), (quota.USED, used)):
            is_ready = isinstance(told, LineAnswer)
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
        return self.answers[path]

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


def test_it_is_read_a_minute_after_the_start_and_then_each_ten(account: Account) -> None:
    account.quota.start()
    account.hand.advance(quota.FIRST_SECONDS - 1)
    assert (account.paths, account.shown) == ([], (None, None))
    account.hand.advance(5)
    assert (account.paths, account.shown) == (ONE_READING, (500, 123))
    account.hand.advance(EVERY_SECONDS)
    assert account.paths == ONE_READING * 2


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


def test_a_call_that_merely_did_not_fit_closes_nothing(account: Account) -> None:
    account.quota.met()
    account.hand.advance(SOON_SECONDS * 3)
    assert (account.paths, account.quota.month.left) == (ONE_READING, 377)
    assert not account.quota.month.is_closed


def test_a_closed_month_ends_at_midnight_in_japan(account: Account) -> None:
    account.closes()
    left = 100 + 2 * 3600 - account.hand.now
    account.hand.advance(left - 1)
    assert account.quota.month.is_closed
    account.has({"type": "limited", "value": 500}, {"totalUsage": 0})
    account.hand.advance(5)
    assert account.quota.month == MonthlyQuota(500, 0)


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


def test_a_used_up_month_is_known_to_the_bot_and_opened_by_a_greater_plan(database: Any) -> None:
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
