"""What the dispatcher and the function that makes a job of a document say to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from recvq.documents import Document

Verdict = Literal["finished", "recorded", "applied", "parked"]
"""How one run of a job ended.

* finished: decided without a write of this run's, so only progress will remember it
* recorded: this run's record has put the event and all of `Job.unsaved` into `applied`
* applied: somebody else's record was found, with the event in `applied`
* parked: not decided; `Job.resume` will be called, and until then the key holds no thread
"""


class Job(Protocol):
    """One document in hand, as its worker sees it."""

    document: Document
    again: bool
    """Whether a predecessor may have decided it: read before the end of its reign."""
    memo: Any
    """The worker's own notes between two runs of the job; None at first."""

    def unsaved(self) -> Sequence[str]:
        """Names of the key's documents that were decided without a record since the last save."""
        ...

    def resume(self) -> None:
        """Run the job again; may be called from any thread, also before it was parked."""
        ...


class Worker(Protocol):
    """What the dispatcher is handed: it turns documents into decisions."""

    def take_over(self, epoch: int) -> None:
        """Called once, with the lease, before any document is read."""
        ...

    def decide(self, job: Job) -> Verdict:
        """Run one job on the calling thread. Raises nothing but what must stop the process."""
        ...

    def has_room(self) -> bool:
        """False while so much waits to be carried out that reading should pause."""
        ...

    def stop(self) -> None:
        """Begin nothing new; what is under way ends by itself."""
        ...


Step = Callable[[], None]
"""Work without a key, done before any new job: such as one call of the LINE API."""
