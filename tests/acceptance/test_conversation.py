"""A chat with a bot as its users see it, through the real processes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.jobworker.worker_harness import texts


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

    sim.wait_for(lambda: "花子さん、はい、おわり、ですね。" in texts(sim, user))

    assert texts(sim, user) == [
        "花子さん、はい、一度だけ、ですね。",
        "花子さん、はい、おわり、ですね。",
    ]
    assert house.database.recvq.count_documents({"key": user.user_id}) == 2
