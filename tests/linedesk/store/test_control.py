"""Operators' orders: texts and rows, repeatable writes, and reads that never go back."""

import logging
from datetime import UTC, datetime

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo.write_concern import WriteConcern

from linedesk.operate.acts import OperatorControl
from linedesk.store.control import NO_PAUSES, NOTHING_STUCK, Pause, Pauses, Scope
from linedesk.store.documents import CONTROL, CONVERSATIONS, DEADLETTERS, Document
from linedesk.store.errors import NotAScope, StoreUnavailable
from linedesk.store.records.effects import place_of
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db

NOW = datetime.now(UTC)
WHOLE: Document = {"_id": "pause/main", "act": "pause", "channel": "main", "key": None}
RELEASE: Document = {
    "_id": "release/main/U1",
    "act": "release",
    "channel": "main",
    "key": "U1",
    "what": {"eventId": "E1"},
    "at": NOW,
}


@pytest.mark.parametrize(
    ("words", "scope", "id_", "said"),
    [
        (None, Scope(), "pause", "all"),
        ("", Scope(), "pause", "all"),
        ("all", Scope(), "pause", "all"),
        ("main", Scope("main"), "pause/main", "main"),
        ("main/U1", Scope("main", "U1"), "pause/main/U1", "main/U1"),
        ("main/a/b", Scope("main", "a/b"), "pause/main/a/b", "main/a/b"),
    ],
)
def test_a_scope_is_parsed_from_its_text(
    words: str | None, scope: Scope, id_: str, said: str
) -> None:
    assert Scope.parse(words) == scope
    assert (scope.id, str(scope)) == (id_, said)


@pytest.mark.parametrize("words", ["/", "/U1", "main/"])
def test_half_a_scope_is_none(words: str) -> None:
    with pytest.raises(NotAScope, match=words):
        Scope.parse(words)


def test_a_pause_covers_its_conversations_and_no_other() -> None:
    pauses = Pauses((Pause(Scope("main", "U1")), Pause(Scope("second"))))
    covered = [("main", "U1"), ("second", "U1"), ("second", None)]
    others = [("main", "U2"), ("main", None), ("third", "U1"), (None, "U1"), (None, None)]
    assert all(pauses.covers(*one) for one in covered)
    assert not any(pauses.covers(*one) for one in others)
    everything = Pauses((Pause(Scope()),))
    assert all(everything.covers(*one) for one in covered + others)
    assert not any(NO_PAUSES.covers(*one) for one in covered)
    assert [str(one.scope) for one in pauses.covering("second", "U1")] == ["second"]
    assert pauses.as_rows() == [
        {"channel": "main", "key": "U1"},
        {"channel": "second", "key": None},
    ]


HALF: list[Document] = [
    {"act": "pause", "channel": "main", "key": None},
    {**WHOLE, "act": "paus"},
    {**WHOLE, "_id": "pause/other"},
    {"_id": "pause/main", "act": "pause", "channel": "main"},
    {"_id": "pause/main", "act": "pause", "key": None},
    {"_id": "pause/U1", "act": "pause", "channel": None, "key": "U1"},
    {**WHOLE, "channel": ["main"]},
    {**WHOLE, "_id": {"pause": "main"}},
    {**RELEASE, "what": {"eventId": "E1", "effectId": "E1/0"}},
    {**RELEASE, "what": "E1"},
    {**RELEASE, "what": {"eventId": 7}},
    {**RELEASE, "at": None},
    {**RELEASE, "_id": "release/main/U2"},
]


def test_incomplete_rows_are_ignored_and_logged_once(
    database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    control = OperatorControl(database)
    for row in HALF:
        database[CONTROL].delete_many({})
        database[CONTROL].insert_many([dict(row), {**WHOLE, "_id": "pause", "channel": None}])
        for _ in range(2):
            orders = control.orders()
            assert [str(one.scope) for one in orders.pauses.rows] == ["all"], row
            assert orders.releases == (), row
        (told,) = [r for r in caplog.records if "incomplete order" in r.getMessage()]
        assert told.levelno == logging.WARNING
        caplog.clear()
        # It is logged again only after it was gone.
        database[CONTROL].delete_many({})
        control.orders()


def test_a_date_beyond_reason_is_no_error(database: Db) -> None:
    far = bson.DatetimeMS(10**17)
    database[CONTROL].insert_one({**WHOLE, "at": far})
    database[CONTROL].insert_one({**RELEASE, "at": far})
    orders = OperatorControl(database).orders()
    assert orders.pauses.covers("main", "U1")
    assert orders.releases == ()


def test_a_release_takes_the_place_of_an_earlier_one(database: Db) -> None:
    control = OperatorControl(database)
    first = control.release("main", "U1", {"eventId": "E1"}, by="taro")
    earlier = first.at.replace(year=first.at.year - 1)
    database[CONTROL].update_one({"_id": first.id}, {"$set": {"at": earlier}})
    (first,) = control.orders().releases
    second = control.release("main", "U1", {"effectId": "E0/0"}, by="hanako")
    control.finish(first, {"code": NOTHING_STUCK})
    assert control.orders().releases == (second,)
    assert control.outcome_of(first) == {"code": "release_replaced"}
    assert control.outcome_of(second) is None


def test_the_result_of_a_release_is_read_from_the_database(database: Db) -> None:
    def stored(effects: list[Document]) -> Document:
        return {"outbox": {place_of(3, n): one for n, one in enumerate(effects)}}

    control = OperatorControl(database)
    of_event = control.release("main", "U1", {"eventId": "E1"}, by="taro")
    of_send = control.release("main", "U1", {"effectId": "E1/0"}, by="taro")
    conversation = {"_id": "main/U1"}
    sends = [{"id": name, "type": "send"} for name in ("E1", "E1/0")]
    database[CONVERSATIONS].insert_one(conversation | stored(sends))
    assert control.came_of(of_send) == {"code": NOTHING_STUCK}
    letters = [{**one, "type": "deadletter"} for one in sends]
    database[CONVERSATIONS].replace_one(conversation, stored(letters))
    assert control.came_of(of_event) is None
    database[DEADLETTERS].insert_many([{"_id": "E1"}, {"_id": "E1/0"}])
    database[CONVERSATIONS].replace_one(conversation, stored([]))
    assert control.came_of(of_event) == {"code": "event_is_letter", "id": "E1"}
    assert control.came_of(of_send) == {"code": "send_is_letter", "id": "E1/0"}


def test_a_pause_that_was_stored_before_is_seen_although_no_majority_shows_it_yet(
    lagging: LaggingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As right after an election, where a majority read may return an older state."""
    database = lagging.client["control"]
    OperatorControl(database).pause(Scope(), by="taro")
    OperatorControl(database).resume(Scope())
    with lagging.held_back(), lagging.client.start_session() as session:
        alone = database[CONTROL].with_options(write_concern=WriteConcern(w=1))
        everything = {**WHOLE, "_id": "pause", "channel": None}
        alone.insert_one(everything, session=session)
        written = session.operation_time
        assert isinstance(written, Timestamp)
        assert OperatorControl(database).read() == NO_PAUSES
        with monkeypatch.context() as patched:
            patched.setattr("linedesk.store.control.READ_SECONDS", 0.3)
            with pytest.raises(StoreUnavailable):
                OperatorControl(database, seen=written).read()
    control = OperatorControl(database, seen=written)
    assert control.read().covers("main", "U1")
    # And it stays seen.
    assert control._seen is not None
    assert control._seen >= written
