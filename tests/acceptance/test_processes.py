"""The processes as an operator sees them: restarts, standby, exit codes, and hidden secrets."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import requests

from linedesk.setup.private_mongod import free_port
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


def test_what_was_stored_before_the_very_first_start_is_handled(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    users = [sim.add_user(f"客{n}") for n in range(10)]
    for number in range(100):
        sim.say(users[number % 10], f"{number}")

    house.start_dispatcher(BOT="acceptance_bots:echo")

    sim.wait_for(lambda: all(len(sim.answers(user)) >= 10 for user in users), timeout=20)
    for place, user in enumerate(users):
        assert [b.text for b in sim.answers(user)] == [str(n) for n in range(place, 100, 10)]


def test_a_second_dispatcher_waits_and_takes_over(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    first = house.start_dispatcher(BOT="acceptance_bots:echo")
    port = free_port()
    second = house.start_dispatcher(
        ready=False, BOT="acceptance_bots:echo", DISPATCHER_METRICS_PORT=str(port)
    )
    house.wait_for(lambda: "standby" in house.log_of(second), second)
    user = sim.add_user("花子")
    sim.say(user, "一")
    sim.wait_for(lambda: sim.answers(user))
    house.wait_for(lambda: rows_in(house, "standby", "working"))

    house.stop(first, signal.SIGKILL)
    sim.say(user, "二")

    sim.wait_for(lambda: len(sim.answers(user)) == 2, timeout=10)
    assert [bubble.text for bubble in sim.answers(user)] == ["一", "二"]
    assert "ready" in house.log_of(second)

    # The dead process's row is unchanged and grows old; its successor has another row.
    house.wait_for(lambda: rows_in(house, "working", "working"))
    dead, alive = (row_of(house, process) for process in (first, second))
    house.wait_for(lambda: row_of(house, second)["at"] > alive["at"])
    assert row_of(house, first) == dead
    house.wait_for(lambda: row_of(house, second)["figures"].get("finishedDocuments") == 1)
    assert alive["epoch"] > dead["epoch"]
    exposed = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    for line in ("leading 1.0", "finished_documents_total 1.0", "queue_documents 0.0"):
        assert f"\nlinedesk_{line}\n" in exposed


def row_of(house: Any, process: Any) -> Any:
    """The row of a dispatcher's process in `status`."""
    return house.database.status.find_one({"role": "dispatcher", "pid": process.pid})


def rows_in(house: Any, *states: str) -> bool:
    """Whether the rows of the dispatchers have exactly these states."""
    return sorted(row["state"] for row in house.database.status.find({"role": "dispatcher"})) == [
        *states
    ]


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


def test_a_standalone_server_is_refused_with_instructions(house: Any, tmp_path: Path) -> None:
    from linedesk.setup import children
    from linedesk.setup.private_mongod import find_mongod, free_port

    port = free_port()
    (tmp_path / "db").mkdir()
    server = children.start(
        [str(find_mongod()), "--dbpath", str(tmp_path / "db"), "--port", str(port)],
        stdout=subprocess.DEVNULL,
    )
    try:
        uri = f"mongodb://127.0.0.1:{port}/?directConnection=true"
        process = house.start_dispatcher(ready=False, MONGODB_URI=uri)
        assert process.wait(30) == 78
        assert "replSetName" in house.log_of(process)
        assert "linedesk init" in house.log_of(process)
    finally:
        children.stop(server, timeout_seconds=20)
