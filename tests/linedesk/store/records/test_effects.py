"""Effects on their way are read in the order of recording."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from linedesk.operate.reading import effects_with_tries
from linedesk.store.documents import Document
from linedesk.store.records.effects import effects_of, place_of

AT = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
FIRST, SECOND, THIRD = (place_of(7, number) for number in (9, 10, 11))


def send(number: int, **more: Any) -> Document:
    return {"id": f"E{number}/0", "type": "send", "way": "push", "retryKey": f"K{number}"} | more


def ids(conversation: Document) -> list[tuple[str, str]]:
    return [(place, effect["id"]) for place, effect in effects_of(conversation)]


def tries(conversation: Document, *ready: str) -> list[tuple[Any, ...]]:
    """When, how and under which key each send was tried."""
    told = effects_with_tries(conversation, is_ready=ready.__contains__)
    return [(one["triedAt"], one["as"], one["retryKey"]) for _, one in told]


def two(**call: Any) -> Document:
    return {"epoch": 7, "outbox": {FIRST: send(1), SECOND: send(2)}, "call": {"at": AT} | call}


def test_a_place_is_epoch_and_number_so_that_its_text_sorts() -> None:
    assert place_of(7, 9) == "0000000007-0000000009"
    places = [place_of(9, 99), place_of(10, 1), place_of(10, 2), place_of(10, 10)]
    assert sorted(places) == places


def test_effects_come_in_the_order_of_their_places_however_they_are_stored() -> None:
    stored = {SECOND: send(2), place_of(10, 1): send(4), FIRST: send(1), THIRD: send(3)}
    assert [id_ for _, id_ in ids({"outbox": stored})] == ["E1/0", "E2/0", "E3/0", "E4/0"]


def test_a_send_that_is_no_member_of_the_call_was_not_tried() -> None:
    assert tries({"outbox": {FIRST: send(1)}}) == [(None, None, "K1")]
    alone = two(**{"as": "push"}, key="C", members=[FIRST])
    assert tries(alone) == [(AT, "push", "C"), (None, None, "K2")]


@pytest.mark.parametrize("way", ["reply", "push"])
def test_sends_that_travel_together_have_no_key_to_repeat_one_of_them(way: str) -> None:
    together = two(**{"as": way}, key="C", members=[FIRST, SECOND])
    assert tries(together) == [(AT, way, None), (AT, way, None)]


def test_the_members_of_a_multicast_count_as_tried_only_while_it_is_ready() -> None:
    claimed = two(batch="B", members=[FIRST])
    assert tries(claimed, "B") == [(AT, "multicast", None), (None, None, "K2")]
    assert tries(claimed, "another") == [(None, None, "K1"), (None, None, "K2")]


def test_what_is_no_send_stays_as_it_is() -> None:
    others = [{"id": "E1", "type": "deadletter"}, {"id": "t", "type": "timer"}, {"x": 1}, 5]
    outbox = {place_of(7, number): one for number, one in enumerate(others)}
    told = effects_with_tries({"outbox": outbox}, is_ready=bool)
    assert [effect for _, effect in told] == others
