"""Async handlers in worker processes, on a real RabbitMQ: none holds a thread on either side."""

import asyncio
import threading
import time
from typing import Any

import pytest
from linebot.v3.webhooks import MessageEvent

from dispatcher.conversations.mailbox import KeyState
from jobworker.bot.talk import Talk
from jobworker.handler_retry import RetryLimits
from jobworker.remote.rules import bot_of
from jobworker.remote.values import to_line
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from tests.jobworker.remote.house import House, states, until_working
from tests.jobworker.remote.remote_room import leave
from tests.jobworker.test_async_handlers import ANSWER, Model
from tests.jobworker.worker_harness import a_bot
from tests.waiting import eventually


def test_many_wait_beside_few_threads_of_leader_and_worker(house: House) -> None:
    model, users = Model(), [house.sim.add_user(f"客{n}") for n in range(60)]
    bot = a_bot(model.handler)
    room = house.leader(threads=3)
    house.worker(bot, threads=1)
    for user in users:
        room.says(user, "?")
    eventually(lambda: len(model.waiting) == 60)
    model.answers()
    room.until_quiet()
    assert all(house.texts(user) == [ANSWER] for user in users)
    (row,) = room.desk.workers()
    assert row["out"] == 0


def test_they_do_not_wait_for_threads_that_have_plain_handlers(house: House) -> None:
    go_on, users = threading.Event(), [house.sim.add_user(f"客{n}") for n in range(2)]

    async def later(event: Any, talk: Talk) -> None:
        talk.reply(ANSWER)

    bot = a_bot(later)

    @bot.add(MessageEvent, text="待って")
    def plain(event: Any, talk: Talk) -> None:
        go_on.wait(15)

    room = house.leader()
    worker = house.worker(bot, threads=1)
    room.says(users[0], "待って")
    eventually(lambda: worker.status() == "1 of 1 threads at work")
    room.says(users[1], "?")
    eventually(lambda: house.texts(users[1]) == [ANSWER], seconds=10)
    go_on.set()
    room.until_quiet()


def test_a_plain_handler_follows_as_soon_as_a_thread_is_free(house: House) -> None:
    """With async ones the leader has more places for jobs than the workers have threads."""
    go_on, users = threading.Event(), [house.sim.add_user(f"客{n}") for n in range(3)]
    bot = Bot()
    bot.timer("later")(Model().handler)

    @bot.default()
    def plain(event: Any, talk: Talk) -> None:
        go_on.wait(15)
        talk.reply(ANSWER)

    room = house.leader(retry_limits=RetryLimits(away_pause_seconds=60, store_pause_seconds=60))
    house.worker(bot, threads=1)
    until_working(room, "box/1")
    for user in users:
        room.says(user, "?")
    waiting = room.pool.mailboxes.states[KeyState.DEFERRED]
    eventually(lambda: len(waiting) == 2)
    go_on.set()
    room.until_quiet(seconds=20)


def test_state_data_and_errors_come_back(house: House) -> None:
    user, runs = house.sim.add_user("花子"), list[int]()

    async def handler(event: Any, talk: Talk) -> None:
        runs.append(talk.try_number)
        await asyncio.sleep(0)
        if talk.raw["message"]["text"] == "失敗":
            raise KeyError("秘密")
        talk.data["n"] = talk.data.get("n", 0) + 1
        talk.reply(f"{talk.data['n']}")

    bot = a_bot(handler)

    @bot.failed
    async def sorry(event: Any, talk: Talk) -> None:
        await asyncio.sleep(0)
        talk.reply("申し訳ありません")

    room = house.leader(tries=3)
    house.worker(bot)
    for text in ("a", "失敗", "b"):
        room.says(user, text)
    room.until_quiet()
    assert house.texts(user) == ["1", "申し訳ありません", "2"]
    (letter,) = room.letters()
    assert explained(letter) == "handler: KeyError"
    assert runs == [1, 1, 2, 3, 1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_an_error_of_any_kind_is_a_failed_try(house: House, error: type[BaseException]) -> None:
    async def handler(event: Any, talk: Talk) -> None:
        raise error

    room = house.leader(tries=1)
    house.worker(a_bot(handler))
    room.says(house.sim.add_user("花子"), "?")
    room.until_decided()
    (letter,) = room.letters()
    assert explained(letter) == f"handler: {error.__name__}"


def test_one_that_takes_too_long_is_cancelled_by_its_worker(house: House) -> None:
    model, user = Model(), house.sim.add_user("花子")
    bot = Bot()
    bot.default(limit=0.3)(model.handler)
    room = house.leader(tries=2)
    worker = house.worker(bot)
    room.says(user, "?")
    room.until_decided()
    (letter,) = room.letters()
    assert (explained(letter), letter["attempts"]) == ("handler: did not return", 2)
    assert "self._answers.wait()" in letter["traceback"]
    assert model.cancelled == [user.user_id] * 2
    assert worker.abandoned_total == 0


def test_what_a_worker_had_when_it_ended_is_handed_out_again(house: House) -> None:
    user, runs = house.sim.add_user("花子"), list[str]()

    async def handler(event: Any, talk: Talk) -> None:
        runs.append("run")
        if len(runs) == 1:
            await asyncio.Event().wait()
        talk.reply(ANSWER)

    room = house.leader()
    first = house.worker(a_bot(handler))
    room.says(user, "?")
    eventually(lambda: runs == ["run"])
    leave(first)
    house.worker(a_bot(handler))
    room.until_quiet()
    assert house.texts(user) == [ANSWER]


def test_a_decision_is_recorded_though_its_worker_leaves_and_no_other_is_there(
    house: House,
) -> None:
    model, user = Model(), house.sim.add_user("花子")
    room = house.leader()
    worker = house.worker(a_bot(model.handler))
    room.says(user, "?")
    eventually(lambda: model.waiting == [user.user_id])
    leaving = threading.Thread(target=leave, args=(worker,))
    leaving.start()
    eventually(lambda: states(room) == {"box/1": "stopping"})
    model.answers()
    room.until_quiet()
    leaving.join()
    assert house.texts(user) == [ANSWER]


def test_a_stop_of_the_dispatcher_records_what_workers_decide_meanwhile(house: House) -> None:
    model, user = Model(), house.sim.add_user("花子")
    room = house.leader(stop_seconds=15.0)
    house.worker(a_bot(model.handler))
    room.says(user, "?")
    eventually(lambda: model.waiting == [user.user_id])
    room.desk.stop()
    room.pool.close()
    eventually(lambda: room.pool.mailboxes.lines.most_jobs == 0)
    model.answers()
    assert room.desk.await_handlers(time.monotonic() + 10, room.pool.view.is_at_work) == []
    room.until_decided()


def test_a_release_cancels_it_in_its_worker(house: House) -> None:
    model, user = Model(), house.sim.add_user("花子")
    room = house.leader()
    house.worker(a_bot(model.handler))
    event = room.says(user, "?")
    eventually(lambda: model.waiting == [user.user_id])
    channel, key, name = event["channel"], event["key"], event["eventId"]
    eventually(lambda: not room.pool.give_up(channel, key, name))
    eventually(lambda: model.cancelled == [user.user_id])
    room.until_decided()
    (letter,) = room.letters()
    assert explained(letter) == "released by an operator"


def test_a_worker_with_the_most_async_handlers_is_heard(house: House) -> None:
    room = house.leader()
    worker = house.worker(a_bot(Model().handler))
    eventually(room.desk.workers)
    workers = room.desk._workers
    assert workers is not None
    beat: Any = {"worker": worker.id, "name": "large", "address": "a", "threads": 1_000}
    beat |= {"type": "beat", "asyncHandlers": 10_000, "contract": 1, "bot": "b", "release": "1"}
    beat |= {"upSeconds": 1, "attempts": [f"{n:032x}" for n in range(11_000)], "decided": []}
    workers._arrived(to_line(beat))
    assert workers.dropped_total == 0


def test_names_of_async_rules_are_not_compared_one_by_one() -> None:
    """A worker may name 100,000 for 10,000 rules: that would hold up the leader for 20 s."""

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            raise AssertionError

    bot = bot_of({"rules": [{"name": "1", "timer": "1"}], "async": [Name("-"), "1"]}, "1")
    assert bot.timers["1"].is_async
