"""Runs a bot written with line-bot-sdk's WebhookHandler.

The SDK's own code chooses and calls the handler, so its rules apply here: by event and message
class, by event class, otherwise the default; with the event, with event and destination, or without
arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from linebot.v3 import WebhookHandler
from linebot.v3.messaging import MessagingApi

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.events import TimerEvent
from jobworker.sdk.api_client import ApiClient

if TYPE_CHECKING:
    from jobworker.bot.talk import Talk


class SdkBot(Bot):
    """A Bot whose one rule is the handler's `handle`, which sends by itself."""

    sends_by_itself = True

    def __init__(self, handler: WebhookHandler) -> None:
        super().__init__()
        # The handler's own parser stays unchanged for other users of the handler.
        self._handler = copy.copy(handler)
        # The front desk has already checked and parsed.
        self._handler.parser = SimpleNamespace(parse=lambda payload, *_, **__: payload)

    def rules_for(self, event: Any, state: str | None = None) -> Iterator[Rule]:
        """Return the one rule for every LINE event. Raises NoTimerHandler."""
        if isinstance(event, TimerEvent):
            return super().rules_for(event, state)
        return iter([Rule(self._run, profile=False)])

    def _run(self, event: Any, talk: Talk) -> None:
        self._handler.handle(_Payload(event, lambda: self._own_id), "")

    @cached_property
    def _own_id(self) -> str:
        """The bot's own user id, which the first handler reads that needs it."""
        return str(MessagingApi(ApiClient()).get_bot_info().user_id)


class _Payload:
    """One event as the SDK's WebhookPayload; its destination is read only when needed."""

    def __init__(self, event: Any, own_id: Callable[[], str]) -> None:
        self.events = [event]
        self._own_id = own_id

    @property
    def destination(self) -> str:
        return self._own_id()
