"""A whole jobworker on a pool, without the feed before it: documents are put in by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from prometheus_client import CollectorRegistry

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.conversations import Conversations
from dispatcher.conversations.leader import Leader
from dispatcher.delayed_calls import DelayedCalls
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.pool import Pool
from dispatcher.pool.saver import Saver
from jobworker.assembly import BotSettings, BotWorker, LineSettings
from jobworker.bot.messages import SEND_CHECKS
from jobworker.bot.talk import Talk
from jobworker.effects import Send, SendMethod
from jobworker.handler_retry import RetryLimits
from jobworker.line.group_sizes import GroupSizes
from jobworker.line.quota import Quota
from jobworker.line.side_call import Line
from jobworker.record.conversations import FIRST_NUMBER, Outbound
from jobworker.remote.leader import Workers
from jobworker.sending.button import SlowAnswers
from jobworker.sending.conversation_outbox import LIMITS, SendLimits
from jobworker.sending.outbox import Outbox
from jobworker.sending.outboxes import Outboxes
from jobworker.sending.outcomes import Outcomes
from jobworker.sending.sender import Sender
from jobworker.sending.verdict import ReplyUnknown
from linedesk import Bot
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.store.control import Control
from linedesk.store.documents import Document, make_document
from linedesk.store.records.effects import WITH_OUTBOX, effects_of, place_of
from linesim import Sim
from tests.rows import Db
from tests.waiting import eventually

CHANNEL = "main"
SHORT_PAUSES = SendLimits(first_pause_seconds=0.01)
SHORT_RETRIES = RetryLimits(backoff=(0.01,), first_pause_seconds=0.01)
# More of the LineSettings: the button comes as soon as a handler has run for a moment.
BUTTON_SOON: Mapping[str, Any] = {
    "slow_answers": SlowAnswers.BUTTON,
    "jobworker.sending.button.BEFORE_END_SECONDS": 60.0,
    "jobworker.sending.button.AFTER_SECONDS": 0.02,
    "jobworker.sending.button.AGAIN_SECONDS": 0.02,
}


@dataclass
class Room:
    """Start it with `with`; `says` has a user write, `put` hands in any event."""

    database: Db
    sim: Sim
    bot: Bot | None
    epoch: int = 1
    threads: int = 4
    tries: int = 3
    interval_seconds: float = 0.0
    reply_unknown: ReplyUnknown = ReplyUnknown.PUSH
    lease_is_fresh: Callable[[], bool] = lambda: True
    data_base: str | None = None
    send_limits: SendLimits = SHORT_PAUSES
    retry_limits: RetryLimits = SHORT_RETRIES
    line: Mapping[str, Any] = field(default_factory=dict)
    """More of the LineSettings, and constants of modules during the room, by their full names."""
    settings: Mapping[str, Any] | None = None
    """The bot's own; None for its defaults."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    masked: Callable[[str], str] = str
    send_check: str = "on"
    most_async: int = 200
    connect: Callable[..., Any] | None = None
    """Where handlers run in worker processes: their broker."""
    stop_seconds: float = 5.0
    """How long handlers in worker processes may continue at its end."""
    confirms_bots: bool = False
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    desk: BotWorker = field(init=False)

    def __post_init__(self) -> None:
        self.clock = DelayedCalls()
        self.committer = Committer(self.database)
        self.known = Conversations()
        self.pool = Pool(
            lambda task: self.desk.decide(task),
            Mailboxes(ProgressTracker(), known=self.known),
            threads=self.threads,
            later=lambda seconds, action: self.clock.later(seconds, action),
        )
        self.pool.mailboxes.waking.wake_saver = self.committer.wake
        self._constants = ExitStack()
        for name in filter(lambda name: "." in name, self.line):
            self._constants.enter_context(patch(name, self.line[name]))
        self.desk = BotWorker(
            self.bot,
            BotSettings(
                tries=self.tries,
                retry_limits=self.retry_limits,
                settings=self._settings(),
                secrets=self.secrets,
                masked=self.masked,
                check=SEND_CHECKS[self.send_check],
                most_async=self.most_async,
            ),
            LineSettings(
                api_base=self.sim.url,
                token=self.sim.token,
                interval_seconds=self.interval_seconds,
                threads=self.threads,
                data_base=self.data_base,
                send_limits=replace(self.send_limits, reply_unknown=self.reply_unknown),
                **{name: value for name, value in self.line.items() if "." not in name},
            ),
            Leader(
                self.committer,
                step=lambda step: self.pool.step(step),
                later=lambda seconds, action: self.clock.later(seconds, action),
                lease_is_fresh=lambda: self.lease_is_fresh(),
                places=lambda jobs: self.pool.allow(jobs),
                known=self.known,
            ),
            workers=self._workers(),
            registry=self.registry,
        )

    def _settings(self) -> Mapping[str, Any]:
        if self.settings is None:
            return {} if self.bot is None else self.bot.settings
        return self.settings

    def _workers(self) -> Workers | None:
        if self.connect is None:
            return None
        control = Control(self.database) if self.confirms_bots else None
        return Workers(self.connect, stop_seconds=self.stop_seconds, control=control)

    def __enter__(self) -> Room:
        lead(self.committer, self.pool, epoch=self.epoch)
        self.committer.start()
        self.clock.start()
        self.pool.start()
        self.desk.take_over(self.epoch)
        return self

    def __exit__(self, *_: object) -> None:
        self.desk.stop()
        self.pool.stop()
        left = self.pool.threads.join(time.monotonic() + 15)
        self.clock.stop()
        self.clock.join(5)
        self.desk.finish()
        self.committer.stop()
        self.committer.join(5)
        self.desk.close()
        self._constants.close()
        assert not left

    # Events.

    def says(self, user: Any, text: str, **more: Any) -> Document:
        """The user writes; the webhook counts as delivered, so its reply token is good."""
        return self.send(self.sim.drafts.text(user, text, **more))

    def send(self, event: dict[str, Any]) -> Document:
        """LINE delivers an event made by `sim.drafts`."""
        self.sim.deliver(event)
        return self.put(event)

    def put(
        self, event: dict[str, Any], *, accepted: datetime | None = None, again: bool = False
    ) -> Document:
        document = make_document(event, channel=CHANNEL, accept_time=accepted or datetime.now(UTC))
        self.put_document(document, again=again)
        return document

    def put_document(self, document: Document, *, again: bool = False) -> None:
        self.pool.put(document, None, again=again)

    def figures(self) -> Document:
        """The rows as they would be in `status`."""
        return MetricsSnapshots(self.registry).take().figures

    # Results.

    def until_decided(self, *, seconds: float = 15.0) -> None:
        eventually(lambda: self.unfinished == 0, seconds=seconds)

    def until_quiet(self, *, seconds: float = 15.0) -> None:
        """All is decided, each outbox loaded and empty: a room of a later epoch may begin."""
        eventually(lambda: self._is_quiet, seconds=seconds)

    @property
    def _is_quiet(self) -> bool:
        outbox = self.desk.outbox
        is_done = not outbox.boxes.unloaded and self.unfinished == 0 and not len(outbox.boxes)
        return is_done and not self.effects()

    @property
    def unfinished(self) -> int:
        return self.pool.standing()[0]

    def effects(self) -> list[Document]:
        """All effects in outboxes, a conversation's in order."""
        rows = self.database.conversations.find(WITH_OUTBOX)
        return [effect for row in rows for _, effect in effects_of(row)]

    def calls_noted(self) -> list[Document]:
        """The calls of LINE stored in conversations: under way, or of unknown outcome."""
        rows = self.database.conversations.find({"call": {"$ne": None}}, {"call": 1})
        return [row["call"] for row in rows]

    def conversation(self, key: str) -> Document:
        found: Document | None = self.database.conversations.find_one({"_id": f"{CHANNEL}/{key}"})
        assert found is not None
        return found

    def letters(self) -> list[Document]:
        return list(self.database.deadletters.find())


Rooms = Callable[..., Room]


def texts(sim: Sim, chat: Any) -> list[str | None]:
    """The bot's messages in a chat."""
    return [bubble.text for bubble in sim.answers(chat)]


def a_bot(handler: Callable[[Any, Talk], object], **more: Any) -> Bot:
    """A bot with one handler for all."""
    bot = Bot(**more)
    bot.default()(handler)
    return bot


def echo(way: str = "reply", words: str | None = None) -> Bot:
    """A bot that answers each message with its text, or with these words."""

    def handler(event: Any, talk: Talk) -> None:
        text = words or talk.raw["message"]["text"]
        if way == "multicast":
            talk.multicast([str(talk.user_id)], text)
        else:
            getattr(talk, way)(text)

    return a_bot(handler)


def lead(committer: Committer, pool: Pool | None = None, *, epoch: int = 1) -> Committer:
    """Let it write under this epoch from now on; without a pool no thread commits."""
    progress = Progress(committer, feed="memory", epoch=epoch)
    progress.take_over()
    mailboxes = Mailboxes(ProgressTracker()) if pool is None else pool.mailboxes
    committer.lead(Saver(mailboxes, progress))
    return committer


def outbound(*effects: Document, epoch: int = 1) -> Outbound:
    """Effects as one record of theirs hands them over."""
    numbers = count(FIRST_NUMBER)
    return Outbound([(place_of(epoch, next(numbers)), effect) for effect in effects])


def an_outbox(line: Line, store: Any, schedule: Any = None) -> Outbox:
    """Outboxes with this store of conversations, and without batches."""
    outcomes = Outcomes(
        line,
        Outboxes(store.known, LIMITS),
        conversations=store,
        deadletters=SimpleNamespace(written=lambda *letters: None),  # type: ignore[arg-type]
        batches=None,  # type: ignore[arg-type]
        quota=(quota := Quota(line)),
        limits=LIMITS,
    )
    groups: Any = GroupSizes()
    nothing: Any = None
    sender = Sender(line, outcomes, batches=nothing, quota=quota, groups=groups, limits=LIMITS)
    return Outbox(sender, schedule)


def a_send(**fields: Any) -> Send:
    """A recorded send, fresh by default."""
    now = datetime.now(UTC)
    known: dict[str, Any] = {
        "id": "E1/0",
        "event_id": "E1",
        "way": SendMethod.PUSH,
        "to": "U" + "1" * 32,
        "messages": [{"type": "text", "text": "こんにちは"}],
        "retry_key": "8a1c3b42-9f6e-4f0a-8f2b-6a1f0f6f0001",
        "at": now,
    }
    return Send(**{**known, **fields})
