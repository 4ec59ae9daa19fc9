"""Races of two processes or threads over one conversation, each staged at its worst moment."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from dispatcher.commit.committer import Committer
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.pool.saver import Saver
from jobworker.bot.talk import Talk
from jobworker.bot.timers import Timers
from jobworker.effects import Call, SendMethod
from jobworker.line.answer import LineAnswer
from jobworker.line.client import LineClient
from jobworker.record.conversations import FIRST_NUMBER, ConversationStore, Decision, Recorded
from jobworker.record.schedule import Schedule
from jobworker.sending.outbox import Outbox
from jobworker.sending.verdict import ReplyUnknown
from linedesk import Bot
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client, connect
from linedesk.store.documents import CONVERSATIONS, PROGRESS, SCHEDULE, Document, make_document
from linedesk.store.errors import Replaced, StoreUnavailable
from linedesk.store.records.effects import effects_of, place_of
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms, a_send, echo, lead, texts
from tests.rows import Db
from tests.waiting import eventually

Dies = Callable[..., None]
WAIT_SECONDS = 15.0


class Point:
    """A point at which a thread freezes until it may continue."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def pass_by(self) -> None:
        self.reached.set()
        assert self.go_on.wait(WAIT_SECONDS), "the test did not let it continue"


def leading(database: Db, epoch: int) -> ConversationStore:
    made = ConversationStore(lead(Committer(database), epoch=epoch))
    made.epoch = epoch
    return made


def record(mine: ConversationStore, document: Document, *effects: Document) -> Recorded:
    decision = Decision({}, list(effects))
    placed = mine.placed(effects)
    return mine.recorded(mine.enter_record(document, decision, placed, message_id=None))


def a_message(user: Any, sim: Sim, text: str = "?") -> Document:
    """An event as recvq has it, LINE's side of it too."""
    event = sim.drafts.text(user, text)
    sim.deliver(event)
    return make_document(event, channel=CHANNEL, accept_time=datetime.now(UTC))


def a_push(document: Document, text: str) -> Document:
    name = document["eventId"]
    messages = [{"type": "text", "text": text}]
    key = f"8a1c3b42-9f6e-4f0a-8f2b-{abs(hash(name)) % 10**12:012d}"
    send = a_send(
        id=f"{name}/0", event_id=name, to=document["key"], messages=messages, retry_key=key
    )
    return send.as_document()


# First writes that all find no document yet.


@pytest.fixture(scope="module")
def halting(tmp_path_factory: pytest.TempPathFactory, mongod: object) -> Iterator[Client]:
    """A server that freezes at a chosen point."""
    folder = tmp_path_factory.mktemp("halting")
    extra = ["--setParameter", "enableTestCommands=1", "--oplogSize", "100"]
    with (
        EmbeddedMongod(folder, extra=extra) as server,
        connect(server.uri, app_name="halting") as client,
    ):
        yield client


UPSERT_INSERTS = "hangBeforeUpsertPerformsInsert"


@contextmanager
def upserts_halting(client: Client, count: int) -> Iterator[Callable[[], Any]]:
    """No upsert inserts anything; returns a function that waits until this many have found no
    match.
    """
    halted = {"currentOp": 1, "failpointMsg": UPSERT_INSERTS}
    client.admin.command({"configureFailPoint": UPSERT_INSERTS, "mode": "alwaysOn"})
    try:
        # Not by the point's own count, which continues while a thread is frozen there.
        yield lambda: eventually(lambda: len(client.admin.command(halted)["inprog"]) == count)
    finally:
        client.admin.command({"configureFailPoint": UPSERT_INSERTS, "mode": "off"})


def of_one_key(name: str, **event: Any) -> Document:
    event = {"type": "message", **event, "source": {"type": "user", "userId": "U1"}}
    return {"_id": name, "eventId": name, "channel": CHANNEL, "key": "U1", "event": event}


@pytest.fixture
def empty(halting: Client) -> Db:
    for name in (CONVERSATIONS, SCHEDULE):
        halting["races"][name].delete_many({})
    return halting["races"]


def overtaken(client: Client, act: Callable[[], Any], rival: Callable[[], Any]) -> Any:
    """The result or error of the act if the rival inserts between its read and its insert."""
    rows = client["races"][SCHEDULE]
    rival()
    made = rows.find_one_and_delete({})
    with ThreadPoolExecutor(1) as thread:
        with upserts_halting(client, 1) as wait_for_it:
            begun = thread.submit(act)
            wait_for_it()
            # By an insert, since an upsert would freeze there, too.
            rows.insert_one(made)
        return begun.exception(WAIT_SECONDS) or begun.result()


def the_one(database: Db) -> Document:
    (found,) = database[CONVERSATIONS].find()
    return dict(found)


# A predecessor that was frozen, and wakes.


def test_a_record_in_a_conversation_that_is_not_loaded_yet_is_carried_out_after_what_was_left(
    database: Db, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sim.add_user("花子")
    first, second = a_message(user, sim), a_message(user, sim, "二")
    record(leading(database, 1), first, a_push(first, "一"))
    load, may_load = Outbox._load, threading.Event()

    def late(outbox: Outbox, left: Sequence[str]) -> None:
        if not may_load.is_set():
            raise StoreUnavailable("not yet")
        load(outbox, left)

    monkeypatch.setattr(Outbox, "_load", late)
    with Room(database, sim, echo(), epoch=2) as desk:
        with desk.desk.gate.turn():
            desk.put_document(first, again=True)
            desk.put_document(second, again=True)
            desk.until_decided()
            assert len(desk.desk.outbox.boxes) == 2
            may_load.set()
        desk.until_quiet()
    assert texts(sim, user) == ["一", "二"]


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_record_that_comes_after_its_successor_took_over_is_refused(
    database: Db, room: Rooms, sim: Sim, known: bool
) -> None:
    user = sim.add_user("花子")
    first, second = a_message(user, sim, "一"), a_message(user, sim, "二")
    predecessor = leading(database, 1)
    if known:
        record(predecessor, first, a_push(first, "一"))
    desk = room(echo(), epoch=2)
    desk.until_quiet()
    call = Call(datetime.now(UTC), SendMethod.PUSH, (place_of(1, FIRST_NUMBER),), key="k")
    for write in (
        lambda: record(predecessor, second, a_push(second, "二, of the predecessor")),
        lambda: predecessor.note_call(f"{CHANNEL}/{user.user_id}", call, seconds=5),
    ):
        with pytest.raises(Replaced):
            write()
    desk.put_document(first, again=True)
    desk.put_document(second, again=True)
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二"]


def test_a_record_held_up_behind_its_look_at_the_lease_is_refused_however_much_came_since(
    room: Rooms, sim: Sim, deaths: list[BaseException | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event has left `applied` after 25 later ones: only the epoch refuses it."""
    monkeypatch.setattr("jobworker.record.record.APPLIED", 10)
    monkeypatch.setattr("jobworker.record.conversations.APPLIED", 10)
    user, at_lease = sim.add_user("花子"), Point()

    def lease_is_fresh() -> bool:
        at_lease.pass_by()
        return True

    frozen = room(echo(), lease_is_fresh=lease_is_fresh)
    document = frozen.says(user, "初")
    assert at_lease.reached.wait(WAIT_SECONDS)
    successor = room(echo(), epoch=2)
    successor.put_document(document, again=True)
    for n in range(25):
        successor.says(user, f"{n}")
    successor.until_quiet(seconds=60)
    assert document["eventId"] not in successor.conversation(user.user_id)["applied"]

    at_lease.go_on.set()
    eventually(lambda: deaths)
    assert {type(one) for one in deaths} == {Replaced}
    assert texts(sim, user) == ["初", *(f"{n}" for n in range(25))]
    assert successor.conversation(user.user_id)["n"] == 26


@pytest.mark.parametrize("again", [True, False], ids=["read again", "read once"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_record_that_comes_after_its_successor_decided_nothing_is_refused(
    database: Db,
    room: Rooms,
    sim: Sim,
    deaths: list[BaseException | None],
    again: bool,
    known: bool,
) -> None:
    """Between its look at the lease and its record, while the successor's handler said nothing."""
    user, at_lease = sim.add_user("花子"), Point()
    if known:
        with Room(database, sim, echo()) as earlier:
            earlier.says(user, "前")
            earlier.until_quiet()
    frozen = room(echo(), lease_is_fresh=lambda: at_lease.pass_by() or True)
    document = frozen.says(user, "?")
    assert at_lease.reached.wait(WAIT_SECONDS)
    silent = room(Bot(), epoch=2)
    silent.put_document(document, again=again)
    silent.until_decided()

    at_lease.go_on.set()
    eventually(lambda: deaths)
    assert {type(one) for one in deaths} == {Replaced}
    assert silent.effects() == []
    # A later term finds nothing to send either.
    room(Bot(), epoch=3).until_quiet()
    assert texts(sim, user) == (["前"] if known else [])


def test_an_end_without_effects_that_comes_after_its_successor_answered_is_refused(
    room: Rooms, sim: Sim, deaths: list[BaseException | None]
) -> None:
    """Held up in its handler, which then decides nothing."""
    user, in_handler, silent = sim.add_user("花子"), Point(), Bot()
    silent.default()(lambda event, talk: in_handler.pass_by())
    frozen = room(silent)
    document = frozen.says(user, "?")
    assert in_handler.reached.wait(WAIT_SECONDS)
    successor = room(echo(), epoch=2)
    successor.put_document(document, again=True)
    successor.until_quiet()

    in_handler.go_on.set()
    eventually(lambda: deaths)
    assert {type(one) for one in deaths} == {Replaced}
    assert texts(sim, user) == ["?"]


@pytest.mark.parametrize("way", ["reply", "push"])
@pytest.mark.parametrize("moment", ["amid its successor's call", "after it"])
def test_a_call_that_slips_out_of_a_frozen_process_changes_nothing(
    room: Rooms,
    sim: Sim,
    deaths: list[BaseException | None],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    moment: str,
) -> None:
    """Frozen behind its last look at the lease; its successor has called LINE meanwhile."""
    user, at_call, called = sim.add_user("花子"), Point(), Point()
    post = LineClient.post

    def held_up(client: LineClient, *args: Any, **kwargs: Any) -> LineAnswer:
        if client is frozen.desk.line.client:
            at_call.pass_by()
            return post(client, *args, **kwargs)
        answer = post(client, *args, **kwargs)
        called.pass_by()
        return answer

    monkeypatch.setattr(LineClient, "post", held_up)
    bot = Bot()
    bot.default()(lambda event, talk: getattr(talk, way)("はい"))
    frozen = room(bot)
    frozen.says(user, "?")
    assert at_call.reached.wait(WAIT_SECONDS)
    successor = room(bot, epoch=2)
    assert called.reached.wait(WAIT_SECONDS)
    if moment == "after it":
        called.go_on.set()
        successor.until_quiet()

    before = len(sim.calls)
    at_call.go_on.set()
    eventually(lambda: deaths and len(sim.calls) > before)
    called.go_on.set()
    successor.until_quiet()
    assert texts(sim, user) == ["はい"]
    assert {type(one) for one in deaths} == {Replaced}
    assert len(sim.calls) == before + 1
    assert frozen.letters() == []


# Events without effects, whose only trace is in memory until progress is saved.


def stateful() -> Bot:
    """It answers once it got a name, and is silent until then."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "名":
            talk.state = "known"
        elif talk.state == "known":
            talk.reply(talk.raw["message"]["text"])

    return bot


def test_an_event_decided_without_effects_is_not_decided_again_under_a_later_state(
    database: Db, room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group of the record that changes the state also has the progress before it."""
    user = sim.add_user("花子")
    with monkeypatch.context() as patch, Room(database, sim, stateful()) as died:
        # No group for the progress alone.
        patch.setattr(Saver, "seconds", lambda _: 60.0)
        documents = [died.says(user, text) for text in ("一", "二", "名")]
        eventually(lambda: database[CONVERSATIONS].find_one({"state": "known"}))
        saved = the_progress(database)
    left = [one for one in documents if saved.take(one["_id"], None)]
    assert left in ([], documents[2:])
    successor = room(stateful(), epoch=2)
    for document in left:
        successor.put_document(document, again=True)
    successor.says(user, "三")
    successor.until_quiet()
    assert texts(sim, user) == ["三"]


def the_progress(database: Db) -> ProgressTracker:
    """Progress as a successor would find it."""
    row = database[PROGRESS].find_one()
    assert row is not None
    fields = ("token", "after", "finished", "passed", "ring")
    return ProgressTracker(**{name: row[name] for name in fields})


# Processes that were killed between two tries of one send.

INVALID = {"message": "Invalid reply token"}


def left_by(database: Db) -> tuple[Document, Document | None]:
    """The outbox and the call that the dead process has left."""
    found = the_one(database)
    ((_, effect),) = effects_of(found)
    return effect, found.get("call")


@pytest.mark.parametrize(
    ("point", "accepted"),
    [("noted as push", False), ("called as push", True)],
    ids=["before LINE had it", "after LINE had it"],
)
def test_a_reply_that_became_a_push_stays_one_though_its_token_is_good(
    database: Db, dies: Dies, room: Rooms, sim: Sim, point: str, accepted: bool
) -> None:
    user = sim.add_user("花子")
    # LINE did not take the token, and would take it now.
    sim.answer_next("reply", 400, INVALID)
    dies(point, user)
    left, call = left_by(database)
    assert call is not None
    assert (call["as"], call["key"], left["token"]) == ("push", left["retryKey"], None)
    assert texts(sim, user) == (["はい"] if accepted else [])
    before = len(sim.calls)
    room(Bot(), epoch=2).until_quiet()
    assert texts(sim, user) == ["はい"]
    assert [call.endpoint for call in sim.calls[before:]] == ["push"]


def test_a_definite_refusal_is_durable_before_anything_else_is_tried(
    database: Db, dies: Dies, sim: Sim
) -> None:
    """Otherwise the successor, past the token's minute, would treat it as one of unknown
    outcome.
    """
    user = sim.add_user("花子")
    sim.answer_next("reply", 429)
    dies("cleared", user)
    left, call = left_by(database)
    assert (left["token"] is None, call) == (False, None)
    let_the_minute_pass(database)
    with Room(database, sim, Bot(), epoch=2, reply_unknown=ReplyUnknown.DROP) as desk:
        desk.until_quiet()
    assert texts(sim, user) == ["はい"]


def test_a_refusal_that_was_not_written_down_is_of_unknown_outcome(
    database: Db, dies: Dies, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed between the refusal and its clearing: past its minute nothing can be proved."""
    user = sim.add_user("花子")
    sim.answer_next("reply", 429)
    dies("refused", user)
    left, call = left_by(database)
    assert call is not None
    assert call["token"] == left["token"]
    let_the_minute_pass(database)
    conversation = database[CONVERSATIONS].find_one()
    assert conversation is not None
    for reply_unknown, seen in ((ReplyUnknown.DROP, []), (ReplyUnknown.PUSH, ["はい"])):
        database[CONVERSATIONS].replace_one({}, conversation)
        # The token is too old for LINE as well by then.
        sim.answer_next("reply", 400, INVALID)
        caplog.clear()
        with Room(database, sim, Bot(), epoch=2, reply_unknown=reply_unknown) as desk:
            desk.until_quiet()
        assert texts(sim, user) == seen
        assert "not provable" in caplog.text


def let_the_minute_pass(database: Db) -> None:
    past = datetime.now(UTC) - timedelta(seconds=90)
    for place in the_one(database)["outbox"]:
        database[CONVERSATIONS].update_many({}, {"$set": {f"outbox.{place}.tokenFrom": past}})


# Timers: each is recorded with a number, and the highest is kept in its row.


def a_timer(document: Document, seconds: float | None, *, n: int | None = None) -> Document:
    """The effect that sets the timer "egg", or cancels it."""
    name, key = document["eventId"], document["key"]
    timers = Timers({"eventId": name, "channel": CHANNEL, "key": key, "event": {}}, member=None)
    if seconds is None:
        timers.cancel("egg")
    else:
        timers.after(seconds, "egg", {}, now=datetime.now(UTC))
    (effect,) = timers.effects()
    return {**effect, "n": n}


def counted_to(database: Db, n: int) -> None:
    """As many records the conversation has."""
    database[CONVERSATIONS].insert_one({"_id": f"{CHANNEL}/U1", "n": n})


def the_timer(database: Db) -> Document:
    (row,) = database[SCHEDULE].find()
    return dict(row)


def cook() -> Bot:
    """It sets the timer to the seconds in the message, and cancels it at "no"."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        text = talk.raw["message"]["text"]
        if text == "no":
            talk.cancel("egg")
        else:
            talk.after(float(text), "egg", told=text)

    return bot


@pytest.mark.parametrize("late", ["a set", "a cancel"])
@pytest.mark.parametrize("first", ["the lower number", "the higher number"])
def test_of_two_first_rows_of_a_timer_the_later_is_kept(
    halting: Client, empty: Db, late: str, first: str
) -> None:
    document = of_one_key("E1")
    counted_to(empty, 2)
    lower = a_timer(document, 60 if late == "a set" else None, n=1)
    higher = a_timer(document, None if late == "a set" else 60, n=2)
    one, other = (partial(Schedule(empty).enter, effect) for effect in (lower, higher))
    rivals = (other, one) if first == "the lower number" else (one, other)
    assert overtaken(halting, *rivals) is None
    row = the_timer(empty)
    assert (row["n"], row["runAt"] is None) == (2, late == "a set")


def test_in_whatever_order_and_however_often_timers_come_the_last_record_is_kept(
    database: Db,
) -> None:
    document, schedule = of_one_key("E1"), Schedule(database)
    counted_to(database, 3)
    effects = [a_timer(document, seconds, n=n) for n, seconds in enumerate((60, None, 90), 1)]
    for order in permutations([*effects, effects[1]]):
        database[SCHEDULE].delete_many({})
        for effect in order:
            assert schedule.enter(effect) is None
        row = the_timer(database)
        assert (row["n"], row["runAt"]) == (3, effects[2]["runAt"])
        assert "endedAt" not in row


def test_a_record_that_comes_between_the_look_at_the_number_and_the_write_is_counted(
    database: Db,
) -> None:
    """Its number is looked up again; it is not decided anew, since it is based on no state."""
    documents = [of_one_key(name) for name in ("E1", "E2", "E3")]
    mine = leading(database, 2)
    record(mine, documents[0], a_timer(documents[0], 10))
    late = Decision({}, [a_timer(documents[2], 30)])
    placed = mine.placed(late.effects)
    recording = mine.enter_record(documents[2], late, placed, message_id=None)
    database[CONVERSATIONS].update_one({}, {"$inc": {"n": 1}})
    with pytest.raises(StoreUnavailable):
        mine.recorded(recording)
    assert recording.write.is_ended
    record(mine, documents[1], a_timer(documents[1], 20))
    recorded = record(mine, documents[2], *late.effects)
    found = the_one(database)
    assert (found["n"], found["applied"]) == (4, ["E1", "E2", "E3"])
    assert [(one["eventId"], one["n"]) for _, one in effects_of(found)] == [
        ("E1", 1),
        ("E2", 3),
        ("E3", 4),
    ]
    # The outbox in memory equals the stored one.
    assert [one["n"] for _, one in recorded.effects] == [4]


def test_a_conversation_deleted_between_read_and_write_continues_its_count(database: Db) -> None:
    """Otherwise its timers would be taken for older than their rows."""
    first, second = of_one_key("E1"), of_one_key("E2")
    mine = leading(database, 2)
    record(mine, first, a_timer(first, 10))
    decision = Decision({}, [a_timer(second, 10)])
    placed = mine.placed(decision.effects)
    recording = mine.enter_record(second, decision, placed, message_id=None)
    database[CONVERSATIONS].delete_many({})
    ((_, effect),) = mine.recorded(recording).effects
    assert (effect["n"], the_one(database)["n"]) == (2, 2)


@pytest.mark.parametrize("point", ["recorded", "entered"])
def test_a_process_that_dies_on_a_timers_way_leaves_all_of_it(
    database: Db, dies: Dies, room: Rooms, sim: Sim, point: str
) -> None:
    dies(point, sim.add_user("花子"), way="timer")
    left, _ = left_by(database)
    assert (left["type"], left["n"]) == ("timer", 1)
    assert database[SCHEDULE].count_documents({}) == (point == "entered")
    if point == "entered":
        # It fired meanwhile; entered once more by the successor it must not fire again.
        spent = {"runAt": None, "endedAt": datetime.now(UTC)}
        database[SCHEDULE].update_one({"runAt": left["runAt"]}, {"$set": spent})
    room(Bot(), epoch=2).until_quiet()
    row = the_timer(database)
    assert (row["n"], row["setBy"]) == (1, left["eventId"])
    assert row["runAt"] == (None if point == "entered" else left["runAt"])


def held_up_entering(monkeypatch: pytest.MonkeyPatch, point: Point, name: str) -> None:
    """The timer of one event freezes before it is entered."""
    enter = Schedule.enter

    def held_up(schedule: Schedule, effect: Any) -> Any:
        if effect["data"].get("told") == name or (name == "no" and effect["runAt"] is None):
            point.pass_by()
        return enter(schedule, effect)

    monkeypatch.setattr(Schedule, "enter", held_up)


@pytest.mark.parametrize(("late", "newer"), [("60", "no"), ("no", "90"), ("60", "90")])
def test_timers_of_one_conversation_on_two_threads_come_to_the_last_record(
    database: Db, room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, late: str, newer: str
) -> None:
    user, point = sim.add_user("花子"), Point()
    held_up_entering(monkeypatch, point, late)
    desk = room(cook())
    desk.says(user, late)
    assert point.reached.wait(WAIT_SECONDS)
    document = desk.says(user, newer)
    eventually(lambda: database[SCHEDULE].find_one({"n": 2}))
    point.go_on.set()
    desk.until_quiet()
    row = the_timer(database)
    assert (row["n"], row["setBy"]) == (2, document["eventId"])


@pytest.mark.parametrize(("late", "newer"), [("60", "no"), ("no", "90")])
def test_a_timer_that_a_frozen_process_enters_late_changes_nothing(
    database: Db,
    room: Rooms,
    sim: Sim,
    deaths: list[BaseException | None],
    monkeypatch: pytest.MonkeyPatch,
    late: str,
    newer: str,
) -> None:
    user, point = sim.add_user("花子"), Point()
    frozen, enter = room(cook()), Schedule.enter

    def held_up(schedule: Schedule, effect: Any) -> Any:
        if not point.reached.is_set():
            point.pass_by()
        return enter(schedule, effect)

    monkeypatch.setattr(Schedule, "enter", held_up)
    frozen.says(user, late)
    assert point.reached.wait(WAIT_SECONDS)
    successor = room(cook(), epoch=2)
    successor.until_quiet()
    assert the_timer(database)["n"] == 1
    successor.says(user, newer)
    successor.until_quiet()
    before = the_timer(database)
    assert (before["n"], before["runAt"] is None) == (2, newer == "no")

    point.go_on.set()
    eventually(lambda: deaths)
    assert {type(one) for one in deaths} == {Replaced}
    assert the_timer(database) == before


def test_a_cancel_that_moves_to_its_row_while_a_fired_timer_asks_for_it_is_seen(
    database: Db, room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the fired event had asked in the other order, it would have met it in neither place."""
    user, point, bot, heard = sim.add_user("花子"), Point(), cook(), []
    bot.timer("egg")(lambda event, talk: heard.append(event))
    desk = room(bot)
    desk.says(user, "60")
    desk.until_quiet()
    ring = make_timer_document(the_timer(database), accept_time=datetime.now(UTC))
    held_up_entering(monkeypatch, point, "no")
    desk.says(user, "no")
    assert point.reached.wait(WAIT_SECONDS)

    def then_moved(method: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any) -> Any:
            answer = method(*args)
            point.go_on.set()
            eventually(lambda: not desk.effects())
            return answer

        return ask

    for name in ("_waits", "_stands"):
        monkeypatch.setattr(Schedule, name, then_moved(getattr(Schedule, name)))
    desk.put_document(ring)
    desk.until_quiet()
    assert heard == []
