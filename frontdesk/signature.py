"""The signature of a webhook, over the raw bytes of its body.

Source: LINE's documentation, "Verify webhook signature".
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Sequence

from frontdesk.errors import BadSignature

HEADER = "x-line-signature"


def sign(body: bytes, secret: bytes) -> bytes:
    """The value of the x-line-signature header for this body."""
    return b64encode(hmac.digest(secret, body, "sha256"))


def verify(body: bytes, signature: bytes, *, secrets: Iterable[bytes]) -> bool:
    """Return whether the signature was made with any of the secrets.

    Each comparison takes constant time, and all secrets are compared. The time therefore does not
    reveal how much of a guess was right or which secret matched.
    """
    fits = False
    for secret in secrets:
        fits |= hmac.compare_digest(sign(body, secret), signature)
    return fits


def require_signed(body: bytes, signatures: Sequence[str], *, secrets: Iterable[bytes]) -> None:
    """Raise BadSignature unless the header came exactly once and matches this body."""
    if not signatures:
        raise BadSignature("signature is missing")
    if len(signatures) > 1:
        raise BadSignature("more than one signature")
    if not verify(body, signatures[0].encode("latin-1"), secrets=secrets):
        raise BadSignature("signature is wrong")
