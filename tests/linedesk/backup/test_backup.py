"""`linedesk export` and `linedesk import` on a real MongoDB: one moment, all of it, or nothing."""

import os
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.collection import Collection

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.lease import Lease, owner_name
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import Saver
from jobworker.record.conversations import ConversationStore, Decision
from linedesk.backup.export import export_to
from linedesk.backup.file import BackupWriter, check, documents
from linedesk.backup.restore import LeaseHold, restore
from linedesk.backup.transform import REPLACED, TIMER_PAST_DUE, WAITED_IN_HELD, WAITED_IN_OUTBOX
from linedesk.settings.errors import BackupError, NotImported
from linedesk.setup.collections import create_collections
from linedesk.store.client import AS_STORED, Client
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import (
    BATCHES,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    LEASES,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    SCHEMA,
    make_document,
    make_heartbeat,
)
from linedesk.store.errors import Replaced
from linedesk.store.records.effects import place_of
from linedesk.store.timers import due_event_id
from tests.dispatcher.faults import failing
from tests.jobworker.worker_harness import a_send
from tests.linedesk.commands.terminals import Run, typed
from tests.rows import Db

STATE = (CONVERSATIONS, SCHEDULE, DEADLETTERS)
KEY = "U花子"


def now() -> datetime:
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


# Of all that the source holds, so that its documents are the same in each test.
NOW = now()


PLACE = place_of(3, 1)


def a_conversation(key: str = KEY, **more: Any) -> dict[str, Any]:
    names = {"_id": f"main/{key}", "channel": "main", "key": key, "kind": "user", "state": "待つ"}
    data = {"data": {"a.b": {"$date": "いつか"}, "$inc": 1.0}, "until": NOW}
    return names | data | {"n": 4, "epoch": 3, "applied": ["E1"], "outbox": {}, "at": NOW} | more


def a_row(name: str = "egg", **more: Any) -> dict[str, Any]:
    names = {"_id": f"main/{KEY}/{name}", "channel": "main", "key": KEY, "name": name, "n": 4}
    waits = {"runAt": NOW + timedelta(hours=1), "every": None, "data": {}, "setBy": "E1"}
    return names | waits | {"source": None} | more


def a_letter(name: str = "E0") -> dict[str, Any]:
    event = {"type": "message", "webhookEventId": name, "message": {"id": "1", "text": "あ"}}
    document = make_document(event, channel="main", accept_time=NOW)
    times = {"attempts": 3, "firstAt": NOW, "lastAt": NOW}
    return {"_id": name, "channel": "main", "key": KEY, "document": document, "cause": "?"} | times


def fill(database: Db) -> None:
    database[CONVERSATIONS].insert_many(
        [a_conversation(), a_conversation("U太郎", outbox={PLACE: a_send().as_document()})]
    )
    members = [{"_id": "main/U太郎", "places": [PLACE]}]
    batch = {"_id": "B", "epoch": 12, "at": NOW, "state": "ready", "members": members}
    database[BATCHES].insert_one(batch)
    database[SCHEDULE].insert_many([a_row(), a_row("tea", runAt=NOW - timedelta(hours=1))])
    database[DEADLETTERS].insert_one(a_letter())
    database[PROGRESS].insert_one(
        {"_id": "dispatcher", "schema": SCHEMA, "epoch": 12, "token": {"x": 1}}
    )


def whole(database: Db, *names: str) -> dict[str, list[bytes]]:
    """The documents of these collections, byte for byte."""
    return {
        name: [
            row.raw
            for row in database.get_collection(name, codec_options=AS_STORED).find().sort("_id", 1)
        ]
        for name in names or STATE
    }


@pytest.fixture(scope="module")
def shared(client: Client) -> Iterator[Callable[[str], Db]]:
    """Databases as `linedesk init` leaves them, made once."""
    made: dict[str, Db] = {}

    def get(name: str) -> Db:
        if name not in made:
            made[name] = client[f"test_{name}_{uuid.uuid4().hex[:12]}"]
            create_collections(made[name], capped_bytes=MEGABYTE)
        return made[name]

    yield get
    for database in made.values():
        client.drop_database(database.name)


@pytest.fixture
def source(shared: Callable[[str], Db]) -> Db:
    source = emptied(shared("source"))
    fill(source)
    return source


@pytest.fixture(scope="module")
def exported(shared: Callable[[str], Db], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    source = emptied(shared("source"))
    fill(source)
    return export_to(source, tmp_path_factory.mktemp("source") / "export.gz").read_bytes()


@pytest.fixture
def export(exported: bytes, tmp_path: Path) -> Path:
    """An export of `source`."""
    path = tmp_path / "export.gz"
    path.write_bytes(exported)
    return path


@pytest.fixture
def target(shared: Callable[[str], Db]) -> Db:
    """Another database, as good as new."""
    return emptied(shared("target"))


def emptied(database: Db) -> Db:
    for name in (*STATE, BATCHES, PROGRESS, RECVQ, LEASES, HELD):
        database[name].delete_many({})
    create_collections(database)
    return database


@pytest.fixture
def run(mongo_uri: str) -> Run:
    def command(database: Db, *arguments: str, code: int = 0) -> Any:
        environ = {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name}
        return typed(environ)(*arguments, code=code)

    return command


def is_free(database: Db) -> bool:
    """Whether a dispatcher could begin."""
    lease = Lease(database)
    taken = lease.try_acquire()
    lease.release()
    return taken


def restored_from(path: Path, database: Db) -> None:
    restore(database, path, check(path))


@contextmanager
def before_inserts(first: Callable[[], None]) -> Iterator[None]:
    """Calls a function before each insert of many documents."""
    insert = Collection.insert_many

    def insert_many(collection: Any, documents: Any, **options: Any) -> Any:
        first()
        return insert(collection, documents, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collection, "insert_many", insert_many)
        yield


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C at the first insert."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with before_inserts(interrupt), pytest.raises(KeyboardInterrupt):
        yield


def test_an_export_is_whole_and_for_its_owner_alone(run: Run, source: Db, tmp_path: Path) -> None:
    path = tmp_path / "export.gz"
    answer = run(source, "export", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"exported to {path} (" in answer.stdout
    assert "conversations 2, schedule 2" in answer.stdout
    check(path)
    found = {document.raw for _, document in documents(path)}
    assert found == {
        row for rows in whole(source, PROGRESS, BATCHES, *STATE).values() for row in rows
    }


def test_an_export_that_fails_leaves_nothing_and_says_why(
    run: Run, source: Db, client: Client, tmp_path: Path
) -> None:
    answer = run(source, "export", str(tmp_path / "no" / "folder.gz"), code=1)
    assert "cannot be written: No such file" in answer.stderr
    namespace = f"{source.name}.{SCHEDULE}"
    with failing(client, ["find"], times=1, errorCode=239, namespace=namespace):
        answer = run(source, "export", str(tmp_path / "export.gz"), code=1)
    assert "minSnapshotHistoryWindowInSeconds" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def before_first(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], None]:
    """Has a function called before an export writes its first document of a collection."""

    def call(collection: str, first: Callable[[], None]) -> None:
        add, rest = BackupWriter.add, [first]

        def added(writer: Any, name: str, document: Any) -> None:
            if name == collection and rest:
                rest.pop()()
            add(writer, name, document)

        monkeypatch.setattr(BackupWriter, "add", added)

    return call


def test_a_name_that_is_taken_meanwhile_is_not_written_over(
    source: Db, tmp_path: Path, before_first: Any
) -> None:
    path = tmp_path / "export.gz"
    before_first(CONVERSATIONS, lambda: path.write_text("another's"))
    with pytest.raises(BackupError, match="already"):
        export_to(source, path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["another's"]


def test_an_export_is_of_one_moment_while_others_write(
    source: Db, tmp_path: Path, before_first: Any
) -> None:
    before = whole(source)

    def go_on() -> None:
        """A record with a timer comes between the reads of conversations and timers."""
        source[CONVERSATIONS].update_many({}, {"$inc": {"n": 1}})
        source[SCHEDULE].update_many({}, {"$set": {"n": 5, "runAt": None}})
        source[SCHEDULE].insert_one(a_row("new", n=5))

    before_first(CONVERSATIONS, go_on)
    found = list(documents(export_to(source, tmp_path / "export.gz")))
    for name in STATE:
        assert sorted(d.raw for n, d in found if n == name) == sorted(before[name])
    assert whole(source) != before


# The real command, stopped before it writes the timers.
STOPS_BEFORE_TIMERS = """
import sys
from pymongo.collection import Collection
from linedesk.launch.main import linedesk

insert = Collection.insert_many

def stop(collection, documents, **options):
    if collection.name == "schedule":
        print("here", flush=True)
        sys.stdin.read()
    return insert(collection, documents, **options)

Collection.insert_many = stop
linedesk()
"""


def test_what_was_exported_comes_back_under_a_new_epoch(
    run: Run, source: Db, target: Db, tmp_path: Path
) -> None:
    export = export_to(source, tmp_path / "export.gz")
    answer = run(target, "import", str(export))
    found = list(target[CONVERSATIONS].find().sort("_id", 1))
    epoch = target[PROGRESS].find_one()["epoch"]  # type: ignore[index]
    expected = source[CONVERSATIONS].find().sort("_id", 1)
    assert found == [{**row, "epoch": epoch, "outbox": {}} for row in expected]
    # Above any that a frozen process of the database that is gone can have had.
    assert epoch > 1_000_000
    assert target[SCHEDULE].find_one({"name": "egg"}) == source[SCHEDULE].find_one({"name": "egg"})
    letters = {row["_id"]: row["cause"] for row in target[DEADLETTERS].find()}
    assert letters == {"E0": "?", "E1/0": "restored_outbox", "E1/timer/tea": "restored_timer"}
    assert target[DEADLETTERS].find_one({"_id": "E0"}) == source[DEADLETTERS].find_one()
    assert "        2  conversations\n        1  timers that wait\n" in answer.stdout
    assert "        3  deadletters\n        1  restored: waited in an outbox" in answer.stdout
    assert is_free(target)


def test_an_export_of_the_first_release_is_imported(run: Run, target: Db) -> None:
    """Of `fill`, with an event in `held`; one moment of it is of 28 November 2026."""
    answer = run(target, "import", str(Path(__file__).with_name("export_of_0_1_0.jsonl.gz")))
    assert "by linedesk 0.1.0 from MongoDB 6.0.5" in answer.stdout
    found = target[CONVERSATIONS].find_one({"key": KEY})
    assert found is not None
    assert found["data"] == {"a.b": {"$date": "いつか"}, "$inc": 1.0}
    assert target[SCHEDULE].count_documents({}) == 2
    letters = {row["cause"] for row in target[DEADLETTERS].find()}
    assert letters == {"?", WAITED_IN_HELD, WAITED_IN_OUTBOX, TIMER_PAST_DUE}


def test_a_damaged_file_changes_nothing(run: Run, target: Db, export: Path) -> None:
    export.write_bytes(export.read_bytes()[:-20])
    answer = run(target, "import", str(export), code=1)
    assert "truncated" in answer.stderr
    assert not any(whole(target).values())
    assert target["leases"].find_one({"_id": "epochs"})["epoch"] == 0  # type: ignore[index]
    assert "cannot be read" in run(target, "import", str(export.parent / "x"), code=1).stderr


def test_while_a_dispatcher_runs_nothing_is_imported(run: Run, target: Db, export: Path) -> None:
    lease = Lease(target, owner="elsewhere/1/1")
    assert lease.try_acquire()
    answer = run(target, "import", str(export), code=1)
    assert "stop it first" in answer.stderr
    lease.renew()
    assert not any(whole(target).values())
    lease.release()
    run(target, "import", str(export))


def test_what_is_there_is_replaced_only_after_it_was_exported(
    run: Run, target: Db, export: Path
) -> None:
    target[CONVERSATIONS].insert_one(a_conversation("U次郎"))
    before = whole(target)
    answer = run(target, "import", str(export), code=1)
    assert "is not empty, it has conversations: to replace it use --replace" in answer.stderr
    answer = run(target, "import", str(export), "--replace", str(export), code=1)
    assert "exists already" in answer.stderr
    assert whole(target) == before
    assert is_free(target)

    back = export.with_name("before.gz")
    run(target, "import", str(export), "--replace", str(back))
    assert {row["key"] for row in target[CONVERSATIONS].find()} == {KEY, "U太郎"}
    run(target, "import", str(back), "--replace", str(export.with_name("after.gz")))
    assert [row["key"] for row in target[CONVERSATIONS].find()] == ["U次郎"]


def test_letters_that_are_there_stay_and_so_does_what_became_of_them(
    run: Run, target: Db, export: Path
) -> None:
    """Letters replayed since the export are not offered again, and keep their number."""
    replayed = {**a_letter(), "replays": 1, "replayedAt": now()}
    target[DEADLETTERS].insert_many([replayed, a_letter("E7")])
    run(target, "import", str(export))
    assert target[DEADLETTERS].find_one({"_id": "E0"}) == replayed
    found = {row["_id"] for row in target[DEADLETTERS].find()}
    assert found == {"E0", "E1/0", "E1/timer/tea", "E7"}


def test_a_killed_import_keeps_dispatchers_away_until_it_is_run_again(
    run: Run, mongo_uri: str, target: Db, export: Path
) -> None:
    environ = os.environ | {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": target.name}
    with subprocess.Popen(
        [sys.executable, "-c", STOPS_BEFORE_TIMERS, "import", str(export)],
        env=environ | {"PYTHONPATH": str(Path.cwd())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.kill()

    assert target[CONVERSATIONS].count_documents({}) == 2
    assert target[SCHEDULE].find_one() is None
    assert not is_free(target)
    # Nor does a night's export take it for all that there is.
    answer = run(target, "export", str(export.with_name("part.gz")), code=1)
    assert "half imported" in answer.stderr
    answer = run(target, "import", str(export))
    assert "imported" in answer.stdout
    assert target[CONVERSATIONS].count_documents({}) == 2
    assert target[SCHEDULE].count_documents({}) == 2
    assert target[DEADLETTERS].count_documents({}) == 3
    assert is_free(target)
    # The next one is an import like the first.
    assert "is not empty" in run(target, "import", str(export), code=1).stderr


def test_an_import_that_fails_amid_its_writes_says_that_it_has_not_ended(
    run: Run, client: Client, target: Db, export: Path
) -> None:
    target.command("collMod", SCHEDULE, validator={"n": {"$gt": 100}})
    answer = run(target, "import", str(export), code=1)
    assert f"MongoDB refuses 'main/{KEY}/egg' of schedule (error 121)" in answer.stderr
    assert "no dispatcher starts until an import is completed" in answer.stderr
    assert not is_free(target)
    target.command("collMod", SCHEDULE, validator={})
    with failing(client, ["insert"], errorCode=50, namespace=f"{target.name}.schedule"):
        answer = run(target, "import", str(export), code=69)
    assert "no dispatcher starts" in answer.stderr
    run(target, "import", str(export))
    assert is_free(target)


def test_one_that_was_taken_over_writes_no_more(target: Db, export: Path) -> None:
    second = LeaseHold(target, owner="elsewhere/1/1")

    def take_over() -> None:
        if not second.epoch:
            with pytest.raises(NotImported, match="another import runs"):
                second.take(above=0, take_over=False)
            second.take(above=0, take_over=True)

    with before_inserts(take_over), pytest.raises(NotImported, match="taken over"):
        restored_from(export, target)
    assert second.is_half_written
    # Its first batch was through, and no second one came.
    assert sum(bool(rows) for rows in whole(target).values()) == 1
    second.release()


def test_a_process_of_the_database_that_is_gone_is_refused(
    run: Run, target: Db, export: Path
) -> None:
    run(target, "import", str(export))
    # The export knew of 12; some restarts later.
    committer = Committer(target)
    progress = Progress(committer, feed="changestream", epoch=40)
    committer.lead(Saver(Mailboxes(ProgressTracker()), progress))
    ghost = ConversationStore(committer)
    document = make_document(
        {"type": "message", "source": {"userId": KEY}}, channel="main", accept_time=now()
    )
    decision = Decision({"state": "?"}, [])
    with pytest.raises(Replaced):
        ghost.recorded(ghost.enter_record(document, decision, [], message_id=None))
    with pytest.raises(Replaced):
        committer.commit()


def a_document(name: str, key: str = "U", *, hours: float = 0) -> dict[str, Any]:
    event = {"type": "follow", "webhookEventId": name, "source": {"userId": key}}
    return make_document(event, channel="main", accept_time=now() + hours_(hours))


def store(database: Db, *, hours: float, name: str = "", key: str = "U") -> Any:
    document = a_document(name or uuid.uuid4().hex, key, hours=hours)
    database[RECVQ].insert_one(document)
    return document["_id"]


def hours_(hours: float) -> timedelta:
    return timedelta(hours=hours)


def test_what_came_to_a_new_database_before_the_import_is_still_to_be_handled(
    run: Run, target: Db, export: Path
) -> None:
    target[RECVQ].insert_one(make_heartbeat(now() - hours_(1)))
    store(target, hours=1)
    run(target, "import", str(export))
    progress = target[PROGRESS].find_one()
    assert progress is not None
    assert (progress["token"], progress["after"]) == (None, None)


def test_in_doubt_about_handled_events_nothing_is_imported(
    run: Run, target: Db, export: Path
) -> None:
    store(target, hours=-1)
    store(target, hours=1)
    answer = run(target, "import", str(export), code=1)
    assert "`linedesk pause all`" in answer.stderr
    assert is_free(target)


def test_a_second_try_that_is_refused_leaves_no_half_database_to_dispatchers(
    run: Run, target: Db, export: Path
) -> None:
    with interrupted():
        restored_from(export, target)
    store(target, hours=-1)
    for _ in range(2):
        # Nor for a dispatcher that would find its owner dead, or wait for long.
        lease = target[LEASES].find_one({"_id": "dispatcher"})
        assert lease is not None
        assert lease["owner"].startswith("import ")
        assert lease["until"].year == 9999
        assert "no progress shows" in run(target, "import", str(export), code=1).stderr
    assert not is_free(target)


def test_what_a_killed_dispatcher_had_decided_is_not_decided_again(
    run: Run, target: Db, export: Path
) -> None:
    """Progress was not saved since, and the conversations that know of it are to go."""
    late, first, decided, waiting = (
        store(target, hours=-1, name=f"E{n}", key=KEY) for n in (6, 7, 8, 9)
    )
    for n, name in enumerate(("H1", "H2")):
        document = a_document(name, KEY)
        target[HELD].insert_one({"_id": document["_id"], "n": n, "document": document})
    send = {**a_send(at=now()).as_document(), "id": "E8/0"}
    target[CONVERSATIONS].insert_one(
        a_conversation(applied=["E6", "E7", "E8", "H1"], outbox={PLACE: send})
    )
    Progress(Committer(target), feed="changestream", epoch=1).take_over()
    target[PROGRESS].update_one({}, {"$set": {"after": first, "ring.0": first}})
    target[RECVQ].insert_many([{"typed": "in a shell"}, {"_id": {"a": "shell"}}])

    answer = run(target, "import", str(export), "--replace", str(export.with_name("before.gz")))
    progress = target[PROGRESS].find_one()
    assert progress is not None
    # Natural order is not quite the order in which they were read.
    assert (progress["after"], progress["finished"]) == (first, [decided, late])
    assert waiting not in progress["finished"]
    assert [row["document"]["eventId"] for row in target[HELD].find()] == ["H2"]
    # Waiting sends are not lost, either.
    letter = target[DEADLETTERS].find_one({"cause": REPLACED})
    assert letter is not None
    assert letter["effect"] == {**send, "triedAt": None, "as": None}
    assert "        1  restored: replaced before it was sent" in answer.stdout


def test_a_timer_that_has_fired_here_since_the_export_becomes_no_letter(
    run: Run, source: Db, target: Db, export: Path
) -> None:
    row = source[SCHEDULE].find_one({"name": "tea"})
    assert row is not None
    store(target, hours=1, name=due_event_id(row))
    run(target, "import", str(export))
    assert target[DEADLETTERS].find_one({"cause": TIMER_PAST_DUE}) is None


def test_an_import_that_dies_before_it_writes_blocks_no_dispatcher(target: Db) -> None:
    machine, pid, ticks = owner_name().split("/")
    hold = LeaseHold(target, owner=f"{machine}/{pid}/{ticks}1")
    hold.take(above=0, take_over=False)
    # Its death is unknown on another machine.
    until = target[LEASES].find_one({"_id": "dispatcher"})["until"]  # type: ignore[index]
    assert now() < until < now() + hours_(2)
    assert is_free(target)
    with pytest.raises(NotImported):
        hold.begin()
