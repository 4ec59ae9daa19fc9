"""Dead letters are handled again by `linedesk dead replay`, on the real processes."""

import os
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from linedesk.store.documents import make_document
from tests.fork_server import nursery


class Dead:
    """`linedesk dead`, with nothing in its environment but where MongoDB is."""

    def __init__(self, house: Any, *arguments: str) -> None:
        names = ("MONGODB_URI", "MONGODB_DATABASE")
        environ = os.environ | {name: house.settings[name] for name in names}
        reading, writing = os.pipe()
        with open(house.folder / "dead.log", "wb") as errors:
            self.process = nursery.start(
                *("linedesk", "dead", *arguments),
                env=environ,
                stdout=writing,
                stderr=errors.fileno(),
            )
        os.close(writing)
        self.stdout = open(reading, encoding="utf-8")  # noqa: SIM115

    def ended(self) -> tuple[int, str]:
        """Its exit code and its remaining output."""
        with self.stdout:
            return self.process.wait(60), self.stdout.read()


def test_replays_that_are_killed_and_that_run_at_once_put_each_letter_back_once(house: Any) -> None:
    count = 60
    house.database.deadletters.insert_many(letter(number) for number in range(count))
    choice = ("replay", "--since", "1h", "--yes")

    for seen in (1, 10):
        dead = Dead(house, *choice)
        for _ in range(seen):
            assert dead.stdout.readline().startswith("replayed ")
        dead.process.kill()
        dead.ended()
    together = [Dead(house, *choice) for _ in range(2)]
    # A command that met a letter begun by the other one left it alone, and reports it by its exit
    # code.
    assert all(dead.ended()[0] in (0, 1) for dead in together)

    stored = Counter(row["eventId"] for row in house.database.recvq.find())
    assert stored == Counter(f"replay:E{number}:1" for number in range(count))
    assert house.database.deadletters.count_documents({"replayedAt": None}) == 0


def letter(number: int) -> dict[str, Any]:
    now = datetime.now(UTC)
    event = {"type": "message", "webhookEventId": f"E{number}", "message": {"id": f"m{number}"}}
    document = make_document(event, channel="main", accept_time=now)
    times = {"attempts": 3, "firstAt": now, "lastAt": now}
    names = {"_id": f"E{number}", "channel": "main", "key": document["key"]}
    return {**names, "document": document, "cause": "handler: X", "traceback": None, **times}
