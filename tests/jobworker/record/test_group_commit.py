"""Updates that share a command: each caller learns the certain result of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from jobworker.record.group_commit import GroupCommit, GroupUpdate
from linedesk.store.client import durable
from linedesk.store.errors import StoreUnavailable, WriteRefused
from tests.waiting import eventually

Ask = Callable[..., Future[bool]]


class Held:
    """Holds the first command until it is let go, so that others gather behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[int] = []
        self.go_on = threading.Event()
        self.fails: list[Exception] = []
        command = Database.command

        def held(database: Database[Any], wanted: Any, **more: Any) -> Any:
            if "updates" not in wanted:
                return command(database, wanted, **more)
            self.commands.append(len(wanted["updates"]))
            if len(self.commands) == 1:
                assert self.go_on.wait(15)
            elif self.fails:
                raise self.fails.pop()
            return command(database, wanted, **more)

        monkeypatch.setattr(Database, "command", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    one = Held(monkeypatch)
    yield one
    one.go_on.set()


@pytest.fixture
def collection(database: Database[Any]) -> Collection[Any]:
    database["things"].drop()
    found = durable(database["things"])
    found.insert_many([{"_id": n, "n": 0, "text": "x"} for n in range(10)])
    return found


@pytest.fixture
def group(collection: Collection[Any]) -> GroupCommit:
    return GroupCommit(collection)


@pytest.fixture
def ask(group: GroupCommit, held: Held) -> Iterator[Ask]:
    """The first one is under way; all others wait behind it."""
    with ThreadPoolExecutor(16) as pool:

        def ask(id_: int, update: Any = None, **more: Any) -> Future[bool]:
            before = len(group._waiting)
            wanted = {"$inc": {"n": 1}} if update is None else update
            found = pool.submit(group.update, {"_id": id_}, wanted, **more)
            eventually(lambda: len(group._waiting) > before or len(held.commands) == 1)
            return found

        ask(0)
        eventually(lambda: held.commands)
        yield ask
        held.go_on.set()


def test_updates_that_come_meanwhile_share_one_command(
    ask: Ask, held: Held, collection: Collection[Any]
) -> None:
    answers = [ask(n) for n in range(1, 9)]
    held.go_on.set()
    assert [one.result(15) for one in answers] == [True] * 8
    assert held.commands == [1, 8]
    assert [one["n"] for one in collection.find()] == [1] * 9 + [0]


def test_where_one_does_not_match_nothing_is_certain_of_any(ask: Ask, held: Held) -> None:
    """MongoDB says how many matched, and not which."""
    answers = [ask(1), ask(77), ask(2)]
    held.go_on.set()
    assert [one.result(15) for one in answers] == [False] * 3


def test_a_refusal_of_mongodb_reaches_only_its_caller(ask: Ask, held: Held) -> None:
    answers = [ask(1), ask(2, {"$inc": {"text": 1}}), ask(3)]
    held.go_on.set()
    assert answers[0].result(15)
    with pytest.raises(WriteRefused):
        answers[1].result(15)
    assert answers[2].result(15)


def test_an_update_that_cannot_be_encoded_fails_no_other(
    ask: Ask, held: Held, group: GroupCommit
) -> None:
    answers = [ask(1), ask(2)]
    with pytest.raises(WriteRefused):
        group.update({"_id": 3}, {"$set": {"text": object()}})
    held.go_on.set()
    assert [one.result(15) for one in answers] == [True, True]


def test_a_command_without_an_answer_is_repeated(
    ask: Ask, held: Held, collection: Collection[Any]
) -> None:
    held.fails = [AutoReconnect("away")]
    answers = [ask(1), ask(2)]
    held.go_on.set()
    assert [one.result(15) for one in answers] == [True, True]
    assert held.commands == [1, 2, 2]


def test_an_outage_is_reported_to_all(ask: Ask, held: Held) -> None:
    held.fails = [AutoReconnect("away"), AutoReconnect("away")]
    answers = [ask(1), ask(2)]
    held.go_on.set()
    for one in answers:
        with pytest.raises(StoreUnavailable):
            one.result(15)


def test_one_that_has_no_time_is_not_sent_any_more(
    ask: Ask, held: Held, collection: Collection[Any]
) -> None:
    """The gate is not held for as long as MongoDB may take for another's write."""
    hurried, patient = ask(1, seconds=0.05), ask(2)
    with pytest.raises(StoreUnavailable):
        hurried.result(15)
    held.go_on.set()
    assert patient.result(15)
    assert [one["n"] for one in collection.find({"_id": {"$in": [1, 2]}})] == [0, 1]


def test_the_next_one_is_sent_after_an_error_too(ask: Ask, held: Held, group: GroupCommit) -> None:
    held.fails = [AutoReconnect("away"), AutoReconnect("away")]
    lost = ask(1)
    held.go_on.set()
    with pytest.raises(StoreUnavailable):
        lost.result(15)
    assert group.update({"_id": 2}, {"$inc": {"n": 1}})


def test_large_updates_are_divided(
    ask: Ask, held: Held, monkeypatch: pytest.MonkeyPatch, collection: Collection[Any]
) -> None:
    """MongoDB takes 48 MB in a command."""
    monkeypatch.setattr("jobworker.record.group_commit.MOST_BYTES", 1_000)
    answers = [ask(n, {"$set": {"text": "x" * 400}}) for n in range(1, 6)]
    held.go_on.set()
    assert [one.result(15) for one in answers] == [True] * 5
    assert held.commands == [1, 2, 2, 1]


# Updates for which no thread waits.


def left_alone(_: GroupUpdate) -> None:
    raise AssertionError("nothing is uncertain")


def test_an_update_that_is_left_travels_with_the_next_command(
    group: GroupCommit, collection: Collection[Any]
) -> None:
    assert group.leave({"_id": 1}, {"$inc": {"n": 1}})
    assert group.has_left(1)
    assert collection.find_one({"_id": 1, "n": 0})
    assert group.update({"_id": 2}, {"$inc": {"n": 1}})
    assert not group.has_left(1)
    assert [one["n"] for one in collection.find({"_id": {"$in": [1, 2]}})] == [1, 1]


def test_a_thousand_are_left_and_written_together(
    group: GroupCommit, held: Held, collection: Collection[Any]
) -> None:
    held.go_on.set()
    collection.insert_many([{"_id": n, "n": 0} for n in range(10, 1001)])
    assert all(group.leave({"_id": n}, {"$inc": {"n": 1}}) for n in range(1000))
    assert not group.leave({"_id": 1000}, {"$inc": {"n": 1}})
    group.write_left(left_alone)
    assert sum(held.commands) == 1000
    assert len(held.commands) < 50


def test_one_that_does_not_match_makes_no_other_command_uncertain(
    group: GroupCommit, collection: Collection[Any]
) -> None:
    alone = list[Any]()
    group.leave({"_id": 77}, {"$inc": {"n": 1}})
    assert not group.update({"_id": 1}, {"$inc": {"n": 1}})
    assert group.update({"_id": 2}, {"$inc": {"n": 1}})
    group.write_left(lambda one: alone.append(one.condition["_id"]))
    assert alone == [77]
    assert not group.has_left(77)


def test_one_that_mongodb_does_not_confirm_stays_left(group: GroupCommit, held: Held) -> None:
    held.go_on.set()
    group.update({"_id": 1}, {"$inc": {"n": 1}})
    group.leave({"_id": 2}, {"$inc": {"n": 1}})
    held.fails = [AutoReconnect("away"), AutoReconnect("away")]
    with pytest.raises(StoreUnavailable):
        group.write_left(left_alone)
    assert group.has_left(2)
    group.write_left(left_alone)
    assert not group.has_left(2)
