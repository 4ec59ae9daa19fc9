"""How long a first message waits for others, and which belong to it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.conversations.mailbox import Following
from jobworker.bot.gather import Gather, Gathered, Gathering, answered

START = datetime(2027, 1, 4, tzinfo=UTC)
OPEN = Following((), 98, is_cut=False, is_reading=False)
GATHER = Gather(2.0, 20)


def message(at: float, *, user: str = "U1") -> dict[str, Any]:
    """A message accepted this many seconds after the start; its time is its name."""
    return {"_id": at, "acceptTime": START + timedelta(seconds=at), "user": user}


class Watched:
    """A gathering whose clocks begin with the first message, at 0."""

    def __init__(
        self, gather: Gather = GATHER, *, is_old: bool = False, skew: float = 0.0, began: float = 0
    ) -> None:
        self._skew = timedelta(seconds=skew)
        self._of = Gathering(gather, message(0), is_old=is_old, clock=began)

    def look(self, at: float, *behind: dict[str, Any], **following: Any) -> Gathered:
        return self._of.look(
            replace(OPEN, documents=behind, **following),
            belongs=lambda one: one["user"] == "U1",
            now=START + timedelta(seconds=at) - self._skew,
            clock=at,
        )


def test_each_further_message_restarts_the_wait() -> None:
    one = Watched()
    assert one.look(1.5, message(1.5)) == Gathered(1, 2.0)
    assert one.look(3.0, message(1.5), message(3.0)) == Gathered(2, 2.0)
    assert one.look(5.0, message(1.5), message(3.0)) == Gathered(2, 0.0)


@pytest.mark.parametrize("behind", [[], [message(1)]])
def test_anything_else_behind_them_ends_the_wait(behind: Sequence[dict[str, Any]]) -> None:
    count = len(behind)
    other = message(1.1, user="U2")
    assert Watched().look(1.1, *behind, other, message(1.1)) == Gathered(count, 0.0)
    assert Watched().look(1.1, *behind, is_cut=True) == Gathered(count, 0.0)
    assert Watched().look(1.1, *behind).wait_seconds > 0


def test_the_first_one_waits_for_thirty_seconds_at_most() -> None:
    one = Watched(Gather(2.0, 99))
    behind = [message(n) for n in range(1, 30)]
    assert one.look(29.0, *behind) == Gathered(29, 1.0)
    assert one.look(29.5, *behind, message(29.5)) == Gathered(30, 0.5)
    assert one.look(30.0, *behind, message(29.5)) == Gathered(30, 0.0)


def test_a_message_that_a_predecessor_may_have_begun_waits_until_all_is_read() -> None:
    one = Watched(is_old=True)
    assert one.look(0.5, is_reading=True) == Gathered(0, 1.5)
    assert one.look(0.6, message(0.1), is_reading=True) == Gathered(1, 1.4)
    assert one.look(0.7, message(0.1), message(0.2)) == Gathered(2, 0.0)


@pytest.mark.parametrize("ahead", [3600.0, 10.0])
def test_a_front_desk_whose_clock_is_ahead_makes_nothing_wait_longer(ahead: float) -> None:
    one = Watched(skew=ahead)
    assert one.look(0.0).wait_seconds >= 2.0
    assert one.look(1.0, message(1.0)).wait_seconds >= 2.0
    assert one.look(3.0, message(1.0)) == Gathered(1, 0.0)


def a_reply_token(at: float, token: str | None) -> dict[str, Any]:
    event = {} if token is None else {"replyToken": token}
    return {**message(at), "event": event}


@pytest.mark.parametrize(
    ("tokens", "which"),
    [(["a", "b", "c"], 2), (["a", "b", None], 1), ([None, None, None], 2), (["a", None, None], 0)],
)
def test_the_reply_token_that_lives_longest_is_the_one_accepted_last(
    tokens: list[str | None], which: int
) -> None:
    documents = [a_reply_token(n, token) for n, token in enumerate(tokens)]
    assert answered(documents) is documents[which]
    assert answered(documents[::-1]) is documents[which]
