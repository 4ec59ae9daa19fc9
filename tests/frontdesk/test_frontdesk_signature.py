"""The signature of a webhook, by LINE's own examples and those of its SDKs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.signature import sign, verify

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


def test_a_signature_with_one_letter_in_the_other_case_is_refused() -> None:
    secret, body, signature = VECTORS[2]
    assert not verify(body, signature.replace(b"t7H", b"T7H"), secrets=[secret])


@given(st.binary(max_size=2000), secrets, st.data())
def test_any_of_several_secrets_fits(body: bytes, keys: list[bytes], data: st.DataObject) -> None:
    used = data.draw(st.sampled_from(keys))
    assert verify(body, sign(body, used), secrets=keys)


@given(st.binary(max_size=500), secrets, st.binary(max_size=80))
def test_what_none_of_the_secrets_made_is_refused(
    body: bytes, keys: list[bytes], guess: bytes
) -> None:
    assert verify(body, guess, secrets=keys) == (guess in {sign(body, key) for key in keys})


@given(st.binary(min_size=1, max_size=500), st.binary(min_size=1), st.data())
def test_a_changed_body_is_refused(body: bytes, secret: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
    assert not verify(changed, sign(body, secret), secrets=[secret])


def test_without_secrets_nothing_is_accepted() -> None:
    assert not verify(b"{}", b"", secrets=[])


def test_every_secret_is_compared_even_after_one_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"first", b"second", b"third"]
    signed_with: list[bytes] = []

    def watched(body: bytes, secret: bytes) -> bytes:
        signed_with.append(secret)
        return sign(body, secret)

    monkeypatch.setattr("frontdesk.signature.sign", watched)
    assert verify(b"{}", sign(b"{}", b"first"), secrets=keys)
    assert signed_with == keys
