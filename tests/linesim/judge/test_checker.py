"""The checker finds each planted violation, and only that."""

import threading
from functools import partial

import pytest
import requests

import linesim
from linesim import Timer, check
from linesim.judge.report import PROBLEMS
from tests.linesim.conftest import Line

KEY = "123e4567-e89b-12d3-a456-426614174000"


@pytest.fixture
def elsewhere(sim):
    """A client with its own connection, like another process."""
    line = Line(sim)
    yield line
    line.session.close()


def token_of(delivery):
    return delivery.events[0]["replyToken"]


def found(report):
    """The problems that the report names, with how many of each."""
    return {name: len(each) for name in PROBLEMS if (each := getattr(report, name))}


def echo(line, sim, user, text):
    delivery = sim.say(user, text)
    assert line.reply(token_of(delivery), text).ok
    return delivery


def test_a_clean_run_has_nothing_to_find(sim, line):
    users = [sim.add_user(f"客{n}") for n in range(4)]
    for number in range(3):
        for user in users:
            delivery = echo(line, sim, user, f"{number}")
            sim.redeliver(delivery)
    report = check(sim)
    assert (report.ok, report.problems(), found(report)) == (True, [], {})
    assert (report.events_sent, report.accepted, report.refused) == (12, 12, 0)
    assert (report.answered_once, report.answered_unaccepted, report.excepted) == (12, 0, ())
    assert report.calls == {"reply": {"200": 12}}
    assert report.closest_starts == {"api.line.me": sim.closest_starts()}
    assert report.seconds > 0


def test_an_answer_said_twice_is_found(sim, line, taro):
    delivery = echo(line, sim, taro, "1")
    line.push(taro.user_id, "1")
    report = check(sim)
    assert found(report) == {"answered_twice": 1}
    (twice,) = report.answered_twice
    assert (twice.event_id, twice.chat) == (delivery.event_ids[0], taro.user_id)
    assert (twice.texts, twice.calls) == (("1",), (1, 2))
    assert report.answered_once == 0


def test_an_accepted_event_without_an_answer_is_found(sim, taro):
    delivery = sim.say(taro, "1")
    report = check(sim)
    assert found(report) == {"unanswered": 1}
    assert report.unanswered[0].event_id == delivery.event_ids[0]
    assert report.unanswered[0].texts == ("1",)


@pytest.mark.parametrize("status", [503, None])
def test_a_refused_event_need_not_be_answered(sim, bot, taro, status):
    bot.status = status
    sim.say(taro, "1")
    report = check(sim)
    assert (report.ok, report.refused, report.accepted) == (True, 1, 0)


def doubled(sim, line, taro, *, by=None, fault=True, again=True):
    """A reply that LINE took, its token tried again by `by`, and a push."""
    by = by or line
    token = token_of(sim.say(taro, "1"))
    if fault:
        sim.close_next("reply", accept=True)
        with pytest.raises(requests.ConnectionError):
            line.reply(token, "1")
    else:
        assert line.reply(token, "1").ok
    if again:
        assert by.reply(token, "1").status_code == 400
    assert by.push(taro.user_id, "1", retry_key=KEY).ok


@pytest.mark.parametrize("again", [True, False])
def test_a_reply_of_unknown_outcome_pushed_after_the_minute_is_excepted(sim, line, taro, again):
    doubled(sim, line, taro, again=again)
    report = check(sim, token_seconds=0.0)
    assert (report.ok, len(report.excepted), report.answered_once) == (True, 1, 0)


def test_a_reply_whose_caller_died_and_whose_successor_asked_again_is_excepted(
    sim, line, elsewhere, taro
):
    doubled(sim, line, taro, by=elsewhere, fault=False)
    report = check(sim, token_seconds=0.0)
    assert (report.ok, len(report.excepted)) == (True, 1)


def test_a_push_within_the_minute_is_no_exception(sim, line, taro):
    doubled(sim, line, taro)
    assert found(check(sim, token_seconds=60.0)) == {"answered_twice": 1}


def test_an_answer_that_overtakes_is_found(sim, line, taro):
    first, second = sim.say(taro, "1"), sim.say(taro, "2")
    line.reply(token_of(second), "2")
    line.reply(token_of(first), "1")
    report = check(sim)
    assert found(report) == {"order_violations": 1}
    (disorder,) = report.order_violations
    assert (disorder.earlier, disorder.later) == (first.event_ids[0], second.event_ids[0])


def test_calls_too_close_together_are_found(sim, line, taro):
    for text in "12":
        echo(line, sim, taro, text)
    report = check(sim, least_interval_seconds=10)
    assert found(report) == {"too_close": 1}
    assert report.too_close[0].seconds == sim.closest_starts() < 10
    assert (report.too_close[0].first, report.too_close[0].second) == (1, 2)


def test_calls_that_overlap_are_found(sim, line):
    headers = {"authorization": f"Bearer {sim.token}"}
    ask = partial(requests.get, f"{sim.url}/v2/bot/info", headers=headers, timeout=10)
    sim.delay_next("info", 0.3)
    thread = threading.Thread(target=ask)
    thread.start()
    sim.wait_for(lambda: [call for call in sim.calls if call.endpoint == "info"])
    line.get("/v2/bot/message/quota")
    thread.join(10)
    report = check(sim)
    assert found(report) == {"overlapping": 1}
    assert (report.overlapping[0].first, report.overlapping[0].second) == (1, 2)


def test_a_used_token_used_again_without_need_is_found(sim, line, taro):
    delivery = echo(line, sim, taro, "1")
    assert line.reply(token_of(delivery), "1").status_code == 400
    report = check(sim)
    assert found(report) == {"used_tokens_again": 1}
    assert report.used_tokens == 1


@pytest.mark.parametrize("fault", ["close", "status", "garbage"])
def test_a_used_token_may_be_tried_again_after_an_unknown_outcome(sim, line, taro, fault):
    token = token_of(sim.say(taro, "1"))
    if fault == "close":
        sim.close_next("reply", accept=True)
        with pytest.raises(requests.ConnectionError):
            line.reply(token, "1")
    else:
        sim.answer_next("reply", 200 if fault == "garbage" else 500, b"{", accept=True)
        line.reply(token, "1")
    assert line.reply(token, "1").status_code == 400
    report = check(sim)
    assert (report.ok, report.used_tokens, report.answered_once) == (True, 1, 1)


def test_a_retry_key_used_for_another_body_is_found(sim, line, taro):
    line.push(taro.user_id, "1", retry_key=KEY)
    line.push(taro.user_id, "2", retry_key=KEY.upper())
    report = check(sim)
    assert found(report) == {"reused_keys": 1}
    assert (report.reused_keys[0].first, report.reused_keys[0].second) == (1, 2)


def test_paid_messages_are_counted_by_people_and_calls_by_endpoint(sim, line, taro):
    friends = [sim.add_user(f"客{n}") for n in range(3)]
    group = sim.add_group("皆", friends)
    echo(line, sim, taro, "1")
    line.push(group.chat_id, "2", "3")
    line.push(group.chat_id, "")
    line.multicast([taro.user_id, friends[0].user_id], "4")
    report = check(sim)
    assert (report.ok, report.paid_messages, report.calls_made) == (True, 5, 4)
    assert report.calls_by_endpoint == {"multicast": 1, "push": 2, "reply": 1}
    document = requests.get(f"{sim.url}/sim/verdict", timeout=10).json()
    assert (document["paid_messages"], document["calls_made"]) == (5, 4)
    assert document["calls_by_endpoint"] == report.calls_by_endpoint


def test_a_reply_after_its_token_ran_out_is_counted(sim, line, taro, clock):
    delivery = sim.say(taro, "1")
    clock.advance(61)
    line.reply(token_of(delivery), "1")
    line.push(taro.user_id, "1")
    report = check(sim)
    assert (report.ok, report.replies_too_late, report.paid_messages) == (True, 1, 1)
    (lapsed,) = report.lapsed_tokens
    assert (lapsed.event_id, lapsed.chat) == (delivery.event_ids[0], taro.user_id)
    assert (lapsed.texts, lapsed.calls) == (("1",), (2,))


def test_a_stranger_who_disappears_in_a_multicast_is_found(sim, line, taro):
    stranger = sim.add_user("花子", friend=False)
    for user in (taro, stranger):
        sim.say(user, "皆")
    line.multicast([taro.user_id, stranger.user_id], "皆")
    report = check(sim)
    assert found(report) == {"never_reached": 1}
    (missed,) = report.never_reached
    assert (missed.chat, missed.reason, missed.call) == (stranger.user_id, "no friend", 1)
    assert f"{stranger.user_id} (call 1: no friend)" in report.problems()[0]
    assert report.paid_messages == 1


def test_users_who_blocked_the_bot_are_counted_apart(sim, line, taro):
    sim.block(taro)
    line.push(taro.user_id, "1")
    report = check(sim)
    assert (report.ok, report.never_reached) == (True, ())
    assert [(each.chat, each.reason) for each in report.closed_chats] == [(taro.user_id, "blocked")]


@pytest.mark.parametrize(
    ("at_seconds", "times", "expected"),
    [
        (9.0, 1, {"timers_early": 1}),
        (10.0, 1, {}),
        (12.0, 1, {}),
        (12.5, 1, {"timers_late": 1}),
        (1.0, 0, {"timers_missing": 1}),
        (11.0, 2, {"timers_double": 1}),
    ],
)
def test_a_timer_is_met_once_and_in_its_time(sim, line, taro, clock, at_seconds, times, expected):
    timer = Timer(taro.user_id, "時間です", due=clock.time() + 10, within_seconds=2)
    clock.advance(at_seconds)
    for _ in range(times):
        line.push(taro.user_id, "時間です")
    assert found(check(sim, expect_timers=[timer])) == expected


@pytest.mark.parametrize("what", ["calls", "deliveries"])
def test_forgotten_records_are_a_problem(bot, what):
    with linesim.running(webhook_url=bot.url, **{f"most_{what}": 1}) as sim:
        for _ in range(2):
            sim.deliver()
            requests.get(f"{sim.url}/v2/bot/info", timeout=10)
        report = check(sim)
    assert (report.forgotten, report.ok) == (1, False)
    assert report.problems() == ["1 records were forgotten, so nothing is proved"]
