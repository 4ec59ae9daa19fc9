"""A box is lost, and another one gets the export: through the real processes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from linedesk.backup.export import export_to
from linedesk.operate.reading import effects_with_tries
from linedesk.store.client import Client
from linedesk.store.documents import Document, make_document
from tests.acceptance.backup_bots import keeper, texts
from tests.jobworker.worker_harness import Room
from tests.linedesk.commands.terminals import typed
from tests.rows import Db
from tests.servers import one_for_all
from tests.waiting import eventually


@pytest.fixture
def lost(client: Client) -> Iterator[Db]:
    """The database of the box that is lost."""
    with one_for_all(client) as lost:
        yield lost


def tried(database: Db) -> list[Document]:
    """The sends of which a try is of unknown outcome."""
    found = [effects_with_tries(row, is_ready=bool) for row in database.conversations.find()]
    return [effect for effects in found for _, effect in effects if effect.get("triedAt")]


def command(house: Any, *arguments: str) -> str:
    """`linedesk` with nothing in its environment but where MongoDB is."""
    environ = {name: house.settings[name] for name in ("MONGODB_URI", "MONGODB_DATABASE")}
    return typed(environ)(*arguments).stdout


def test_after_an_import_state_continues_nothing_old_is_sent_and_nothing_is_lost(
    house: Any, sim: Any, lost: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanako, taro = sim.add_user("花子"), sim.add_user("太郎")
    # The first box: LINE fails while a push waits, and an event waits in held.
    sim.webhook_url = None
    with Room(lost, sim, keeper) as room:
        room.says(hanako, "timers")
        room.until_quiet()
        lost.schedule.update_one(
            {"name": "morning"}, {"$set": {"runAt": datetime.now(UTC) - timedelta(days=3)}}
        )
        sim.answer_next("push", 500, times=1000)
        room.says(hanako, "push")
        waits = eventually(lambda: tried(lost))
        event = sim.drafts.text(taro, "held")
        held = make_document(event, channel="main", accept_time=datetime.now(UTC))
        place = {"_id": held["_id"], "n": 1, "key": held["key"], "channel": "main"}
        lost.held.insert_one(place | {"document": held, "why": "?", "since": datetime.now(UTC)})
        path = export_to(lost, tmp_path / "export.gz")
    sim.clear_faults()

    # The other box takes webhooks before it has the export.
    sim.webhook_url = house.url
    house.start_frontdesk()
    sim.say(hanako, "still there?")
    told = command(house, "import", str(path))
    assert "3  deadletters" in told
    house.start_dispatcher(BOT="backup_bots:keeper")
    sim.wait_for(lambda: len(sim.answers(hanako)) == 2)
    sim.say(hanako, "and now?")
    sim.wait_for(lambda: len(sim.answers(hanako)) == 3)

    first = ["1: timers None", "3: still there? 待つ", "4: and now? 待つ"]
    assert texts(sim.answers(hanako)) == first
    assert not sim.answers(taro)
    waiting = {row["name"]: row["runAt"] for row in house.database.schedule.find()}
    assert waiting["egg"] is None
    assert datetime.now(UTC) < waiting["morning"] < datetime.now(UTC) + timedelta(days=1)
    assert waiting["later"] == lost.schedule.find_one({"name": "later"})["runAt"]

    # The operator decides to replay all of it.
    command(house, "dead", "replay", "--cause", "restored", "--yes")
    sim.wait_for(lambda: len(sim.answers(hanako)) == 5 and sim.answers(taro))
    assert sorted(texts(sim.answers(hanako))[3:]) == ["2: push 待つ", "ring egg"]
    assert texts(sim.answers(taro)) == ["1: held None"]
    assert len(waits) == 1
