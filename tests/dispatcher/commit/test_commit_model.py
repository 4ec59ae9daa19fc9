"""The model of the leader's groups keeps every promise, and each of its guards is needed."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.dispatcher.commit.commit_model import GUARDS, SMALL_SIZES, Model

Size = Mapping[str, Any]

DECIDED_TWICE = "decided twice"
NOT_DURABLE = "without a durable decision"
TWICE = "arrived 2 times"
NEVER = "never arrived"

# The broken promise, and a small size in which it is broken.
WITHOUT = {
    "fence-is-written": (DECIDED_TWICE, "one event"),
    "term-in-the-fence": (DECIDED_TWICE, "one event"),
    "journalled-majority": (NOT_DURABLE, "one event"),
    "commit-is-repeated": (DECIDED_TWICE, "one event"),
    "unknown-is-not-success": (NOT_DURABLE, "one event"),
    "reads-behind-the-fence": (DECIDED_TWICE, "one event"),
    "note-before-the-call": (NOT_DURABLE, "one event"),
    "same-key-again": (TWICE, "one event"),
    "found-call-was-tried": (TWICE, "a reply"),
    "end-after-the-verdict": (NEVER, "one event"),
    "second-of-proof": (NEVER, "a reply"),
}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, id=name, marks=[pytest.mark.long] * (name == "two conversations"))
        for name, size in SMALL_SIZES.items()
    ],
)
def test_every_promise_holds_in_whatever_order(size: Size) -> None:
    found = Model(**size).search()
    assert (found.problem, found.steps, found.is_complete) == (None, (), True)
    # Otherwise it has examined too little.
    assert found.worlds > 300


@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_a_promise_is_broken(guard: str) -> None:
    promise, size = WITHOUT[guard]
    problem = Model(**SMALL_SIZES[size], out=guard).search().problem
    assert problem is not None
    assert promise in problem
