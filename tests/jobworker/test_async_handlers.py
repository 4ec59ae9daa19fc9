"""Async handlers hold their conversation, not a thread, on a real MongoDB and a simulated LINE."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from linebot.v3.webhooks import MessageEvent

from dispatcher.conversations.mailbox import KeyState
from dispatcher.pool.suspects import CrashSuspects
from jobworker.bot.talk import Talk
from linedesk import Bot, BotError, Retry
from linedesk.operate.dead_letters import explained
from linedesk.store.control import NO_PAUSES
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.dispatcher.pool.test_pausing import paused
from tests.jobworker.worker_harness import BUTTON_SOON, Room, Rooms, a_bot, texts
from tests.rows import rows_of
from tests.waiting import eventually

ANSWER = "終わりました"


class Model:
    """A slow service: its answers come when `answers` is set. It counts who waits."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.most = 0
        self.cancelled: list[str] = []
        self._loop: Any = None
        self._answers = asyncio.Event()

    async def handler(self, event: Any, talk: Talk) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting.append(talk.key)
        self.most = max(self.most, len(self.waiting))
        try:
            await self._answers.wait()
        except asyncio.CancelledError:
            self.cancelled.append(talk.key)
            raise
        finally:
            self.waiting.remove(talk.key)
        talk.reply(ANSWER)

    def answers(self) -> None:
        self._loop.call_soon_threadsafe(self._answers.set)


def until_waiting(desk: Room, count: int) -> None:
    eventually(lambda: len(desk.pool.mailboxes.states[KeyState.DEFERRED]) == count)


def outcomes(desk: Room) -> list[str]:
    """Of all runs, in order."""
    return [row["outcome"] for row in rows_of(desk.database.jobs)]


def test_many_slow_handlers_run_at_a_time_beside_few_threads(room: Rooms, sim: Sim) -> None:
    model, users = Model(), [sim.add_user(f"客{n}") for n in range(100)]
    bot = a_bot(model.handler)

    @bot.add(MessageEvent, text="急ぎ")
    def plain(event: Any, talk: Talk) -> None:
        talk.reply("はい")

    desk = room(bot, threads=3)
    for user in users:
        desk.says(user, "?")
        desk.says(user, "もう一つ")
    eventually(lambda: len(model.waiting) == 100)
    # They hold no thread: others are answered meanwhile.
    other = sim.add_user("急ぐ人")
    desk.says(other, "急ぎ")
    eventually(lambda: texts(sim, other) == ["はい"])
    assert not any(texts(sim, user) for user in users)
    model.answers()
    desk.until_quiet()
    assert all(texts(sim, user) == [ANSWER, ANSWER] for user in users)


def test_only_so_many_run_at_a_time_and_the_others_follow(room: Rooms, sim: Sim) -> None:
    model, users = Model(), [sim.add_user(f"客{n}") for n in range(12)]
    desk = room(a_bot(model.handler), most_async=5)
    for user in users:
        desk.says(user, "?")
    eventually(lambda: len(model.waiting) == 5)
    until_waiting(desk, 12)
    model.answers()
    desk.until_quiet()
    assert model.most == 5
    assert all(texts(sim, user) == [ANSWER] for user in users)


def test_the_conversation_is_as_for_a_plain_handler(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")

    async def count(event: Any, talk: Talk) -> None:
        await asyncio.sleep(0)
        talk.data["n"] = talk.data.get("n", 0) + 1
        talk.state = "counting"
        talk.reply(f"{talk.data['n']}回目")
        talk.after(3600, "later")

    bot = a_bot(count)
    bot.timer("later")(count)
    desk = room(bot)
    for _ in range(3):
        desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["1回目", "2回目", "3回目"]
    assert desk.conversation(user.user_id)["state"] == "counting"
    assert desk.database.schedule.count_documents({}) == 1


def test_an_error_is_tried_again_and_then_given_up(room: Rooms, sim: Sim) -> None:
    runs: list[int] = []

    async def handler(event: Any, talk: Talk) -> None:
        runs.append(talk.try_number)
        await asyncio.sleep(0)
        raise Retry(after=0) if len(runs) < 3 else KeyError("秘密")

    bot = a_bot(handler)

    @bot.failed
    async def sorry(event: Any, talk: Talk) -> None:
        await asyncio.sleep(0)
        talk.reply("申し訳ありません")

    desk, user = room(bot, tries=6), sim.add_user("花子")
    desk.says(user, "?")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert (runs, letter["attempts"]) == ([1, 2, 3, 4, 5], 5)
    assert explained(letter) == "handler: KeyError"
    assert "test_async_handlers.py" in letter["traceback"]
    assert texts(sim, user) == ["申し訳ありません"]
    eventually(lambda: outcomes(desk) == ["failed"] * 5 + ["recorded"])


def test_one_that_takes_too_long_is_cancelled_and_tried_again(room: Rooms, sim: Sim) -> None:
    """In the only place: its cancellation takes a moment, and it does not hang yet."""
    model, user = Model(), sim.add_user("花子")
    bot = Bot()
    bot.default(limit=0.05)(model.handler)
    desk = room(bot, tries=10, most_async=1)
    desk.says(user, "?")
    eventually(lambda: not desk.desk.watch_async(60.0) or len(model.cancelled) == 10)
    assert len(model.cancelled) == 10
    desk.until_decided()
    (letter,) = desk.letters()
    assert explained(letter) == "handler: did not return"
    assert "await self._answers.wait()" in letter["traceback"]
    eventually(lambda: outcomes(desk) == ["timeout"] * 10 + ["recorded"])


def test_an_exit_in_a_task_of_a_handler_is_its_error(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")

    async def leave() -> None:
        raise SystemExit(1)

    async def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "終了":
            await asyncio.gather(leave())
        talk.reply(ANSWER)

    desk = room(a_bot(handler), tries=1)
    desk.says(user, "終了")
    desk.says(user, "?")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert explained(letter) == "handler: SystemExit"
    assert texts(sim, user) == [ANSWER]


def test_what_has_run_is_decided_though_its_timers_row_is_gone(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    bot = a_bot(lambda event, talk: talk.after(3600, "later"))

    @bot.timer("later")
    async def later(event: Any, talk: Talk) -> None:
        desk.database.schedule.delete_many({})
        talk.push(ANSWER)

    desk = room(bot)
    desk.says(user, "?")
    row = eventually(lambda: desk.database.schedule.find_one())
    assert row is not None
    desk.put_document(make_timer_document(row, accept_time=datetime.now(UTC)))
    desk.until_quiet()
    assert texts(sim, user) == [ANSWER]
    assert desk.desk.await_handlers(time.monotonic(), desk.pool.view.is_at_work) == []


def test_one_that_ignores_its_cancellation_decides_nothing(room: Rooms, sim: Sim) -> None:
    user, runs, end = sim.add_user("花子"), list[int](), threading.Event()

    async def handler(event: Any, talk: Talk) -> None:
        runs.append(1)
        while len(runs) == 1 and not end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        talk.reply(f"{len(runs)}")

    bot = Bot()
    bot.default(limit=0.1)(handler)
    desk = room(bot)
    desk.says(user, "?")
    eventually(lambda: desk.desk.watch_async(60.0) and len(runs) == 2)
    desk.until_quiet()
    end.set()
    assert texts(sim, user) == ["2"]


def test_a_handler_that_blocks_the_loop_is_named(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    user, go_on, blocks = sim.add_user("花子"), threading.Event(), threading.Event()

    async def handler(event: Any, talk: Talk) -> None:
        blocks.set()
        go_on.wait(30)
        talk.reply(ANSWER)

    desk = room(a_bot(handler))
    named = desk.says(user, "?")
    assert blocks.wait(15)
    eventually(lambda: desk.desk.watch_async(60.0) and "blocks the event loop" in caplog.text)
    (told,) = [one for one in caplog.messages if "blocks the event loop" in one]
    assert f"event_id={named['eventId']} at={__file__}" in told
    go_on.set()
    desk.until_quiet()
    assert texts(sim, user) == [ANSWER]


@pytest.mark.parametrize("is_in_task", [False, True])
def test_after_its_limit_the_others_run_on_another_loop(
    room: Rooms, sim: Sim, is_in_task: bool
) -> None:
    culprit, others = sim.add_user("花子"), [sim.add_user(f"客{n}") for n in range(5)]
    go_on, first = threading.Event(), threading.Event()

    async def block() -> None:
        first.set()
        go_on.wait(30)

    async def handler(event: Any, talk: Talk) -> None:
        if talk.key == culprit.user_id and talk.try_number == 1:
            await (asyncio.create_task(block()) if is_in_task else block())
        await asyncio.sleep(0 if first.is_set() else 30)
        talk.reply(f"{talk.try_number}")

    desk = room(a_bot(handler))
    for user in others:
        desk.says(user, "?")
    until_waiting(desk, 5)
    desk.says(culprit, "?")
    assert first.wait(15)
    eventually(lambda: desk.desk.watch_async(2.5) and bool(texts(sim, culprit)))
    desk.until_quiet()
    go_on.set()
    # Only its own try counts.
    assert texts(sim, culprit) == ["2"]
    assert [texts(sim, user) for user in others] == [["1"]] * 5


def test_a_pause_does_not_stop_what_runs(room: Rooms, sim: Sim) -> None:
    model, user = Model(), sim.add_user("花子")
    desk = room(a_bot(model.handler))
    desk.says(user, "?")
    desk.says(user, "もう一つ")
    eventually(lambda: model.waiting == [user.user_id])
    desk.pool.obey(paused("all"))
    model.answers()
    eventually(lambda: texts(sim, user) == [ANSWER])
    assert desk.unfinished == 1
    desk.pool.obey(NO_PAUSES)
    desk.until_quiet()
    assert texts(sim, user) == [ANSWER, ANSWER]


def test_a_released_event_is_cancelled(room: Rooms, sim: Sim) -> None:
    model, user = Model(), sim.add_user("花子")
    desk = room(a_bot(model.handler))
    event = desk.says(user, "?")
    eventually(lambda: model.waiting == [user.user_id])
    name = event["eventId"]
    eventually(lambda: not desk.pool.give_up(event["channel"], event["key"], name))
    desk.until_decided()
    (letter,) = desk.letters()
    assert (explained(letter), model.cancelled) == ("released by an operator", [user.user_id])
    assert "self._answers.wait()" in letter["traceback"]
    assert texts(sim, user) == []


def test_members_of_the_talk_that_wait_for_line_are_refused_with_the_words_to_use(
    room: Rooms, sim: Sim, tmp_path: Path
) -> None:
    user, told = sim.add_user("花子"), list[str]()

    async def handler(event: Any, talk: Talk) -> None:
        for member in (lambda: talk.api, lambda: talk.content("1")):
            try:
                member()
            except BotError as error:
                told.append(str(error))
        profile = await asyncio.to_thread(lambda: talk.api.get_profile(talk.user_id))
        talk.reply(profile.display_name)

    desk = room(a_bot(handler))
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["花子"]
    assert [("await asyncio.to_thread" in one) for one in told] == [True, True]


@pytest.mark.parametrize("is_released", [False, True])
def test_a_slow_read_before_it_begins_is_not_its_threads_fault(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, is_released: bool
) -> None:
    """MongoDB answers slowly: the thread has no handler that could be abandoned."""
    user, reads, go_on = sim.add_user("花子"), threading.Event(), threading.Event()

    async def handler(event: Any, talk: Talk) -> None:
        talk.reply(ANSWER)

    def slowly(talk: Talk) -> None:
        reads.set()
        go_on.wait(15)

    monkeypatch.setattr(Talk, "read", slowly)
    desk = room(a_bot(handler))
    event = desk.says(user, "?")
    assert reads.wait(15)
    if is_released:
        assert desk.pool.give_up(event["channel"], event["key"], event["eventId"])
    assert desk.pool.abandon_overdue(0.0) == []
    go_on.set()
    desk.until_quiet()
    assert texts(sim, user) == ([] if is_released else [ANSWER])
    assert desk.desk.await_handlers(time.monotonic(), desk.pool.view.is_at_work) == []


def test_a_suspect_keeps_its_thread(room: Rooms, sim: Sim) -> None:
    """What kills the process is found by what ran when it died."""
    model, user = Model(), sim.add_user("花子")
    desk = room(a_bot(model.handler))
    mailboxes = desk.pool.mailboxes
    mailboxes.suspects = mailboxes.lines._suspects = CrashSuspects(sought=True, most=10)
    desk.put(sim.drafts.text(user, "?"), again=True)
    eventually(lambda: model.waiting == [user.user_id])
    (thread,) = [one for one in desk.pool.threads.useful if one.job is not None]
    assert thread.job is not None
    model.answers()
    desk.until_quiet()
    assert texts(sim, user) == [ANSWER]


def test_the_button_and_the_animation_come_as_for_a_plain_handler(room: Rooms, sim: Sim) -> None:
    model, user = Model(), sim.add_user("花子")
    desk = room(a_bot(model.handler), line=BUTTON_SOON)
    desk.says(user, "?")
    eventually(lambda: len(texts(sim, user)) == 1)
    model.answers()
    desk.until_quiet()
    assert ANSWER not in texts(sim, user)


def test_a_stop_waits_for_those_that_run_and_begins_none(room: Rooms, sim: Sim) -> None:
    model, users = Model(), [sim.add_user(f"客{n}") for n in range(6)]
    desk = room(a_bot(model.handler), most_async=2)
    for user in users[:5]:
        desk.says(user, "?")
    until_waiting(desk, 5)
    eventually(lambda: len(model.waiting) == 2)
    desk.pool.close()
    desk.says(users[5], "?")
    threading.Timer(0.2, model.answers).start()
    assert desk.desk.await_handlers(time.monotonic() + 30, desk.pool.view.is_at_work) == []
    eventually(lambda: sum(texts(sim, user) == [ANSWER] for user in users) == 2)
    assert [len(texts(sim, user)) for user in users].count(0) == 4
    assert desk.letters() == []


def test_at_its_deadline_a_stop_names_what_still_runs(room: Rooms, sim: Sim) -> None:
    model, user = Model(), sim.add_user("花子")
    desk: Room = room(a_bot(model.handler))
    event = desk.says(user, "?")
    eventually(lambda: model.waiting == [user.user_id])
    left = desk.desk.await_handlers(time.monotonic(), desk.pool.view.is_at_work)
    assert left == [f"thread=async event_id={event['eventId']}"]
    model.answers()
    desk.until_quiet()
