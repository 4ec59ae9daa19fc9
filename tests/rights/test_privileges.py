"""Each user's rights are sufficient for its work, by the real code, and no more."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.feed.feed import Feed, feed_client
from dispatcher.feed.rescan import Rescan
from dispatcher.lease import Lease
from frontdesk import recvq
from frontdesk.errors import NotStored
from jobworker.record.dead_letters import Ageing
from linedesk.launch.dispatcher import make_feed
from linedesk.operate.acts import Acts, Head, OperatorControl
from linedesk.setup.neighbours import CAPPED_BYTES, PLAIN, Neighbours
from linedesk.setup.uri import Uri
from linedesk.setup.users import WHO
from linedesk.store.control import Scope
from linedesk.store.documents import PROGRESS, RECVQ, Document, make_document, make_heartbeat
from linedesk.store.errors import UNAUTHORIZED, AccessRefused
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard
from linedesk.store.queue.usage import RecvqUsage
from tests.linedesk.commands.terminals import typed
from tests.rights.conftest import Guarded
from tests.rows import Db
from tests.waiting import eventually

LINE_BOT = "line_bot"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
LETTER: Document = {"channel": "main", "key": "U1", "attempts": 1, "firstAt": NOW, "lastAt": NOW}
CONVERSATION: Document = {"channel": "main", "key": "U1", "kind": "user", "n": 1, "at": NOW}


@pytest.fixture(scope="module")
def admin(guarded: Guarded) -> Db:
    return guarded.client_of("admin")[LINE_BOT]


@pytest.fixture(scope="module")
def frontdesk(guarded: Guarded) -> Db:
    return guarded.client_of("frontdesk")[LINE_BOT]


@pytest.fixture(scope="module")
def dispatcher(guarded: Guarded) -> Db:
    return guarded.client_of("dispatcher")[LINE_BOT]


def a_document(name: str) -> Document:
    event = {"type": "message", "webhookEventId": name, "source": {"type": "user", "userId": "U1"}}
    return make_document(event, channel="main", accept_time=datetime.now(UTC))


def test_a_dispatcher_makes_all_but_recvq_again(
    admin: Db, dispatcher: Db, guarded: Guarded
) -> None:
    admin.client.drop_database(LINE_BOT)
    dispatcher["jobs"].insert_one({"_id": "uncapped now"})
    Neighbours(dispatcher).look()
    assert "calls" in admin.list_collection_names()
    admin["deadletters"].insert_one({**LETTER, "_id": "old", "lastAt": NOW - timedelta(days=999)})
    Ageing(dispatcher, days=90).look()
    assert admin["audit"].find_one({"act": "expire"}) is not None
    assert admin["deadletters"].find_one({"_id": "old", "expiresAt": {"$ne": None}}) is not None
    admin["deadletters"].delete_one({"_id": "old"})
    assert admin["jobs"].options()["capped"]
    guarded.init()


def test_a_dispatcher_holds_the_lease_and_ends_what_a_predecessor_left_open(dispatcher: Db) -> None:
    lease = Lease(dispatcher)
    assert lease.try_acquire()
    lease.renew()
    first = Progress(Committer(dispatcher), feed="changestream", epoch=lease.epoch)
    first.take_over()
    row = {"_id": "dispatcher"}
    with dispatcher.client.start_session() as left:
        of_left = {"session": left.session_id["id"]}
        dispatcher[PROGRESS].update_one(row, {"$set": of_left})
        left.start_transaction()
        dispatcher[PROGRESS].update_one(row, {"$set": {"held": 1}}, session=left)
        second = Progress(Committer(dispatcher), feed="changestream", epoch=lease.epoch + 1)
        second.take_over()
        with pytest.raises(OperationFailure, match="aborted"):
            left.commit_transaction()
    lease.release()


def test_the_change_stream_brings_what_was_stored(
    guarded: Guarded, dispatcher: Db, frontdesk: Db
) -> None:
    """The oplog is read in test_processes.py."""
    with feed_client(guarded.uri_of("dispatcher"), app_name="tests") as client:
        history = Rescan(client[LINE_BOT][RECVQ])
        feed: Feed = make_feed("changestream", client, LINE_BOT)
        feed.open_at(history.now())
        document = a_document("feed")
        insert_documents(frontdesk[RECVQ], [document], timeout_seconds=5)
        insert_documents(dispatcher[RECVQ], [make_heartbeat(datetime.now(UTC))], timeout_seconds=5)
        # The first one may be the heartbeat of the test before.
        reading = eventually(feed.read)
        while reading.document["_id"] != document["_id"]:
            reading = eventually(feed.read)
        feed.close()
        feed.open(reading.token)
        assert eventually(feed.read)
        feed.close()
        taken: list[Any] = []
        history.scan(None, lambda found: bool(taken.append(found["_id"])), lambda: False)
        assert document["_id"] in taken


def run(guarded: Guarded, who: str, *arguments: str) -> str:
    """The output of a command by the user of this name."""
    return typed({"MONGODB_URI": guarded.uri_of(who)})(*arguments, "--json").stdout


def test_an_operator_reads_all_that_the_commands_show(guarded: Guarded, admin: Db) -> None:
    admin["deadletters"].insert_one({"_id": "letter-1", "cause": "handler: planted", **LETTER})
    admin["conversations"].insert_one({"_id": "main/U1", **CONVERSATION})
    assert "letter-1" in run(guarded, "operator", "dead", "list")
    assert "letter-1" in run(guarded, "operator", "dead", "show", "letter-1", "--text")
    assert "main/U1" in run(guarded, "operator", "conversation", "show", "main/U1", "--text")


def test_the_console_s_user_replays_and_drops_dead_letters(guarded: Guarded, admin: Db) -> None:
    for name in ("letter-2", "letter-3"):
        admin["deadletters"].insert_one({"_id": name, "document": a_document(name), **LETTER})
    run(guarded, "console", "dead", "replay", "letter-2")
    run(guarded, "console", "dead", "drop", "letter-3")
    assert admin[RECVQ].find_one({"eventId": "replay:letter-2:1"}) is not None
    assert admin["deadletters"].find_one({"_id": "letter-3"}) is None


def test_what_an_operator_orders_the_dispatcher_carries_out(
    guarded: Guarded, dispatcher: Db
) -> None:
    """With the row in `audit` that each act has."""
    acts = Acts(guarded.client_of("console")[LINE_BOT], by="mika", via="page")
    assert acts.pause(Scope("main", "U1"), why="trial")
    control = OperatorControl(dispatcher)
    assert control.read().covering("main", "U1")
    release = acts.release("main", "U1", Head("event", "e1", "it hangs"))
    came = control.came_of(release)
    assert came is not None
    control.finish(release, came)
    assert acts.came(release) == came
    assert acts.resume(Scope("main", "U1"))
    rows = guarded.client_of("operator")[LINE_BOT]["audit"].find({"by": "mika"}).sort("at", 1)
    told = [(row["act"], row["outcome"]) for row in rows]
    assert told == [("pause", "done"), ("release", "done"), ("resume", "done")]
    # The operator resumes conversations that the dispatcher of a release before has paused.
    assert control.pause(Scope("main", "U2"), by="dispatcher", why="poison")
    assert acts.resume(Scope("main", "U2"))


def test_a_dispatcher_makes_changes_and_deletes_a_multicast(dispatcher: Db) -> None:
    for command in writes_to("batches"):
        assert dispatcher.command(command)["n"] == 1


def of(user: str, *commands: Document, place: str = LINE_BOT) -> list[tuple[str, str, Document]]:
    return [(user, place, command) for command in commands]


def writes_to(name: str) -> list[Document]:
    row = {"_id": "by a user without the right"}
    return [
        {"insert": name, "documents": [row]},
        {"update": name, "updates": [{"q": row, "u": {"$set": {"by": 1}}}]},
        {"delete": name, "deletes": [{"q": row, "limit": 1}]},
    ]


def reads_of(*names: str) -> list[Document]:
    return [{"find": name} for name in names]


EVERYTHING = (RECVQ, *CAPPED_BYTES, *PLAIN)
CONSOLE_READS = set(EVERYTHING) - {RECVQ, "deadletters", "control", "audit"}
FOR_NO_USER: list[tuple[str, Document]] = [
    (LINE_BOT, {"drop": "recvq"}),
    (LINE_BOT, {"drop": "conversations"}),
    (LINE_BOT, {"dropDatabase": 1}),
    (LINE_BOT, {"collMod": "recvq", "cappedSize": 4096}),
    (LINE_BOT, {"createUser": "thief", "pwd": "thief", "roles": []}),
    (LINE_BOT, {"updateUser": "linedesk-frontdesk", "pwd": "thief"}),
    (LINE_BOT, {"grantRolesToUser": "linedesk-frontdesk", "roles": ["dbOwner"]}),
    (LINE_BOT, {"createRole": "thief", "privileges": [], "roles": []}),
    (LINE_BOT, {"usersInfo": 1}),
    ("admin", {"renameCollection": "line_bot.recvq", "to": "line_bot.gone"}),
    ("admin", {"getCmdLineOpts": 1}),
    ("admin", {"replSetStepDown": 1}),
    ("admin", {"shutdown": 1}),
    ("admin", {"find": "system.users"}),
    ("local", {"delete": "oplog.rs", "deletes": [{"q": {}, "limit": 1}]}),
    ("other", {"find": "anything"}),
    ("other", {"insert": "anything", "documents": [{}]}),
]
REFUSED = [
    *((who, *one) for who in WHO for one in FOR_NO_USER),
    *of("frontdesk", *writes_to("recvq")[1:], *reads_of(*set(EVERYTHING) - {"recvq", "progress"})),
    *(
        one
        for name in set(EVERYTHING) - {"recvq", "status"}
        for one in of("frontdesk", *writes_to(name))
    ),
    *of(
        "frontdesk",
        writes_to("status")[2],
        {"create": "anything"},
        {"createIndexes": "recvq", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        {"dropIndexes": "recvq", "index": "eventId"},
        {"convertToCapped": "recvq", "size": 4096},
        {"listCollections": 1},
        {"aggregate": "recvq", "pipeline": [{"$changeStream": {}}], "cursor": {}},
    ),
    *of("frontdesk", {"find": "oplog.rs"}, place="local"),
    *of(
        "dispatcher",
        *(writes_to(name)[2] for name in ("progress", "leases", "calls", "deadletters", "status")),
        *(writes_to(name)[1] for name in ("calls", "jobs", "history")),
        # Only operators resume, and only they write their part of the audit.
        writes_to("control")[2],
        # It may add that letters grow too old, and can change or remove no row.
        *writes_to("audit")[1:],
        *writes_to("anything"),
        {"convertToCapped": "conversations", "size": 4096},
        {"dropIndexes": "conversations", "index": "outbox"},
        # `linedesk init` alone makes recvq again, as administrator.
        writes_to("recvq")[2],
        {"convertToCapped": "recvq", "size": 4096},
        {"dropIndexes": "recvq", "index": "eventId"},
    ),
    *of("dispatcher", {"replSetGetStatus": 1}, place="admin"),
    *(one for name in EVERYTHING for one in of("operator", *writes_to(name))),
    *(one for name in CONSOLE_READS for one in of("console", *writes_to(name))),
    *of("console", *writes_to("recvq")[1:], writes_to("deadletters")[0], writes_to("audit")[2]),
    *(
        (who, LINE_BOT, command)
        for who in ("operator", "console")
        for command in (
            {"create": "anything"},
            {"createIndexes": "recvq", "indexes": [{"key": {"a": 1}, "name": "a"}]},
            {"dropIndexes": "recvq", "index": "eventId"},
            {"convertToCapped": "recvq", "size": 4096},
        )
    ),
]


def test_all_else_is_refused(guarded: Guarded) -> None:
    clients = {who: guarded.client_of(who) for who in WHO}
    allowed = [one for one in REFUSED if not is_refused(clients[one[0]][one[1]], one[2])]
    assert allowed == []


def is_refused(place: Db, command: Document) -> bool:
    try:
        place.command(command)
    except OperationFailure as error:
        return error.code == UNAUTHORIZED
    return False


def test_a_refused_feed_keeps_its_position(guarded: Guarded, dispatcher: Db) -> None:
    """Otherwise all of recvq would be read again after each replaced password."""
    with dispatcher[RECVQ].watch(max_await_time_ms=1) as stream:
        stream.try_next()
        token = stream.resume_token
    with feed_client(guarded.uri_of("frontdesk"), app_name="tests") as client:
        with pytest.raises(AccessRefused):
            make_feed("changestream", client, LINE_BOT).open(token)
        with pytest.raises(AccessRefused):
            make_feed("oplog", client, LINE_BOT).open(Timestamp(1, 1))


def test_a_front_desk_with_a_wrong_password_says_so_for_as_long_as_it_lasts(
    guarded: Guarded, frontdesk: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the refusal the driver asks the server nothing for a while, as if it were away."""
    monkeypatch.setattr(recvq, "PROBE_SECONDS", 0.1)
    wrong = replace(Uri.parse(guarded.uri_of("frontdesk")), password="wrong-one")
    with recvq.connect_storage(str(wrong)) as client:
        guard = Guard(client[LINE_BOT])
        with pytest.raises(AccessRefused):
            guard.look()
        with pytest.raises(NotStored, match="refuses the user") as unavailable:
            recvq.Recvq(client[LINE_BOT], guard).probe()
    assert "Timeout" in unavailable.value.detail
    guard._usage = RecvqUsage(frontdesk)
    guard.look()
    assert guard.refused is None
