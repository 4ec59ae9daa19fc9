"""How many calls of LINE sends cost that wait together, at the usual interval of 100 ms.

Counted are calls and never seconds: a slower machine decides less between two turns, and then
more waits together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from linedesk import Bot
from linesim import Sim
from linesim.model.calls import Call
from tests.jobworker.sending.test_batching import Leader, friends, texts, waits
from tests.jobworker.sending.test_batching import text as message
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

INTERVAL_SECONDS = 0.1


@pytest.fixture
def made(sim: Sim) -> Callable[[], list[Call]]:
    """The calls of this test."""
    before = len(sim.calls)
    return lambda: sim.calls[before:]


def ways(calls: list[Call]) -> Counter[str]:
    return Counter(call.endpoint for call in calls)


def test_the_same_for_1000_friends_is_two_calls(database: Any, sim: Sim, made: Any) -> None:
    users = friends(database, sim, 1000)
    with Leader(database, sim, interval_seconds=INTERVAL_SECONDS) as room:
        room.until_quiet(seconds=60)
    assert ways(made()) == {"multicast": 2}
    assert all(texts(sim, user) == ["同じ"] for user in users)


def test_five_texts_for_each_of_100_users_are_100_calls(database: Any, sim: Sim, made: Any) -> None:
    users = [sim.add_user(str(number)) for number in range(100)]
    for number, user in enumerate(users):
        waits(database, user, *([message(f"{number}-{n}")] for n in range(5)))
    with Leader(database, sim, interval_seconds=INTERVAL_SECONDS) as room:
        room.until_quiet(seconds=60)
    assert ways(made()) == {"push": 100}
    for number, user in enumerate(users):
        assert texts(sim, user) == [f"{number}-{n}" for n in range(5)]


@pytest.fixture
def talking(database: Any, sim: Sim) -> Iterator[Room]:
    """A room whose bot repeats the text in its answer, and pushes announcements."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        said = talk.raw["message"]["text"]
        if said == "お知らせ":
            talk.push("始まります")
        else:
            talk.reply(said)

    with Room(database, sim, bot, interval_seconds=INTERVAL_SECONDS) as room:
        yield room


def test_20_waiting_events_of_one_user_are_four_replies(talking: Room, sim: Sim, made: Any) -> None:
    user = sim.add_user("花子")
    with talking.desk.gate.turn():
        for number in range(20):
            talking.says(user, str(number))
        talking.until_decided()
    talking.until_quiet(seconds=30)
    assert ways(made()) == {"reply": 4}
    assert texts(sim, user) == [str(number) for number in range(20)]


def test_five_messages_at_once_of_each_of_40_users_are_at_most_80_replies(
    talking: Room, sim: Sim, made: Any
) -> None:
    users = [sim.add_user(str(number)) for number in range(40)]
    for number in range(5):
        for user in users:
            talking.says(user, str(number))
    talking.until_quiet(seconds=60)
    counted = ways(made())
    assert set(counted) == {"reply"}
    assert counted["reply"] <= 80
    assert all(texts(sim, user) == [str(number) for number in range(5)] for user in users)


def test_the_same_push_to_300_friends_at_one_moment_is_at_most_12_calls(
    talking: Room, database: Any, sim: Sim, made: Any
) -> None:
    users = [sim.add_user(str(number)) for number in range(300)]
    for user in users:
        waits(database, user)
    # However long it takes to decide them, all wait when the gate opens.
    with talking.desk.gate.turn():
        for user in users:
            talking.put(sim.drafts.text(user, "お知らせ"))
        talking.until_decided(seconds=60)
    talking.until_quiet(seconds=60)
    counted = ways(made())
    assert set(counted) <= {"push", "multicast"}
    assert counted.total() <= 12
    assert all(texts(sim, user) == ["始まります"] for user in users)


def test_a_push_that_finds_no_company_is_not_waited_with(
    talking: Room, database: Any, sim: Sim, made: Any
) -> None:
    """One of each kind, each alone, at once and under the key it was recorded with."""
    user = sim.add_user("花子")
    waits(database, user)
    recorded: list[Any] = []
    conversations = talking.desk.outcomes.conversations
    enter_record = conversations.enter_record

    def entered(*args: Any, **more: Any) -> Any:
        recording = enter_record(*args, **more)
        recorded.extend(effect["retryKey"] for _, effect in recording.effects)
        return recording

    conversations.enter_record = entered  # type: ignore[method-assign]
    talking.put(sim.drafts.text(user, "お知らせ"))
    eventually(lambda: texts(sim, user) == ["始まります"])
    talking.until_quiet()
    (call,) = made()
    assert (call.endpoint, [call.retry_key]) == ("push", recorded)
