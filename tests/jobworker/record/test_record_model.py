"""The model of an answered message keeps every promise, and each of its guards is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.jobworker.record.record_model import GUARDS, SMALL_SIZES, Left, Model

Size = Mapping[str, Any]
TWO_LEADERS: Size = {"events": 1, "leaders": 2}
KILLED: Size = {**TWO_LEADERS, "trouble": Left(kills=1)}
TWO_EVENTS: Size = {"events": 2, "leaders": 2}
LOST: Size = {"events": 1, "leaders": 1, "trouble": Left(losses=1)}
LOST_BY_ONE: Size = {**TWO_LEADERS, "trouble": Left(losses=1)}
EXPIRING: Size = {**TWO_LEADERS, "expiry": True}
STOPPED: Size = {**EXPIRING, "trouble": Left(stops=1, busy=1), "freezes": False}
EDITED: Size = {"events": 2, "leaders": 1, "trouble": Left(edits=1, quiet_edits=1)}
REFUSED: Size = {**TWO_LEADERS, "trouble": Left(kills=1, refusals=1, given_up=1)}
OWN_KEYS: Size = {
    **TWO_LEADERS,
    "trouble": Left(losses=2, kills=1),
    "own_keys": True,
    "freezes": False,
}
LATE_END: Size = {**TWO_EVENTS, "trouble": Left(losses=1, kills=1), "freezes": False}

TWICE = "arrived 2 times"
NEVER = "left the outbox and never arrived"
ORDER = "out of order"
DECIDED_TWICE = "decided twice"
STUCK = "stuck"
FOR_EVER = "goes on for ever"
STATE = "state lost"
UNPROVED = "unproved although nothing was lost"

# The broken promise, and a small size in which it is broken.
WITHOUT = {
    "epoch-of-the-record": (TWICE, TWO_EVENTS),
    "decided-once": (DECIDED_TWICE, TWO_EVENTS),
    "number-of-the-record": (STATE, EDITED),
    "outbox-is-empty": (ORDER, TWO_EVENTS),
    "whole-outbox-first": (ORDER, TWO_EVENTS),
    "epoch-before-outbox": (TWICE, TWO_EVENTS),
    "first-end-adopts": (DECIDED_TWICE, LOST_BY_ONE),
    "found-applied-adopts": (STUCK, LOST),
    "lost-record-is-read": (FOR_EVER, LOST),
    "no-call-stands": (TWICE, OWN_KEYS),
    "epoch-of-the-note": (TWICE, TWO_EVENTS),
    "ends-join-the-record": (TWICE, TWO_EVENTS),
    "ends-join-the-note": (TWICE, TWO_EVENTS),
    "epoch-of-the-end": (TWICE, {**KILLED, "leaders": 3}),
    "end-names-its-call": (TWICE, LATE_END),
    "end-again": (STUCK, LOST),
    "end-after-the-verdict": (NEVER, KILLED),
    "noted-before-the-call": (TWICE, KILLED),
    "found-call-was-tried": (TWICE, KILLED),
    "unknown-stands": (TWICE, LOST),
    "good-at-the-answer": (NEVER, EXPIRING),
    "second-of-proof": (NEVER, EXPIRING),
    "refusal-is-durable-first": (UNPROVED, STOPPED),
    "letter-in-the-outbox-first": ("a letter as well", REFUSED),
    "stop-strikes-out": (UNPROVED, STOPPED),
    "refused-epoch-ends": (STUCK, KILLED),
    "edit-counts": (STATE, EDITED),
    "cached-again": (STATE, EDITED),
}


@pytest.mark.parametrize("size", SMALL_SIZES.values(), ids=SMALL_SIZES.keys())
def test_every_promise_holds_in_whatever_order_and_the_rest_is_within_reach(size: Size) -> None:
    found = Model(**size).search(ends=True)
    assert (found.problem, found.steps, found.is_complete) == (None, (), True)
    # Otherwise it has examined too little.
    assert found.worlds > 300


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_a_promise_is_broken(guard: str) -> None:
    promise, size = WITHOUT[guard]
    problem = Model(**size, out=guard).search(ends=True).problem
    assert problem is not None
    assert promise in problem
