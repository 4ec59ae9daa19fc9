"""Why a send waits at the gate, in words for an operator."""

from __future__ import annotations

import pytest

from jobworker.assembly import turn_words
from linedesk.store.records.calls import TurnClass

LIVE, CHAT, OTHER, IDLE = TurnClass


@pytest.mark.parametrize(
    ("own", "waiting", "words"),
    [
        (LIVE, {LIVE: 1, OTHER: 9}, "waits for its turn at the gate"),
        (
            LIVE,
            {LIVE: 3},
            "waits for its turn at the gate, beside 2 answers with valid reply tokens",
        ),
        (
            CHAT,
            {LIVE: 12, CHAT: 5, OTHER: 1},
            "waits for its turn at the gate: 12 answers with valid reply tokens go first",
        ),
        (
            CHAT,
            {LIVE: 1, CHAT: 1},
            "waits for its turn at the gate: 1 answer with a valid reply token goes first",
        ),
        (
            OTHER,
            {LIVE: 2, CHAT: 1_000, OTHER: 1},
            "waits for its turn at the gate: 2 answers with valid reply tokens and 1,000 pushes to "
            "their own chats go first",
        ),
        (CHAT, {CHAT: 2}, "waits for its turn at the gate, beside 1 push to its own chat"),
        # Counted after its turn had come.
        (CHAT, {}, "waits for its turn at the gate"),
    ],
)
def test_the_better_class_is_named(
    own: TurnClass, waiting: dict[TurnClass, int], words: str
) -> None:
    assert turn_words(own, waiting) == words
