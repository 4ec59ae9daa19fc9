"""The real processes for tests of bots: mongod, front desk and dispatcher in their own folder, and
linesim in the tests' process.

They start once for any number of tests; the dispatcher is restarted for another bot.

`RealBotTest` does the same as `linedesk.testing.BotTest`, with every real part.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, time, timedelta
from os import pathsep
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import linesim
from jobworker.bot.events import model_of
from linedesk.bots.load import load_bot
from linedesk.launch.stage import Stage
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import Document, key_of, text_of
from linedesk.store.records.effects import WITH_OUTBOX
from linedesk.store.records.timers import RUN_AT
from linedesk.store.timers import Daily
from linedesk.testing.answers import Sent
from linedesk.testing.errors import HandlerFailed, KitError
from linedesk.testing.people import CHANNEL, People, told_by_operator
from linedesk.testing.webhooks import Webhooks
from linesim.model.calls import Call
from linesim.model.media import medium

# The number of newest documents that are checked for completion; `progress` lists a thousand.
NEWEST = 500
WAITING: Mapping[str, Any] = {RUN_AT: {"$ne": None}}
SETTINGS = {
    "LINE_ACCESS_INTERVAL_MS": "0",
    "HANDLER_TRIES": "1",
    # A replaced dispatcher has no documents under way.
    "DRAIN_SECONDS": "2",
}


class RealStack(Stage):
    """A stage for one test at a time."""

    def play(self, bot: str, **settings: str) -> None:
        # Bots are found as in pytest, after all installed packages.
        path = pathsep.join(sorted(sys.path, key=_is_of_tests))
        super().play(bot, PYTHONPATH=path, **settings)

    def wait_until_quiet(self) -> None:
        """Wait until no work is under way; raises DemoFailed after a time-out."""
        self.wait_for(self.is_quiet, "dispatcher")

    def move_to(self, moment: datetime) -> None:
        """Move the clock ahead to a moment; no effect if that is past."""
        seconds = (moment - self.now()) / timedelta(seconds=1)
        if seconds > 0:
            self.sim.advance(seconds)
        self.wait_until_quiet()

    def next_due(self) -> datetime | None:
        """The time of the next timer; None if none waits."""
        rows = self.database["schedule"].find(WAITING).sort(RUN_AT, 1).limit(1)
        return next((row[RUN_AT] for row in rows), None)

    def forget_timers(self) -> None:
        """Delete the timers of a finished test."""
        self.database["schedule"].delete_many({})

    def take_letters(self) -> list[Document]:
        """Return and delete the new dead letters."""
        letters = list(self.database["deadletters"].find())
        self.database["deadletters"].delete_many({"_id": {"$in": [one["_id"] for one in letters]}})
        return letters

    def is_quiet(self) -> bool:
        """Whether all that was stored is finished, every outbox is empty, and no timer is due."""
        # Work moves from recvq to the outboxes, from there to `schedule`, and back to recvq, so
        # recvq is checked once more at the end.
        stored = self._stored()
        progress = self.database["progress"].find_one({"_id": DISPATCHER}) or {}
        return (
            stored <= {*progress.get("ring", ()), *progress.get("finished", ())}
            and self.database["conversations"].find_one(WITH_OUTBOX) is None
            and self.database["schedule"].find_one({RUN_AT: {"$lte": self.now()}}) is None
            and self._stored() == stored
        )

    def _stored(self) -> set[Any]:
        """The newest documents of recvq."""
        recvq = self.database["recvq"].find({"heartbeat": None}, {"_id": 1})
        return {document["_id"] for document in recvq.sort("$natural", -1).limit(NEWEST)}


def _is_of_tests(folder: str) -> bool:
    """Whether pytest added it to sys.path: it is not ours and not of this Python."""
    others = (Path(__file__).parents[1], sys.prefix, sys.base_prefix)
    return not any(Path(folder).is_relative_to(other) for other in others)


@contextmanager
def real_stack() -> Iterator[RealStack]:
    """Run the stack and remove all traces afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="linedesk-tests-") as folder,
        linesim.running(rate_limits=False) as sim,
        RealStack(Path(folder), sim, settings=SETTINGS) as stack,
    ):
        stack.start_mongod()
        yield stack


WAYS = frozenset({"reply", "push", "multicast"})
# As in memory, every test begins at nine in the morning in Tokyo.
START = Daily(time(9), ZoneInfo("Asia/Tokyo"))
# Of the tests of this process: their events have different ids.
NUMBERS = itertools.count(1)


class RealBotTest(People):
    """The users and groups of one test on a running stack; `close` ends their timers.

    `bot` is a Bot, a WebhookHandler of line-bot-sdk, or the `module:name` of one.
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
        told = ", ".join(f"{name}={told_by_operator(value)}" for name, value in settings.items())
        hidden = "\n".join(f"{name}={value}" for name, value in secrets.items())
        stack.play(named, BOT_SETTINGS=told, BOT_SECRETS=hidden)
        self._bot = load_bot(named)
        super().__init__(self._bot, Webhooks(f"{next(NUMBERS):06d}"))
        self._stack = stack
        self._ids: dict[str, str] = {}
        # Whether messages may still be gathered.
        self._gathers = False
        stack.forget_timers()
        stack.take_letters()
        stack.move_to(START.after(stack.now()))

    def close(self) -> None:
        """Remove timers and answers that would affect the next test."""
        if self._gathers:
            self._stack.wait_until_quiet()
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
        return list(self._stack.database["schedule"].find(WAITING))

    def _stored(self, id_: str) -> Document:
        found: Document | None = self._stack.database["conversations"].find_one({"_id": id_})
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

    # Processing of an event.

    def _handle(self, event: Document) -> tuple[Sent, ...]:
        """Return when all immediate effects are done; gathered messages keep waiting."""
        after = self._calls_so_far()
        self._stack.deliver(event)
        self._gathers = self._is_gathered(event)
        if not self._gathers:
            self._stack.wait_until_quiet()
        return self._sent_after(after)

    def _is_gathered(self, event: Document) -> bool:
        """Whether the bot waits for more messages before it handles this one."""
        state = self._state_of(event) if self._bot.has_states else None
        rule = self._bot.rule_for(model_of(event), state)
        return rule is not None and rule.gather is not None

    def _state_of(self, event: Document) -> str | None:
        key, user = key_of(event), text_of(event, "source", "userId")
        stored = self._stored(f"{CHANNEL}/{key}")
        if self._bot.per_member and user != key:
            stored = (stored.get("states") or {}).get(user) or {}
        state: str | None = stored.get("state")
        return state

    def _go_to(self, moment: datetime) -> tuple[Sent, ...]:
        after = self._calls_so_far()
        # Time passes here while handlers run, so the times that they set are later by that much.
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
        """The test's name for a user or group; the id of others."""
        return next((name for name, own in self._ids.items() if own == id_), id_)


def name_of_bot(bot: object) -> str:
    """A bot's `module:name`, under which the dispatcher imports it. Raises KitError.

    If several modules have it, one that is not a test module is preferred.
    """
    found = [
        (module_name.rpartition(".")[2].startswith(("test_", "conftest")), f"{module_name}:{name}")
        for module_name, module in [*sys.modules.items()]
        for name, value in [*getattr(module, "__dict__", {}).items()]
        if value is bot and name.isidentifier() and module_name != "__main__"
    ]
    if not found:
        raise KitError("the real stack needs a bot that is a global variable of a module")
    return min(found)[1]
