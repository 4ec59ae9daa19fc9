"""Signed webhooks posted at given times, and when a bot's handler started each of their events.

Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import requests

from bench.report import BenchFailed, Figures
from linesim.model.deliveries import HEADER, Event, sign

LOG_NAME = "STARTED_LOG"
DESTINATION = "U" + "0" * 32
SENDERS = 16
POST_SECONDS = 2.0

_run = secrets.token_hex(4)
_numbers = count(1)


def text_event(user: int, text: str = "はい", *, group: int | None = None) -> Event:
    """A text message as LINE sends it, each with an id of its own."""
    number = next(_numbers)
    source = {"type": "user", "userId": f"U{user:032x}"}
    if group is not None:
        source |= {"type": "group", "groupId": f"C{group:032x}"}
    return {
        "type": "message",
        "message": {"type": "text", "id": f"{number}", "quoteToken": "q" * 40, "text": text},
        "webhookEventId": f"01{_run}{number:016d}",
        "deliveryContext": {"isRedelivery": False},
        "timestamp": int(time.time() * 1000),
        "source": source,
        "replyToken": f"{number:032d}",
        "mode": "active",
    }


def signed(secret: str, events: Sequence[Event]) -> tuple[bytes, str]:
    """The body of a webhook with these events, and its signature."""
    body = json.dumps({"destination": DESTINATION, "events": list(events)}).encode()
    return body, sign(secret, body)


@dataclass(frozen=True)
class Post:
    """One webhook: its events, and when it is due, in seconds from the start."""

    at: float
    events: Sequence[Event]


@dataclass
class Posted:
    """How the posts went; of each event."""

    sent: dict[str, float] = field(default_factory=dict)
    """When the POST that was accepted began."""
    first: dict[str, float] = field(default_factory=dict)
    """When the first POST began."""
    answered: dict[str, float] = field(default_factory=dict)
    """When the 2xx came."""


def post_all(url: str, secret: str, posts: Iterable[Post], *, redeliver: bool = False) -> Posted:
    """Post all at their times, from several threads; returns once all are answered.

    With `redeliver` one without a 2xx is posted again, a second later; otherwise it raises
    BenchFailed.
    """
    posted, lock = Posted(), threading.Lock()
    waiting = iter(posts)
    began = time.monotonic()

    def send() -> None:
        with requests.Session() as session:
            session.trust_env = False
            while True:
                with lock:
                    post = next(waiting, None)
                if post is None:
                    return
                _pause(began + post.at - time.monotonic())
                _post(session, url, secret, post.events, posted, redeliver=redeliver)

    with ThreadPoolExecutor(SENDERS) as pool:
        for future in [pool.submit(send) for _ in range(SENDERS)]:
            future.result()
    return posted


def _post(
    session: requests.Session,
    url: str,
    secret: str,
    events: Sequence[Event],
    posted: Posted,
    *,
    redeliver: bool,
) -> None:
    body, signature = signed(secret, events)
    headers = {"content-type": "application/json", HEADER: signature}
    ids = [event["webhookEventId"] for event in events]
    while True:
        began = time.monotonic()
        for id_ in ids:
            posted.first.setdefault(id_, began)
        status: object
        try:
            status = session.post(url, body, headers=headers, timeout=POST_SECONDS).status_code
        except requests.RequestException as error:
            status = type(error).__name__
        if status == 200:
            answered = time.monotonic()
            posted.sent |= dict.fromkeys(ids, began)
            posted.answered |= dict.fromkeys(ids, answered)
            return
        if not redeliver:
            raise BenchFailed(f"a webhook was answered {status}")
        _pause(1.0)


def steady(events: Iterable[Event], *, rate: float) -> list[Post]:
    """One event a POST, so many a second."""
    return [Post(number / rate, [event]) for number, event in enumerate(events)]


# The handler's side.


def started_log() -> Callable[[str], None]:
    """What a bot's handler calls with its event's id when it starts.

    The bot is made in the dispatcher, which has LOG_NAME in its environment.
    """
    if LOG_NAME not in os.environ:
        return lambda event_id: None
    log = Path(os.environ[LOG_NAME]).open("a", buffering=1)  # noqa: SIM115  # open as long as the bot
    return lambda event_id: print(event_id, time.monotonic(), file=log)


class Started:
    """Reads that log; the first start of each event counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.at: dict[str, float] = {}
        self._offset = 0

    def read(self) -> Mapping[str, float]:
        """All starts so far, by event id."""
        with self.path.open() as log:
            log.seek(self._offset)
            text = log.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in whole.splitlines():
            event_id, at = line.split()
            self.at.setdefault(event_id, float(at))
        return self.at

    def wait_for(self, ids: Collection[str], *, seconds: float = 60.0) -> Mapping[str, float]:
        """Until all of these have started; raises BenchFailed."""
        deadline = time.monotonic() + seconds
        while not self.read().keys() >= set(ids):
            if time.monotonic() > deadline:
                left = len(set(ids) - self.at.keys())
                raise BenchFailed(f"{left} events did not reach the handler in {seconds:.0f} s")
            _pause(0.1)
        return self.at


def waits_ms(
    posted: Mapping[str, float], started: Mapping[str, float], ids: Iterable[str]
) -> Figures:
    """From the start of the POST to the start of the handler: p99, p50 and max."""
    waits = sorted((started[id_] - posted[id_]) * 1000 for id_ in ids)
    cuts = statistics.quantiles(waits, n=100)
    return {"p99 ms": cuts[98], "p50 ms": cuts[49], "max ms": waits[-1]}


def _pause(seconds: float) -> None:
    if seconds > 0:
        threading.Event().wait(seconds)


def ids_of(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """The events' own ids."""
    return [event["webhookEventId"] for event in events]
