"""The processes as an operator sees them: restarts, standby, exit codes, and hidden secrets."""

import random
import signal
import subprocess
import threading
from collections import Counter
from typing import Any

import pytest

from linedesk.store.records.effects import WITH_OUTBOX

STREAM = 200


def speak_on(sim: Any, users: list[Any], stop_after: int, half_way: threading.Event) -> None:
    """Send a stream of messages; says when half of it is out."""
    chosen = random.Random(7)
    for number in range(stop_after):
        delivery = sim.say(chosen.choice(users), f"{number}")
        assert delivery.status == 200
        if number == stop_after // 2:
            half_way.set()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["sigterm", "sigkill"])
def test_a_restart_amid_a_stream_answers_each_message_once(
    house: Any, sim: Any, ending: signal.Signals
) -> None:
    house.start_frontdesk()
    first = house.start_dispatcher(BOT="acceptance_bots:echo")
    users = [sim.add_user(f"客{n}") for n in range(25)]
    half_way = threading.Event()
    stream = threading.Thread(target=speak_on, args=(sim, users, STREAM, half_way))
    stream.start()
    assert half_way.wait(30)

    status = house.stop(first, ending)
    house.start_dispatcher(BOT="acceptance_bots:echo")
    stream.join(60)

    sim.wait_for(lambda: sum(len(sim.answers(user)) for user in users) >= STREAM, timeout=40)
    house.wait_for(lambda: not house.database.conversations.count_documents(WITH_OUTBOX))
    assert status == (0 if ending is signal.SIGTERM else -signal.SIGKILL)
    answered = Counter(bubble.text for user in users for bubble in sim.answers(user))
    assert answered == Counter(str(number) for number in range(STREAM))
    for user in users:
        order = [int(bubble.text) for bubble in sim.answers(user)]
        assert order == sorted(order)


def test_a_handler_that_does_not_return_is_named_and_has_its_own_exit_code(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    process = house.start_dispatcher(BOT="acceptance_bots:stuck", DRAIN_SECONDS="1")
    user, other = sim.add_user("花子"), sim.add_user("太郎")
    stuck = sim.say(user, "stuck")
    sim.say(other, "はい")
    sim.wait_for(lambda: sim.answers(other))

    assert house.stop(process) == 75

    log = house.log_of(process)
    assert "thread did not end within the drain" in log
    assert stuck.event_ids[0] in log


def test_a_second_signal_ends_at_once(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    process = house.start_dispatcher(BOT="acceptance_bots:stuck", DRAIN_SECONDS="60")
    user = sim.add_user("花子")
    stuck = sim.say(user, "stuck")
    started = f"started event_id={stuck.event_ids[0]}"
    house.wait_for(lambda: started in house.log_of(process), process)

    process.send_signal(signal.SIGTERM)
    house.wait_for(lambda: "stopping signal=15" in house.log_of(process), process)
    process.send_signal(signal.SIGTERM)

    assert process.wait(5) == 128 + signal.SIGTERM


def test_secrets_show_neither_in_the_log_nor_in_the_process_list(house: Any, sim: Any) -> None:
    house.start_frontdesk(fresh=True)
    house.start_dispatcher(fresh=True)
    user = sim.add_user("花子")
    text = "ひみつのことば"
    delivery = sim.say(user, text)
    sim.wait_for(lambda: sim.answers(user))

    shown = subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    shown += "".join(path.read_text() for path in house.folder.glob("*.log"))

    assert delivery.event_ids[0] in shown
    for secret in (sim.secret, sim.token, text, delivery.events[0]["replyToken"]):
        assert secret not in shown
