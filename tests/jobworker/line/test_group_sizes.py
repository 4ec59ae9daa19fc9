"""A push to a group counts its members: LINE's count, asked before the first push of a day."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import linesim
from jobworker.line.answer import LineAnswer
from jobworker.line.group_sizes import GroupSizes
from linedesk.operate.overview import sent_in
from linedesk.store.documents import LEASES
from linedesk.store.limits import sent_id
from linesim import Sim
from linesim.model.world import Group
from tests.jobworker.line.test_quota import a_bot
from tests.jobworker.worker_harness import Room
from tests.rows import rows_of
from tests.waiting import eventually

GROUP = "C" + "1" * 32
# An hour before midnight in Japan.
EVENING = datetime(2026, 11, 24, 14, tzinfo=UTC)


@pytest.fixture
def sim() -> Iterator[Sim]:
    """One for each test, since its count of the month is compared."""
    with linesim.running(rate_limits=False, quota=1_000) as sim:
        yield sim


def a_group(sim: Sim, people: int, **more: Any) -> Group:
    return sim.add_group("山の会", [sim.add_user(f"花{n}") for n in range(people)], **more)


def pushes(desk: Room, sim: Sim, group: Group, texts: str) -> None:
    for text in texts:
        desk.says(group.members[0], text, chat=group)
        # Otherwise both share one push.
        desk.until_quiet()


def asked(sim: Sim) -> int:
    return len(sim.calls_to("group_size"))


def test_a_push_counts_the_members_and_line_s_count_is_the_same(database: Any, sim: Sim) -> None:
    group = a_group(sim, 20)
    with Room(database, sim, a_bot()) as desk:
        pushes(desk, sim, group, "一二")
        assert desk.figures()["countedMessages"]["group"] == 40 == sim.platform.quota.used
        assert desk.figures()["countedTodayMessages"] == 40
        assert asked(sim) == 1
        eventually(lambda: sent_in(stored(database)).groups == 40)
    paid = [row["paid"] for row in rows_of(database.calls, paid={"$exists": True})]
    assert paid == [20, 20]


def stored(database: Any) -> dict[str, Any]:
    """The month's document."""
    return database[LEASES].find_one({"_id": sent_id(datetime.now(UTC))}) or {}


@pytest.mark.parametrize("status", [404, None])
def test_a_push_is_sent_without_a_count_and_is_one(
    database: Any, sim: Sim, status: int | None
) -> None:
    group = a_group(sim, 20)
    if status is None:
        sim.close_next("group_size")
    else:
        sim.answer_next("group_size", status, {"message": "no"})
    with Room(database, sim, a_bot()) as desk:
        pushes(desk, sim, group, "一二")
        assert desk.figures()["countedMessages"]["group"] == 2
    assert len(sim.answers(group)) == 2
    # The next push does not ask at once again.
    assert asked(sim) == 1
    eventually(lambda: sent_in(stored(database)).groups == 2)


def test_a_group_that_loses_members_counts_fewer_from_the_next_day_in_japan() -> None:
    answers = [LineAnswer(200, json.dumps({"count": people})) for people in (20, 3)]
    now, counted = EVENING, []
    sizes = GroupSizes(lambda *path, **more: answers.pop(0), now=lambda: now)
    for minutes in (0, 59, 2):
        now += timedelta(minutes=minutes)
        if sizes.is_due(GROUP):
            sizes.ask(GROUP)
        counted.append(sizes.people(GROUP))
    assert counted == [20, 20, 3]
