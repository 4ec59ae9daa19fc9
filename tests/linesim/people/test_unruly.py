"""Webhooks on a bad day: redelivered without need, doubled, overtaken and late."""

import threading

import pytest

import linesim


@pytest.fixture
def sim(bot, clock):
    with linesim.running(webhook_url=bot.url, clock=clock, redelivered_seconds=0.01) as sim:
        yield sim


def redelivery(received):
    return received.events[0]["deliveryContext"]["isRedelivery"]


@pytest.mark.parametrize("status", [200, 503, None])
def test_a_webhook_comes_again_whatever_was_answered(sim, bot, taro, status):
    bot.status = status
    sim.unruly(redeliver=1.0)
    sim.say(taro, "やあ")
    assert sim.settle()
    first, again = bot.received
    assert (redelivery(first), redelivery(again)) == (False, True)
    assert again.events == [{**first.events[0], "deliveryContext": {"isRedelivery": True}}]
    assert [each.status for each in sim.deliveries] == [status, status]
    assert len(sim.chat(taro)) == 1


def test_a_doubled_webhook_is_the_same_body_and_does_not_say_so(sim, bot, taro):
    sim.unruly(double=1.0)
    for number in range(8):
        sim.say(taro, f"{number}")
        assert sim.settle()
    bodies = [received.body for received in bot.received]
    assert bodies[::2] == bodies[1::2]
    assert len(set(bodies)) == 8
    assert not any(map(redelivery, bot.received))


def test_a_doubled_webhook_may_come_while_the_first_is_under_way(sim, bot, taro):
    together = threading.Barrier(2)
    bot.store = lambda received: together.wait(10) and None
    sim.unruly(double=1.0, seed=0)  # this seed draws "at once" first
    assert sim.say(taro, "やあ").delivered
    assert sim.settle()
    assert bot.received[0].body == bot.received[1].body


def pattern(sim, bot, taro, seed):
    """How often each of twenty webhooks came."""
    bot.received.clear()
    sim.unruly(redeliver=0.3, double=0.3, seed=seed)
    times = []
    for number in range(20):
        before = len(bot.received)
        sim.say(taro, f"{number}")
        assert sim.settle()
        times.append(len(bot.received) - before)
    return times


def test_the_same_seed_does_the_same(sim, bot, taro):
    first, second, other = (pattern(sim, bot, taro, seed) for seed in (5, 5, 6))
    assert first == second != other
    assert {1, 2} <= set(first)
