"""The load: its users and times, redeliveries, and its end."""

import queue
import threading
from collections import defaultdict

import pytest

import linesim
from linesim import Close, Load, Rule, check
from linesim.model import faults
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


def test_a_good_bot_is_found_good_amid_everything(sim, bot, line):
    events, seen = queue.SimpleQueue(), set()
    lock = threading.Lock()

    def store(received):
        with lock:
            for event in received.events:
                if event["webhookEventId"] not in seen:
                    seen.add(event["webhookEventId"])
                    events.put(event)

    def answer():
        while event := events.get():
            text = event["message"]["text"]
            for _ in range(50):
                try:
                    answer = line.reply(event["replyToken"], text)
                except OSError:
                    continue
                if answer.status_code in (200, 400):
                    break

    bot.store = store
    worker = threading.Thread(target=answer)
    worker.start()
    users = [sim.add_user(f"客{number}") for number in range(5)]
    sim.unruly(redeliver=0.3, double=0.3, shuffle=0.1, delay=(0.3, 0.02), seed=1)
    sim.misbehave(
        Rule(probability=0.1, outcome=faults.server_error()),
        Rule(probability=0.1, outcome=faults.server_error(), accept=True),
        Rule(probability=0.1, outcome=Close()),
        Rule(probability=0.1, outcome=Close(), accept=True),
        Rule(probability=0.1, outcome=linesim.Late(0.02)),
        seed=1,
    )
    run(Load(sim, users, total=100, concurrency=5, first_pause_seconds=0.01))
    sim.behave()
    assert sim.settle()
    events.put(None)
    worker.join(30)
    report = check(sim)
    assert report.problems() == []
    assert (report.events_sent, report.answered_once) == (100, 100)
    assert report.used_tokens > 0
