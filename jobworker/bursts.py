"""Gathers the messages that a handler gets together; `jobworker.bot.gather` decides when it runs.

Gathering writes nothing. After a crash the next process gathers the messages again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.gather import Gather, Gathering
from jobworker.bot.talk import Talk
from jobworker.runs import GATHERING, JobMemo
from jobworker.unsend import Unsends
from linedesk.contract import Job
from linedesk.store.documents import Document, name_of
from linedesk.store.redaction import message_id_of, unsent_id_of


class Bursts:
    """Gathers for jobs. `later` calls a function after some seconds."""

    def __init__(
        self,
        bot: Callable[[], Bot],
        unsends: Unsends,
        *,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._bot = bot
        self._unsends = unsends
        self._later = later

    def gather(self, job: Job, memo: JobMemo, rule: Rule, gather: Gather, talk: Talk) -> bool:
        """Return whether `memo.heard` has all the handler's messages; otherwise the job is parked.

        A repeated handler gets the same messages, without later ones. Raises StoreUnavailable.
        """
        if not memo.gathered:
            along = self._behind(job, memo, rule, gather, talk)
            if along is None:
                return False
            memo.gathered = (job.document, *along[: job.take_along(len(along))])
        memo.heard = self._heard(job, memo)
        return True

    def _behind(
        self, job: Job, memo: JobMemo, rule: Rule, gather: Gather, talk: Talk
    ) -> Sequence[Document] | None:
        """Return the messages that go with the job's own; None if it waits for more, parked."""
        if talk.user_id is None:
            return ()
        memo.gathering = memo.gathering or Gathering(
            gather, job.document, is_old=job.again, clock=time.monotonic()
        )
        following = job.following()
        found = memo.gathering.look(
            following,
            belongs=partial(self._belongs, memo, rule, talk),
            now=datetime.now(UTC),
            clock=time.monotonic(),
        )
        if found.wait_seconds > 0:
            self._park(job, memo, found.wait_seconds)
            return None
        return following.documents[: found.count]

    def _heard(self, job: Job, memo: JobMemo) -> Sequence[Document]:
        """Return the handler's messages: all except those taken back by an earlier or queued
        unsend.

        An event that is there twice, as it may be while recvq lacks its index, is passed once.
        """
        # guard: unsend-in-line -> in_line = set[str | None]()
        in_line = {unsent_id_of(one) for one in job.following().documents} - {None}
        once: dict[str, Document] = {}
        for one in memo.gathered:
            once.setdefault(name_of(one), one)
        return [
            one
            for one in once.values()
            if message_id_of(one) not in in_line and not self._unsends.ends(one)
        ]

    def disband(self, job: Job, memo: JobMemo) -> None:
        """Decide the job alone; the messages gathered with it are gathered again behind it."""
        if memo.gathered:
            job.take_along(0)
        memo.gathered, memo.heard, memo.gathering = (), (), None

    def _park(self, job: Job, memo: JobMemo, seconds: float) -> None:
        wake = memo.wake = object()

        def resume() -> None:
            # An earlier one would shorten the pause before another try of the handler.
            if memo.wake is wake:
                job.resume()

        job.because = GATHERING
        self._later(seconds, resume)

    def _belongs(self, memo: JobMemo, rule: Rule, talk: Talk, document: Document) -> bool:
        """Whether the document goes with the job's own, unless it is decided already."""
        is_decided = bool(memo.found_applied) and name_of(document) in memo.found_applied
        return not is_decided and self._bot().gathers(rule, talk, document)
