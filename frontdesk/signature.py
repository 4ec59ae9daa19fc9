"""LINE's webhook signature: base64 of HMAC-SHA256 over the raw body, keyed by the channel secret.

Source: LINE's documentation, "Verify webhook signature". Pure: no I/O, and no parsing before it.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable

HEADER = "x-line-signature"


def sign(body: bytes, secret: bytes) -> bytes:
    """The value of the x-line-signature header for this body."""
    return b64encode(hmac.digest(secret, body, "sha256"))


def verify(body: bytes, signature: bytes, *, secrets: Iterable[bytes]) -> bool:
    """Whether the signature was made with any of the secrets.

    Each comparison takes constant time and all secrets are compared, so the time taken tells
    neither how much of a guess was right nor which secret fits.
    """
    fits = False
    for secret in secrets:
        fits |= hmac.compare_digest(sign(body, secret), signature)
    return fits
