"""A process that decides one event and stands still at a named point, to be killed there."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from jobworker import Bot
from jobworker.conversations import Conversations
from jobworker.sending import Sending
from jobworker.talk import Talk
from recvq.connect import connect
from tests.jobworker.room import Room


def stand_still() -> None:
    print("there", flush=True)
    threading.Event().wait(60)


def before(owner: type, name: str) -> None:
    """Stand still before a method does anything."""
    setattr(owner, name, lambda *args, **kwargs: stand_still())


def after(owner: type, name: str) -> None:
    """Stand still once a method has done its work."""
    method = getattr(owner, name)

    def then(*args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)
        stand_still()

    setattr(owner, name, then)


POINTS = {
    "recorded": lambda: after(Conversations, "record"),
    "noted": lambda: after(Conversations, "note_try"),
    "called": lambda: after(Sending, "_post"),
    "answered": lambda: before(Conversations, "remove"),
    "refused": lambda: before(Sending, "_rewrite"),
}


class Elsewhere:
    """The simulator of another process, as far as a room asks."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token


def main() -> None:
    told = json.loads(sys.stdin.readline())
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        getattr(talk, told["way"])("はい")

    POINTS[told["point"]]()
    with connect(told["uri"], app_name="dying") as client:
        sim: Any = Elsewhere(told["url"], told["token"])
        with Room(client[told["database"]], sim, bot) as room:
            room.put(told["event"])
            threading.Event().wait(60)


main()
