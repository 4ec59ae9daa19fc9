"""The calls to read, set and test the webhook endpoint.

Callers hold the simulator's lock. The test is a slow POST, so it is returned as an Errand, which
runs without the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from linesim.http.answers import Answer, json_answer, moment
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.deliveries import Delivery
from linesim.model.platform import Platform

# LINE's reason and detail (reference, "Test webhook endpoint"), by how a delivery failed here.
FAILURES = {
    "could_not_connect": ("COULD_NOT_CONNECT", "Failure to connect"),
    "request_timeout": ("REQUEST_TIMEOUT", "Request timeout"),
}


@dataclass(frozen=True)
class Errand:
    """A POST of the connectivity check, and the function that makes the answer from its outcome."""

    url: str
    answer: Callable[[Delivery], Answer]


def webhook(platform: Platform, call: Call) -> Answer:
    """The URL, and whether "Use webhook" is on; 404 if none is set."""
    url = _url_of(platform)
    return json_answer({"endpoint": url, "active": platform.webhook_active})


def set_webhook(platform: Platform, call: Call) -> Answer:
    """Unlike LINE it also accepts plain HTTP, since bot servers on this machine use it."""
    platform.webhook_url = _checked(call.body["endpoint"])
    return json_answer({})


def test_webhook(platform: Platform, call: Call) -> Errand:
    """Tests the URL in the body, else the one that is set."""
    body = call.body or {}
    url = _checked(body["endpoint"]) if "endpoint" in body else _url_of(platform)
    return Errand(url, tested)


def tested(delivery: Delivery) -> Answer:
    """The result of a delivery without events, in LINE's form."""
    if (status := delivery.status) is None:
        reason, detail = FAILURES.get(delivery.error or "", ("UNCLASSIFIED", "N/A"))
    else:
        reason, detail = "OK" if delivery.delivered else "ERROR_STATUS_CODE", str(status)
    told = {"success": delivery.delivered, "timestamp": moment(delivery.at)}
    return json_answer({**told, "statusCode": status or 0, "reason": reason, "detail": detail})


def _url_of(platform: Platform) -> str:
    if platform.webhook_url is None:
        raise errors.no_webhook_endpoint()
    return platform.webhook_url


def _checked(url: str) -> str:
    if not is_http(url):
        raise errors.invalid_webhook_endpoint()
    return url


def is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
