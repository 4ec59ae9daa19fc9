"""LINE's webhook signature: base64 of HMAC-SHA256 over the raw body, by the channel secret."""

import base64
import hashlib
import hmac

HEADER = "x-line-signature"


def sign(secret: str, body: bytes) -> str:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")
