"""Bots that crash their process, or block until a file exists."""

import os
import resource
import signal
import threading
from pathlib import Path
from typing import Any

from linebot.v3.webhooks import MessageEvent, TextMessageContent

from jobworker.record.conversations import ConversationStore, Recording
from linedesk import Bot, Talk
from linedesk.store.control import Control
from tests.acceptance.acceptance_bots import repeating

# An abort would leave its core behind.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

recorded = Bot()
gathering = Bot()
slow = Bot()
mistaken = Bot()


@slow.add(MessageEvent, message=TextMessageContent)
def take_long(event: MessageEvent, talk: Talk) -> None:
    """Kills the process beside others, after a while, or answers slowly or at once."""
    if event.message.text == "毒":
        os.kill(os.getpid(), signal.SIGKILL)
    if event.message.text != "すぐ":
        threading.Event().wait(float(os.environ["SLOW_SECONDS"]))
    talk.reply(event.message.text)


@mistaken.add(MessageEvent, message=TextMessageContent)
def break_another_thread(event: MessageEvent, talk: Talk) -> None:
    """Stands for a mistake of linedesk's own, in a thread that runs no job."""

    def orders(self: Control) -> Any:
        raise RuntimeError("a mistake of ours")

    Control.orders = orders  # type: ignore[method-assign]
    threading.Event().wait(30)


@recorded.add(MessageEvent, message=TextMessageContent)
def answer(event: MessageEvent, talk: Talk) -> None:
    talk.reply(event.message.text)
    if event.message.text == "毒":
        _die_once_recorded(talk.event_id)


def _die_once_recorded(event_id: str) -> None:
    recorded = ConversationStore.recorded

    def then(self: ConversationStore, recording: Recording, **bounds: Any) -> Any:
        found = recorded(self, recording, **bounds)
        if event_id in recording.names:
            os.abort()
        return found

    ConversationStore.recorded = then  # type: ignore[method-assign]


def wait() -> None:
    while not Path(os.environ["GO_ON"]).exists():
        threading.Event().wait(0.02)


deadly = repeating("毒", os.abort)
waiting = repeating("待て", wait)


@gathering.add(MessageEvent, message=TextMessageContent, gather=1.0)
def die_together(events: list[MessageEvent], talk: Talk) -> None:
    if any(event.message.text == "毒" for event in events):
        os.abort()
    talk.reply("、".join(event.message.text for event in events))
