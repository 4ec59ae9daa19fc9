"""How often a failing handler is tried, and what `@bot.failed` says when its event is given up."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from linebot.v3.messaging import PushMessageRequest, TextMessage
from linebot.v3.webhooks import MessageEvent, TextMessageContent

from jobworker.bot.talk import Talk
from jobworker.handler_retry import RetryLimits, raised
from linedesk import Bot, BotError, ContentNotReady, GiveUp, Retry
from linedesk.operate.dead_letters import explained
from linedesk.operate.events.story import tell
from linedesk.store.errors import StoreUnavailable
from linesim import Sim
from tests.jobworker.test_handler_context import abandon
from tests.jobworker.worker_harness import Room, Rooms, a_bot, texts
from tests.waiting import eventually

SORRY = "申し訳ありません。"


def failing(*errors: BaseException, failed: Callable[[Any, Talk], None] | None = None) -> Any:
    """A bot whose runs raise these errors, the last one again and again, and the list of runs."""
    runs: list[str] = []

    def handler(event: Any, talk: Talk) -> None:
        runs.append("handler")
        talk.reply("はい")
        raise errors[min(len(runs), len(errors)) - 1]

    bot = a_bot(handler)
    if failed is not None:
        bot.failed(failed)
    return bot, runs


def raise_(error: BaseException) -> Any:
    raise error


def says_sorry(event: Any, talk: Talk) -> None:
    talk.reply(SORRY)
    talk.data["sorry"] = talk.data.get("sorry", 0) + 1


@pytest.mark.parametrize(
    ("errors", "tries", "cause"),
    [
        ([ConnectionError()], 6, "ConnectionError"),
        ([Retry(after=0)], 6, "Retry"),
        ([KeyboardInterrupt()], 6, "KeyboardInterrupt"),
        ([KeyError("a")], 3, "KeyError"),
        ([BotError("six", reason="too many messages")], 3, "BotError: too many messages"),
        ([ConnectionError(), TypeError(), ConnectionError(), TypeError()], 5, "TypeError"),
        ([GiveUp("在庫なし")], 1, "GiveUp: 在庫なし"),
        ([ContentNotReady(), GiveUp("x")], 2, "GiveUp: x"),
    ],
)
def test_errors_that_may_pass_get_more_tries_than_errors_of_the_bot(
    room: Rooms, sim: Sim, errors: list[BaseException], tries: int, cause: str
) -> None:
    bot, runs = failing(*errors)
    desk = room(bot, tries=6)
    desk.says(sim.add_user("花子"), "?")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert (len(runs), letter["attempts"], explained(letter)) == (tries, tries, f"handler: {cause}")


def test_the_pauses_reach_ten_minutes_and_a_handler_may_have_its_own() -> None:
    limits, away = RetryLimits(), raised(ConnectionError())
    pauses = [away.pause_seconds(failures=n, limits=limits) for n in range(1, 7)]
    for pause, meant in zip(pauses, [1, 10, 60, 180, 300, 300], strict=True):
        assert 0.9 * meant <= pause <= 1.1 * meant
    assert 2.7 <= away.pause_seconds(failures=5, backoff=(1.0, 3.0)) <= 3.3
    assert raised(Retry(after=90)).pause_seconds(failures=1) == 90
    assert all(raised(TypeError()).pause_seconds(failures=2) <= 2 for _ in range(20))


def test_a_handler_s_own_tries_count_and_its_key_waits_without_a_thread(
    room: Rooms, sim: Sim
) -> None:
    bot, runs, user, other = Bot(), [], sim.add_user("花子"), sim.add_user("太郎")

    @bot.add(MessageEvent, text="一回", tries=1)
    def once(event: Any, talk: Talk) -> None:
        runs.append(1)
        raise ConnectionError

    @bot.add(MessageEvent, text="待て", backoff=3600)
    def waits(event: Any, talk: Talk) -> None:
        raise ConnectionError

    bot.default()(lambda event, talk: talk.reply("はい"))
    bot.failed(lambda event, talk: talk.data.update(failed=event.message.text))
    desk = room(bot, threads=2, tries=6)
    desk.says(user, "一回")
    desk.until_quiet()
    assert (len(runs), len(desk.letters())) == (1, 1)
    first = desk.says(user, "待て")
    desk.says(user, "次")
    desk.says(other, "?")
    eventually(lambda: texts(sim, other) == ["はい"])
    [row] = eventually(lambda: desk.pool.view.waiting())
    assert (row["eventId"], row["documents"]) == (first["eventId"], 2)
    assert row["why"].items() >= {"code": "handler_failed", "failures": 1, "tries": 6}.items()
    assert texts(sim, user) == []
    desk.pool.give_up("main", user.user_id, first["eventId"])
    desk.until_quiet()
    assert texts(sim, user) == ["はい"]
    # An operator's release asks nothing of the bot.
    assert desk.conversation(user.user_id)["data"] == {"failed": "一回"}


def test_a_failure_that_passes_is_tried_as_long_after_others_and_in_a_condition_no_longer(
    room: Rooms, sim: Sim
) -> None:
    limits = RetryLimits(
        backoff=(0.5,), first_pause_seconds=0.01, longest_pause_seconds=0.02, passing_seconds=0.4
    )
    later, conditions, user = sim.add_user("花子"), Bot(), sim.add_user("太郎")
    bot, runs = failing(ConnectionError(), ContentNotReady(), ContentNotReady(), GiveUp("x"))
    desk = room(bot, retry_limits=limits)
    desk.says(later, "?")
    desk.until_quiet()
    assert (len(runs), explained(desk.letters()[0])) == (4, "handler: GiveUp: x")

    @conditions.add(MessageEvent, when=lambda event, talk: raise_(ContentNotReady()))
    def handler(event: Any, talk: Talk) -> None:
        talk.reply("はい")

    desk = room(conditions, retry_limits=limits, epoch=2)
    desk.says(user, "?")
    desk.until_quiet()
    assert explained(desk.letters()[1]) == "handler: ContentNotReady"


@pytest.mark.parametrize("how", ["raises", "sends six", "hangs"])
def test_its_own_failure_changes_nothing(room: Rooms, sim: Sim, how: str) -> None:
    user, reached, end = sim.add_user("花子"), threading.Event(), threading.Event()

    def failed(event: Any, talk: Talk) -> None:
        says_sorry(event, talk)
        if how == "hangs":
            reached.set()
            end.wait(30)
        elif how == "raises":
            raise RuntimeError
        else:
            talk.push(*"123456")

    bot, runs = failing(GiveUp("no"), failed=failed)
    desk = room(bot)
    desk.says(user, "?")
    if how == "hangs":
        eventually(reached.is_set)
        assert abandon(desk) == 1
    desk.until_quiet()
    end.set()
    eventually(lambda: not desk.pool.threads.abandoned())
    assert (len(runs), texts(sim, user)) == (1, [])
    assert [explained(letter) for letter in desk.letters()] == ["handler: GiveUp: no"]
    assert desk.conversation(user.user_id)["data"] == {}


@pytest.mark.parametrize("what", ["handler", "condition"])
def test_it_also_runs_for_what_never_returned(room: Rooms, sim: Sim, what: str) -> None:
    user, reached, end = sim.add_user("花子"), threading.Event(), threading.Event()

    def hangs(event: Any, talk: Talk) -> Any:
        return reached.set() or end.wait(30)

    bot = a_bot(hangs if what == "handler" else says_sorry)
    if what == "condition":
        bot.add(MessageEvent, when=hangs)(says_sorry)
    bot.failed(says_sorry)
    desk = room(bot, tries=1)
    desk.says(user, "?")
    eventually(reached.is_set)
    assert abandon(desk) == 1
    desk.until_quiet()
    end.set()
    assert texts(sim, user) == [SORRY]
    assert [explained(letter) for letter in desk.letters()] == ["handler: did not return"]


def test_it_waits_for_mongodb_also_after_a_handler_that_has_sent_by_itself(
    room: Rooms, sim: Sim
) -> None:
    user, asked = sim.add_user("花子"), []

    def handler(event: Any, talk: Talk) -> None:
        talk.api.push_message(PushMessageRequest(to=user.user_id, messages=[TextMessage(text="1")]))
        raise RuntimeError

    def failed(event: Any, talk: Talk) -> None:
        asked.append(1)
        if len(asked) == 1:
            raise StoreUnavailable("away")
        says_sorry(event, talk)

    bot = a_bot(handler)
    bot.failed(failed)
    desk = room(bot)
    desk.says(user, "?")
    desk.until_quiet()
    assert (texts(sim, user), len(desk.letters())) == (["1", SORRY], 1)


def test_a_process_that_ends_between_the_last_try_and_the_record_has_said_nothing(
    room: Rooms, sim: Sim
) -> None:
    user, asked = sim.add_user("花子"), threading.Event()

    def failed(event: Any, talk: Talk) -> None:
        says_sorry(event, talk)
        asked.set()

    bot, _ = failing(GiveUp("no"), failed=failed)
    before = room(bot, lease_is_fresh=lambda: False)
    document = before.says(user, "?")
    eventually(asked.is_set)
    before.pool.stop()
    assert (texts(sim, user), before.letters()) == ([], [])
    after = room(bot, epoch=2)
    after.put_document(document, again=True)
    after.until_quiet()
    assert (texts(sim, user), len(after.letters())) == ([SORRY], 1)
    assert after.conversation(user.user_id)["data"] == {"sorry": 1}


def test_it_decides_again_on_a_newer_state_and_its_handler_does_not(room: Rooms, sim: Sim) -> None:
    user, asked = sim.add_user("花子"), []

    def failed(event: Any, talk: Talk) -> None:
        says_sorry(event, talk)
        asked.append(1)
        if len(asked) == 1:
            newer = {"$set": {"data": {"sorry": 5}}, "$inc": {"n": 1}}
            desk.database.conversations.update_one({"key": user.user_id}, newer, upsert=False)

    bot, runs = failing(GiveUp("no"), failed=failed)
    bot.add(MessageEvent, text="先に")(lambda event, talk: talk.data.update(sorry=0))
    desk = room(bot)
    for text in ("先に", "?"):
        desk.says(user, text)
        desk.until_quiet()
    assert (len(runs), len(asked), texts(sim, user)) == (1, 2, [SORRY])
    assert desk.conversation(user.user_id)["data"] == {"sorry": 6}


def test_an_event_without_a_handler_says_so_in_trace_log_and_metrics(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    user, bot = sim.add_user("花子"), Bot()
    bot.add(MessageEvent, TextMessageContent)(lambda event, talk: talk.reply("はい"))
    desk = room(bot)
    dreams = [{**sim.drafts.text(user, "?"), "type": "dreamt"} for _ in range(2)]
    with caplog.at_level(logging.WARNING, "jobworker"):
        press, *dreamt = (desk.send(one) for one in (sim.drafts.postback(user, "x"), *dreams))
        desk.until_quiet()
    desk.desk.rows.stop()
    desk.desk.rows.join(5)
    told = [
        step.words for step in tell(desk.database, press["eventId"]).steps if step.kind == "run"
    ]
    assert told[0].startswith("no handler of the bot takes it in ")
    told = [one.words for one in tell(desk.database, dreamt[0]["eventId"]).steps]
    assert any("no handler of the bot takes it; line-bot-sdk cannot read it" in one for one in told)
    logged = [one.getMessage() for one in caplog.records if "unhandled" in one.getMessage()]
    assert [one.partition(" event_id")[0] for one in logged] == [
        "unhandled kind of event kind=postback cause=no_handler",
        "unhandled kind of event kind=dreamt/text cause=unreadable",
    ]
    assert (figure(desk, "no_handler"), figure(desk, "unreadable")) == (1, 2)


def figure(desk: Room, cause: str) -> Any:
    return desk.registry.get_sample_value("linedesk_unhandled_events_total", {"cause": cause})
