"""The tracker against a naive account of the same feed, through restarts and failed saves."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dispatcher.commit.tracker import (
    FORGET_AFTER,
    ProgressSnapshot,
    ProgressTracker,
    Slot,
)


def stored(document: dict[str, Any], snapshot: ProgressSnapshot) -> dict[str, Any]:
    """The contents of `progress` after a save: only the ring's changed slots are written."""
    ring = list(document["ring"])
    for place, id_ in snapshot.ring.items():
        ring[place] = id_
    return {
        "token": snapshot.token,
        "after": snapshot.after,
        "finished": finished_after(document["finished"], snapshot.finished),
        "passed": snapshot.passed,
        "ring": ring,
    }


def finished_after(before: list[Any], told: list[Any] | dict[int, Any]) -> list[Any]:
    """Like `$set`: beyond the end of an array the places in between become null."""
    if isinstance(told, list):
        return list(told)
    after = before + [None] * (max(told, default=-1) + 1 - len(before))
    for place, id_ in told.items():
        after[place] = id_
    return after


def empty_progress(ring_slots: int) -> dict[str, Any]:
    ring = [None] * ring_slots
    return {"token": None, "after": None, "finished": [], "passed": 0, "ring": ring}


class Account(RuleBasedStateMachine):
    """Documents 1, 2, 3, ... of a feed whose token after n is 10 n, when quiet up to 10 n + 9."""

    RING = 8
    BEHIND = 4

    def __init__(self) -> None:
        super().__init__()
        self.progress = empty_progress(self.RING)
        self.tracker = ProgressTracker(**self.progress, ring_slots=self.RING)
        self.open: dict[int, Slot] = {}
        # The last document that this process has read, and all that any process has finished.
        self.read = 0
        self.finished: set[int] = set()
        self.told: set[int] = set()
        self.under_way: tuple[ProgressSnapshot, set[int]] | None = None
        self.has_token = False

    def take(self, number: int, token: int | None) -> None:
        known = number in self.open or number in self.told
        slot = self.tracker.take(number, token)
        if known:
            assert slot is None, f"{number} was handed out twice"
        elif number in self.finished:
            # Finished, but its save was lost: handing it out again is allowed.
            if slot is not None:
                self.finished.discard(number)
                self.open[number] = slot
        else:
            assert slot is not None, f"{number} was lost"
            self.open[number] = slot

    @rule()
    def read_on(self) -> None:
        self.read += 1
        self.has_token = True
        self.take(self.read, 10 * self.read)

    @rule(data=st.data())
    @precondition(lambda self: self.open)
    def finish(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        self.tracker.finish(self.open.pop(number))
        self.finished.add(number)
        self.told.add(number)

    @rule(quiet=st.integers(1, 9))
    @precondition(lambda self: self.has_token)
    def move(self, quiet: int) -> None:
        self.tracker.move(10 * self.read + quiet)

    @rule()
    @precondition(lambda self: self.under_way is None)
    def snapshot(self) -> None:
        self.under_way = self.tracker.snapshot(), set(self.told)
        assert not self.tracker.changed

    @rule()
    @precondition(lambda self: self.under_way is not None)
    def saved(self) -> None:
        assert self.under_way is not None
        snapshot, told = self.under_way
        self.under_way = None
        self.progress = stored(self.progress, snapshot)
        self.tracker.saved(snapshot)
        assert told <= self.tells(self.progress), "whatever became of the saves before"

    @rule(reached=st.booleans())
    @precondition(lambda self: self.under_way is not None)
    def not_saved(self, reached: bool) -> None:
        """The outcome is unknown: the write may have reached the server all the same."""
        assert self.under_way is not None
        snapshot, _ = self.under_way
        self.under_way = None
        if reached:
            self.progress = stored(self.progress, snapshot)
        self.tracker.not_saved()
        assert self.tracker.changed

    @rule()
    def crash_and_restore(self) -> None:
        self.under_way = None
        self.open = {}
        self.tracker = ProgressTracker(**self.progress, ring_slots=self.RING)
        self.told = self.tells(self.progress)
        if self.progress["token"] is None:
            self.scan()
        else:
            self.read = self.progress["token"] // 10
            self.has_token = True

    @rule(reached=st.booleans())
    def lose_history(self, reached: bool) -> None:
        """The token is forgotten durably, then recvq is scanned from some places before `after`.

        One save follows another: the tracker first gets the result of the save under way.
        """
        if self.under_way is not None:
            self.not_saved(reached)
        self.tracker.forget_token()
        snapshot = self.tracker.snapshot()
        assert snapshot.token is None
        self.progress = stored(self.progress, snapshot)
        self.tracker.saved(snapshot)
        self.scan()

    def scan(self) -> None:
        self.has_token = False
        newest = self.read
        after = self.tracker.after or 0
        for number in range(max(1, after - self.BEHIND), newest + 1):
            self.take(number, None)

    def tells(self, progress: dict[str, Any]) -> set[int]:
        """Which documents a saved progress says are finished."""
        behind = range(1, (progress["after"] or 0) + 1)
        return {*behind, *progress["finished"]} - {None}

    @invariant()
    def nothing_unfinished_is_behind_after(self) -> None:
        after = self.tracker.after or 0
        assert all(number > after for number in self.open)
        assert set(range(1, after + 1)) <= self.finished

    @invariant()
    def nothing_unfinished_is_behind_the_token(self) -> None:
        for token in (self.tracker.token, self.progress["token"]):
            if token is not None:
                assert set(range(1, token // 10 + 1)) <= self.finished

    @invariant()
    def what_is_saved_was_finished(self) -> None:
        assert self.tells(self.progress) <= self.finished

    @invariant()
    def the_window_begins_with_an_unfinished_document(self) -> None:
        expected = self.read - min(self.open) + 1 if self.open else 0
        assert len(self.tracker) == expected

    @invariant()
    def the_saved_ring_holds_the_last_ones_that_passed(self) -> None:
        after = self.progress["after"] or 0
        ring = {number for number in self.progress["ring"] if number is not None}
        assert ring == set(range(max(1, after - self.RING + 1), after + 1))


TestAccount = Account.TestCase
TestAccount.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_documents_finished_beyond_after_are_saved_while_a_scan_can_meet_them() -> None:
    """Otherwise a document overwritten before its place came would be saved permanently."""
    tracker = ProgressTracker(token=0, after=0, finished=["gone", "met"], passed=0, ring=[])
    assert tracker.take("met", 1) is None
    for number in range(2, FORGET_AFTER + 1):
        slot = tracker.take(number, number)
        assert slot is not None
        tracker.finish(slot)
    assert tracker.snapshot().finished == ["gone"]
    slot = tracker.take("one more", FORGET_AFTER + 1)
    assert slot is not None
    tracker.finish(slot)
    assert tracker.snapshot().finished == []


def test_documents_finished_by_a_predecessor_beyond_after_keep_their_places() -> None:
    """Out of `held` and decided before the feed brings it: progress still moves over it."""
    tracker = ProgressTracker(token=0, after=0, finished=["held"], passed=0, ring=[])
    tracker.finish_held("held")
    assert tracker.take("held", 1) is None
    assert (tracker.after, tracker.snapshot().finished) == ("held", [])
