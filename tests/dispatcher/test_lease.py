"""The lease: one holder at a time, a dead one replaced at once, and epochs that only rise."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dispatcher import lease as lease_module
from dispatcher.lease import BOOT_ID_FILE, LEASE_SECONDS, Lease, boot_id, is_dead, owner_name
from linedesk.runtime.clock import boottime
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.errors import Replaced, StoreUnavailable
from tests.rows import Db
from tests.waiting import eventually

MakeLease = Callable[..., Lease]


@pytest.fixture
def lease(database: Db, nothing_left: None) -> Iterator[MakeLease]:
    """A lease for an owner on another machine, so that only time can show its death."""
    made: list[Lease] = []

    def make(owner: str, **limits: float) -> Lease:
        made.append(Lease(database, owner=f"elsewhere/{owner}/0", **limits))
        return made[-1]

    yield make
    for one in made:
        one.release()


def row(database: Db) -> dict[str, Any]:
    found = database["leases"].find_one({"_id": "dispatcher"})
    assert found is not None
    return found


def expire(database: Db) -> None:
    """The server's time passes the end of the lease."""
    past = [{"$set": {"until": {"$subtract": ["$$NOW", 1]}}}]
    database["leases"].update_one({"_id": "dispatcher"}, past)


def test_the_holder_learns_that_it_was_replaced(lease: MakeLease, database: Db) -> None:
    first, second = lease("a"), lease("b")
    assert first.try_acquire()
    expire(database)
    assert second.try_acquire()
    with pytest.raises(Replaced):
        first.renew()
    first.release()
    assert row(database)["owner"] == "elsewhere/b/0", "what is not its own it does not release"


def test_a_late_renewal_succeeds_while_no_process_took_the_lease(
    lease: MakeLease, database: Db
) -> None:
    one = lease("a")
    assert one.try_acquire()
    expire(database)
    one.renew()
    assert not lease("b").try_acquire()


def test_freshness_is_measured_by_the_time_since_boot(
    lease: MakeLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = lease("a")
    began = now = boottime()
    monkeypatch.setattr(lease_module, "boottime", lambda: now)
    assert one.try_acquire()
    now = began + LEASE_SECONDS - 0.01
    assert one.is_fresh()
    now = began + LEASE_SECONDS
    assert not one.is_fresh()
    one.renew()
    assert one.is_fresh()


def test_a_renewal_counts_from_when_it_was_asked_for(
    lease: MakeLease, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may take long: the server's three seconds began before it came."""
    one = lease("a")
    assert one.try_acquire()
    times = iter([1000.0])
    monkeypatch.setattr(lease_module, "boottime", lambda: next(times, 1000.0 + LEASE_SECONDS))
    one.renew()
    assert not one.is_fresh()


def test_a_holder_without_a_server_goes_stale_and_then_on(
    own_mongod: EmbeddedMongod, nothing_left: None
) -> None:
    with connect(own_mongod.uri, app_name="tests", server_selection_seconds=0.3) as client:
        create_collections(client.line_bot, capped_bytes=MEGABYTE)
        one = Lease(client.line_bot, owner="elsewhere/a/0", lease_seconds=0.5, renew_seconds=0.05)
        assert one.try_acquire()
        one.start()
        own_mongod.kill()
        eventually(lambda: not one.is_fresh())
        with pytest.raises(StoreUnavailable):
            one.try_acquire()
        own_mongod.start()
        eventually(one.is_fresh)
        one.release()


def test_of_sixteen_at_once_one_gets_it_and_epochs_rise(lease: MakeLease, database: Db) -> None:
    leases = [lease(f"owner{number}") for number in range(16)]
    epochs: list[int] = []
    with ThreadPoolExecutor(16) as threads:
        for _ in range(6):
            together = threading.Barrier(16)

            def acquire(one: Lease, together: threading.Barrier = together) -> bool:
                together.wait(10)
                return one.try_acquire()

            got = [one for one, ok in zip(leases, threads.map(acquire, leases), strict=True) if ok]
            (winner,) = got
            epochs.append(winner.epoch)
            assert row(database)["epoch"] == winner.epoch
            expire(database)
    assert epochs == sorted(set(epochs))


def test_an_epoch_drawn_before_a_whole_term_takes_nothing(
    lease: MakeLease, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It freezes between its draw and its claim while another one comes and goes."""
    late, quick = lease("late"), lease("quick")
    draw = late._next_epoch

    def draw_and_stand_still() -> int:
        epoch = draw()
        assert quick.try_acquire()
        quick.release()
        return epoch

    monkeypatch.setattr(late, "_next_epoch", draw_and_stand_still)
    assert not late.try_acquire()
    monkeypatch.undo()
    assert late.try_acquire()
    assert late.epoch > quick.epoch


def test_a_dead_owner_on_this_machine_is_replaced_at_once(lease: MakeLease, database: Db) -> None:
    program = "from dispatcher.lease import owner_name; print(owner_name(), flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        holder = Lease(database, owner=owner)
        assert holder.try_acquire()
        successor = lease("b")
        assert not is_dead(owner)
        assert not successor.try_acquire()
        process.kill()
        # Not waited for yet, so a zombie: that is dead, too.
        eventually(lambda: is_dead(owner))
        assert successor.try_acquire()
    assert is_dead(owner)
    assert successor.epoch > holder.epoch


def ended() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def owner_elsewhere(monkeypatch: pytest.MonkeyPatch, of_boot: str) -> str:
    """A process that runs in another boot of a machine with this one's id, and so not here."""
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "boot_id", lambda: of_boot)
        return owner_name().replace(f"/{os.getpid()}/", f"/{ended()}/")


def test_a_machine_cloned_from_the_same_image_is_not_taken_for_this_one(
    lease: MakeLease, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same machine id, and the same pid namespace: that of init is the same on each machine."""
    holder = Lease(database, owner=owner_elsewhere(monkeypatch, "0" * 32))
    assert holder.try_acquire()
    successor = lease("b")
    for _ in range(3):
        assert not successor.try_acquire()
        holder.renew()
    expire(database)
    assert successor.try_acquire(), "it runs out as that of any other machine"


@pytest.mark.parametrize("unknown", ["here", "there"])
def test_without_a_boot_id_no_owner_counts_as_dead(
    unknown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = owner_elsewhere(monkeypatch, "" if unknown == "there" else "0" * 32)
    if unknown == "here":
        monkeypatch.setattr(lease_module, "boot_id", lambda: "")
        owner = owner_elsewhere(monkeypatch, "")
    assert not is_dead(owner)


def test_under_systemd_the_unit_passes_the_boot_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With ProcSubset=pid /proc has no sys; the unit writes it without the hyphens."""
    hidden = tmp_path / "hidden"
    monkeypatch.delenv("BOOT_ID", raising=False)
    assert boot_id(hidden) == ""
    monkeypatch.setenv("BOOT_ID", BOOT_ID_FILE.read_text().strip().replace("-", ""))
    assert boot_id(hidden) == boot_id() != ""


def test_a_process_that_proc_hides_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another user, under hidepid or ProtectProc=."""
    owner = owner_name()
    monkeypatch.setattr(lease_module, "_start_ticks", lambda pid: None)
    assert not is_dead(owner)


def test_a_row_that_was_renewed_since_it_was_read_is_not_taken(
    lease: MakeLease, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was assumed of its owner: an owner that renews is alive."""
    holder, successor = lease("a"), lease("b")
    assert holder.try_acquire()
    monkeypatch.setattr(lease_module, "is_dead", lambda owner: True)
    draw = successor._next_epoch

    def renewed_meanwhile() -> int:
        eventually(lambda: holder.renew() or row(database)["until"] > before)
        return draw()

    before = row(database)["until"]
    with monkeypatch.context() as patch:
        patch.setattr(successor, "_next_epoch", renewed_meanwhile)
        assert not successor.try_acquire()
    assert successor.try_acquire()


def test_a_process_of_this_name_that_started_later_is_another() -> None:
    machine, pid, ticks = owner_name().split("/")
    assert not is_dead(f"{machine}/{pid}/{ticks}")
    assert is_dead(f"{machine}/{pid}/{int(ticks) - 1}")


@pytest.mark.parametrize("owner", ["", "somebody", "elsewhere/1/2", "elsewhere/x/y", "//"])
def test_of_other_machines_and_other_words_nothing_is_known(owner: str) -> None:
    assert not is_dead(owner)
