"""Which documents move to `held`, and which stay in the window: pure, on fixed mailboxes."""

import pytest

from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.mailbox import Mailbox, Run
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import HELD_AFTER_SECONDS, HoldPolicy
from tests.dispatcher.fakes import WAITS

AFTER = HELD_AFTER_SECONDS


class Desk:
    """Mailboxes that a test fills; every document is put in at the time 0."""

    def __init__(self, bound: int = 10_000) -> None:
        self.mailboxes = Mailboxes(ProgressTracker(), bound=bound)
        self.policy = HoldPolicy(self.mailboxes)
        self._number = 0

    def put(self, key: str, count: int = 1) -> None:
        for _ in range(count):
            self._number += 1
            one = {"_id": self._number, "eventId": f"e{self._number}"}
            self.mailboxes.put(one, None, key=("main", key), size=1, again=False, now=0.0)

    def begin(self, now: float = 0.1) -> Run:
        run = self.mailboxes.next(now)
        assert isinstance(run, Run)
        return run

    def due(self, now: float) -> dict[str, int]:
        return {mailbox.key[1]: count for mailbox, count in self.policy.due(now)}


def test_documents_behind_a_deferred_one_are_due_after_that_time() -> None:
    desk = Desk()
    desk.put("slow", 3)
    desk.mailboxes.deferred(desk.begin(), WAITS)
    assert desk.due(AFTER - 1) == {}
    assert desk.due(AFTER) == {"slow": 3}


def test_a_document_that_waits_for_a_thread_is_not_due() -> None:
    """Any flood would move recvq into `held` otherwise."""
    desk = Desk()
    desk.put("busy", 2)
    desk.put("ready", 3)
    desk.begin(now=AFTER)
    assert desk.due(AFTER) == {}
    # One that has been under way for a tenth of that time is slow by itself.
    assert desk.due(AFTER * 1.1 + 0.1) == {"busy": 2}


def test_delays_caused_by_mongodb_do_not_count() -> None:
    desk = Desk()
    desk.put("slow")
    desk.mailboxes.deferred(desk.begin(), WAITS)
    desk.policy.excuse(AFTER)
    assert desk.due(AFTER) == {}
    assert desk.due(AFTER * 2) == {"slow": 1}


@pytest.mark.parametrize("held", [0, 1])
def test_as_many_keys_are_held_as_the_window_has_places(held: int) -> None:
    desk = Desk(bound=1)
    desk.put("slow")
    desk.mailboxes.deferred(desk.begin(), WAITS)
    mailbox = desk.mailboxes.get(("main", "slow"))
    assert isinstance(mailbox, Mailbox)
    desk.mailboxes.held_keys, mailbox.held = 1, held
    assert desk.due(AFTER) == ({"slow": 1} if held else {})
