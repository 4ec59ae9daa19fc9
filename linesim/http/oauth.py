"""The calls that issue, verify and revoke channel access tokens, which carry forms (reference,
"Channel access token"). An assertion is a JWT, signed with a key whose public half the console has.

Where the reference has no text for a refusal it is linesim's. Callers hold the simulator's lock.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Any

from linesim.http.answers import Answer, json_answer
from linesim.model.calls import Call
from linesim.model.errors import LineError, OAuthError
from linesim.model.platform import Platform
from linesim.model.tokens import STATELESS_SECONDS

OF_JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS = 30 * 60
MOST_TOKEN_SECONDS = 30 * 24 * 60 * 60
# Of DigestInfo for SHA-256 (RFC 8017, section 9.2, note 1).
_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")


def issue_token(platform: Platform, call: Call) -> Answer:
    _needed(call, "grant_type", "client_credentials")
    _check_client(platform, call)
    token, _ = platform.channel_tokens.issue("short-lived", MOST_TOKEN_SECONDS)
    return _issued(token, MOST_TOKEN_SECONDS)


def issue_token_by_jwt(platform: Platform, call: Call) -> Answer:
    _needed(call, "grant_type", "client_credentials")
    seconds = _claims(platform, call).get("token_exp")
    if type(seconds) is not int or not 0 < seconds <= MOST_TOKEN_SECONDS:
        raise OAuthError("invalid_client", "Invalid token_exp")
    token, key_id = platform.channel_tokens.issue("v2.1", seconds)
    return _issued(token, seconds, key_id=key_id)


def issue_stateless_token(platform: Platform, call: Call) -> Answer:
    _needed(call, "grant_type", "client_credentials")
    if "client_assertion" in call.body:
        _claims(platform, call)
    else:
        _check_client(platform, call, "invalid_request", "Invalid 'client_credentials'.")
    return _issued(platform.channel_tokens.issue_stateless(), STATELESS_SECONDS)


def _issued(token: str, seconds: int, **more: str) -> Answer:
    told = {"token_type": "Bearer", "access_token": token, "expires_in": seconds}
    return json_answer(told | more)


def verify_token(platform: Platform, call: Call) -> Answer:
    token = _token(call, "access_token in invalid format")
    left = platform.channel_tokens.seconds_left(token, "short-lived", "long-lived")
    return _verified(platform, left, "P CM", "access_token invalid")


def verify_token_by_jwt(platform: Platform, call: Call) -> Answer:
    left = platform.channel_tokens.seconds_left(_jws(call), "v2.1")
    wrong = "The access token malformed" if left is None else "The access token expired"
    return _verified(platform, left, "profile chat_message.write", wrong)


def _verified(platform: Platform, left: int | None, scope: str, wrong: str) -> Answer:
    if not left:
        raise OAuthError("invalid_request", wrong)
    channel = platform.options.channel_id
    return json_answer({"client_id": channel, "expires_in": left, "scope": scope})


def revoke_token(platform: Platform, call: Call) -> Answer:
    """A token that LINE does not know is no error, here and by JWT."""
    platform.channel_tokens.revoke(_token(call, None), "short-lived", "long-lived")
    return Answer(200, b"")


def revoke_token_by_jwt(platform: Platform, call: Call) -> Answer:
    _check_client(platform, call)
    platform.channel_tokens.revoke(_jws(call), "v2.1")
    return Answer(200, b"")


def token_key_ids(platform: Platform, call: Call) -> Answer:
    _claims(platform, call)
    return json_answer({"kids": [each.key_id for each in platform.channel_tokens.valid("v2.1")]})


def _needed(call: Call, name: str, value: str | None = None) -> str:
    """Return the field, which must have this value if one is given."""
    found: str | None = call.body.get(name)
    if found is None or value not in (None, found):
        raise OAuthError("invalid_request", "some parameters missed or invalid")
    return found


def _token(call: Call, wrong: str | None, shape: str = r"[\w+/=.-]+") -> str:
    token: str = call.body.get("access_token", "")
    if not re.fullmatch(shape, token, re.ASCII):
        raise OAuthError("invalid_request", wrong)
    return token


def _jws(call: Call) -> str:
    return _token(call, "The access token not JWS", r"[\w-]+(\.[\w-]+){2}")


def _check_client(
    platform: Platform, call: Call, error: str = "invalid_client", wrong: str | None = None
) -> None:
    options = platform.options
    for name, right in (("client_id", options.channel_id), ("client_secret", options.secret)):
        if not hmac.compare_digest(_needed(call, name).encode(), right.encode()):
            raise OAuthError(error, wrong or f"invalid {name}")


def _claims(platform: Platform, call: Call) -> dict[str, Any]:
    """Return what the assertion says, if its signature, channel and time are right."""
    _needed(call, "client_assertion_type", OF_JWT)
    try:
        signed, _, signature = _needed(call, "client_assertion").rpartition(".")
        head, claims = (dict(json.loads(_decoded(part))) for part in signed.split("."))
        key = platform.channel_tokens.keys.get(str(head.get("kid")))
        if key is None:
            raise LineError(404, "Cannot find channel key that satisfies the conditions")
        channel, now = platform.options.channel_id, platform.clock.time()
        is_signed = _is_signed(signed.encode(), _decoded(signature), key)
        checks = {
            "Invalid signature": head.get("alg") == "RS256" and is_signed,
            "iss and clientId of key do not match": claims.get("iss") == channel,
            "Invalid sub": claims.get("sub") == channel,
            "Invalid aud": claims.get("aud") == "https://api.line.me/",
            "Invalid exp": now < claims.get("exp", 0) <= now + ASSERTION_SECONDS,
        }
    except (ValueError, TypeError, RecursionError) as error:
        raise OAuthError("invalid_client", "Invalid JWT") from error
    for wrong, is_right in checks.items():
        if not is_right:
            raise OAuthError("invalid_client", wrong)
    return claims


def _decoded(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)


def _is_signed(content: bytes, signature: bytes, key: Mapping[str, str]) -> bool:
    """RSASSA-PKCS1-v1_5 with SHA-256: the whole padded block is compared (RFC 8017)."""
    n, e = (int.from_bytes(_decoded(key[name])) for name in ("n", "e"))
    size, number = (n.bit_length() + 7) // 8, int.from_bytes(signature)
    digest = _SHA256 + hashlib.sha256(content).digest()
    padded = b"\x00\x01".ljust(size - len(digest) - 1, b"\xff") + b"\x00" + digest
    is_whole = len(signature) == size and number < n
    return is_whole and hmac.compare_digest(pow(number, e, n).to_bytes(size), padded)
