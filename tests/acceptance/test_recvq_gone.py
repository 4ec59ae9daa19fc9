"""recvq is dropped or renamed by hand under running processes while webhooks arrive."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from linedesk.runtime.exit_codes import Exit
from linedesk.store.collections import check_recvq
from linedesk.store.records.effects import WITH_OUTBOX
from tests.fork_server import nursery
from tests.rows import Db

BEFORE, AFTER = 60, 150


def drop(database: Db) -> None:
    database.drop_collection("recvq")


def rename(database: Db) -> None:
    database["recvq"].rename("elsewhere")


def init(house: Any) -> Any:
    with (house.folder / "init.log").open("ab") as log:
        environ, out = os.environ | house.settings, log.fileno()
        order = ("linedesk", "init", "--capped-mb", "16")
        return nursery.start(*order, env=environ, stdout=out, stderr=out)


@pytest.mark.parametrize("take_away", [drop, pytest.param(rename, marks=pytest.mark.long)])
def test_each_event_is_answered_once_after_init(
    house: Any, sim: Any, take_away: Callable[[Db], None]
) -> None:
    """The front desk runs all the while: its inserts make an uncapped recvq, then it spools."""
    house.start_frontdesk()
    leader = house.start_dispatcher(BOT="acceptance_bots:echo")
    users = [sim.add_user(f"客{n}") for n in range(10)]
    statuses: list[int] = []
    enough = threading.Event()

    def speak() -> None:
        number = 0
        while not enough.is_set() or number < AFTER:
            delivery = sim.say(users[number % len(users)], f"{number}")
            statuses.append(delivery.status)
            number += 1

    stream = threading.Thread(target=speak)
    stream.start()
    try:
        house.wait_for(lambda: len(statuses) >= BEFORE)
        take_away(house.database)
        house.wait_for(lambda: house.database["recvq"].find_one() is not None)
        assert leader.wait(30) == Exit.CONFIG
        assert "its documents are finished first" in house.log_of(leader)
        assert "run `linedesk init`" in house.log_of(leader)
        house.wait_for(lambda: os.path.getsize(house.settings["SPOOL_PATH"]) > 0)
        killed = init(house)
        house.wait_for(lambda: house.database["recvq"].options().get("capped"))
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
        assert init(house).wait(60) == Exit.OK
        check_recvq(house.database)
        house.start_dispatcher(BOT="acceptance_bots:echo")
    finally:
        enough.set()
        stream.join(60)
    assert set(statuses) == {200}
    said = len(statuses)
    sim.wait_for(lambda: sum(len(sim.answers(user)) for user in users) >= said, timeout=60)
    house.wait_for(lambda: not house.database.conversations.count_documents(WITH_OUTBOX))
    answered = Counter(bubble.text for user in users for bubble in sim.answers(user))
    assert answered == Counter(str(number) for number in range(said))
    for user in users:
        order = [int(bubble.text) for bubble in sim.answers(user)]
        assert order == sorted(order)
