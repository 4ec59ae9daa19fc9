"""The spool's file: its documents, their order, its limits, and damaged files."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from linedesk.store.documents import make_document
from linedesk.store.errors import SpoolUnavailable
from linedesk.store.spool import spool_file
from linedesk.store.spool.spool import Spool, SpoolContents
from tests.conftest import missing

MEGABYTE = 1024 * 1024
ROOT = Path(__file__).resolve().parents[4]
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def raw(name: str, *, key: str = "U1", text: str = "", **event: Any) -> RawBSONDocument:
    content = {
        "webhookEventId": name,
        "source": {"userId": key},
        "type": "message",
        "message": {"type": "text", "id": f"m-{name}", "text": text},
        **event,
    }
    return RawBSONDocument(bson.encode(make_document(content, channel="main", accept_time=WHEN)))


def names(spool: Spool) -> list[str]:
    batch = spool.oldest(documents=100_000, max_bytes=1 << 40)
    return [bson.decode(data)["eventId"] for data in batch.bsons]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


@pytest.fixture
def spool(path: Path) -> Iterator[Spool]:
    with closing(Spool(path, max_bytes=64 * MEGABYTE)) as spool:
        yield spool


@pytest.fixture
def other(path: Path) -> Iterator[Spool]:
    """The same file as another process has it open."""
    with closing(Spool(path, max_bytes=64 * MEGABYTE)) as spool:
        yield spool


def test_what_is_removed_is_only_what_was_read(spool: Spool, other: Spool) -> None:
    spool.append([raw("a"), raw("b")])
    batch = spool.oldest(documents=9, max_bytes=MEGABYTE)
    other.append([raw("c")])
    spool.remove(batch)
    spool.remove(batch)
    assert names(spool) == ["c"]
    assert spool.held().documents == 1


def test_an_unsent_message_is_emptied_and_no_other(spool: Spool) -> None:
    spool.append([raw("a", text="秘密"), raw("b", text="残る")])
    spool.append([raw("c", type="unsend", unsend={"messageId": "m-a"})])
    documents = [bson.decode(data) for data in spool.oldest(documents=3, max_bytes=MEGABYTE).bsons]
    first, second, _ = documents
    assert first["unsent"] is True
    assert "秘密" not in str(first)
    assert second["event"]["message"]["text"] == "残る"
    assert spool.held().bytes == sum(len(bson.encode(document)) for document in documents)


def test_an_empty_spool_gives_its_disk_back(spool: Spool, path: Path) -> None:
    spool.append([raw(str(number), text="x" * 10_000) for number in range(500)])
    spool.remove(spool.oldest(documents=1000, max_bytes=1 << 40))
    spool.tidy()
    assert path.stat().st_size < MEGABYTE
    assert Path(f"{path}-wal").stat().st_size == 0
    assert spool.held() == SpoolContents()


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 2)),
            st.tuples(st.just("move"), st.integers(1, 5), st.just(0)),
            st.tuples(st.just("close"), st.just(0), st.just(0)),
        ),
        max_size=20,
    )
)
@settings(max_examples=25, deadline=None)
def test_it_is_a_queue_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool.db"
    model: list[tuple[str, str]] = []
    made = 0
    with closing(Spool(path, max_bytes=MEGABYTE)) as spool:
        for step, count, key in steps:
            if step == "append":
                fresh = [(str(made + n), f"U{key}") for n in range(count)]
                made += count
                spool.append([raw(name, key=of) for name, of in fresh])
                model += fresh
            elif step == "move":
                spool.remove(spool.oldest(documents=count, max_bytes=MEGABYTE))
                model = model[count:]
            else:
                spool.close()
            assert names(spool) == [name for name, _ in model]
            assert spool.held().documents == len(model)
            asked = [raw("?", key=f"U{n}") for n in range(3)]
            with closing(Spool(path, max_bytes=MEGABYTE)) as reader:
                assert reader.keys_held(asked) == {("main", of) for _, of in model}


def fill(spool: Spool, *, text: str = "x" * 50_000) -> int:
    """Append until it refuses; returns how many documents it took."""
    for count in range(10_000):
        try:
            spool.append([raw(f"f{count}", text=text)])
        except SpoolUnavailable:
            return count
    raise AssertionError("it never was full")


def disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def test_it_takes_no_more_than_its_limit_and_takes_again_once_drained(path: Path) -> None:
    with closing(Spool(path, max_bytes=MEGABYTE)) as spool:
        taken = fill(spool)
        assert taken * 50_000 > MEGABYTE // 2
        # Beside the limit there is the index of the log, 32 KB.
        assert disk_bytes(path) <= MEGABYTE + 64 * 1024
        with pytest.raises(SpoolUnavailable, match="SPOOL_MAX_MB"):
            spool.append([raw("large", text="x" * MEGABYTE)])
        with pytest.raises(SpoolUnavailable, match="SPOOL_MAX_MB"):
            spool.probe()
        spool.remove(spool.oldest(documents=8, max_bytes=MEGABYTE))
        spool.probe()
        spool.append([raw("again", text="x" * 50_000)])


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 2 MB, in memory."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        missing("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_others_filled_refuses_keeps_what_it_has_and_recovers(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk") as disk,
        closing(Spool(disk / "spool.db", max_bytes=1024 * MEGABYTE)) as spool,
    ):
        spool.append([raw("kept")])
        filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
        with pytest.MonkeyPatch.context() as patch:
            # Without the spool's own check of the disk, so that SQLite itself reaches the limit.
            patch.setattr(spool_file, "check_room", lambda *_: None)
            with suppress(OSError):
                while True:
                    os.write(filler, b"x" * 4096)
            with pytest.raises(SpoolUnavailable, match="full"):
                spool.append([raw("refused", text="x" * 50_000)])
        os.close(filler)
        (disk / "filler").unlink()
        assert names(spool) == ["kept"]
        spool.append([raw("after")])
        assert names(spool) == ["kept", "after"]


def test_a_locked_file_is_reported_soon(spool: Spool, path: Path) -> None:
    spool.append([raw("a")])
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(SpoolUnavailable, match="locked by another process"):
            spool.append([raw("b")])
        assert names(spool) == ["a"]
        holder.execute("ROLLBACK")
    spool.append([raw("c")])
    assert names(spool) == ["a", "c"]


def test_a_file_damaged_while_it_is_open_is_set_aside_and_nothing_accepted_goes_into_it(
    spool: Spool, other: Spool, path: Path
) -> None:
    spool.append([raw(str(number), text="x" * 2000) for number in range(100)])
    other.append([raw("last")])
    spool.tidy()
    damaged = bytearray(path.read_bytes())
    damaged[100:] = b"\xff" * (len(damaged) - 100)
    path.write_bytes(damaged)
    accepted = []
    with closing(Spool(path, max_bytes=64 * MEGABYTE)) as third:
        for number in range(12):
            with suppress(SpoolUnavailable):
                (spool, other, third)[number % 3].append([raw(f"new-{number}")])
                accepted.append(f"new-{number}")
    assert len(accepted) > 9
    assert names(spool) == names(other) == accepted
    assert len(list(path.parent.glob("spool.db.damaged-*Z"))) == 1


def test_what_went_into_a_file_that_was_set_aside_meanwhile_is_stored_again(
    spool: Spool, other: Spool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append([raw("old")])
    before = spool.oldest(documents=1, max_bytes=1)
    append = spool._append
    times: list[int] = []

    def replaced_before_it_says_so(rows: Any) -> None:
        append(rows)
        if not times:
            found = spool_file.identity(path)
            assert found is not None
            spool_file.set_aside(path, found, "test")
        times.append(len(rows))

    monkeypatch.setattr(spool, "_append", replaced_before_it_says_so)
    spool.append([raw("new")])
    assert names(spool) == names(other) == ["new"]
    assert times == [1, 1]
    # Numbers of the old file say nothing about the new one.
    other.remove(before)
    assert names(other) == ["new"]


def test_the_file_is_for_its_owner_alone(spool: Spool, path: Path) -> None:
    spool.append([raw("a")])
    for file in path.parent.iterdir():
        assert os.stat(file).st_mode & 0o077 == 0


READ_AND_CLOSE = """
import sys
from pathlib import Path
import bson
from linedesk.store.spool.spool import Spool
spool = Spool(Path(sys.argv[1]), max_bytes=1 << 26)
found = spool.oldest(documents=9, max_bytes=1 << 20).bsons
print(*(bson.decode(each)["eventId"] for each in found))
spool.close()
"""


def test_another_process_that_leaves_takes_no_log_away_from_those_that_stay(
    spool: Spool, other: Spool, path: Path
) -> None:
    """Opening the file a second time must not drop the locks of the first connection: otherwise a
    leaving process would count as the last one, and remove a log in use.
    """

    def as_another_process_sees_it() -> list[str]:
        command = [sys.executable, "-c", READ_AND_CLOSE, str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split()

    spool.append([raw("a")])
    assert names(other) == ["a"]
    assert as_another_process_sees_it() == ["a"]
    spool.append([raw("b")])
    assert as_another_process_sees_it() == ["a", "b"]
