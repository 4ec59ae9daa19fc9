"""Signs of life on a clock that is moved by hand."""

from __future__ import annotations

import re

import pytest

from linedesk.runtime.liveness import LIMIT_SECONDS, RENEW_SECONDS, ThreadActivity, WaitReason


class Hand:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_a_thread_hangs_that_is_at_one_thing_for_too_long(hand: Hand) -> None:
    activity = ThreadActivity("lease", monotonic=hand)
    activity.busy()
    hand.time += LIMIT_SECONDS
    assert activity.stalled() is None
    hand.time += 1
    assert activity.stalled() == "the thread lease hangs"
    activity.busy()
    assert activity.stalled() is None


def test_a_reason_counts_while_it_is_given_again(hand: Hand) -> None:
    reason = WaitReason(monotonic=hand)
    assert reason.fresh() is None
    reason.set("waiting for MongoDB")
    said = reason.fresh()
    assert said is not None
    assert re.fullmatch(r"waiting for MongoDB since \d{4}-\d\d-\d\d \d\d:\d\d UTC", said)
    hand.time += RENEW_SECONDS
    reason.set("waiting for MongoDB")
    hand.time += RENEW_SECONDS
    assert reason.fresh() == said, "it waits since the first time"
    hand.time += 1
    assert reason.fresh() is None, "a waiting thread would have renewed it"
    assert reason.text == "waiting for MongoDB"
