"""Lost, doubled and late messages, and leaders and workers that are cut off, on a real RabbitMQ."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.errors import WorkerAway
from jobworker.remote.leader import Attempt
from linedesk import Bot
from linedesk.operate.acts import Acts
from linedesk.operate.dead_letters import explained
from linedesk.runtime.status_row import OTHER_VERSION, UNACCEPTED
from linedesk.store.control import Control
from linedesk.store.timers import make_timer_document
from tests.jobworker.remote.house import SHORT, House, states, until_working
from tests.jobworker.remote.remote_room import leave
from tests.jobworker.remote.wire import Gate, Message, Stranger, Wire, twice, without
from tests.jobworker.worker_harness import CHANNEL, Room
from tests.waiting import eventually

# One that nothing is wrong with is not taken for lost, however slow the machine is.
LEADER = "jobworker.remote.leader"
PATIENT = SHORT | {f"{LEADER}.UNNAMED_SECONDS": 10.0, f"{LEADER}.SILENT_SECONDS": 20.0}


class Script:
    """A bot that repeats each text, and the first actions of its runs, by text and number of
    run.
    """

    def __init__(self, **acts: Sequence[Callable[[Talk], object]]) -> None:
        self.runs: list[str] = []
        self._acts = acts
        self._lock = threading.Lock()
        self.bot = Bot()
        self.bot.default()(self.handle)

    def handle(self, event: Any, talk: Talk) -> None:
        text = str(talk.raw["message"]["text"])
        with self._lock:
            number = self.runs.count(text)
            self.runs.append(text)
        acts = self._acts.get(text, ())
        if number < len(acts):
            acts[number](talk)
        talk.reply(f"{text} {number + 1}" if acts else text)

    def times(self, text: str) -> int:
        """How often its handler has begun."""
        return self.runs.count(text)


def stand_at(gate: Gate) -> Callable[[Talk], object]:
    return lambda talk: gate.wait()


def test_a_job_that_is_lost_runs_its_handler_once(house: House) -> None:
    user, script, wire = house.sim.add_user("花子"), Script(), Wire(house.node)
    wire.out.change = without("job", times=1)
    room = house.leader(wire)
    house.worker(script.bot)
    room.says(user, "a")
    room.until_quiet()
    assert house.texts(user) == ["a"]
    assert script.runs == ["a"]
    assert len({job["attempt"] for job in wire.out.of("job")}) == 2


def test_a_decision_that_is_lost_is_repeated_and_its_handler_is_not(house: House) -> None:
    user, script, wire = house.sim.add_user("花子"), Script(), Wire(house.node)
    wire.out.change = without("decision", times=1)
    room = house.leader(limits=PATIENT)
    worker = house.worker(script.bot, wire)
    room.says(user, "a")
    room.until_quiet()
    assert house.texts(user) == ["a"]
    assert script.runs == ["a"]
    eventually(lambda: not worker._held)


@pytest.mark.parametrize("doubled", ["leader", "worker"])
def test_doubled_messages_change_nothing(house: House, doubled: str) -> None:
    user, script, here, there = house.sim.add_user("花子"), Script(), *two_wires(house)
    (here if doubled == "leader" else there).out.change = twice
    room = house.leader(here, limits=PATIENT)
    house.worker(script.bot, there)
    for text in "abcd":
        room.says(user, text)
    room.until_quiet()
    assert house.texts(user) == [*"abcd"]
    assert script.runs == [*"abcd"]


def test_a_decision_that_comes_late_and_twice_is_dropped(house: House) -> None:
    """It is of an attempt that the leader took for lost; another one has decided otherwise."""
    user, there = house.sim.add_user("花子"), Wire(house.node)
    gate, late = house.gate(), list[Message]()
    script = Script(a=[stand_at(gate)])

    def hold_back(message: Message) -> Sequence[Message]:
        if message["type"] == "beat":
            return [{**message, "attempts": [], "decided": []}]
        if message["type"] == "decision":
            late.append(message)
            return []
        return [message]

    # The second worker is there before the first attempt counts as lost.
    room = house.leader(limits=SHORT | {f"{LEADER}.UNNAMED_SECONDS": 4.0})
    house.worker(script.bot, there, name="one")
    until_working(room, "one")
    there.out.change = hold_back
    room.says(user, "a")
    gate.until_reached()
    house.worker(script.bot, name="two")
    gate.open()
    eventually(lambda: late)
    eventually(lambda: house.texts(user) == ["a 2"])
    with Stranger(house.node) as stranger:
        dropped = figures(room)["worker_decisions_dropped"]
        for _ in range(2):
            stranger.to_leaders(late[0])
        eventually(lambda: figures(room)["worker_decisions_dropped"] >= dropped + 2)
        room.says(user, "b")
        room.until_quiet()
    assert house.texts(user) == ["a 2", "b"]
    assert script.times("a") == 2


def test_a_worker_that_is_cut_off_during_its_handler_decides_nothing_when_it_is_back(
    house: House,
) -> None:
    user, there, gate = house.sim.add_user("花子"), Wire(house.node), house.gate()
    script = Script(a=[stand_at(gate)])
    room = house.leader()
    worker = house.worker(script.bot, there, name="one")
    until_working(room, "one")
    room.says(user, "a")
    gate.until_reached()
    there.cut()
    house.worker(script.bot, name="two")
    eventually(lambda: house.texts(user) == ["a 2"])
    gate.open()
    eventually(lambda: len(there.out.of("decision")) == 1)
    # It is back, and repeats its decisions.
    there.out.change = there.into.change = lambda message: [message]
    until_working(room, "one", "two")
    eventually(lambda: not worker._held)
    room.says(user, "b")
    room.until_quiet()
    assert house.texts(user) == ["a 2", "b"]


def test_a_worker_that_is_silent_gets_no_more_jobs_before_it_is_given_up(house: House) -> None:
    user, there = house.sim.add_user("花子"), Wire(house.node)
    silent, other = Script(), Script()
    limits = SHORT | {f"{LEADER}.UNNAMED_SECONDS": 0.5, f"{LEADER}.SILENT_SECONDS": 3_600.0}
    room = house.leader(limits=limits)
    house.worker(silent.bot, there, name="silent", threads=20)
    until_working(room, "silent")
    there.cut()
    eventually(lambda: states(room) == {"silent": "silent"})
    house.worker(other.bot, name="other", threads=1)
    until_working(room, "other")
    room.says(user, "a")
    room.until_quiet()
    assert house.texts(user) == ["a"]
    assert (silent.runs, other.runs) == ([], ["a"])


def test_a_new_leader_waits_for_no_handler_of_the_one_before(house: House) -> None:
    user, here, gate = house.sim.add_user("花子"), Wire(house.node), house.gate()
    script = Script(a=[stand_at(gate)])
    first = house.leader(here)
    worker = house.worker(script.bot, threads=1)
    until_working(first, "box/1")
    document = first.says(user, "a")
    gate.until_reached()
    here.cut()
    second = house.leader(epoch=2)
    second.put_document(document, again=True)
    second.says(user, "b")
    second.until_quiet()
    assert house.texts(user) == ["a 2", "b"]
    assert worker.abandoned_total == 1
    gate.open()
    eventually(lambda: worker.has_threads_left and not worker._held)
    second.says(user, "c")
    second.until_quiet()
    assert house.texts(user) == ["a 2", "b", "c"]


def test_a_leader_that_wakes_abandons_no_handler_of_its_successor(house: House) -> None:
    user, here, there = house.sim.add_user("花子"), *two_wires(house)
    gate, script = house.gate(), Script()
    script._acts = {"a": [stand_at(gate)]}
    first = house.leader(here)
    worker = house.worker(script.bot, there)
    until_working(first, "box/1")
    second = house.leader(epoch=2, limits=PATIENT)
    until_working(second, "box/1")
    second.says(user, "a")
    gate.until_reached()
    # Leaders of older releases answered for attempts that they did not know.
    (job,) = there.into.of("job")
    with Stranger(house.node) as stranger:
        abandon = {"type": "abandon", "attempt": job["attempt"], "epoch": 1}
        stranger.to(there.brokers[0].address, abandon)
        eventually(lambda: there.into.of("abandon"))
        stranger.to(there.brokers[0].address, {"type": "later"})
        eventually(lambda: there.into.of("later"))
    gate.open()
    second.until_quiet()
    assert house.texts(user) == ["a 1"]
    assert script.times("a") == 1
    assert worker.abandoned_total == 0


def a_bot(answer: str, *timers: str) -> Bot:
    bot = Bot(settings={"answer": answer})
    bot.default()(lambda event, talk: talk.reply(talk.settings["answer"]))
    for name in timers:
        bot.timer(name)(lambda event, talk: talk.push(f"rang {talk.settings['answer']}"))
    return bot


def test_a_new_version_gets_no_job_before_an_operator_accepts_it(house: House) -> None:
    user, room = house.sim.add_user("花子"), house.leader(confirms_bots=True)
    house.worker(a_bot("old"), name="old", threads=1)
    until_working(room, "old")
    eventually(lambda: Control(house.database).bots())
    for name in ("new/0", "new/1"):
        house.worker(a_bot("new"), name=name, threads=20)
        eventually(lambda name=name: states(room).get(name) == UNACCEPTED)
    room.says(user, "a")
    room.until_quiet()
    # Its successor asks as well.
    room.desk.stop()
    second = house.leader(confirms_bots=True, epoch=2)
    until_working(second, "old")
    second.says(user, "b")
    second.until_quiet()
    assert house.texts(user) == ["old", "old"]
    eventually(lambda: states(second).get("new/0") == UNACCEPTED)
    [new] = {one["bot"] for one in second.desk.workers() if one["name"] == "new/0"}
    assert Acts(house.database, by="hanako", via="command").accept(new)
    until_working(second, "new/0", "new/1")
    second.says(user, "c")
    second.until_quiet()
    assert house.texts(user) == ["old", "old", "new"]
    [row] = house.database.audit.find({"act": "accept"})
    assert (row["by"], row["on"], row["outcome"]) == ("hanako", new, "done")


def test_the_version_of_most_threads_is_in_force_and_of_two_equal_ones_the_later(
    house: House,
) -> None:
    user = house.sim.add_user("花子")
    room = house.leader()
    old = [house.worker(a_bot("old"), name=f"old/{n}", threads=2) for n in range(2)]
    until_working(room, "old/0", "old/1")
    house.worker(a_bot("new"), name="new/0", threads=2)
    eventually(lambda: states(room).get("new/0", "") == OTHER_VERSION)
    room.says(user, "a")
    room.until_quiet()
    leave(old[0])
    until_working(room, "new/0")
    assert states(room)["old/1"] == OTHER_VERSION
    room.says(user, "b")
    room.until_quiet()
    assert house.texts(user) == ["old", "new"]


def test_a_timer_of_another_version_waits_for_it_without_a_try(house: House) -> None:
    user = house.sim.add_user("花子")
    room = house.leader()
    old = house.worker(a_bot("old"), name="old", threads=4)
    house.worker(a_bot("new", "ring"), name="new", threads=1)
    until_working(room, "old")
    eventually(lambda: "new" in states(room))
    eventually(lambda: room.desk._workers is not None and room.desk._workers.versions.others())
    bot = Bot()

    @bot.default()
    def set_it(event: Any, talk: Talk) -> None:
        talk.after(60, "ring")

    setter = house.worker(bot, name="setter", threads=20)
    until_working(room, "setter")
    room.says(user, "a")
    room.until_quiet()
    leave(setter)
    until_working(room, "old")
    (found,) = room.database.schedule.find()
    room.put_document(make_timer_document(found, accept_time=datetime.now(UTC)))
    eventually(lambda: because(room) == "other_bot_version")
    assert room.letters() == []
    leave(old)
    room.until_quiet()
    assert room.letters() == []
    assert house.texts(user) == ["rang new"]


@pytest.mark.parametrize("days", [-4, 4])
def test_a_worker_whose_clock_is_days_wrong_sets_timers_right(house: House, days: int) -> None:
    user, there = house.sim.add_user("花子"), Wire(house.node)
    wrong = datetime.now(UTC) + timedelta(days=days)

    def lie(message: Message) -> Sequence[Message]:
        if message["type"] != "decision":
            return [message]
        now = {"now": wrong.isoformat()}
        return [{**message, "actions": [{**one, **now} for one in message["actions"]]}]

    there.out.change = lie
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.after(60, "soon")
        talk.push("はい")

    room = house.leader()
    house.worker(bot, there)
    began = datetime.now(UTC)
    room.says(user, "a")
    room.until_quiet()
    (row,) = room.database.schedule.find()
    assert 55 < (row["runAt"] - began).total_seconds() < 80
    assert house.texts(user) == ["はい"]


def test_a_handler_that_does_not_return_is_ended_by_its_worker(house: House) -> None:
    user, other, gate = *(house.sim.add_user(name) for name in "甲乙"), house.gate()
    bot = Bot()

    @bot.default(limit=0.3)
    def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "hang":
            gate.wait()
        talk.reply("はい")

    room = house.leader(tries=2)
    worker = house.worker(bot, threads=2)
    room.says(user, "hang")
    room.says(user, "b")
    room.says(other, "c")
    room.until_quiet()
    assert house.texts(user) == ["はい"]
    assert house.texts(other) == ["はい"]
    (letter,) = room.letters()
    assert (explained(letter), letter["attempts"]) == ("handler: did not return", 2)
    assert "gate.wait()" in letter["traceback"]
    assert worker.abandoned_total == 2


def test_a_message_that_is_taken_back_while_its_job_is_out_is_not_answered(house: House) -> None:
    user, gate = house.sim.add_user("花子"), house.gate()
    secret = "ひみつのことば"
    script = Script(**{secret: [stand_at(gate)]})
    room = house.leader()
    house.worker(script.bot)
    said = house.sim.drafts.text(user, secret)
    document = room.send(said)
    gate.until_reached()
    # Another process of the same term notes it; this one meets it as it records.
    unsends = room.desk._turns.unsends
    unsends._note(document, said["message"]["id"])
    gate.open()
    room.until_quiet()
    assert house.texts(user) == []
    assert script.times(secret) == 1
    assert secret.encode() not in house.node.on_disk()


@pytest.mark.parametrize("comes", [True, False])
def test_an_idle_worker_is_kept_for_what_may_have_killed_two(house: House, *, comes: bool) -> None:
    """One that does not come, since it was paused or released, keeps it for a moment only."""
    room = house.leader()
    house.worker(Script().bot, threads=2)
    until_working(room, "box/1")
    workers = room.desk._workers
    assert workers is not None
    workers._gone.update(dict.fromkeys(["one", "two"]))

    def take(event_id: str, *died_with: str) -> Attempt:
        return workers.take(
            version=workers.versions.in_force,
            key=f"{CHANNEL}/{event_id}",
            event_id=event_id,
            died_with=set(died_with),
        )

    first = take("first")
    assert workers._told_places == 2
    with pytest.raises(WorkerAway, match="needs_own_worker"):
        take("suspect", "one", "two")
    # The place that is free there is for none that would be sent away.
    assert workers._told_places == 1
    with pytest.raises(WorkerAway, match="no_worker_free"):
        take("other")
    workers.end(first)
    assert workers._told_places == 1
    with pytest.raises(WorkerAway, match="no_worker_free"):
        take("other")
    if comes:
        own = take("suspect", "one", "two")
        assert own.alone
        with pytest.raises(WorkerAway, match="no_worker_free"):
            take("other")
        assert workers._told_places == 1
        workers.end(own)
    eventually(lambda: workers._told_places == 2)
    workers.end(take("other"))


# Queries of the tests.


def two_wires(house: House) -> tuple[Wire, Wire]:
    return Wire(house.node), Wire(house.node)


def figures(room: Room) -> dict[str, float]:
    assert room.desk._workers is not None
    return room.desk._workers.figures()


def because(room: Room) -> str | None:
    """Why the first job that was deferred waits."""
    waits = [mailbox.waits for mailbox in room.pool.mailboxes.all() if mailbox.waits]
    why = waits[0].wait.why if waits and waits[0].wait else {}
    return why.get("cause", why.get("code"))
