"""`RealBotTest`: what `jobworker.testing.BotTest` does in memory, with every real part."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from jobworker.testing import HandlerFailed, KitError, People, Sent
from jobworker.testing.webhooks import Webhooks
from linedesk.botloader import load_bot
from linedesk.realstack import WAITING, RealStack
from linesim.calls import Call
from linesim.media import medium
from recvq.documents import Document
from recvq.recurrence import Daily

WAYS = frozenset({"reply", "push", "multicast"})
# As in memory every test begins at nine in the morning in Tokyo.
START = Daily(time(9), ZoneInfo("Asia/Tokyo"))


class RealBotTest(People):
    """One test's users and groups on a stack that runs; `close` ends their timers.

    `bot` is a Bot, a WebhookHandler of line-bot-sdk's, or the `module:name` of one.
    """

    def __init__(
        self,
        bot: object,
        *,
        settings: Mapping[str, Any],
        stack: RealStack,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        named = bot if isinstance(bot, str) else name_of_bot(bot)
        number = stack.play(named, settings, secrets)
        super().__init__(load_bot(named), Webhooks(f"{number:06d}"))
        self._stack = stack
        self._ids: dict[str, str] = {}
        stack.forget_timers()
        stack.take_letters()
        stack.move_to(START.after(stack.now()))

    def close(self) -> None:
        """Leave nothing that rings in the next test."""
        self._stack.forget_timers()

    @property
    def now(self) -> datetime:
        return self._stack.now()

    def id(self, name: str) -> str:
        if name not in self._ids:
            self._meet(*((None, name) if name.startswith(("C", "R")) else (name, None)))
        return self._ids[name]

    def names(self, user: str, name: str) -> None:
        self._meet(user, None)
        platform = self._stack.sim.platform
        with platform.watch.changing():
            platform.world.user(self.id(user)).name = name

    def _rows(self) -> list[Document]:
        return list(self._stack.collection("schedule").find(WAITING))

    def _stored(self, id_: str) -> Document:
        found: Document | None = self._stack.collection("conversations").find_one({"_id": id_})
        return found or {}

    def _meet(self, user: str | None, group: str | None) -> None:
        sim = self._stack.sim
        if user is not None and user not in self._ids:
            self._ids[user] = sim.add_user(user).user_id
        if group is not None:
            if group not in self._ids:
                kind: Any = "room" if group.startswith("R") else "group"
                self._ids[group] = sim.add_group(group, kind=kind).chat_id
            with sim.platform.watch.changing():
                members = sim.platform.world.group(self._ids[group]).members
                if user is not None and self._ids[user] not in members:
                    members.append(self._ids[user])

    def _keep_content(self, message_id: str, kind: Any, data: bytes, name: str) -> None:
        platform = self._stack.sim.platform
        with platform.watch.changing():
            kept = medium(data, name=name)
            platform.contents.keep(message_id, kind, kept, preparing_seconds=0.0)

    # The way of an event.

    def _handle(self, event: Document) -> tuple[Sent, ...]:
        after = self._calls_so_far()
        self._stack.deliver(event)
        return self._sent_after(after)

    def _go_to(self, moment: datetime) -> tuple[Sent, ...]:
        after = self._calls_so_far()
        # Time goes by here while handlers run: what they set comes out so much later.
        late = timedelta(0)
        while (due := self._stack.next_due()) is not None and due <= moment + late:
            self._stack.move_to(due)
            late += max(self.now - due, timedelta(0))
        self._stack.move_to(moment)
        return self._sent_after(after)

    def _calls_so_far(self) -> int:
        return self._stack.sim.platform.read(lambda platform: platform.calls.count)

    def _sent_after(self, number: int) -> tuple[Sent, ...]:
        letters = self._stack.take_letters()
        if letters:
            told = [f"{letter['cause']}\n{letter.get('traceback', '')}" for letter in letters]
            raise HandlerFailed("\n".join(told))
        calls = self._stack.sim.platform.read(lambda platform: platform.calls.since(number))
        return tuple(
            self._sent_by(call) for call in calls if call.accepted and call.endpoint in WAYS
        )

    def _sent_by(self, call: Call) -> Sent:
        to: Any = call.chat_id if call.endpoint == "reply" else call.body["to"]
        whom = tuple(map(self._name_of, to)) if isinstance(to, list) else self._name_of(to)
        return Sent(whom, call.endpoint, tuple(call.body["messages"]))

    def _name_of(self, id_: str) -> str:
        """What the test calls a user or group; anybody else by the id."""
        return next((name for name, own in self._ids.items() if own == id_), id_)


def name_of_bot(bot: object) -> str:
    """A bot's `module:name`, under which the dispatcher imports it. Raises KitError.

    Where several modules have it, one that is not a test's is taken before others.
    """
    found = [
        (module_name.rpartition(".")[2].startswith(("test_", "conftest")), f"{module_name}:{name}")
        for module_name, module in [*sys.modules.items()]
        for name, value in [*getattr(module, "__dict__", {}).items()]
        if value is bot and name.isidentifier() and module_name != "__main__"
    ]
    if not found:
        raise KitError("the real stack needs a bot that stands in a module under a name of its own")
    return min(found)[1]
