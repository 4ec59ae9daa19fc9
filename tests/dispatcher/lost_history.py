"""Writers that insert while recvq changes, and the inserts that MongoDB confirmed to them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.feed.rescan import Rescan
from linedesk.store.collections import check_recvq
from linedesk.store.documents import PROGRESS, RECVQ, Document, name_of
from linedesk.store.errors import StoreUnavailable, WrongCollection
from linedesk.store.insert import insert_documents
from tests.dispatcher.fakes import RecordingWorker, document
from tests.rows import Db
from tests.waiting import eventually

PAUSE_SECONDS = 0.003


class Writer:
    """Inserts documents of a key of its own, one after the other, like a front desk.

    It waits while recvq is wrong if it is `careful`, and repeats unconfirmed inserts.
    """

    def __init__(self, database: Db, name: str, *, careful: bool) -> None:
        self.stored: list[str] = []
        self._database = database
        self._name = name
        self.key = f"U-{name}"
        self._careful = careful
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"writer {name}")

    def _run(self) -> None:
        number = 0
        while not self.stop.wait(PAUSE_SECONDS):
            one = document(f"{self._name}-{number}", self.key)
            if self._store(one):
                self.stored.append(name_of(one))
                number += 1

    def _store(self, one: Document) -> bool:
        """Repeated until it is confirmed: under its `_id` it is stored once."""
        while not self.stop.is_set():
            try:
                if self._careful:
                    check_recvq(self._database)
                insert_documents(self._database[RECVQ], [one], timeout_seconds=5)
            except (StoreUnavailable, WrongCollection):
                self.stop.wait(PAUSE_SECONDS)
            else:
                return True
        return False


@contextmanager
def writing(database: Db, *, count: int = 2, careful: bool = True) -> Iterator[list[Writer]]:
    """Run some writers; then `stored` of each has the inserts that were confirmed."""
    writers = [Writer(database, f"w{n}", careful=careful) for n in range(count)]
    for writer in writers:
        writer.thread.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.thread.join(30)
            assert not writer.thread.is_alive()


def stored(writers: list[Writer]) -> list[str]:
    """All inserts that were confirmed to the writers."""
    return [name for writer in writers for name in writer.stored]


def some(writers: list[Writer], more: int = 20) -> None:
    """Wait until each writer has stored some more."""
    goals = [len(writer.stored) + more for writer in writers]
    eventually(
        lambda: all(len(w.stored) >= goal for w, goal in zip(writers, goals, strict=True)),
        seconds=30,
    )


def wait_until_handled_once(
    worker: RecordingWorker, writers: list[Writer], *others: str, whole: bool = True
) -> None:
    """Wait for all documents stored by now; fail if one came twice or out of its order.

    `whole`: the writers have ended, so no other documents may have come.
    """
    expected = {*stored(writers), *others}
    eventually(lambda: expected <= set(worker.decided), seconds=30)
    assert len(worker.decided) == len(set(worker.decided)), "something was decided twice"
    for writer in writers if whole else ():
        # One that ended before its last insert was confirmed does not count it.
        came = worker.by_key[writer.key]
        assert came[: len(writer.stored)] == writer.stored
        assert len(came) <= len(writer.stored) + 1


def roll_over(database: Db, *, positions: int = 0) -> None:
    """Write elsewhere until the oplog no longer reaches back to now.

    A feed that must keep its place saves so many positions between two writes.
    """
    than, oplog = Rescan(database[RECVQ]).now(), database.client.local["oplog.rs"]

    def gone() -> bool:
        filler = database.client["filler"]["filler"]
        filler.insert_many([{"text": "x" * 20_000} for _ in range(20)])
        for _ in range(positions):
            saved = (database[PROGRESS].find_one() or {})["token"]
            eventually(lambda: (database[PROGRESS].find_one() or {})["token"] != saved)  # noqa: B023
        oldest = oplog.find({}, {"ts": 1}).sort("$natural", 1).limit(1).next()
        return bool(oldest["ts"] > than)

    eventually(gone, seconds=30)


def has_position(database: Db) -> bool:
    """Whether a token is saved, which a feed could lose."""
    return bool((database[PROGRESS].find_one() or {}).get("token"))
