"""Webhook POSTs: signed over the exact bytes that are sent, each one recorded with how the bot
server answered.

LINE's webhook signature: base64 of HMAC-SHA256 over the raw body, by the channel secret.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
import urllib3.exceptions
from requests.adapters import HTTPAdapter

HEADER = "x-line-signature"


def sign(secret: str, body: bytes) -> str:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")


# Half an hour at 100 webhooks a second, each redelivered and doubled, with room to spare.
MOST_DELIVERIES = 1_000_000
CONNECTIONS = 64

Event = dict[str, Any]


@dataclass(slots=True)
class Delivery:
    """One POST. `started` and `answered` are seconds of time.monotonic(), `at` is Unix time.

    `status` is None without an answer; `error` then has the reason: no_webhook_url,
    could_not_connect, request_timeout or unclassified, in the words of LINE's error statistics.
    """

    number: int
    at: float
    started: float
    event_ids: tuple[str, ...]
    events: Sequence[Event] = field(repr=False)
    answered: float | None = None
    status: int | None = None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def milliseconds(self) -> float | None:
        return None if self.answered is None else (self.answered - self.started) * 1000


class WebhookSender:
    """Posts to the bot server as LINE does: no redirects, no proxies, an answer within the time
    limit or none.
    """

    def __init__(self, secret: str, timeout_seconds: float) -> None:
        self._secret = secret
        self._timeout_seconds = timeout_seconds
        self._session = requests.Session()
        self._session.trust_env = False
        adapter = HTTPAdapter(pool_connections=4, pool_maxsize=CONNECTIONS)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def post(self, url: str | None, body: bytes, delivery: Delivery) -> None:
        """Records the outcome of the POST; never raises for the bot server's behaviour."""
        if url is None:
            delivery.error = "no_webhook_url"
            return
        headers = {
            "content-type": "application/json; charset=utf-8",
            "user-agent": "LineBotWebhook/2.0",
            HEADER: sign(self._secret, body),
        }
        try:
            answer = self._session.post(
                url,
                data=body,
                headers=headers,
                timeout=self._timeout_seconds,
                allow_redirects=False,
            )
            delivery.status = answer.status_code
        except requests.Timeout:
            delivery.error = "request_timeout"
        except requests.ConnectionError:
            delivery.error = "could_not_connect"
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError):
            delivery.error = "unclassified"
        delivery.answered = time.monotonic()

    def close(self) -> None:
        self._session.close()


def encode(destination: str, events: Sequence[Event]) -> bytes:
    body = {"destination": destination, "events": list(events)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
