"""The transformation of an export's documents: nothing old continues by itself, and nothing is
lost.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from jobworker.bot.timers import Timers
from jobworker.effects import Send, SendMethod
from jobworker.record.dead_letters import anew, is_sound
from linedesk.backup.file import COLLECTIONS
from linedesk.backup.transform import REPLACED, TIMER_PAST_DUE, WAITED_IN_OUTBOX, WAITING, Restored
from linedesk.operate.dead_letters import effect_again, replay_name
from linedesk.store.client import AS_STORED
from linedesk.store.documents import CONVERSATIONS, DEADLETTERS, SCHEDULE, Document, make_document
from linedesk.store.records.effects import place_of, unproved_try
from tests.jobworker.worker_harness import a_send

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
AT = NOW - timedelta(hours=2)
HOUR = timedelta(hours=1)
KEY = "U花子"
ID = f"main/{KEY}"
Database = dict[str, list[Document]]


def restored(
    known: Sequence[Document] = (), **collections: list[Mapping[str, Any]]
) -> tuple[Database, Restored]:
    """All writes for these collections of an export, in the order of an import.

    `known` are the documents in the receiving database, each by its query.
    """
    one = Restored(at=AT, now=NOW)
    one.is_known = lambda place: place in known
    one.epoch = 77
    rows = [
        (name, RawBSONDocument(bson.encode(row), AS_STORED))
        for name in COLLECTIONS
        for row in collections.get(name, ())
    ]
    for name, row in rows:
        one.look(name, row)
    found: Database = {CONVERSATIONS: [], SCHEDULE: [], DEADLETTERS: []}
    for name, row in rows:
        for where, document in one.carry(name, row):
            found[where].append(plain(document))
    for where, document in one.rest():
        found[where].append(plain(document))
    return found, one


def plain(document: Mapping[str, Any]) -> Document:
    return bson.decode(bson.encode(document), bson.CodecOptions(tz_aware=True))


def a_conversation(*effects: Document, **more: Any) -> Document:
    outbox = {place_of(3, number): effect for number, effect in enumerate(effects)}
    names = {"_id": ID, "channel": "main", "key": KEY, "state": "待つ", "data": {"a.b": {"$x": 1}}}
    counts = {"n": 7, "epoch": 3, "applied": ["E1"], "outbox": outbox}
    return names | counts | more


CALL_KEY = "the key of the call"


def a_call(way: str, *, members: int = 1) -> Document:
    """The call by which the first sends of a conversation travel."""
    places = [place_of(3, number) for number in range(members)]
    key = None if way == "reply" else CALL_KEY
    return {"at": AT - HOUR, "as": way, "key": key, "token": None, "members": places}


def untried(send: Send) -> Document:
    """The send in an outbox, where the call has its tries."""
    names = ("triedAt", "as")
    return {name: value for name, value in send.as_document().items() if name not in names}


def tries(found: Database) -> list[tuple[Any, ...]]:
    """When and how each send that became a letter was tried, and the key that repeats it."""
    effects = [letter["effect"] for letter in found[DEADLETTERS]]
    return [(one["triedAt"], one["as"], one["retryKey"]) for one in effects]


def a_row(name: str = "egg", *, run_at: datetime | None = NOW + HOUR, **more: Any) -> Document:
    names = {"_id": f"{ID}/{name}", "channel": "main", "key": KEY, "name": name, "n": 5}
    return names | {"runAt": run_at, "every": None, "data": {"x": 1}, "setBy": "E0"} | more


def a_timer(name: str = "egg", *, at: datetime | None = NOW + HOUR, n: int = 7) -> Document:
    timers = Timers({"eventId": "E1", "channel": "main", "key": KEY, "event": {}}, member=None)
    if at is None:
        timers.cancel(name)
    else:
        timers.at(at, name, {"x": 2})
    [effect] = timers.effects()
    return {**effect, "n": n}


def a_held(name: str = "E9", **more: Any) -> Document:
    event = {"type": "message", "webhookEventId": name, "source": {"type": "user", "userId": KEY}}
    document = make_document(event, channel="main", accept_time=AT) | more
    place = {"_id": document["_id"], "n": 1, "key": KEY, "channel": "main"}
    return place | {"document": document, "why": "set aside", "since": AT}


@pytest.mark.parametrize("way", [SendMethod.REPLY, SendMethod.PUSH, SendMethod.MULTICAST])
def test_a_send_becomes_a_letter_that_is_not_replayed_by_accident(way: SendMethod) -> None:
    send = a_send(way=way, at=AT, token="t" if way is SendMethod.REPLY else None)
    found, one = restored(conversations=[a_conversation(untried(send))])
    [letter] = found[DEADLETTERS]
    names = {name: letter[name] for name in ("_id", "channel", "key", "cause", "attempts")}
    assert names == {
        "_id": "E1/0",
        "channel": "main",
        "key": KEY,
        "cause": WAITED_IN_OUTBOX,
        "attempts": 0,
    }
    assert is_sound(letter)
    # It may have been sent right after the export, in its way, and together with others.
    tried = (letter["effect"]["triedAt"], letter["effect"]["as"], letter["effect"]["retryKey"])
    assert tried == (AT, way.value, None)
    late = AT + timedelta(days=2)
    assert unproved_try(letter["effect"], late) is not None
    again = anew(letter["effect"], name="replay:E1/0:1", now=late)
    assert again["messages"] == send.messages
    assert one.became[WAITED_IN_OUTBOX] == 1


def test_a_push_that_was_tried_alone_is_replayed_under_its_key_while_line_keeps_it() -> None:
    send = untried(a_send(way=SendMethod.PUSH, at=AT))
    tried = a_conversation(send, call=a_call("push", members=1))
    found, _ = restored(conversations=[tried])
    again = anew(found[DEADLETTERS][0]["effect"], name="replay:E1/0:1", now=NOW)
    assert again["retryKey"] == CALL_KEY


@pytest.mark.parametrize("way", ["reply", "push"])
def test_sends_that_were_tried_together_have_no_key_for_a_replay(way: str) -> None:
    sends = [untried(a_send(id=f"E1/{number}")) for number in range(2)]
    found, _ = restored(conversations=[a_conversation(*sends, call=a_call(way, members=2))])
    assert tries(found) == [(AT - HOUR, way, None)] * 2


@pytest.mark.parametrize(("state", "tried"), [("open", (AT, "push")), ("ready", None)])
def test_members_of_a_multicast_count_as_tried_in_it_once_it_was_ready(
    state: str, tried: tuple[datetime, str] | None
) -> None:
    claim = {"at": AT - HOUR, "batch": "B", "members": [place_of(3, 0)]}
    claimed = a_conversation(untried(a_send(way=SendMethod.PUSH)), call=claim)
    batch = {"_id": "B", "epoch": 9, "at": AT - HOUR, "state": state, "members": []}
    found, one = restored(batches=[batch], conversations=[claimed])
    assert tries(found) == [(*(tried or (AT - HOUR, "multicast")), None)]
    # It is gone with its members.
    assert set(found) == {CONVERSATIONS, SCHEDULE, DEADLETTERS}
    assert one.highest_epoch == 9


def test_of_a_database_that_is_replaced_only_what_was_tried_counts_as_tried() -> None:
    """No dispatcher runs, so its state is known."""
    one = Restored(at=AT, now=NOW)
    sends = [untried(a_send(id=f"E1/{number}", way=SendMethod.PUSH)) for number in range(2)]

    def left(call: Document, *ready: str) -> list[tuple[Any, ...]]:
        document = a_conversation(*sends, call=call)
        found = one.left(document, is_ready=ready.__contains__)
        return tries({DEADLETTERS: [dict(letter) for _, letter in found]})

    fresh = (None, None, sends[1]["retryKey"])
    assert left(a_call("push", members=1)) == [(AT - HOUR, "push", CALL_KEY), fresh]
    claim = {"at": AT - HOUR, "batch": "B", "members": [place_of(3, 0)]}
    assert left(claim, "B") == [(AT - HOUR, "multicast", None), fresh]
    assert left(claim) == [fresh, fresh]


def test_a_timer_past_due_becomes_a_letter_whose_replay_fires_it() -> None:
    found, _ = restored(schedule=[a_row(run_at=NOW - HOUR)])
    assert found[SCHEDULE] == [a_row(run_at=None) | {"endedAt": NOW}]
    [letter] = found[DEADLETTERS]
    assert (letter["_id"], letter["cause"]) == ("E0/timer/egg", TIMER_PAST_DUE)
    assert is_sound(letter)
    again = anew(letter["effect"], name="replay:E0/timer/egg:1", now=NOW)
    assert (again["timer"], again["runAt"], again["data"]) == (f"{ID}/egg", NOW - HOUR, {"x": 1})


def test_a_daily_timer_past_due_waits_for_its_next_time() -> None:
    daily = {"at": "07:30", "tz": "Asia/Tokyo"}
    found, one = restored(schedule=[a_row(run_at=NOW - 50 * HOUR, every=daily)])
    # 07:30 in Tokyo is 22:30 the day before in UTC.
    at = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)
    assert found[SCHEDULE] == [a_row(run_at=at, every=daily)]
    assert not found[DEADLETTERS]
    assert one.became[WAITING] == 1


@pytest.mark.parametrize(
    "broken", [{"every": {"at": "25:00", "tz": "Asia/Tokyo"}}, {"name": 5}, {"n": "x"}]
)
def test_a_row_that_can_never_fire_is_left_to_the_dispatcher(broken: Document) -> None:
    row = a_row(run_at=NOW - HOUR) | broken
    found, _ = restored(schedule=[row])
    assert found == {CONVERSATIONS: [], SCHEDULE: [row], DEADLETTERS: []}


@pytest.mark.parametrize(("n", "data"), [(4, {"x": 1}), (5, {"x": 1}), (6, {"x": 2})])
def test_a_timer_on_its_way_changes_a_row_only_with_a_higher_number(n: int, data: Any) -> None:
    found, _ = restored(conversations=[a_conversation(a_timer(n=n))], schedule=[a_row()])
    [row] = found[SCHEDULE]
    assert row["data"] == data


def test_a_cancel_on_its_way_ends_the_row() -> None:
    found, _ = restored(conversations=[a_conversation(a_timer(at=None))], schedule=[a_row()])
    [row] = found[SCHEDULE]
    assert row["runAt"] is None
    assert "endedAt" in row
    assert not found[DEADLETTERS]


def test_a_replay_that_waited_in_held_becomes_a_letter_that_can_be_replayed() -> None:
    """The letter that it was the replay of goes a week after the replay."""
    first = {"_id": "E1/0", "channel": "main", "key": KEY, "effect": a_send().as_document()}
    first |= {"replays": 1, "replayedAt": AT - timedelta(days=6)}
    document = effect_again(first, name=replay_name({"_id": "E1/0"}), now=AT)
    found, _ = restored(deadletters=[first], held=[a_held(**document)])
    _, letter = found[DEADLETTERS]
    assert (letter["_id"], letter["effect"]) == ("replay:E1/0:1", plain(first["effect"]))
    assert is_sound(letter)


def test_what_was_decided_or_taken_back_while_it_stood_in_held_becomes_none() -> None:
    conversations = [a_conversation(applied=["E1", "E9"])]
    held = [a_held("E9"), a_held("E8", unsent=True)]
    found, _ = restored(held=held, conversations=conversations)
    assert not found[DEADLETTERS]


def test_what_this_database_had_in_recvq_or_held_is_judged_there() -> None:
    held = a_held()
    assert not restored([{"_id": held["_id"]}], held=[held])[0][DEADLETTERS]


def test_no_copy_of_a_message_that_was_taken_back_comes_amid_the_unsend() -> None:
    """The unsend had been noted, and not all copies were empty yet."""
    message = {"type": "text", "id": "m1", "text": "secret"}
    documents = [a_held(name)["document"] for name in ("E7", "E8", "E9")]
    for document in documents:
        document["event"]["message"] = message
    letters = [
        {"channel": "main", "key": KEY, "document": document, "traceback": "secret"}
        for document in documents
    ]
    on_its_way = {"id": "E8", "type": "deadletter", **letters[1]}
    found, _ = restored(
        deadletters=[{"_id": "E7", **letters[0]}],
        conversations=[a_conversation(on_its_way, unsent=["m1"])],
        held=[a_held("E9", **documents[2])],
    )
    assert [letter["_id"] for letter in found[DEADLETTERS]] == ["E7", "E8"]
    assert "secret" not in str(found)
    assert all(letter["document"]["unsent"] for letter in found[DEADLETTERS])


def with_answers() -> Document:
    send = a_send(id="E1/0", way=SendMethod.REPLY, at=AT).as_document()
    waiting = {"state": "waiting", "at": AT, "send": send}
    others = {name: {"state": name, "at": AT} for name in ("offered", "shown", "taken")}
    return a_conversation(answers={"E1": waiting, **others})


def test_an_answer_that_waits_for_a_tap_waits_on() -> None:
    found, _ = restored(conversations=[with_answers()])
    [conversation] = found[CONVERSATIONS]
    assert conversation["answers"] == plain({"E1": with_answers()["answers"]["E1"]})
    assert not found[DEADLETTERS]


def test_an_answer_of_a_conversation_that_goes_becomes_a_letter() -> None:
    one = Restored(at=AT, now=NOW)
    [(where, letter)] = one.left(with_answers(), is_ready=bool)
    assert (where, letter["_id"], letter["cause"]) == (DEADLETTERS, "E1/0", REPLACED)
    assert is_sound(letter)
