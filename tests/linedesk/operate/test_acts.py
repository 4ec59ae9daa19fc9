"""The acts of an operator: each is recorded first, and not done if the record fails."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId

from linedesk.operate.acts import Acts, Head, heads, newest, only
from linedesk.operate.processes import present_leader
from linedesk.operate.text import NotDone, NotReplayed, known
from linedesk.store.client import Client, connect
from linedesk.store.control import Scope
from linedesk.store.documents import Document
from linedesk.store.errors import RecvqClosed, StoreUnavailable
from linedesk.store.records.effects import place_of
from tests.dispatcher.faults import failing
from tests.linedesk.operate.hand import HANAKO, a_dispatcher, an_event, empty
from tests.rows import Db

NAME = "acts"
KEY = Scope("main", HANAKO)


@pytest.fixture
def database(module_database: Db) -> Iterator[Db]:
    yield module_database
    empty(
        module_database,
        *("audit", "control", "deadletters", "recvq", "held", "status", "conversations"),
    )


@pytest.fixture
def own(database: Db, mongo_uri: str) -> Iterator[Db]:
    """The database by a client whose commands can be made to fail apart from all others'."""
    with connect(mongo_uri, app_name=NAME, retryWrites=False) as client:
        yield client[database.name]


@pytest.fixture
def acts(own: Db) -> Acts:
    return Acts(own, by="hanako", via="page")


def rows(database: Db) -> list[Document]:
    """The rows of the audit, the oldest first."""
    return newest(database)[::-1]


def a_letter(database: Db, id_: str = "01E", **more: Any) -> str:
    document = an_event(id_)
    letter = {"_id": id_, "channel": "main", "key": HANAKO, "document": document}
    database.deadletters.insert_one({**letter, "lastAt": datetime.now(UTC), **more})
    return id_


def test_each_act_is_recorded_with_its_operator_target_and_reason(own: Db, acts: Acts) -> None:
    assert acts.pause(KEY, why="too loud")
    assert acts.resume(KEY)
    acts.release("main", HANAKO, Head("event", "01E", "slow"))
    assert acts.replay(a_letter(own)) == "replay:01E:1"
    assert acts.drop(["01E", "01NONE"]) == 1
    found = rows(own)
    key = f"main/{HANAKO}"
    assert [(row["act"], row["on"]) for row in found] == [
        ("pause", key),
        ("resume", key),
        ("release", f"{key} 01E"),
        ("replay", "01E"),
        ("drop", ["01E", "01NONE"]),
    ]
    assert {(row["by"], row["via"], row["outcome"]) for row in found} == {
        ("hanako", "page", "done")
    }
    assert found[0]["why"] == "too loud"
    assert all(row["endedAt"] >= row["at"] for row in found)
    assert [row["eventId"] for row in own.recvq.find()] == ["replay:01E:1"]


def test_no_act_is_done_whose_row_cannot_be_written(own: Db, acts: Acts, client: Client) -> None:
    letter = a_letter(own)
    with failing(client, ["insert"], errorCode=262, appName=NAME):
        for act in (
            lambda: acts.pause(KEY),
            lambda: acts.resume(Scope()),
            lambda: acts.release("main", HANAKO, Head("event", "01E", "")),
            lambda: acts.replay(letter),
            lambda: acts.drop([letter]),
        ):
            with pytest.raises(StoreUnavailable):
                act()
    assert rows(own) == []
    assert list(own.control.find()) == list(own.recvq.find()) == []
    assert own.deadletters.find_one({"_id": letter}, {"replays": 1}) == {"_id": letter}


def test_an_act_of_unknown_outcome_stays_as_begun(
    own: Db, acts: Acts, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        failing(client, ["delete"], closeConnection=True, appName=NAME),
        pytest.raises(StoreUnavailable),
    ):
        acts.drop([a_letter(own)])
    (row,) = rows(own)
    assert row["outcome"] == "begun"
    assert "endedAt" not in row
    assert "outcome of an act is unknown, begun in audit act=drop" in caplog.text


def test_a_refused_act_says_why(own: Db, acts: Acts) -> None:
    letter = a_letter(own, replayedAt=datetime.now(UTC))
    with pytest.raises(NotReplayed) as refused:
        acts.replay(letter)
    assert refused.value.unless == "again"
    own.drop_collection("recvq")
    with pytest.raises(RecvqClosed):
        acts.replay(letter, again=True)
    first, second = (row["outcome"] for row in rows(own))
    assert known(first).startswith("refused: it was replayed at ")
    assert "recvq does not exist" in known(second)
    assert own.list_collection_names(filter={"name": "recvq"}) == []


def test_of_two_pauses_at_once_one_counts_and_a_resume_without_a_pause_does_nothing(
    own: Db, acts: Acts
) -> None:
    other = Acts(own, by="taro", via="command")
    assert [acts.pause(KEY), other.pause(KEY), acts.resume(KEY), other.resume(KEY)] == [
        *(True, False),
        *(True, False),
    ]
    assert [row["by"] for row in rows(own)] == ["hanako", "taro", "hanako", "taro"]


def test_the_head_is_the_dispatchers_event_else_the_first_held_one(own: Db) -> None:
    assert heads(own, "main", HANAKO) == []
    held = {"channel": "main", "key": HANAKO, "why": "slow", "since": datetime.now(UTC)}
    ids = [ObjectId(), ObjectId()]
    own.held.insert_many(
        [
            {**held, "_id": ids[0], "n": 2, "document": an_event("01B")},
            {**held, "_id": ids[1], "n": 1, "document": an_event("01A")},
        ]
    )
    assert [(head.kind, head.id, head.why) for head in heads(own, "main", HANAKO)] == [
        ("event", "01A", "slow")
    ]
    waiting = {"channel": "main", "key": HANAKO, "eventId": "01W", "why": "failed twice"}
    now = datetime.now(UTC)
    own.status.insert_one(a_dispatcher(now=now, waiting=[waiting]))
    assert heads(own, "main", HANAKO)[0].id == "01W"
    doing = {"channel": "main", "key": HANAKO, "eventId": "01T", "name": "worker-01"}
    own.status.insert_one(a_dispatcher(11, now=now, threads=[doing], epoch=8))
    assert heads(own, "main", HANAKO)[0].id == "01T"
    row = present_leader(own)
    assert row is not None
    assert row["pid"] == 11


def test_a_stuck_send_and_a_stuck_event_are_told_apart(own: Db) -> None:
    effects = [("01E/timer/egg", "timer"), ("01E/0", "send"), ("01E/1", "send")]
    outbox = {place_of(7, n): {"id": id_, "type": what} for n, (id_, what) in enumerate(effects)}
    call = {"at": datetime.now(UTC), "as": "push", "members": [place_of(7, 1)]}
    conversation = {"_id": f"main/{HANAKO}", "outbox": outbox, "call": call}
    own.conversations.insert_one(conversation)
    # The dispatcher tells of sends that wait, too: their events are decided.
    waiting = {"channel": "main", "key": HANAKO, "eventId": "01E", "effectId": "01E/0"}
    own.status.insert_one(a_dispatcher(now=datetime.now(UTC), waiting=[waiting]))
    (head,) = heads(own, "main", HANAKO)
    assert (head.kind, head.id) == ("send", "01E/0")
    assert known(head.why) == "2 wait in its outbox; the first: tried, of unknown outcome"
    assert head.named == {"effectId": "01E/0"}
    event = Head("event", "01E", "")
    assert only([event, head], "send") is head
    with pytest.raises(NotDone, match="name one of them"):
        only([event, head], None)
    with pytest.raises(NotDone, match="nothing of it waits"):
        only([head], "event")
