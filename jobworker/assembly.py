"""Putting a worker together from its parts: the only place that knows all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linebot.v3.messaging import MessagingApi
from pymongo.database import Database

from jobworker.bot import Bot
from jobworker.breaker import Breaker
from jobworker.calls import CallLog
from jobworker.client import GatedApiClient, LineClient
from jobworker.conversations import Conversations
from jobworker.delivery import ReplyUnknown
from jobworker.gate import Gate
from jobworker.holdback import HoldBack
from jobworker.job import Job, Verdict
from jobworker.outbox import Outbox
from jobworker.profiles import ProfileFetch
from jobworker.settling import Tools
from jobworker.timed import sent_at
from jobworker.unsend import Unsends
from jobworker.worker import Parts, Worker
from recvq.documents import CALLS, CONVERSATIONS, Document

CLOSE_SECONDS = 2.0


@dataclass(frozen=True)
class LineSettings:
    """How to reach LINE."""

    api_base: str
    token: str
    interval_seconds: float
    threads: int
    reply_unknown: ReplyUnknown = ReplyUnknown.PUSH

    def __repr__(self) -> str:
        return f"LineSettings(api_base={self.api_base!r}, token=***)"


class Desk:
    """A bot's worker with its gate, client and log of calls, and one end for all of them."""

    def __init__(
        self,
        bot: Bot,
        database: Database[Any],
        line: LineSettings,
        *,
        tries: int,
        step: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        lease_is_fresh: Callable[[], bool],
    ) -> None:
        self._calls = CallLog(database[CALLS])
        self.breaker = Breaker()
        self._client = LineClient(
            line.api_base,
            line.token,
            connections=line.threads,
            calls=self._calls,
            breaker=self.breaker,
        )
        self._holdback = HoldBack()
        self.gate = Gate(
            line.interval_seconds,
            step=step,
            later=later,
            lease_is_fresh=lease_is_fresh,
            held_seconds=self.breaker.held_seconds,
            sent_at=sent_at,
        )
        self._later = later
        conversations = Conversations(database[CONVERSATIONS])
        unsends = Unsends(database, conversations)
        self.outbox = Outbox(
            Tools(
                conversations=conversations,
                deadletters=unsends.deadletters,
                gate=self.gate,
                holdback=self._holdback,
                call=self._client.post,
                step=step,
                later=later,
                reply_unknown=line.reply_unknown,
            )
        )
        api = GatedApiClient(
            self._client.configuration, gate=self.gate, calls=self._calls, breaker=self.breaker
        )
        self._worker = Worker(
            bot,
            Parts(
                conversations=conversations,
                outbox=self.outbox,
                unsends=unsends,
                fetch=self._fetch,
                api=lambda: MessagingApi(api),
                later=later,
                lease_is_fresh=lease_is_fresh,
            ),
            tries=tries,
        )

    def take_over(self, epoch: int) -> None:
        """Called with the lease, before any document: loads the outboxes."""
        self._calls.start()
        self._worker.take_over(epoch)

    def decide(self, job: Job) -> Verdict:
        """Run one job (see `jobworker.worker.Worker.decide`)."""
        return self._worker.decide(job)

    def did_not_return(self, job: Job, stack: str) -> None:
        """A handler was abandoned (see `jobworker.worker.Worker.did_not_return`)."""
        self._worker.did_not_return(job, stack)

    def has_room(self) -> bool:
        """Whether reading may go on."""
        return self._worker.has_room()

    def stop(self) -> None:
        """Begin no more calls of LINE."""
        self.gate.close()

    def close(self) -> None:
        """Write the last rows of calls and close the connections, once the threads have ended."""
        self._calls.stop()
        self._calls.join(CLOSE_SECONDS)
        self._client.close()

    def _fetch(
        self, document: Document, user_id: str, *, done: Callable[[Document | None], None]
    ) -> ProfileFetch:
        return ProfileFetch(
            document,
            user_id,
            gate=self.gate,
            holdback=self._holdback,
            get=self._client.get,
            later=self._later,
            done=done,
        )
