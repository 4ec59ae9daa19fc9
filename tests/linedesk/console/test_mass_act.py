"""An act on many dead letters: one at a time, in steps, and what was done stays done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.console.acts import Acts
from linedesk.console.errors import NotDone
from linedesk.console.lists import mass_act
from linedesk.console.lists.mass_act import MassAct, Progress
from linedesk.store.errors import OtherSchema, StoreUnavailable, WriteRefused
from tests.linedesk.console.hand import HANAKO, an_event
from tests.waiting import eventually


@pytest.fixture
def acts(database: Database[Any]) -> Acts:
    return Acts(database, by="hanako", via="page")


@pytest.fixture
def mass() -> Iterator[MassAct]:
    mass = MassAct()
    yield mass
    mass.close()


def letters(database: Database[Any], count: int, **more: Any) -> list[str]:
    ids = [f"01E{n:04d}" for n in range(count)]
    whose = {"channel": "main", "key": HANAKO}
    rows = [{"_id": id_, **whose, "document": an_event(id_), **more} for id_ in ids]
    database.deadletters.insert_many(rows)
    return ids


def ended(mass: MassAct) -> Progress:
    progress = eventually(lambda: (now := mass.progress) and now.ended and now, seconds=60)
    assert isinstance(progress, Progress)
    return progress


def test_hundreds_are_replayed_each_with_its_row_in_the_audit(
    database: Database[Any], acts: Acts, mass: MassAct
) -> None:
    ids = letters(database, 200)
    database.deadletters.delete_one({"_id": ids[7]})
    mass.begin("replay", ids, acts=acts, by="hanako", about="handler: KeyError")
    progress = ended(mass)
    assert (progress.done, progress.refused, progress.trouble) == (199, 1, None)
    assert [str(one) for one in progress.reasons] == [f"{ids[7]}: it was dropped meanwhile"]
    assert database.recvq.count_documents({}) == 199
    assert database.audit.count_documents({"act": "replay", "outcome": "done"}) == 199


def test_hundreds_are_dropped_in_slices(database: Database[Any], acts: Acts, mass: MassAct) -> None:
    mass.begin("drop", letters(database, 250), acts=acts, by="hanako", about="quota")
    assert ended(mass).done == 250
    assert database.deadletters.count_documents({}) == 0
    assert [len(row["on"]) for row in database.audit.find()] == [100, 100, 50]


def test_one_runs_at_a_time_and_an_end_leaves_the_rest(
    database: Database[Any], acts: Acts, mass: MassAct, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, begun = threading.Event(), threading.Event()
    replay = Acts.replay

    def slow(self: Acts, id_: str, **more: Any) -> str:
        begun.set()
        assert goes_on.wait(20)
        return replay(self, id_, **more)

    monkeypatch.setattr(Acts, "replay", slow)
    ids = letters(database, 3)
    mass.begin("replay", ids, acts=acts, by="hanako", about="KeyError")
    assert begun.wait(20)
    with pytest.raises(NotDone, match="another replay runs, by hanako: 0 of 3 letters"):
        mass.begin("drop", ids, acts=acts, by="taro", about="KeyError")
    closing = threading.Thread(target=mass.close)
    closing.start()
    # The stop has to be seen after the first letter.
    assert mass._stop.wait(20)
    goes_on.set()
    closing.join(20)
    progress = ended(mass)
    assert (progress.done, progress.trouble) == (1, "the console ended")
    assert database.deadletters.count_documents({"replayedAt": None}) == 2
    # Another console goes on with what is left.
    other = MassAct()
    other.begin("replay", ids, acts=acts, by="taro", about="KeyError")
    progress = ended(other)
    other.close()
    assert (progress.done, progress.refused) == (2, 1)
    assert database.recvq.count_documents({}) == 3


def test_it_tries_again_while_mongodb_is_away_and_gives_up_in_the_end(
    database: Database[Any], acts: Acts, mass: MassAct, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mass_act, "PAUSE_SECONDS", 0.0)
    fails = [True, True]
    replay = Acts.replay

    def flaky(self: Acts, id_: str, **more: Any) -> str:
        if fails and fails.pop():
            raise StoreUnavailable("no majority")
        return replay(self, id_, **more)

    monkeypatch.setattr(Acts, "replay", flaky)
    ids = letters(database, 2)
    mass.begin("replay", ids[:1], acts=acts, by="hanako", about="KeyError")
    assert ended(mass).done == 1
    fails.extend([True] * 100)
    other = MassAct()
    other.begin("replay", ids[1:], acts=acts, by="hanako", about="KeyError")
    progress = ended(other)
    other.close()
    assert (progress.done, progress.trouble) == (0, "MongoDB does not answer")


def test_a_closed_recvq_ends_it_with_its_words(
    database: Database[Any], acts: Acts, mass: MassAct
) -> None:
    database.drop_collection("recvq")
    mass.begin("replay", letters(database, 2), acts=acts, by="hanako", about="KeyError")
    progress = ended(mass)
    assert progress.done == 0
    assert "recvq" in str(progress.trouble)


@pytest.mark.parametrize("again", [False, True])
def test_a_replay_that_was_stored_and_not_confirmed_is_not_repeated(
    database: Database[Any],
    acts: Acts,
    mass: MassAct,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    monkeypatch.setattr(mass_act, "PAUSE_SECONDS", 0.0)
    unconfirmed = [True]
    replay = Acts.replay

    def flaky(self: Acts, id_: str, **more: Any) -> str:
        name = replay(self, id_, **more)
        if unconfirmed and unconfirmed.pop():
            raise StoreUnavailable("no majority")
        return name

    monkeypatch.setattr(Acts, "replay", flaky)
    ids = letters(database, 1)
    mass.begin("replay", ids, acts=acts, by="hanako", about="KeyError", again=again)
    progress = ended(mass)
    assert progress.seen == 1
    # Of one that could have been replayed before, only its time is known.
    assert progress.done == (0 if again else 1)
    assert all("it was replayed at" in str(one) for one in progress.reasons)
    assert database.recvq.count_documents({}) == 1


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (KeyError("event"), mass_act.UNEXPECTED),
        (OtherSchema("recvq", 99, 5), "recvq was written by a newer release"),
        (WriteRefused(10334), None),
    ],
)
def test_whatever_happens_it_ends_with_the_reason_and_another_may_begin(
    database: Database[Any],
    acts: Acts,
    mass: MassAct,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    trouble: str | None,
) -> None:
    ids = letters(database, 1)
    with monkeypatch.context() as failing:

        def fails(self: Acts, id_: str, **more: Any) -> str:
            raise error

        failing.setattr(Acts, "replay", fails)
        mass.begin("replay", ids, acts=acts, by="hanako", about="KeyError")
        progress = ended(mass)
    if trouble is None:
        assert (progress.trouble, progress.refused) == (None, 1)
        assert "16 MB" in str(progress.reasons[0])
    else:
        assert str(progress.trouble).startswith(trouble)
    mass.begin("replay", ids, acts=acts, by="hanako", about="KeyError")
    assert eventually(lambda: (now := mass.progress) and now.ended and now.done == 1)
