"""From bytes to events, and from events to documents that MongoDB can hold.

The signature of a webhook, by LINE's own examples and those of its SDKs.
"""

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.parsing import encode_events, parse_events, sign, verify

ACCEPT_TIME = datetime(2026, 11, 21, 3, 15, 42, 123000, tzinfo=UTC)


def encode(body: bytes) -> list[dict[str, Any]]:
    documents = encode_events(
        parse_events(body), channel="main", accept_time=ACCEPT_TIME, body=body
    )
    options: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(tz_aware=True, tzinfo=UTC)
    return [bson.decode(document.raw, options) for document in documents]


def with_event(event: str) -> bytes:
    return f'{{"destination":"U1","events":[{event}]}}'.encode()


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
