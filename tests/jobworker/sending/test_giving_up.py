"""Conversations whose writes MongoDB refuses: they are their own trouble alone."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from linedesk.operate.dead_letters import explained
from linedesk.operate.text import known
from linedesk.store.client import Client
from linedesk.store.documents import make_document
from linedesk.store.errors import REFUSED_WORDS
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms, echo, texts
from tests.waiting import eventually


@pytest.fixture
def spacious(client: Client) -> Iterator[None]:
    """The server's cache holds conversations of 16 MB, several versions of each."""
    resize(client, "1G")
    yield
    resize(client, "256M")


def resize(client: Client, size: str) -> None:
    engine = {"setParameter": 1, "wiredTigerEngineRuntimeConfig": f"cache_size={size}"}
    client.admin.command(engine)


def fill(conversations: Any, id_: str, *, left: int) -> None:
    """Enlarge the conversation by this many bytes, up to MongoDB's limit."""
    conversations.update_one({"_id": id_}, {"$set": {"fat": ""}})
    sized = [{"$match": {"_id": id_}}, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}]
    (row,) = conversations.aggregate(sized)
    fat = "x" * (16 * 1024 * 1024 - row["size"] - left)
    conversations.update_one({"_id": id_}, {"$set": {"fat": fat}})


# The size that the call of one push adds to a conversation.
CALL_BYTES = 132


@pytest.mark.usefixtures("spacious")
@pytest.mark.parametrize("left", [1, CALL_BYTES])
def test_a_conversation_with_hardly_any_room_is_the_trouble_of_its_own_messages_alone(
    database: Any, sim: Sim, deaths: list[BaseException | None], left: int
) -> None:
    """Its outbox, its messages and its unsends; also for the next process, that finds it so."""
    user, neighbour = sim.add_user("花子"), sim.add_user("太郎")
    id_ = f"{CHANNEL}/{user.user_id}"
    with Room(database, sim, echo("push", "はい")) as first, first.desk.gate.turn():
        waiting = first.says(user, "一")
        first.until_decided()
        first.desk.stop()
    for epoch in (2, 3):
        fill(database.conversations, id_, left=left)
        taken_back = sim.drafts.text(user, "ひみつ")
        copy = make_document(taken_back, channel=CHANNEL, accept_time=datetime.now(UTC))
        database.recvq.insert_one(copy)
        with Room(database, sim, echo("push", "はい"), epoch=epoch) as desk:
            desk.until_quiet(seconds=30)
            fill(database.conversations, id_, left=left)
            said = [
                desk.says(user, "二"),
                desk.put(sim.drafts.unsend(copy["event"]["message"]["id"], user)),
            ]
            desk.says(neighbour, "三")
            desk.until_quiet(seconds=30)
        assert deaths == []
        assert texts(sim, neighbour) == ["はい"] * (epoch - 1)
        assert "ひみつ" not in str(database.recvq.find_one({"_id": copy["_id"]}))
        # An event without a record and a send is a dead letter with the reason.
        letters = {one["_id"]: one for one in desk.letters()}
        assert {one["eventId"] for one in said} <= letters.keys() | set(
            desk.conversation(user.user_id)["applied"]
        )
        assert {one["key"] for one in letters.values()} == {user.user_id}
        assert all(explained(one).startswith(REFUSED_WORDS) for one in letters.values())
        assert (f"{waiting['eventId']}/0" in letters) == (left < CALL_BYTES)


@pytest.mark.parametrize(
    ("broken", "waits"),
    [
        ({"applied": "E1"}, False),
        ({"n": "many"}, False),
        ({"outbox": "nothing"}, False),
        ({"outbox": {"first": {"type": "send"}, "": {}, "0": 5, "1": None}}, True),
        ({"call": {"at": "nothing", "members": 5}}, True),
    ],
)
def test_a_conversation_that_a_person_broke_is_its_own_trouble(
    database: Any,
    room: Rooms,
    sim: Sim,
    deaths: list[BaseException | None],
    broken: dict[str, Any],
    waits: bool,
) -> None:
    user, neighbour = sim.add_user("花子"), sim.add_user("太郎")
    id_ = f"{CHANNEL}/{user.user_id}"
    with Room(database, sim, echo("push", "はい")) as first:
        first.says(user, "一")
        first.until_quiet()
    database.conversations.update_one({"_id": id_}, {"$set": broken})
    desk = room(echo("push", "はい"), epoch=2)
    said = desk.says(user, "二")
    desk.says(neighbour, "三")
    desk.until_decided()
    eventually(lambda: texts(sim, neighbour) == ["はい"])
    assert deaths == []
    letters = [(one["_id"], one["key"]) for one in desk.letters()]
    assert letters == ([] if waits else [(said["eventId"], user.user_id)])
    eventually(lambda: texts(sim, user) == ["はい"] * (1 + waits))


def test_an_outbox_that_mongodb_refuses_to_change_holds_up_no_other(
    database: Any, room: Rooms, sim: Sim, deaths: list[BaseException | None]
) -> None:
    """By a validator, for example: it is reported as waiting, and given up once that is stored."""
    users = [sim.add_user(name) for name in ("花子", "太郎")]
    with Room(database, sim, echo("push", "はい")) as first, first.desk.gate.turn():
        decided = [first.says(user, "一") for user in users]
        first.until_decided()
        first.desk.stop()
    refused = {"validator": {"key": {"$ne": users[0].user_id}}}
    effect_id, cause = f"{decided[0]['eventId']}/0", f"{REFUSED_WORDS}: code 121"
    try:
        database.command("collMod", "conversations", **refused)
        desk = room(echo("push", "はい"), epoch=2)
        eventually(lambda: texts(sim, users[1]) == ["はい"])
        eventually(lambda: [row["key"] for row in desk.desk.waiting()] == [users[0].user_id])
        eventually(lambda: known(desk.desk.waiting()[0]["why"]) == cause)
        # Decisions of a predecessor there do not become dead letters.
        desk.put_document(decided[0], again=True)
        desk.until_decided()
        assert desk.letters() == []
        # An operator who gives its send up sees it as under way.
        assert desk.desk.give_up_send(CHANNEL, users[0].user_id, effect_id)
    finally:
        database.command("collMod", "conversations", validator={})
    desk.until_quiet()
    assert (deaths, texts(sim, users[0])) == ([], [])
    assert [(one["_id"], explained(one)) for one in desk.letters()] == [(effect_id, cause)]
