"""Processes that decide one event each and freeze at a named point, to be killed there.

They are forked from one process that has done its imports, and nothing else, once for all of them.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dispatcher.commit.committer import Committer
from jobworker.bot.talk import Talk
from jobworker.effects import Call, SendMethod
from jobworker.record.conversations import ConversationStore
from jobworker.record.schedule import Schedule
from jobworker.record.waiting_answers import WaitingAnswers
from jobworker.sending.button import OfferedButton, SlowAnswers
from jobworker.sending.outcomes import Outcomes
from jobworker.sending.sender import Sender
from linedesk import Bot
from linedesk.store.client import connect
from tests.jobworker.worker_harness import BUTTON_SOON, Room


def stand_still() -> None:
    print(os.getpid(), flush=True)
    threading.Event().wait(60)


def before(owner: type, name: str) -> None:
    """Freeze before a method does anything."""
    setattr(owner, name, lambda *args, **kwargs: stand_still())


def after(owner: type, name: str, *, when: Callable[..., bool] = lambda *args: True) -> None:
    """Freeze once a method has done its work, if `when` is true of its arguments."""
    method = getattr(owner, name)

    def then(*args: Any, **kwargs: Any) -> Any:
        done = method(*args, **kwargs)
        if when(*args):
            stand_still()
        return done

    setattr(owner, name, then)


def not_at_once() -> None:
    """Calls are stored by writes of their own."""
    setattr(Sender, "_at_once", lambda *args: None)  # noqa: B010


def ends_stay() -> None:
    """Ends stay in memory."""
    setattr(Committer, "commit_later", lambda *args: True)  # noqa: B010


def as_push(call: Call) -> bool:
    return call.way is SendMethod.PUSH


POINTS = {
    "recorded": lambda: after(ConversationStore, "recorded"),
    "entered": lambda: after(Schedule, "enter"),
    "noted": lambda: (not_at_once(), after(ConversationStore, "note_call")),
    "called": lambda: after(Sender, "_post"),
    "answered": lambda: before(ConversationStore, "end_later"),
    "end left": lambda: (ends_stay(), after(ConversationStore, "end_later")),
    "refused": lambda: before(Outcomes, "_end_refused"),
    "cleared": lambda: after(Outcomes, "_end_refused"),
    "button noted": lambda: after(WaitingAnswers, "offered"),
    "button called": lambda: after(OfferedButton, "request"),
    "button shown": lambda: after(WaitingAnswers, "shown"),
    "noted as push": lambda: after(
        ConversationStore, "note_call", when=lambda _, id_, call, *more: as_push(call)
    ),
    "called as push": lambda: after(
        Sender, "_post", when=lambda _, caller, *more: as_push(caller.call)
    ),
}


class Elsewhere:
    """The simulator of another process, as far as a room asks."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token


def main() -> None:
    """One child for each line of input; the next line counts once it has been killed."""
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            decide(json.loads(line))
        os.waitpid(child, 0)


def decide(told: Mapping[str, Any]) -> None:
    bot = Bot()
    bot.timer("egg")(lambda event, talk: None)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if told["way"] == "timer":
            talk.after(0, "egg")
            return
        if told["way"] == "slow":
            threading.Event().wait(60)
            return
        getattr(talk, told["way"])("はい")
        # The other fields of the command.
        for text in ("二", "三", "四", "五")[: told["sends"] - 1]:
            talk.push(text)

    POINTS[told["point"]]()
    with connect(told["uri"], app_name="dying") as client:
        sim: Any = Elsewhere(told["url"], told["token"])
        # A handler that answers at once has no button.
        line = BUTTON_SOON if told["way"] == "slow" else {"slow_answers": SlowAnswers.BUTTON}
        with Room(client[told["database"]], sim, bot, line=line) as room:
            room.put(told["event"], again=told["again"])
            threading.Event().wait(60)


main()
