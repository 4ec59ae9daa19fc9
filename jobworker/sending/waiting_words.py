"""Why a send waits at the gate, as a text for operators. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jobworker.line.gate_order import TurnClass

# Names for one ticket of a class, and for several.
WORDS = {
    TurnClass.LIVE: ("answer with a valid reply token", "answers with valid reply tokens"),
    TurnClass.CHAT: ("push to its own chat", "pushes to their own chats"),
    TurnClass.OTHER: (
        "late answer, multicast or push to another chat",
        "late answers, multicasts or pushes to other chats",
    ),
    TurnClass.IDLE: ("call that nothing waits for", "calls that nothing waits for"),
}


def many(turn_class: TurnClass, count: int) -> str:
    """Return the number with its class: `12 answers with live reply tokens`."""
    one, several = WORDS[turn_class]
    return f"{count:,} {one if count == 1 else several}"


def turn_words(turn_class: TurnClass, waiting: Mapping[TurnClass, int]) -> str:
    """Return why a send of that class waits for its turn; `waiting` counts all at the gate.

    A better class comes first, except for a share of the turns.
    """
    own = "waits for its turn at the gate"
    better = {one: waiting[one] for one in TurnClass if one < turn_class and waiting.get(one)}
    if better:
        first = " and ".join(many(one, count) for one, count in better.items())
        return f"{own}: {first} {'goes first' if sum(better.values()) == 1 else 'go first'}"
    others = waiting.get(turn_class, 0) - 1
    return f"{own}, beside {many(turn_class, others)}" if others > 0 else own
