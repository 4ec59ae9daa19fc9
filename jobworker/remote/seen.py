"""The worker processes as they describe themselves, and the versions of the bot that they have."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jobworker.bot.bot import Bot
from jobworker.remote.job import CONTRACT, address_of
from jobworker.remote.rules import bot_of
from linedesk.store.control import Control
from linedesk.store.errors import QueueError

log = logging.getLogger(__name__)

MOST_WORKER_THREADS = 1_000
MOST_WORKER_ASYNC = 10_000
MOST_CONTRACT = 1_000
ASK_AGAIN_SECONDS = 1.0


@dataclass
class WorkerSeen:
    """A worker process, by its last beat; `id` is new with each start."""

    id: str
    name: str
    address: str
    threads: int
    contract: int
    bot: str
    release: str
    began: float
    """Monotonic time at which it started, by this machine's clock."""
    heard: float
    """Monotonic time of its last message."""
    is_leaving: bool
    most_async: int = 0
    """How many async handlers it runs at a time, beside its threads."""
    attempts: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    """Those of them with an async handler."""

    @classmethod
    def from_beat(cls, message: Mapping[str, Any], now: float) -> WorkerSeen:
        """Return the worker that a beat describes. Raises ValueError, KeyError, TypeError."""
        threads, contract = int(message["threads"]), int(message["contract"])
        if not 0 <= threads <= MOST_WORKER_THREADS:
            raise ValueError(f"threads: 0 to {MOST_WORKER_THREADS}, not {threads}")
        if not 0 <= contract <= MOST_CONTRACT:
            raise ValueError(f"contract: 0 to {MOST_CONTRACT}")
        return cls(
            str(message["worker"])[:64],
            one_line(message["name"], 100),
            address_of(message["address"]),
            threads,
            contract,
            one_line(message["bot"], 100),
            one_line(message["release"], 40),
            began=now - max(0.0, float(message["upSeconds"])),
            heard=now,
            is_leaving=message.get("leaving") is True,
            most_async=min(max(0, int(message.get("asyncHandlers", 0))), MOST_WORKER_ASYNC),
        )

    def beat(self, told: WorkerSeen) -> None:
        """Take what its next beat describes."""
        kept = {"began": self.began, "attempts": self.attempts, "awaited": self.awaited}
        vars(self).update(vars(told) | kept)

    def free(self, *, is_async: bool = False) -> int:
        """How many more jobs it may get."""
        awaited = len(self.awaited)
        if is_async:
            return max(0, self.most_async - awaited)
        return max(0, self.threads - (len(self.attempts) - awaited))


@dataclass(frozen=True)
class BotVersion:
    """A version of the bot: workers are asked for its rules once a second."""

    asked: float = -math.inf
    bot: Bot | None = None
    """Its rules."""
    refused: str = ""
    """Why they are not taken."""


UNKNOWN = BotVersion()


class BotVersions:
    """The versions, of which one is in force: the accepted one with the most threads.

    `control` has the versions that may get jobs; without it all may. Any thread may ask; all
    changes but `read_accepted` are under the lock of `Workers`.
    """

    def __init__(self, control: Control | None) -> None:
        self._control = control
        # None until it has been read; empty until a first version is in force.
        self._accepted: set[str] | None = None
        self._known: dict[str, BotVersion] = {}
        self.in_force = ""

    def __getitem__(self, name: str) -> BotVersion:
        return self._known.get(name, UNKNOWN)

    @property
    def bot(self) -> Bot | None:
        """The rules in force; None until a worker has sent some."""
        return self[self.in_force].bot

    def others(self) -> list[Bot]:
        """The rules of other versions that workers have."""
        known = list(self._known.items())
        others = [
            one.bot for name, one in known if name != self.in_force and self.is_accepted(name)
        ]
        return [bot for bot in others if bot is not None]

    def is_accepted(self, name: str) -> bool:
        if self._control is None or self._accepted is None:
            return self._control is None
        return not self._accepted or name in self._accepted

    def read_accepted(self) -> None:
        """Read the accepted versions. The first one ever needs no operator."""
        if self._control is None:
            return
        # MongoDB is away: the versions of before count.
        with suppress(QueueError):
            if self._accepted == set() and self.in_force:
                self._control.accept_bot(self.in_force, by="dispatcher")
            # A read right after an election may be older than the one before.
            self._accepted = (self._accepted or set()) | self._control.bots()

    def has_to_ask(self, name: str, now: float) -> bool:
        """Whether to ask a worker for the rules of this version now."""
        known = self[name]
        if known.bot is not None or known.refused or now - known.asked < ASK_AGAIN_SECONDS:
            return False
        self._known[name] = BotVersion(asked=now)
        return True

    def read(self, message: Mapping[str, Any]) -> tuple[str, BotVersion] | None:
        """Return a version with the rules that a worker was asked for; None if none was.

        Changes nothing, so no lock is held while many rules are read.
        """
        name = one_line(message["bot"], 100)
        # guard: rules-as-asked -> never
        if name not in self._known or self[name].bot is not None:
            return None
        try:
            return name, BotVersion(bot=bot_of(message["rules"], name))
        except (ValueError, KeyError, TypeError) as error:
            told = one_line(error, 200)
            log.error("rules of a worker's bot refused bot=%s error=%s", name, told)  # noqa: TRY400
            return name, BotVersion(refused=told)

    def keep(self, name: str, version: BotVersion) -> None:
        self._known[name] = version

    def choose(self, workers: Collection[WorkerSeen]) -> None:
        """Choose the version with the most threads; of several, the one started last."""
        for gone in self._known.keys() - {self.in_force, *(one.bot for one in workers)}:
            del self._known[gone]
        threads: Counter[str] = Counter()
        latest: dict[str, float] = {}
        for one in workers:
            is_fit = one.contract == CONTRACT and not one.is_leaving
            if is_fit and self[one.bot].bot is not None and self.is_accepted(one.bot):
                threads[one.bot] += one.threads
                latest[one.bot] = max(latest.get(one.bot, one.began), one.began)
        if not threads:
            return
        version = max(threads, key=lambda one: (threads[one], latest[one]))
        if version != self.in_force:
            log.info("bot version in force bot=%s before=%s", version, self.in_force or "-")
            self.in_force = version


def one_line(value: object, most: int) -> str:
    """Return a text that `status` can store and show, whatever the value was."""
    return "".join(one if one.isprintable() else "?" for one in str(value)[:most])
