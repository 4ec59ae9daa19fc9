"""Builds a worker from its parts: the only module that imports all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from dispatcher.conversations.leader import Leader
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from jobworker.async_handlers import MOST_ASYNC, AsyncHandlers
from jobworker.bot.bot import Bot
from jobworker.bot.content import ContentDownloads
from jobworker.bot.messages import MessageCheck, refuse_wrong
from jobworker.bot.talk import TalkContext
from jobworker.handler_retry import LIMITS as RETRY_LIMITS
from jobworker.handler_retry import RetryLimits, did_not_return
from jobworker.handler_runner import HandlerRunner
from jobworker.line.breaker import BreakerState
from jobworker.line.call_log import CallLog
from jobworker.line.client import LineClient
from jobworker.line.gate import Gate
from jobworker.line.group_sizes import GroupSizes
from jobworker.line.hosts import Hosts
from jobworker.line.loading import LoadingAnimations
from jobworker.line.profiles import LaterProfiles, ProfileFetch
from jobworker.line.quota import Quota
from jobworker.line.rate_limits import RateLimits
from jobworker.line.side_call import Line
from jobworker.metrics import WorkerMetrics
from jobworker.record.batches import Batches
from jobworker.record.conversations import ConversationStore
from jobworker.record.dead_letters import Ageing, KeptLetters
from jobworker.record.schedule import Schedule
from jobworker.record.waiting_answers import AnswerAges, WaitingAnswers
from jobworker.remote.leader import OF_LEADER, Workers
from jobworker.remote.runner import RemoteRunner
from jobworker.row_log import RowWriter
from jobworker.runs import Runs
from jobworker.sdk.bound_clients import bind, release
from jobworker.sending.button import Buttons, SlowAnswers
from jobworker.sending.conversation_outbox import LIMITS, SendLimits
from jobworker.sending.outbox import Outbox
from jobworker.sending.outboxes import Outboxes
from jobworker.sending.outcomes import Outcomes
from jobworker.sending.sender import Sender
from jobworker.timer_orders import TimerOrders
from jobworker.turn import Turns
from jobworker.unsend import Unsends
from linedesk.runtime.metrics import Metrics
from linedesk.store.documents import CALLS, DEADLETTERS, JOBS, Document
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.letters import RELEASED
from linedesk.store.records.waits import Why, reason

if TYPE_CHECKING:
    from jobworker.sdk.gated_client import SdkClients

CLOSE_SECONDS = 2.0
MOST_WAITING = 20
# For operators: the state, and the reason why no send gets a turn at the gate.
BREAKER = {
    BreakerState.CLOSED: ("LINE is called", None),
    BreakerState.OPEN: ("LINE fails", Why.LINE_FAILS),
    BreakerState.UNAUTHORIZED: ("LINE refuses the token", Why.TOKEN_REFUSED),
}


@dataclass(frozen=True)
class LineSettings:
    """How to reach LINE. Without a `data_base` the API's host is also the data host."""

    api_base: str
    token: str = field(repr=False)
    interval_seconds: float
    threads: int
    concurrency: int = 1
    """The number of calls to a host that may be under way at a time."""
    data_base: str | None = None
    handler_seconds: float = 60.0
    """The time limit of handlers without a limit of their own."""
    send_limits: SendLimits = LIMITS
    loading_animation: bool = True
    """Whether a user sees the loading animation while a slow handler runs."""
    slow_answers: SlowAnswers = SlowAnswers.PUSH
    """How an answer is sent that is too late for its reply token."""


@dataclass(frozen=True)
class BotSettings:
    """How a bot's handlers are called, and what they may know."""

    tries: int
    """The total number of runs of a failing handler."""
    retry_limits: RetryLimits = RETRY_LIMITS
    letter_days: int = 90
    """How long dead letters are kept."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    masked: Callable[[str], str] = str
    """Masks every secret in a text that is stored."""
    check: MessageCheck = refuse_wrong
    """Refuses messages that LINE would refuse."""
    most_async: int = MOST_ASYNC
    """How many async handlers may run at a time."""


class LineSide:
    """All parts that call LINE, which are stopped and closed together."""

    def __init__(
        self,
        line: LineSettings,
        calls: CallLog,
        leader: Leader,
        *,
        figures: WorkerMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self.hosts = hosts = Hosts.of(
            line.api_base,
            line.data_base or line.api_base,
            interval_seconds=line.interval_seconds,
            concurrency=line.concurrency,
            # The handler still has most of its time when its turn comes.
            handler_turn_seconds=line.handler_seconds / 3,
            step=leader.step,
            later=leader.later,
            lease_is_fresh=leader.lease_is_fresh,
            figures=figures,
        )
        self.rate_limits = RateLimits(at_once=line.concurrency)
        self.client = LineClient(
            hosts.api,
            line.token,
            connections=line.threads,
            calls=calls,
            rate_limits=self.rate_limits,
        )
        calls.groups = self.groups = GroupSizes(self.client.get, now=now)
        self.line = Line(
            hosts.api.gate,
            self.client,
            self.rate_limits,
            leader.step,
            leader.later,
            figures=figures,
            now=now,
        )
        self._settings = line
        self._calls = calls
        self._stopping = threading.Event()
        self.quota = Quota(self.line)
        self.contents = ContentDownloads(
            hosts.data, line.token, calls=calls, stopping=self._stopping
        )

    @cached_property
    def sdk(self) -> SdkClients:
        """The SDK's clients, imported when a bot first needs them
        (`jobworker.sdk.bound_clients`).
        """
        from jobworker.sdk.gated_client import DATA_CALL_SECONDS, GatedApiClient, SdkClients

        client = partial(
            GatedApiClient,
            token=self._settings.token,
            calls=self._calls,
            connections=self._settings.threads,
            rate_limits=self.rate_limits,
        )
        data = client(self.hosts.data, limit_seconds=DATA_CALL_SECONDS)
        return SdkClients(client(self.hosts.api), data)

    def sdk_clients(self) -> SdkClients:
        """The SDK's clients as a callable."""
        return self.sdk

    def messaging_api(self) -> Any:
        """The SDK's MessagingApi of the API's host."""
        from linebot.v3.messaging import MessagingApi

        return MessagingApi(self.sdk.api)

    def members(self, key: str) -> int | None:
        """Return how many people are in a chat; a handler waits for LINE if it is due."""
        if self.groups.is_due(key):
            with self.hosts.api.gate.turn():
                self.groups.ask(key, key=key)
        return self.groups.people(key)

    def stop(self) -> None:
        """Begin no more calls, and end a download under way."""
        self._stopping.set()
        self.hosts.close()

    def close(self) -> None:
        """Close the connections."""
        self.contents.close()
        release(self.sdk_clients)
        if "sdk" in vars(self):
            self.sdk.api.close()
            self.sdk.data.close()
        self.client.close()


class BotWorker:
    """A bot's worker with the parts that call LINE and the log of calls, closed together.

    With `workers` the handlers run in worker processes; the leader gets their number of jobs.
    """

    def __init__(
        self,
        bot: Bot | None,
        handling: BotSettings,
        line: LineSettings,
        leader: Leader,
        *,
        workers: Workers | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        timer_set: Callable[[datetime | None], None] = lambda due_at: None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        figures, committer = WorkerMetrics(registry), leader.committer
        database = committer.database
        calls, runs = CallLog(database[CALLS], figures), Runs(database[JOBS], figures)
        conversations = ConversationStore(committer, leader.known)
        answers = WaitingAnswers(committer, conversations)
        unsends = Unsends(committer, leader.known, figures=figures)
        self.answer_ages = AnswerAges(answers, unsends.deadletters)
        looks = (
            KeptLetters(database[DEADLETTERS], figures),
            Ageing(database, days=handling.letter_days),
            self.answer_ages,
        )
        self.rows = RowWriter(calls, runs.rows, looks=[one.look for one in looks])
        self.line = side = LineSide(line, calls, leader, figures=figures, now=now)
        schedule = Schedule(database, timer_set)
        limits = line.send_limits
        batches = Batches(committer)
        self.outcomes = Outcomes(
            side.line,
            Outboxes(leader.known, limits),
            conversations=conversations,
            deadletters=unsends.deadletters,
            batches=batches,
            quota=side.quota,
            limits=limits,
        )
        self.sender = Sender(
            side.line,
            self.outcomes,
            batches=batches,
            quota=side.quota,
            groups=side.groups,
            limits=limits,
        )
        self.outbox = Outbox(self.sender, schedule)
        side.quota.when_closed = self.outcomes.month_closed
        figures.set("outbox_effects", self.outbox.boxes.__len__)
        figures.set("oldest_send_seconds", self.outbox.boxes.oldest_seconds)
        self.names = LaterProfiles(side.line, conversations=conversations)
        animations = LoadingAnimations(
            side.line, load=conversations.load, is_on=line.loading_animation
        )
        self._leader, self._workers = leader, workers
        self._async = (
            None if bot is None or not bot.is_async else AsyncHandlers(handling.most_async)
        )
        runner = HandlerRunner(bot, self._async)
        if workers is not None:
            Metrics(OF_LEADER, registry).ask(workers.figures)
            runner = RemoteRunner(
                workers, handler_seconds=line.handler_seconds, now=now, masked=handling.masked
            )
        self._turns = Turns(
            runner=runner,
            tries=handling.tries,
            limits=handling.retry_limits,
            handler_seconds=line.handler_seconds,
            conversations=conversations,
            outbox=self.outbox,
            unsends=unsends,
            schedule=schedule,
            fetch=partial(ProfileFetch, side.line),
            names=self.names,
            around=partial(
                TalkContext,
                api=side.messaging_api,
                content=side.contents.fetch,
                quota=lambda: side.quota.month,
                # A job must not wait for a number that its handler may not want.
                members=side.members if workers is None else side.groups.people,
                now=now,
                settings=handling.settings,
                secrets=handling.secrets,
                check=handling.check,
            ),
            animate=animations.begin,
            offer_button=Buttons(side.line, answers, line.slow_answers).begin,
            lease_is_fresh=leader.lease_is_fresh,
            runs=runs,
            masked=handling.masked,
        )
        figures.set("async_handlers", self._turns.awaited.__len__)
        self.timer_orders = TimerOrders(self._turns, now)

    @property
    def gate(self) -> Gate:
        """The gate of the API's host."""
        return self.line.hosts.api.gate

    def take_over(self, epoch: int) -> None:
        """Called with the lease, before any document."""
        bind(self.line.sdk_clients)
        self._turns.take_over(epoch)
        self.rows.start()
        if self._async is not None:
            self._async.start()
        if self._workers is not None:
            self._workers.begin(epoch, self._leader.places)
        self.line.quota.start()

    def decide(self, job: Job) -> JobResult | Wait:
        """Run one job (see `jobworker.turn.Turns.decide`)."""
        return self._turns.decide(job)

    def did_not_return(self, job: Job, stack: str) -> Wait:
        """A handler was abandoned (see `jobworker.turn.Turns.did_not_return`)."""
        return self._turns.did_not_return(job, did_not_return(stack, has_sent=job.memo.has_sent))

    def watch_async(self, limit_seconds: float) -> bool:
        """Abandon the handlers outside the pool that exceed their limit, by default this one; False
        if so many hang that the process has to be restarted.
        """
        # First this: those that are cancelled now have not ended yet.
        has_places = self._async is None or self._async.has_places_left
        if self._async is None or not self._async.is_blocked(limit_seconds):
            now = time.monotonic()
            for one in list(self._turns.awaited):
                one.abandon_if_overdue(limit_seconds, now)
        return has_places

    def await_handlers(self, deadline: float, is_at_work: Callable[[], bool]) -> list[str]:
        """Wait until runs have taken the results of all handlers outside the pool, and no run that
        is at work may begin one, or until the monotonic deadline; returns the rest. Those in line
        do not begin any more.
        """
        awaited, pause = self._turns.awaited, threading.Event()
        for one in list(awaited):
            if not one.is_begun and one.handling.abandon():
                awaited.discard(one)
        # In this order: a run notes what it has begun before it ends.
        while (is_at_work() or awaited) and time.monotonic() < deadline:
            pause.wait(0.02)
        return [f"thread={one.call.thread} event_id={one.talk.event_id}" for one in list(awaited)]

    def has_room(self) -> bool:
        """Whether reading may continue."""
        return self.outbox.boxes.has_room

    def status(self) -> str:
        """The sends that wait for LINE, as a text for operators."""
        words = f"{len(self.outbox.boxes)} to send, {BREAKER[self.gate.breaker.state][0]}"
        return words if self._workers is None else f"{words} · {self._workers.status()}"

    def workers(self) -> list[Document]:
        """The worker processes, for operators; empty where the bot runs in this process."""
        return [] if self._workers is None else self._workers.rows()

    def broker(self) -> str | None:
        """The code of the trouble with RabbitMQ; None where the bot runs in this process."""
        return None if self._workers is None else self._workers.broker.trouble()

    def broker_why(self) -> str:
        """The reason of that trouble: an error, or RabbitMQ's words."""
        return "" if self._workers is None else self._workers.broker.why()

    def waiting(self) -> list[Document]:
        """The sends that wait longest, as `{channel, key, eventId, effectId, since, why}`."""
        away = BREAKER[self.gate.breaker.state][1]
        at_gate = {one: self.gate.waiting_in(one) for one in TurnClass}

        def why(own: TurnClass) -> Document:
            """A better class comes first, except for a share of the turns."""
            behind = sum(at_gate[one] for one in TurnClass if one < own)
            return reason(away) if away else reason(Why.GATE, behind=behind)

        return self.outbox.boxes.waiting(MOST_WAITING, at_gate=why)

    def give_up_send(self, channel: str, key: str, effect_id: str) -> bool:
        """See `jobworker.sending.outcomes.Outcomes.give_up`."""
        return self.outcomes.give_up(f"{channel}/{key}", effect_id, cause=RELEASED)

    def stop(self) -> None:
        """Begin no more calls of LINE, and end a download under way."""
        self.line.stop()
        if self._workers is not None:
            self._workers.drain()

    def finish(self) -> None:
        """Write which calls were not made."""
        self.sender.finish()

    def close(self) -> None:
        """Write the last rows and close the connections, after the threads have ended."""
        if self._workers is not None:
            self._workers.close()
        self.rows.stop()
        self.rows.join(CLOSE_SECONDS)
        if self._async is not None:
            self._async.close()
        self.line.close()
