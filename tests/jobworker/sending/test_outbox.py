"""G5 acted out: outbox, gate and client against the simulator and its faults, on a real mongod.

In each case the user sees the message exactly once, or the dead letter is there.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

import linesim
from jobworker.line import client as line_client
from jobworker.record.conversations import ConversationStore
from jobworker.sending import conversation_outbox, outbox, outcomes, sender
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from linedesk.store.client import Client
from linedesk.store.records.effects import WITH_OUTBOX
from linesim import HandClock, Sim
from tests.jobworker.worker_harness import Room, Rooms, echo, texts

Dies = Callable[..., None]
REQUEST = line_client.LineClient._request


@dataclass(frozen=True)
class Fault:
    """LINE's answers to the first tries of a send, and the calls that are needed to deliver it."""

    name: str
    plan: Callable[[Sim, str], None]
    calls: int


def _closed_then_429(sim: Sim, way: str) -> None:
    sim.close_next(way, accept=True)
    sim.close_next(way)
    sim.answer_next(way, 429)


BUSY = {"message": "The API rate limit has been exceeded. Try again later."}
HTML = "<html><body>502 Bad Gateway</body></html>"

FAULTS = [
    Fault("nothing wrong", lambda sim, way: None, 1),
    Fault("500 before it was accepted", lambda sim, way: sim.answer_next(way, 500), 2),
    Fault("500 after it was accepted", lambda sim, way: sim.answer_next(way, 500, accept=True), 2),
    Fault("503 three times", lambda sim, way: sim.answer_next(way, 503, times=3), 4),
    Fault(
        "502 in HTML, but accepted",
        lambda sim, way: sim.answer_next(way, 502, HTML, accept=True),
        2,
    ),
    Fault("closed before it was accepted", lambda sim, way: sim.close_next(way), 2),
    Fault("closed after it was accepted", lambda sim, way: sim.close_next(way, accept=True), 2),
    Fault("late, and accepted", lambda sim, way: sim.delay_next(way, 2.0), 2),
    Fault(
        "late, and accepted only then",
        lambda sim, way: sim.delay_next(way, 2.0, accept=False),
        # A push repeated meanwhile is accepted first, and the late one meets its key.
        2,
    ),
    Fault("429", lambda sim, way: sim.answer_next(way, 429, BUSY), 2),
    Fault("401 for a moment", lambda sim, way: sim.answer_next(way, 401), 2),
    Fault("200 with garbage", lambda sim, way: sim.answer_next(way, 200, "<html>", accept=True), 1),
    Fault("accepted, closed again, then 429", _closed_then_429, 4),
]
# Whether LINE accepted the try before, whose outcome is unknown; None: there was none.
EARLIER = (None, False, True)


def plan_earlier(sim: Sim, way: str, accepted: bool | None) -> None:
    if accepted is not None:
        sim.close_next(way, accept=accepted)


SHORT = {
    "jobworker.line.breaker.UNAUTHORIZED_PAUSE_SECONDS": 0.02,
    "jobworker.line.rate_limits.FIRST_PAUSE_SECONDS": 0.01,
}


def leave_in_haste(monkeypatch: pytest.MonkeyPatch, late_call: int | None) -> None:
    """Only the late call is left early; on a busy machine another may take as long."""
    numbers = itertools.count()

    def request(self: Any, *request: Any) -> Any:
        seconds = 0.2 if next(numbers) == late_call else 5.0
        return REQUEST(self, *request[:-1], seconds)

    monkeypatch.setattr(line_client.LineClient, "_request", request)


# A multicast is called under a key as a push is.
TRIES = [*itertools.product(("reply", "push"), EARLIER), ("multicast", None)]


@pytest.mark.parametrize(("way", "earlier"), TRIES)
def test_whatever_line_does_the_message_arrives_once(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, way: str, earlier: bool | None
) -> None:
    desk = room(echo(way, "はい"), line=SHORT)
    for fault in FAULTS:
        user = sim.add_user("花子")
        before = len(sim.calls)
        late_call = int(earlier is not None) if "late" in fault.name else None
        leave_in_haste(monkeypatch, late_call)
        plan_earlier(sim, way, earlier)
        fault.plan(sim, way)
        desk.says(user, "?")
        desk.until_quiet()
        made = sim.calls[before:]
        told = (fault.name, [call.status for call in made])
        assert (*told, texts(sim, user)) == (*told, ["はい"])
        assert [call.endpoint for call in made] == [way] * (fault.calls + (earlier is not None)), (
            told
        )
        assert len({call.retry_key for call in made}) == 1, told
        assert not any(call.retry_differs for call in made), told
    assert desk.letters() == []


@pytest.mark.parametrize("earlier", [None, True])
def test_a_permanent_refusal_of_line_is_a_dead_letter(
    room: Rooms, sim: Sim, earlier: bool | None
) -> None:
    desk = room(echo(way := "reply", "はい"), line=SHORT)
    for status in (400, 403, 409):
        user = sim.add_user("花子")
        plan_earlier(sim, way, earlier)
        sim.answer_next(way, status, {"message": "The request body has 1 error(s)"})
        document = desk.says(user, "?")
        desk.until_quiet()
        (letter,) = [one for one in desk.letters() if one["_id"] == f"{document['eventId']}/0"]
        assert (
            explained(letter) == f"LINE refused it with {status}: The request body has 1 error(s)"
        )
        # It shows a replay whether LINE may have had it.
        assert ("triedAt" in letter["effect"]) is (earlier is not None)
        assert texts(sim, user) == (["はい"] if earlier else [])


# The machine's clock is set back between two tries.


def test_a_clock_that_is_set_back_makes_no_token_good_again(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LINE never had it, and no longer accepts the token: that must not count as sent."""
    since_boot, try_again = sender.boottime, outcomes.Outcomes._try_again
    back, on = timedelta(), 0.0

    class Wall(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - back

    def a_minute_later(self: Any, *args: Any) -> None:
        nonlocal back, on
        back, on = timedelta(hours=1), 61.0
        try_again(self, *args)

    for module in (outbox, sender, conversation_outbox):
        monkeypatch.setattr(module, "datetime", Wall)
    for module in (outbox, sender):
        monkeypatch.setattr(module, "boottime", lambda: since_boot() + on)
    monkeypatch.setattr(outcomes.Outcomes, "_try_again", a_minute_later)
    user = sim.add_user("花子")
    sim.close_next("reply")
    sim.answer_next("reply", 400, {"message": "Invalid reply token"})
    desk = room(echo("reply", "はい"))
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["はい"]


@pytest.mark.parametrize("passed", [59.5, 61.0])
def test_a_token_that_ended_on_the_way_of_a_repeated_call_proves_nothing(
    database: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, passed: float
) -> None:
    """The process freezes between its look at the token and the call, or LINE counts from a moment
    earlier. LINE never had the message, and refuses the token for its age.
    """
    since_boot, clock, numbers, on = sender.boottime, HandClock(), itertools.count(), 0.0

    def request(self: Any, *request: Any) -> Any:
        nonlocal on
        if next(numbers) == 1:
            on = passed
            clock.advance(61)
        return REQUEST(self, *request)

    for module in (outbox, sender):
        monkeypatch.setattr(module, "boottime", lambda: since_boot() + on)
    monkeypatch.setattr(line_client.LineClient, "_request", request)
    with linesim.running(rate_limits=False, clock=clock) as sim:
        user = sim.add_user("花子")
        sim.close_next("reply")
        with Room(database, sim, echo("reply", "はい")) as desk:
            desk.says(user, "?")
            desk.until_quiet()
            assert desk.figures()["unprovedReplies"] == 1
        assert [call.endpoint for call in sim.calls] == ["reply", "reply", "push"]
        assert texts(sim, user) == ["はい"]
    assert "not provable" in caplog.text


# The lease expired between the note and the call.


def test_a_try_that_a_stop_called_off_is_not_left_in_the_outbox(room: Rooms, sim: Sim) -> None:
    """Otherwise the next process would treat a reply that LINE never had as one of unknown
    outcome.
    """
    user = sim.add_user("花子")
    desks: list[Room] = []
    stopped = threading.Event()

    def lease_is_fresh() -> bool:
        if not desks or not desks[0].calls_noted():
            return True
        # Written down, and the call would be next.
        desks[0].desk.stop()
        stopped.set()
        return False

    before = len(sim.calls)
    desk = room(echo("reply", "はい"), lease_is_fresh=lease_is_fresh)
    desks.append(desk)
    desk.says(user, "?")
    assert stopped.wait(5)
    desk.__exit__()
    assert desk.calls_noted() == []
    assert (len(desk.effects()), len(sim.calls)) == (1, before)


# Real processes, killed for real.


POINTS = ["recorded", "noted", "called", "answered", "end left", "refused", "cleared"]
# A push at the points between its note and LINE's answer; the rest takes long.
FAST = [*((point, "reply", 1) for point in POINTS), ("noted", "push", 1), ("called", "push", 1)]
DEATHS = [
    pytest.param(*one, marks=[] if one in FAST else pytest.mark.long)
    for one in itertools.product(POINTS, ("reply", "push"), (1, 3))
]


@pytest.mark.parametrize(("point", "way", "sends"), DEATHS)
def test_a_killed_process_leaves_nothing_out_and_repeats_nothing(
    database: Any, dies: Dies, room: Rooms, sim: Sim, point: str, way: str, sends: int
) -> None:
    user = sim.add_user("花子")
    if point in ("refused", "cleared"):
        sim.answer_next(way, 429)
    dies(point, user, way=way, sends=sends)
    (left,) = database.conversations.find(WITH_OUTBOX)
    assert len(left["outbox"]) == sends
    assert ("call" in left) is (point != "cleared")
    desk = room(Bot(), epoch=2)
    desk.until_quiet()
    assert texts(sim, user) == ["はい", "二", "三"][:sends]
    assert (desk.letters(), desk.calls_noted()) == ([], [])


# Calls and writes that MongoDB or LINE never confirms.


def test_a_try_that_mongodb_does_not_confirm_holds_the_gate_only_shortly(
    room: Rooms, sim: Sim, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = sim.add_user("花子"), sim.add_user("太郎")
    limits = SendLimits(note_seconds=0.3)
    desk = room(echo("push", "はい"), send_limits=limits)
    locked, released = threading.Event(), threading.Event()

    def hold() -> None:
        """Keep a transaction open that has the conversation."""
        with client.start_session() as session, session.start_transaction():
            desk.database.conversations.update_one(
                {"key": slow.user_id}, {"$set": {"held": True}}, session=session
            )
            locked.set()
            released.wait(10)
            session.abort_transaction()

    desk.says(slow, "?")
    desk.until_quiet()
    holder, enter_record = threading.Thread(target=hold), ConversationStore.enter_record

    def entered(self: ConversationStore, document: Any, *args: Any, **more: Any) -> Any:
        if document["key"] == slow.user_id and not locked.is_set():
            assert more["call"] is not None
            holder.start()
            assert locked.wait(5)
        return enter_record(self, document, *args, **more)

    monkeypatch.setattr(ConversationStore, "enter_record", entered)
    desk.says(slow, "?")
    assert locked.wait(5)
    started = time.monotonic()
    desk.says(other, "?")
    sim.wait_for(lambda: texts(sim, other) == ["はい"])
    took = time.monotonic() - started
    released.set()
    holder.join(5)
    desk.until_quiet()
    assert took < 3
    assert texts(sim, slow) == ["はい", "はい"]
