"""The calls to read, set and test the webhook endpoint.

Callers hold the simulator's lock. The test is a slow POST, so it is returned as an Errand, which
runs without the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from linesim.http.answers import Answer, json_answer
from linesim.http.validation import problem
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.deliveries import Delivery
from linesim.model.platform import Platform

MOST_URL = 500

# The reasons that LINE gives (reference, "Test webhook endpoint"), by how a delivery failed here.
REASONS = {"could_not_connect": "COULD_NOT_CONNECT", "request_timeout": "REQUEST_TIMEOUT"}


@dataclass(frozen=True)
class Errand:
    """A POST of the connectivity check, and the function that makes the answer from its outcome."""

    url: str
    answer: Callable[[Delivery], Answer]


def endpoint(platform: Platform, call: Call) -> Answer:
    """The URL, and whether "Use webhook" is on; 404 if none is set."""
    url = _url_of(platform)
    return json_answer({"endpoint": url, "active": platform.webhook_active})


def set_endpoint(platform: Platform, call: Call) -> Answer:
    """Unlike LINE it also accepts plain HTTP, since bot servers on this machine use it."""
    platform.webhook_url = _checked(call.body.get("endpoint"))
    return json_answer({})


def test(platform: Platform, call: Call) -> Errand:
    """Tests the URL in the body, else the one that is set."""
    body = call.body or {}
    url = _checked(body["endpoint"]) if "endpoint" in body else _url_of(platform)
    return Errand(url, tested)


def tested(delivery: Delivery) -> Answer:
    """The result of a delivery without events, in LINE's form."""
    moment = datetime.fromtimestamp(delivery.at, UTC).isoformat(timespec="milliseconds")
    return json_answer(
        {
            "success": delivery.delivered,
            "timestamp": moment.replace("+00:00", "Z"),
            "statusCode": delivery.status or 0,
            "reason": _reason(delivery),
            "detail": str(delivery.status or delivery.error),
        }
    )


def _reason(delivery: Delivery) -> str:
    if delivery.status is not None:
        return "OK" if delivery.delivered else "ERROR_STATUS_CODE"
    return REASONS.get(delivery.error or "", "UNCLASSIFIED")


def _url_of(platform: Platform) -> str:
    if platform.webhook_url is None:
        raise errors.not_found()
    return platform.webhook_url


def _checked(url: Any) -> str:
    if not isinstance(url, str) or len(url) > MOST_URL or not is_http(url):
        raise errors.invalid_body([problem("endpoint", "Invalid webhook endpoint URL")])
    return url


def is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
