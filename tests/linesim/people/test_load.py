"""The load: its users and times, redeliveries, and its end."""

from collections import defaultdict

import pytest

from linesim import Load
from linesim.model.errors import NotPossible
from linesim.people import load
from tests.waiting import eventually


@pytest.fixture
def users(sim):
    return [sim.add_user(f"客{number}") for number in range(6)]


def run(made):
    made.start()
    assert made.join(30)
    return made


def texts(received):
    return [event["message"]["text"] for each in received for event in each.events]


def test_every_user_writes_different_texts_in_order(sim, bot, users):
    made = run(Load(sim, users, total=60, concurrency=3))
    assert made.counts == load.Counts(sent=60, accepted=60, retried=0)
    heard = texts(bot.received)
    assert len(set(heard)) == 60
    of_user = defaultdict(list)
    for text in heard:
        name, number = text.split("-")
        of_user[name].append(int(number))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in of_user.values())
    assert len(of_user) == 6


def test_what_was_refused_is_redelivered_before_the_next(sim, bot, users):
    refused = iter([503, 503, None, 200, 503, 200])
    bot.store = lambda received: setattr(bot, "status", next(refused, 200))
    made = run(Load(sim, users[:1], total=3, first_pause_seconds=0.001))
    assert made.counts == load.Counts(sent=3, accepted=3, retried=4)
    assert texts(bot.received) == ["客0-1"] * 4 + ["客0-2"] * 2 + ["客0-3"]
    flags = [each.events[0]["deliveryContext"]["isRedelivery"] for each in bot.received]
    assert flags == [False, True, True, True, False, True, False]


def test_a_dead_threads_error_is_raised_and_ends_the_others(sim, bot, users):
    sim.block(users[0])
    made = Load(sim, users, rate=1_000, concurrency=6)
    made.start()
    eventually(lambda: made.ended)
    with pytest.raises(NotPossible):
        made.join(0)
