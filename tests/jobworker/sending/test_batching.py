"""Sends of many conversations in one multicast, carried out on a real mongod with the simulator.

The leaders are rooms of rising epochs on one database. A room that died or froze stays at a named
point (`tests.jobworker.freezing`).
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count, product
from typing import Any

import pytest

import linesim
from dispatcher.commit.committer import Committer
from jobworker.line import month, quota
from jobworker.record.batches import Batches, ReadyBatch
from jobworker.record.conversations import FIRST_NUMBER, Outbound
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from linedesk.store.documents import Document
from linedesk.store.errors import REFUSED_WORDS, Replaced
from linedesk.store.records.effects import place_of
from linesim import Rule, Sim, Status
from linesim.model.calls import Call
from linesim.model.faults import BadMember
from linesim.model.world import User
from tests.jobworker.freezing import (
    Freeze,
    Killed,
    freeze_after,
    freeze_before,
    frozen,
    next_points_of,
    not_confirmed,
    parts_of,
    points_of,
    until_idle,
)
from tests.jobworker.worker_harness import CHANNEL, Room, a_send, lead, texts
from tests.waiting import eventually

Deaths = list[BaseException | None]
# As many as LINE takes in one call, so a further message is sent by itself.
SAME = ("一", "二", "三", "四", "五")
POINTS = (
    *("claiming", "claims sent", "claimed", "calling", "called", "answered"),
    *("end sent", "ended"),
)
NEXT_POINTS = ("outboxes read", "calling", "called", "end sent", "ended")


def text(words: str) -> Document:
    return {"type": "text", "text": words}


def waits(database: Any, user: User, *sends: Sequence[Document], **fields: Any) -> None:
    """A friend's conversation that a leader of epoch 1 left, with pushes that each has these
    messages.
    """
    outbox = {}
    for number, messages in enumerate(sends):
        id_, key = f"{user.user_id}/{number}", str(uuid.uuid4())
        send = a_send(id=id_, to=user.user_id, messages=list(messages), retry_key=key)
        outbox[place_of(1, FIRST_NUMBER + number)] = send.as_document()
    database.conversations.insert_one(
        {
            "_id": f"{CHANNEL}/{user.user_id}",
            "channel": CHANNEL,
            "key": user.user_id,
            "kind": "user",
            "friend": True,
            "state": None,
            "data": {},
            "n": 1,
            "applied": ["E1"],
            "unsent": [],
            "outbox": outbox,
            "at": datetime.now(UTC),
            **fields,
        }
    )


def friends(database: Any, sim: Sim, number: int, *sends: Sequence[Document]) -> list[User]:
    """This many friends with the same waiting send."""
    users = [sim.add_user(f"友{n}") for n in range(number)]
    for user in users:
        waits(database, user, *(sends or [[text("同じ")]]))
    return users


class Leader:
    """A room that serves its gate once all that a predecessor left is known to it."""

    def __init__(self, database: Any, sim: Sim, *, epoch: int = 2, **options: Any) -> None:
        self.may_call = threading.Event()
        # Those that are set free together wait together again before the next turn.
        usual = {"interval_seconds": 0.03, "send_limits": SendLimits(first_pause_seconds=0.01)}
        options = {**usual, **options}
        self.room = Room(
            database, sim, Bot(), epoch=epoch, lease_is_fresh=self.may_call.is_set, **options
        )

    def __enter__(self) -> Room:
        self.room.__enter__()
        eventually(lambda: not self.room.desk.outbox.boxes.unloaded)
        self.may_call.set()
        return self.room

    def __exit__(self, *why: Any) -> None:
        self.room.__exit__(*why)

    @contextmanager
    def unloaded(self) -> Iterator[Room]:
        """Begun, and not waited for."""
        with self.room:
            yield self.room


@pytest.fixture
def calls(sim: Sim) -> Callable[[], list[Call]]:
    """The sends of LINE that this test has made."""
    before = len(sim.calls)
    return lambda: [one for one in sim.calls[before:] if one.endpoint in ("push", "multicast")]


def carried_out(database: Any, sim: Sim, **options: Any) -> Room:
    """A leader carries out all that waits, and ends."""
    with Leader(database, sim, **options) as room:
        room.until_quiet()
    assert list(database.batches.find()) == []
    assert room.calls_noted() == []
    return room


def ways(made: Sequence[Call]) -> Counter[str]:
    return Counter(call.endpoint for call in made)


def test_the_same_for_many_is_one_call_for_as_many_as_line_takes(
    database: Any, sim: Sim, calls: Any
) -> None:
    users = friends(database, sim, 6)
    carried_out(database, sim, line={"jobworker.sending.conversation_outbox.MOST_USERS": 4})
    made = calls()
    assert sorted(len(call.body["to"]) for call in made) == [2, 4]
    assert {to for call in made for to in call.body["to"]} == {one.user_id for one in users}
    assert [texts(sim, user) for user in users] == [["同じ"]] * 6


def test_a_user_not_known_as_a_friend_gets_a_push(database: Any, sim: Sim, calls: Any) -> None:
    """A multicast does not reach such a user, and does not say so."""
    known = friends(database, sim, 2)
    strangers = []
    for friend in (False, None):
        user = sim.add_user("他人", friend=False)
        # Wrote lately, so a push reaches the user.
        sim.deliver(sim.drafts.text(user, "?"))
        waits(database, user, [text("同じ")], friend=friend)
        strangers.append(user)
    carried_out(database, sim)
    assert ways(calls()) == {"multicast": 1, "push": 2}
    assert [texts(sim, user) for user in (*known, *strangers)] == [["同じ"]] * 4


def test_other_words_mentions_and_quotes_travel_alone(database: Any, sim: Sim, calls: Any) -> None:
    users = friends(database, sim, 3)
    for _ in range(2):
        users.append(other := sim.add_user("別"))
        mention = {
            "user": {"type": "mention", "mentionee": {"type": "user", "userId": other.user_id}}
        }
        waits(database, other, [{"type": "textV2", "text": "{user}", "substitution": mention}])
        users.append(quoted := sim.add_user("引用"))
        waits(database, quoted, [{**text("同じ"), "quoteToken": "q" * 40}])
        users.append(differs := sim.add_user("違"))
        waits(database, differs, [text(f"違う{len(users)}")])
    carried_out(database, sim)
    (call,) = (one for one in calls() if one.endpoint == "multicast")
    assert len(call.body["to"]) == 3
    assert ways(calls())["push"] == 6
    # LINE takes no mention in a 1:1 chat, and refuses that call alone.
    assert [len(texts(sim, user)) for user in users] == [1, 1, 1] + [0, 1, 1] * 2


def test_a_send_recorded_while_the_others_are_claimed_is_sent_later(
    database: Any, sim: Sim
) -> None:
    """Otherwise it would be part of the body for all, or be claimed without being sent."""
    users = friends(database, sim, 3)
    leader = Leader(database, sim)
    known = freeze_after(parts_of(leader.room)[1], "friends")
    with frozen(leader.room, known) as freeze, leader as room:
        assert freeze.is_reached.wait(15)
        for number, user in enumerate(users):
            send = a_send(
                id=f"{user.user_id}/1", to=user.user_id, messages=[text(f"あと{number}")],
                retry_key=str(uuid.uuid4()),
            )  # fmt: skip
            place, id_ = place_of(2, 1), f"{CHANNEL}/{user.user_id}"
            at = {"_id": id_}
            database.conversations.update_one(at, {"$set": {f"outbox.{place}": send.as_document()}})
            room.desk.outbox.add(id_, Outbound([(place, send.as_document())]))
        freeze.wake()
        room.until_quiet()
    assert [texts(sim, user) for user in users] == [["同じ", f"あと{n}"] for n in range(3)]


def test_a_recipient_that_line_names_is_one_dead_letter(
    database: Any, sim: Sim, calls: Any
) -> None:
    users = friends(database, sim, 5)
    bad = users[2]
    sim.misbehave(Rule(endpoint="multicast", user=bad.user_id, outcome=BadMember()))
    room = carried_out(database, sim)
    (letter,) = room.letters()
    assert letter["key"] == bad.user_id
    assert explained(letter).startswith("LINE refused it with 400: The property, to[2], in the")
    assert letter["effect"].get("triedAt") is None
    assert [texts(sim, user) for user in users] == [[] if one is bad else ["同じ"] for one in users]
    assert ways(calls()) == {"multicast": 2}


def test_a_400_without_a_name_halves_the_call_until_the_one_is_found(
    database: Any, sim: Sim, calls: Any
) -> None:
    users = friends(database, sim, 16)
    bad = users[5]
    unnamed = Status(400, {"message": "The request body has 1 error(s)"})
    sim.misbehave(
        *(Rule(endpoint=way, user=bad.user_id, outcome=unnamed) for way in ("multicast", "push"))
    )
    room = carried_out(database, sim)
    (letter,) = room.letters()
    assert letter["key"] == bad.user_id
    assert all(texts(sim, user) == ["同じ"] for user in users if user is not bad)
    # 16, then halves: each halving leaves at most two of a size.
    assert len(calls()) <= 12


def test_a_send_over_the_month_s_limit_is_a_letter_and_the_rest_of_the_month_is_used(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Soon after a refusal it is read again how much of the month is used.
    for module in (month, quota):
        monkeypatch.setattr(module, "SOON_SECONDS", 0.2)
    with linesim.running(rate_limits=False, quota=3) as sim:
        users = friends(database, sim, 8)
        with Leader(database, sim) as room:
            room.until_quiet()
        assert sorted(len(texts(sim, user)) for user in users) == [0] * 5 + [1] * 3
        assert [one["cause"] for one in room.letters()] == ["quota"] * 5
        assert all(one["effect"].get("triedAt") is None for one in room.letters())


def test_a_call_without_a_verdict_is_repeated_as_it_was(
    database: Any, sim: Sim, calls: Any
) -> None:
    users = friends(database, sim, 4)
    sim.answer_next("multicast", 500, accept=True, times=2)
    carried_out(database, sim)
    made = calls()
    assert len(made) > 1
    assert len({(one.retry_key, str(one.body)) for one in made}) == 1
    assert [texts(sim, user) for user in users] == [["同じ"]] * 4


def is_once(sim: Sim, users: Sequence[User]) -> None:
    """Each user has each message once, in the order of the conversation."""
    for number, user in enumerate(users):
        assert texts(sim, user) == [*SAME, f"あと{number}"]


@pytest.fixture
def users(database: Any, sim: Sim) -> list[User]:
    """Friends with the same waiting send, and another one behind it."""
    users = [sim.add_user(f"友{n}") for n in range(4)]
    for number, user in enumerate(users):
        waits(database, user, [text(one) for one in SAME], [text(f"あと{number}")])
    return users


@pytest.fixture
def first(database: Any, sim: Sim, deaths: Deaths) -> Iterator[Callable[[str], Freeze]]:
    """Makes a leader freeze at a point; its threads may later end with these errors only."""
    with ExitStack() as stack:

        def begin(point: str) -> Freeze:
            leader = Leader(database, sim)
            freeze = stack.enter_context(frozen(leader.room, points_of(leader.room)[point]))
            freezes[freeze] = stack.enter_context(leader)
            # Before the room ends, or its thread would be waited for.
            stack.callback(freeze.kill)
            assert freeze.is_reached.wait(15), point
            return freeze

        freezes: dict[Freeze, Room] = {}
        begin.room_of = freezes.__getitem__  # type: ignore[attr-defined]
        yield begin
    assert all(isinstance(one, Killed | Replaced) for one in deaths), deaths


@pytest.mark.parametrize("point", POINTS)
def test_a_leader_that_wakes_after_another_has_carried_it_out_does_nothing_more(
    database: Any, sim: Sim, users: list[User], first: Any, point: str
) -> None:
    freeze = first(point)
    carried_out(database, sim, epoch=3)
    freeze.wake()
    until_idle(first.room_of(freeze))
    is_once(sim, users)
    assert list(database.batches.find()) == []
    assert list(database.conversations.find({"outbox": {"$gt": {}}})) == []


# Seven with each point of both; all of their products take long.
USUAL = set(zip(POINTS, (*NEXT_POINTS, "calling", "called"), (False, True) * 4, strict=False))
DEATHS = [
    pytest.param(*one, marks=[] if one in USUAL else pytest.mark.long)
    for one in product(POINTS, NEXT_POINTS, (False, True))
]


@pytest.mark.parametrize(("point", "next_point", "wakes"), DEATHS)
def test_a_successor_that_dies_on_the_way_has_a_successor_in_turn(
    database: Any, sim: Sim, users: list[User], first: Any, point: str, next_point: str, wakes: bool
) -> None:
    freeze = first(point)
    leader = Leader(database, sim, epoch=3)
    with (
        frozen(leader.room, next_points_of(leader.room)[next_point]) as second,
        leader.unloaded() as room,
    ):
        # Where nothing was left to do it does not come by.
        eventually(lambda: second.is_reached.is_set() or not room.desk.outbox.boxes.unloaded)
        leader.may_call.set()
        eventually(lambda: second.is_reached.is_set() or room._is_quiet)
        if wakes:
            freeze.wake()
            if next_point != "end sent":
                # Otherwise it waits for the other one's open transaction.
                until_idle(first.room_of(freeze))
        second.kill()
    carried_out(database, sim, epoch=4)
    is_once(sim, users)


@pytest.mark.parametrize("lands", [False, True], ids=["and did not land", "and landed"])
@pytest.mark.parametrize("step", ["friends", "make", "end"])
def test_a_step_that_is_not_confirmed_loses_and_doubles_nothing(
    database: Any, sim: Sim, users: list[User], step: str, lands: bool
) -> None:
    leader = Leader(database, sim)
    not_confirmed(parts_of(leader.room)[1], step, lands=lands)
    with leader as room:
        room.until_quiet()
    is_once(sim, users)
    assert list(database.batches.find()) == []


def test_a_batch_that_another_has_taken_is_not_called_off(
    database: Any, sim: Sim, users: list[User], deaths: Deaths
) -> None:
    """The write that makes it is not confirmed, and lands all the same."""
    first = Leader(database, sim)
    rows = parts_of(first.room)[1]
    not_confirmed(rows, "make", lands=True)
    with frozen(first.room, freeze_before(rows, "end")) as calling_off, first as old:
        assert calling_off.is_reached.wait(15)
        with Leader(database, sim, epoch=3) as new:
            calling_off.wake()
            until_idle(old)
            new.until_quiet()
    is_once(sim, users)
    assert deaths
    assert {type(one) for one in deaths} == {Replaced}


def test_a_conversation_that_mongodb_refuses_to_claim_stops_no_other(
    database: Any, sim: Sim
) -> None:
    users = friends(database, sim, 4)
    bad = users[0]
    refused = {"key": bad.user_id, "call": {"$type": "object"}}
    database.command("collMod", "conversations", validator={"$nor": [refused]})
    try:
        room = carried_out(database, sim)
    finally:
        database.command("collMod", "conversations", validator={})
    assert [texts(sim, user) for user in users] == [[], *[["同じ"]] * 3]
    (letter,) = room.letters()
    assert (letter["key"], explained(letter)) == (bad.user_id, f"{REFUSED_WORDS}: code 121")


@pytest.mark.parametrize("done", [True, False])
def test_the_end_of_a_batch_leaves_a_later_call_of_a_member_that_was_given_up(
    database: Any, sim: Sim, done: bool
) -> None:
    batches, ready = a_made_batch(database, friends(database, sim, 3))
    first, *others = ready.members
    later = {"at": datetime.now(UTC), "as": "push", "key": "k", "token": None, "members": ["x"]}
    database.conversations.update_one({"_id": first}, {"$set": {"call": later}})

    batches.end(ready, done=done)
    rows = {row["_id"]: row for row in database.conversations.find()}
    assert rows[first]["call"]["key"] == "k"
    assert all("call" not in rows[id_] for id_ in others)
    assert all(bool(rows[id_]["outbox"]) is not done for id_ in others)
    assert database.batches.find_one() is None


@pytest.mark.parametrize("made", range(4))
def test_the_end_of_a_batch_with_a_deleted_conversation_may_be_cut_short(
    database: Any, sim: Sim, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    users = friends(database, sim, 3)
    batches, ready = a_made_batch(database, users)
    database.conversations.delete_one({"_id": list(ready.members)[1]})
    commit, commits = Committer.commit, count(-1)

    def dies(self: Committer, *changes: Any, **bounds: Any) -> bool:
        # The first one is of all together.
        if next(commits) == made:
            raise Killed
        return commit(self, *changes, **bounds)

    monkeypatch.setattr(Committer, "commit", dies)
    with pytest.raises(Killed):
        batches.end(ready, done=True)
    claimed = database.conversations.count_documents({"call.batch": ready.key})
    assert claimed == 0 or database.batches.find_one() is not None


def a_made_batch(
    database: Any, users: Sequence[User], *, epoch: int = 1
) -> tuple[Batches, ReadyBatch]:
    """A multicast to these users that may be called."""
    batches, place = Batches(lead(Committer(database), epoch=epoch)), place_of(1, FIRST_NUMBER)
    members = {f"{CHANNEL}/{user.user_id}": (place,) for user in users}
    ready = ReadyBatch(str(uuid.uuid4()), datetime.now(UTC), members)
    assert batches.make(ready, seconds=5)
    return batches, ready
