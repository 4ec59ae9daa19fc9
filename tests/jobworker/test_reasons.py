"""Why an event waits, as `status` has it."""

from typing import Any

import pytest

from jobworker import turn
from jobworker.errors import GateClosed, LineAway
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Talk
from linedesk.store.errors import StoreUnavailable
from linesim import Sim
from tests.jobworker.worker_harness import Room, Rooms, a_bot
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait lasts until its test has seen it."""
    monkeypatch.setattr(turn, "pause_seconds", lambda failures, **more: 60.0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("秘密"), "store_silent"),
        (GateClosed("秘密"), "no_turn"),
        (LineAway("秘密"), "line_not_called"),
    ],
)
def test_an_obstacle_is_reported_without_its_own_words(
    room: Rooms, sim: Sim, error: Exception, code: str
) -> None:
    def handler(event: Any, talk: Talk) -> None:
        raise error

    desk = room(a_bot(handler))
    desk.says(sim.add_user("花子"), "?")
    reason = reason_of(desk)
    assert (reason["code"], set(reason)) == (code, {"code", "until"})


def test_a_full_outbox_is_the_reason(room: Rooms, sim: Sim) -> None:
    limits = SendLimits(most_per_conversation=1)
    desk = room(a_bot(lambda event, talk: talk.reply("はい")), send_limits=limits)
    user = sim.add_user("花子")
    sim.answer_next("reply", 429, headers={"Retry-After": "300"})
    desk.says(user, "一")
    desk.until_decided()
    desk.says(user, "二")
    assert reason_of(desk) == {"code": "outbox_full"}


def reason_of(desk: Room) -> Any:
    """Why the first event that waits does so, once one is deferred."""
    return eventually(lambda: next((row["why"] for row in desk.pool.view.waiting()), None))
