"""From bytes to events, and from events to documents that MongoDB can hold.

The signature of a webhook, by LINE's own examples and those of its SDKs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.errors import BadRequest, TooLarge
from frontdesk.parsing import (
    MAX_EVENTS,
    Event,
    encode_events,
    parse_events,
    read_body,
    sign,
    verify,
)

ACCEPT_TIME = datetime(2026, 11, 21, 3, 15, 42, 123000, tzinfo=UTC)


class Sender:
    """The receiving end of one ASGI request whose body comes in these chunks."""

    def __init__(self, chunks: Iterable[bytes], *, ends: bool = True) -> None:
        self._chunks = list(chunks)
        self._ends = ends
        self.calls = 0

    async def __call__(self) -> dict[str, Any]:
        self.calls += 1
        if not self._chunks:
            return {"type": "http.disconnect"}
        chunk = self._chunks.pop(0)
        more = bool(self._chunks) or not self._ends
        return {"type": "http.request", "body": chunk, "more_body": more}


def read(sender: Sender, *, limit: int = 100, declared: str | None = None) -> bytes:
    return asyncio.run(read_body(sender, limit=limit, declared=declared))


def encode(body: bytes) -> list[dict[str, Any]]:
    documents = encode_events(
        parse_events(body), channel="main", accept_time=ACCEPT_TIME, body=body
    )
    options: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(tz_aware=True, tzinfo=UTC)
    return [bson.decode(document.raw, options) for document in documents]


def with_event(event: str) -> bytes:
    return f'{{"destination":"U1","events":[{event}]}}'.encode()


# --- reading ---------------------------------------------------------------------------------


def test_reading_ends_at_the_limit_and_not_at_the_end_of_the_body() -> None:
    sender = Sender([b"x" * 60] * 1000)
    with pytest.raises(TooLarge):
        read(sender)
    assert sender.calls == 2


# --- parsing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b'\xef\xbb\xbf{"events":[]}',
        b"[]",
        b"{}",
        b'{"events":{}}',
        b'{"events":[1]}',
        b'{"events":[{"a":NaN}]}',
        b'{"events":[{"a":' + b"9" * 5000 + b"}]}",
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_not_a_webhook_is_refused_without_quoting_it(body: bytes) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_events(body)
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None
    assert len(str(refusal.value)) < 60


def test_more_events_than_any_webhook_has_are_too_large() -> None:
    assert len(parse_events(b'{"events":[' + b"{}," * (MAX_EVENTS - 1) + b"{}]}")) == MAX_EVENTS
    with pytest.raises(TooLarge):
        parse_events(b'{"events":[' + b"{}," * MAX_EVENTS + b"{}]}")


# --- encoding --------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def _is_reference(value: Any) -> bool:
    """The driver reads {$ref, $id} back as a DBRef; LINE has no such names."""
    return "$ref" in json.dumps(value)


@given(st.lists(st.dictionaries(names, values, max_size=5).filter(lambda e: not _is_reference(e))))
def test_whatever_json_object_comes_is_stored_as_it_came(events: list[Event]) -> None:
    documents = encode(json.dumps({"events": events}).encode())
    assert [document["event"] for document in documents] == events
    assert all(document["acceptTime"] == ACCEPT_TIME for document in documents)
    assert all(document["channel"] == "main" and document["key"] for document in documents)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (r"a\ud83d", "a\ufffd"),
        (r"\ude42b", "\ufffdb"),
        (r"\ude42\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ude42\ud83d", "🙂\ufffd"),
    ],
)
def test_half_an_emoji_is_replaced_and_its_neighbours_are_stored(sent: str, stored: str) -> None:
    body = with_event(f'{{"text":"{sent}","n":1.5}},{{"text":"無事"}}')
    cut, whole = encode(body)
    assert cut["event"] == {"text": stored, "n": 1.5}
    assert whole["event"] == {"text": "無事"}


def test_half_an_emoji_in_a_name_is_replaced_too() -> None:
    [document] = encode(with_event(r'{"\ud83d":1,"webhookEventId":"\ud83d"}'))
    assert document["event"] == {"\ufffd": 1, "webhookEventId": "\ufffd"}
    assert document["eventId"] == "\ufffd"


# secret, body, signature; from LINE's documentation and the tests of the Python, Node and Java SDKs
VECTORS = [
    (
        b"8c570fa6dd201bb328f1c1eac23a96d8",
        b'{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}',
        b"GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs=",
    ),
    (b"channel_secret", b"bodybodybodybody", b"/gg9a+LvFevTH1sd7XCQycD7tsWclCsInj7MhBHxN7k="),
    (b"test_secret", b'{"hello":"world"}', b"t7Hn4ZDHqs6e+wdvI5TyQIvzie0DmMUmuXEBqyyE/tM="),
    (b"SECRET", b"{}", b"3q8QXTAGaey18yL8FWTqdVlbMr6hcuNvM4tefa0o9nA="),
]
secrets = st.lists(st.binary(min_size=1, max_size=64), min_size=1, max_size=4)


@pytest.mark.parametrize(("secret", "body", "signature"), VECTORS)
def test_published_signatures_are_accepted(secret: bytes, body: bytes, signature: bytes) -> None:
    assert sign(body, secret) == signature
    assert verify(body, signature, secrets=[secret])


@given(st.binary(max_size=500), secrets, st.binary(max_size=80))
def test_a_signature_of_no_known_secret_is_refused(
    body: bytes, keys: list[bytes], guess: bytes
) -> None:
    assert verify(body, guess, secrets=keys) == (guess in {sign(body, key) for key in keys})


def test_without_secrets_nothing_is_accepted() -> None:
    assert not verify(b"{}", b"", secrets=[])
