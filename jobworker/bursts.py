"""Gathers the messages that a handler gets together; `jobworker.bot.gather` says when it has them.

Nothing is written while messages are gathered. In a process that dies they are gathered anew by
the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.gather import Gathering
from jobworker.bot.talk import Talk
from jobworker.runs import GATHERING, JobMemo
from jobworker.unsend import Unsends
from linedesk.contract import Job
from linedesk.store.documents import Document, name_of
from linedesk.store.redaction import message_id_of, unsent_id_of


class Bursts:
    """What a job does to gather. `later` calls a function when some seconds are over."""

    def __init__(
        self, bot: Bot, unsends: Unsends, *, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._bot = bot
        self._unsends = unsends
        self._later = later

    def gather(self, job: Job, memo: JobMemo, rule: Rule, talk: Talk) -> Sequence[Document] | None:
        """The messages that go along with the job's own; None if it waits for more, parked.

        A handler that is tried again gets the same ones: what came since then is not among them.
        """
        if memo.gathered:
            return memo.gathered[1:]
        if rule.gather is None or talk.user_id is None:
            return ()
        memo.gathering = memo.gathering or Gathering(
            rule.gather, job.document, is_old=job.again, clock=time.monotonic()
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

    def take(self, job: Job, memo: JobMemo, documents: Sequence[Document]) -> Sequence[Document]:
        """Have these be decided with the job; returns what the handler gets of all of them.

        A message is left out if its sender has taken it back, or an unsend of it stands in line.
        Raises StoreUnavailable.
        """
        if not memo.gathered:
            memo.gathered = (job.document, *documents[: job.take_along(len(documents))])
        # guard: unsend-in-line -> in_line = set[str | None]()
        in_line = {unsent_id_of(one) for one in job.following().documents} - {None}
        memo.heard = [
            one
            for one in memo.gathered
            if message_id_of(one) not in in_line and not self._unsends.ends(one)
        ]
        return memo.heard

    def disband(self, job: Job, memo: JobMemo) -> None:
        """The job is decided alone; those gathered with it are gathered anew behind it."""
        if memo.gathered:
            job.take_along(0)
        memo.gathered, memo.heard, memo.gathering = (), (), None

    def _park(self, job: Job, memo: JobMemo, seconds: float) -> None:
        wake = memo.wake = object()

        def resume() -> None:
            # An earlier one would cut the pause before another try of the handler.
            if memo.wake is wake:
                job.resume()

        job.because = GATHERING
        self._later(seconds, resume)

    def _belongs(self, memo: JobMemo, rule: Rule, talk: Talk, document: Document) -> bool:
        """Whether the document goes along with the job's own, as far as it is not decided yet."""
        is_decided = bool(memo.found_applied) and name_of(document) in memo.found_applied
        return not is_decided and self._bot.gathers(rule, talk, document)
