"""A call whose token ends, or whose record is of unknown outcome, before it is made."""

from collections.abc import Sequence
from typing import Any

import pytest

import linesim
from jobworker.bot.talk import Talk
from jobworker.record.conversations import ConversationStore, Recorded, Recording
from jobworker.sending import sender
from jobworker.sending.verdict import ReplyUnknown
from linedesk import Bot
from linedesk.store.errors import StoreUnavailable
from linesim import HandClock
from tests.jobworker.worker_harness import Room, texts
from tests.waiting import eventually


def counter() -> Bot:
    """It numbers the messages of each user."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.data["count"] = talk.data.get("count", 0) + 1
        talk.reply(str(talk.data["count"]))

    return bot


def all_answered_once(room: Room, users: Sequence[Any], messages: int) -> None:
    room.until_quiet(seconds=90)
    numbers = [str(n + 1) for n in range(messages)]
    assert [texts(room.sim, user) for user in users] == [numbers] * len(users)
    assert (room.letters(), room.calls_noted()) == ([], [])
    for found in room.database.conversations.find():
        assert len(set(found["applied"])) == len(found["applied"]) == messages


def test_a_token_that_expires_between_record_and_call_is_not_used(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    since_boot, clock, passed = sender.boottime, HandClock(), 0.0
    monkeypatch.setattr(sender, "boottime", lambda: since_boot() + passed)
    with linesim.running(rate_limits=False, clock=clock) as sim:
        user = sim.add_user("花子")
        with Room(database, sim, counter()) as desk:
            with desk.desk.gate.turn():
                desk.says(user, "?")
                eventually(desk.effects)
                passed = 61.0
                clock.advance(61)
            all_answered_once(desk, [user], 1)
        assert [call.endpoint for call in sim.calls] == ["push"]


@pytest.mark.parametrize("reply_unknown", list(ReplyUnknown))
def test_a_call_stored_with_a_record_of_unknown_outcome_was_not_made(
    database: Any, monkeypatch: pytest.MonkeyPatch, reply_unknown: ReplyUnknown
) -> None:
    """This process knows that it has not called LINE, whatever became of the token meanwhile."""
    clock, recorded, late = HandClock(), ConversationStore.recorded, list[Recorded]()

    def made_too_late(mine: ConversationStore, recording: Recording, **more: Any) -> Recorded:
        result = recorded(mine, recording, **more)
        if recording.call is not None and not late:
            late.append(result)
            clock.advance(91)
            raise StoreUnavailable("MongoDB is away for a while, and has made it")
        return result

    monkeypatch.setattr(ConversationStore, "recorded", made_too_late)
    with linesim.running(rate_limits=False, clock=clock) as sim:
        user = sim.add_user("花子")
        with Room(database, sim, counter(), reply_unknown=reply_unknown) as desk:
            desk.says(user, "?")
            desk.until_quiet()
            assert desk.figures()["unprovedReplies"] == 0
        assert late
        assert [call.endpoint for call in sim.calls] == ["reply", "push"]
        assert texts(sim, user) == ["1"]
