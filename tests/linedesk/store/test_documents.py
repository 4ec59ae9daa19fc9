"""The document of a LINE event: its key, its name, and its unchanged parts."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linedesk.store.documents import key_of, make_document, name_of

NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)

GROUP = {"type": "group", "groupId": "C1", "userId": "U1"}
ROOM = {"type": "room", "roomId": "R1", "userId": "U1"}
USER = {"type": "user", "userId": "U1"}


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (GROUP, "C1"),
        (ROOM, "R1"),
        (USER, "U1"),
        ({"type": "group", "groupId": "C1"}, "C1"),
        ({"type": "unheard of", "userId": "U1"}, "U1"),
        ({"groupId": "", "roomId": None, "userId": "U1"}, "U1"),
        ({"groupId": 7, "userId": "U1"}, "U1"),
        ({"groupId": ["C1"], "roomId": {}, "userId": False}, None),
        ({}, None),
        (None, None),
        ("U1", None),
        (["userId"], None),
    ],
)
def test_the_key_is_the_group_else_the_room_else_the_user(source: object, key: str | None) -> None:
    assert key_of({"source": source}) == key


def test_an_event_without_source_is_its_own_key() -> None:
    named = make_document({"webhookEventId": "e1"}, channel="main", accept_time=NOON)
    nameless = make_document({}, channel="main", accept_time=NOON)
    assert named["key"] == "e1"
    assert nameless["key"] == str(nameless["_id"])


@pytest.mark.parametrize("event_id", [None, "", 5, ["e1"], {"a": 1}, False])
def test_an_event_id_that_is_no_text_is_left_out(event_id: object) -> None:
    event = {"webhookEventId": event_id, "source": USER}
    document = make_document(event, channel="main", accept_time=NOON)
    assert "eventId" not in document
    assert name_of(document) == str(document["_id"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
events = st.dictionaries(
    st.sampled_from(["type", "source", "webhookEventId", "userId", "$set", "a.b", "名前"])
    | st.text(),
    json_values,
    max_size=6,
)


@given(event=events)
def test_whatever_came_is_kept_untouched_under_a_key_that_is_a_text(event: dict[str, Any]) -> None:
    before = copy.deepcopy(event)
    document = make_document(event, channel="main", accept_time=NOON)
    assert repr(document["event"]) == repr(before)
    assert isinstance(document["key"], str)
    assert document["key"]
