"""A chat with a bot as its users see it, through the real processes."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import linesim


def texts_of(sim: linesim.Sim, user: Any) -> list[str]:
    return [bubble.text for bubble in sim.answers(user)]


@pytest.mark.parametrize("feed", ["changestream", "oplog"])
def test_a_doubled_and_redelivered_post_is_answered_once(house: Any, sim: Any, feed: str) -> None:
    house.start_frontdesk()
    house.start_dispatcher(DISPATCHER_FEED=feed)
    user = sim.add_user("花子")
    event = sim.drafts.text(user, "一度だけ")
    with ThreadPoolExecutor(8) as threads:
        deliveries = list(threads.map(lambda _: sim.deliver(event), range(8)))
    assert {delivery.status for delivery in deliveries} == {200}
    sim.redeliver(deliveries[0])
    sim.say(user, "おわり")

    sim.wait_for(lambda: any("おわり" in text for text in texts_of(sim, user)))

    assert texts_of(sim, user) == [
        "花子さん、はい、一度だけ、ですね。",
        "花子さん、はい、おわり、ですね。",
    ]
    assert house.database.recvq.count_documents({"key": user.user_id}) == 2


def test_a_failing_handler_ends_as_a_dead_letter_and_neighbours_never_notice(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    house.start_dispatcher(BOT="acceptance_bots:faulty", HANDLER_TRIES="2")
    ill, well = sim.add_user("病"), sim.add_user("健")
    boom = sim.say(ill, "boom")
    sim.say(well, "はい")
    sim.wait_for(lambda: sim.answers(well), timeout=2)
    sim.say(ill, "つづき")

    sim.wait_for(lambda: texts_of(sim, ill) == ["つづき"])

    letter = house.wait_for(lambda: house.database.deadletters.find_one())
    assert letter["_id"] == boom.event_ids[0]
    assert letter["attempts"] == 2
    assert 'raise RuntimeError("planted")' in letter["traceback"]


def test_texts_of_many_users_come_back_unharmed_and_free(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    house.start_dispatcher()
    texts = [
        "日本語、ｶﾀｶﾅ、漢字𠮷野家",
        "👨‍👩‍👧‍👦🇯🇵👍🏽 e\u0301",
        '改行\nタブ\t"引用" \\ {{brace}} <b>',
        "🦜" * 2_400,
    ]
    users = [sim.add_user(f"新{n}", friend=False) for n in range(150)]
    for first in range(0, 150, 50):
        sim.deliver(*(sim.drafts.follow(user) for user in users[first : first + 50]))
    for user, text in zip(users, texts, strict=False):
        sim.say(user, text)
    sim.wait_for(lambda: all(sim.answers(user) for user in users), timeout=40)
    for user, text in zip(users, texts, strict=False):
        sim.wait_for(lambda user=user: len(sim.answers(user)) >= 2)
        assert "".join(texts_of(sim, user)[1:]) == f"{user.name}さん、はい、{text}、ですね。"
    assert {texts_of(sim, user)[0] for user in users} == {"ようこそ！"}
    assert not sim.calls_to("push")


def test_calls_keep_the_interval_with_many_threads_pushing(house: Any, sim: Any) -> None:
    """By the dispatcher's own clock; by LINE's, each is answered before the next arrives."""
    house.start_frontdesk()
    process = house.start_dispatcher(BOT="acceptance_bots:pusher", LINE_ACCESS_INTERVAL_MS="50")
    users = [sim.add_user(f"客{n}") for n in range(20)]
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda user: sim.say(user, "2"), users))
    sim.wait_for(lambda: all(len(sim.answers(user)) == 6 for user in users), timeout=30)
    # The first line has no earlier call.
    starts = re.findall(r"turn since_last_access_ms=([0-9.]+)", house.log_of(process))[1:]
    assert min(map(float, starts)) >= 50.0
    calls = sim.calls_to("push")
    assert len(calls) == len(starts) + 1 == 40
    assert all(a.finished <= b.started for a, b in itertools.pairwise(calls))
    assert all(texts_of(sim, user) == ["0"] * 3 + ["1"] * 3 for user in users)
