"""The line that `systemctl status` shows, on figures and a clock moved by hand."""

from __future__ import annotations

from typing import Any

from dispatcher.figures import RATE_SECONDS, Figures, InHand
from dispatcher.lease import Lease
from recvq.pulse import Reason
from tests.dispatcher.fakes import RecordingWorker


class Desk:
    """Figures of a pool that stands as a test has it."""

    def __init__(self, monkeypatch: Any) -> None:
        self.now, self.in_hand, self.fresh = 100.0, InHand(0, 0.0, 7_000, (0, 0)), True
        lease = Lease.__new__(Lease)
        monkeypatch.setattr(lease, "is_fresh", lambda: self.fresh)
        self.reason = Reason()
        self._figures = Figures(
            lambda: self.in_hand,
            self.reason,
            lease,
            RecordingWorker(),
            [],
            monotonic=lambda: self.now,
        )

    def words(self) -> list[str]:
        return self._figures.status().split(" · ")

    def passes(self, documents: int, seconds: float) -> None:
        self.now += seconds
        self.in_hand = self.in_hand._replace(passed=self.in_hand.passed + documents)


def test_what_keeps_it_from_work_comes_first(monkeypatch: Any) -> None:
    desk = Desk(monkeypatch)
    desk.in_hand = InHand(3, 0.25, 7_000, (2, 5))
    assert desk.words()[1:] == [
        "0.0 events/s",
        "3 in hand, oldest 0.2 s",
        "5 documents of 2 keys in held",
        "nothing waits",
    ]
    desk.reason.say("waiting for MongoDB")
    desk.fresh = False
    reason, lease, *_ = desk.words()
    assert reason.startswith("waiting for MongoDB since ")
    assert lease == "cannot renew the lease"


def test_events_per_second_are_those_of_the_last_seconds(monkeypatch: Any) -> None:
    desk = Desk(monkeypatch)
    rates = []
    for _ in range(30):
        desk.passes(5, seconds=1.0)
        rates.append(desk.words()[1])
    assert set(rates) == {"5.0 events/s"}
    for _ in range(int(RATE_SECONDS)):
        desk.passes(0, seconds=1.0)
        rates.append(desk.words()[1])
    assert rates[-2:] == ["0.5 events/s", "0.0 events/s"]
    assert len(desk._figures._passed) <= RATE_SECONDS + 2, "it forgets what is longer ago"
