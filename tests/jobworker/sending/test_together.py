"""Sends of one conversation that travel in one call: free, in order, and each for itself."""

from typing import Any

import pytest

from jobworker.effects import Call
from jobworker.record.conversations import ConversationStore, Noted
from jobworker.sending.conversation_outbox import SendLimits
from linedesk.store.errors import StoreUnavailable
from linesim import Sim
from tests.jobworker.worker_harness import Room, Rooms, echo, texts


def says_at_once(desk: Room, user: Any, *said: str) -> None:
    """The user writes this much while the gate is taken, so all answers wait for one turn."""
    with desk.desk.gate.turn():
        for text in said:
            desk.says(user, text)
        desk.until_decided()


def test_twenty_waiting_events_are_answered_in_order_by_four_free_replies(
    room: Rooms, sim: Sim
) -> None:
    user, desk, said = sim.add_user("花子"), room(echo()), [str(n) for n in range(20)]
    before = len(sim.calls)
    says_at_once(desk, user, *said)
    desk.until_quiet()
    assert texts(sim, user) == said
    assert [call.endpoint for call in sim.calls[before:]] == ["reply"] * 4
    assert sum(call.paid for call in sim.calls[before:]) == 0


@pytest.mark.parametrize("refused", [False, True], ids=["", "and the next one is refused"])
def test_a_call_that_is_written_too_late_gives_way_to_the_next_one(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    user, note_call = sim.add_user("花子"), ConversationStore.note_call
    noted: list[Call] = []

    def too_late(self: ConversationStore, id_: str, call: Call, *args: Any, **more: Any) -> Noted:
        result = note_call(self, id_, call, *args, **more)
        noted.append(call)
        if len(noted) == 1:
            desk.says(user, "二")
            desk.until_decided()
            raise StoreUnavailable("made, and not confirmed in time")
        return result

    monkeypatch.setattr(ConversationStore, "note_call", too_late)
    desk = room(echo("push"), send_limits=SendLimits(first_pause_seconds=0.01))
    if refused:
        sim.answer_next("push", 429, {"message": "too many messages to the same user"})
    before = len(sim.calls)
    says_at_once(desk, user, "一", "間")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "間", "二"]
    assert [len(call.members) for call in noted[:2]] == [2, 3]
    assert (desk.calls_noted(), desk.letters()) == ([], [])
    assert not any(call.retry_differs for call in sim.calls[before:])
