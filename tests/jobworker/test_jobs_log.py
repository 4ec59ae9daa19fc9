"""The rows of `jobs`: one for each run that called the handler or decided."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.store.documents import Document
from linesim import Sim
from tests.jobworker.worker_harness import Room
from tests.rows import rows_of

Rooms = Callable[..., Room]


def a_bot(handler: Callable[[Any, Talk], None]) -> Bot:
    bot = Bot()
    bot.default()(handler)
    return bot


def written(desk: Room) -> list[Document]:
    """All rows, as they are written at the end."""
    desk.desk.rows.write()
    return rows_of(local(desk.database.jobs))


def local(collection: Collection[Any]) -> Collection[Any]:
    """As it is on the primary: rows are not written for a majority."""
    return collection.with_options(read_concern=ReadConcern("local"))


def outcomes(desk: Room) -> list[tuple[Any, ...]]:
    return [(row["outcome"], row["attempt"], row["effects"], row["error"]) for row in written(desk)]


def test_a_row_describes_one_run(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    user = sim.add_user("花子")
    event = sim.drafts.text(user, "?")
    sim.deliver(event)
    document = desk.put(event, accepted=datetime.now(UTC) - timedelta(seconds=2))
    desk.until_quiet()
    (row,) = written(desk)
    assert 2_000 <= row.pop("waitedMs") < 10_000
    assert 0 < row.pop("ms") < 10_000
    assert row.pop("at") > document["acceptTime"]
    assert row.pop("thread").startswith("worker-")
    assert row == {
        "eventId": document["eventId"],
        "channel": "main",
        "key": user.user_id,
        "type": "message",
        "attempt": 1,
        "outcome": "recorded",
        "effects": 1,
        "error": None,
    }


def test_each_try_of_a_failing_handler_has_its_row(room: Rooms, sim: Sim) -> None:
    def fails(event: Any, talk: Talk) -> None:
        raise KeyError("the user's own words")

    desk = room(a_bot(fails), tries=2)
    desk.says(sim.add_user("花子"), "?")
    desk.until_quiet()
    # The last one was recorded as a dead letter by the same run.
    assert outcomes(desk) == [("failed", 1, 0, "KeyError"), ("failed", 2, 1, "KeyError")]
