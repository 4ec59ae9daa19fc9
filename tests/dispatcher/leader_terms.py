"""One epoch of a dispatcher without its feed, whose groups a test commits; killable."""

import threading
import time
from collections.abc import Callable

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress, Start
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.pool import Pool
from dispatcher.pool.saver import Saver
from linedesk.store.control import NO_PAUSES, Pauses
from linedesk.store.documents import HELD, Document
from tests.dispatcher.fakes import WAITS
from tests.rows import Db
from tests.waiting import eventually


class Gates:
    """A `decide` that parks the documents of chosen keys until they are released."""

    def __init__(self, *users: str) -> None:
        self._lock = threading.Lock()
        self.closed = set(users)
        self.deferred: list[Job] = []

    def __call__(self, job: Job) -> JobResult | Wait:
        with self._lock:
            if job.document["key"] not in self.closed:
                return JobResult.RECORDED
            self.deferred.append(job)
            return WAITS

    def release(self) -> None:
        with self._lock:
            self.closed.clear()
            deferred, self.deferred = self.deferred, []
        for job in deferred:
            job.resume()


class Blind(Saver):
    """Finds no documents to move by itself: a test says when."""

    def _look(self) -> None: ...


class Process:
    """Pool, progress and committer of one epoch, without the committer's thread; tokens are places
    in a list of documents.
    """

    def __init__(
        self,
        database: Db,
        decide: Callable[[Job], JobResult],
        *,
        epoch: int = 1,
        threads: int = 4,
        bound: int = 10_000,
        after_seconds: float = 1e-9,
        paused_after_seconds: float = 0.0,
        pauses: Pauses = NO_PAUSES,
        now: Callable[[], float] = time.monotonic,
        committer: Committer | None = None,
    ) -> None:
        self._database = database
        self.committer = committer or Committer(database)
        self.progress = Progress(self.committer, feed="memory", epoch=epoch)
        start = self.progress.take_over()
        self.tracker = start.tracker
        self.laters: list[Callable[[], None]] = []
        mailboxes = Mailboxes(start.tracker, bound=bound)
        self.pool = Pool(
            decide,
            mailboxes,
            threads=threads,
            later=lambda seconds, function: self.laters.append(function),
            held=self.progress.held,
        )
        for key in self.progress.held.all_keys():
            mailboxes.put_held(key)
        self.pool.obey(pauses)
        self.saver = Blind(mailboxes, self.progress, now=now)
        self.saver.policy.after_seconds = after_seconds
        self.saver.policy.paused_after_seconds = paused_after_seconds
        self.committer.lead(self.saver)
        self.pool.start()

    def put(self, *documents: Document, first: int = 0, again: bool = False) -> None:
        for number, one in enumerate(documents, first + 1):
            self.pool.put(one, number, again=again)

    def save(self) -> bool:
        """Commit a group now."""
        return self.committer.commit_waiting()

    def hold(self) -> bool:
        """Look now, and save."""
        self.saver.plan_moves()
        return self.save()

    def hold_until(self, count: int) -> None:
        """Until this many documents are in `held`."""
        rows = self._database[HELD]

        def are_held() -> bool:
            assert self.hold()
            return bool(rows.count_documents({}) >= count)

        eventually(are_held)

    def kill(self) -> None:
        """Nothing more of it reaches MongoDB."""
        self.pool.stop()


def took_over(database: Db, *, epoch: int = 1, feed: str = "memory") -> tuple[Progress, Start]:
    """The progress of a process that took over and has no pool, and what it found."""
    committer = Committer(database)
    progress = Progress(committer, feed=feed, epoch=epoch)
    start = progress.take_over()
    committer.lead(Saver(Mailboxes(start.tracker), progress))
    return progress, start


def pool_at_rest(tracker: ProgressTracker) -> Pool:
    """A pool whose threads never start."""
    return Pool(lambda job: JobResult.DONE, Mailboxes(tracker), threads=2, later=lambda *_: None)
