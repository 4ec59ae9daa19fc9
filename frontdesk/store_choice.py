"""Decides where the documents of each request are stored: in recvq, else in the spool. Pure.

It keeps the waiting requests and the state of both stores. It calls no store, starts no thread and
reads no clock. Its owner makes the calls and reports here how each call ended.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from bson.raw_bson import RawBSONDocument

from frontdesk.errors import NotStored
from linedesk.store.spool.spool_file import Key, keys_of

Documents = Sequence[RawBSONDocument]

# A time-out counts against a store only if the store had at least this long.
FAIR_SECONDS = 0.5
# The spool gets this long in addition to recvq's time: both end before LINE gives up.
SPOOL_SECONDS = 0.8
SHORTEST_INSERT_SECONDS = 0.05
# After an insert of this few requests the next one does not wait: the gain is too small.
SMALL_GROUP = 4
# This share of the answered clients is waited for: the slowest ones would delay all others.
GATHERED_SHARE = 0.9
# How much may wait for the next insert of a store; requests beyond are refused at once.
MOST_DOCUMENTS = 10_000
MOST_BYTES = 32 * 1024 * 1024
STOPPING = "stopping"


class StoreState(Enum):
    """How a store treats an arriving request."""

    OPEN = "open"
    """It accepts the request."""
    PROBING = "probing"
    """It is away and accepts none until a probe, or the insert under way, succeeds."""
    STOPPING = "stopping"
    """It accepts none, and ends once all accepted requests are answered."""


class PendingRequest:
    """The documents of one webhook, and their result.

    `answer` becomes the number of duplicates among the documents, or the reason why they are not
    known to be stored; it stays None if the client has left. `ended` is set in all these cases.
    `deadline` is monotonic; it moves when the request goes to the spool. `timer` is its owner's.
    """

    def __init__(self, documents: Documents, deadline: float) -> None:
        self.documents = documents
        self.deadline = deadline
        self.size = sum(len(document.raw) for document in documents)
        self.answer: int | NotStored | None = None
        self.ended = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None
        self.store: StoreQueue | None = None
        self.fair = False
        self._keys: frozenset[Key] | None = None

    @property
    def is_done(self) -> bool:
        return self.ended.is_set()

    @property
    def keys(self) -> frozenset[Key]:
        if self._keys is None:
            self._keys = keys_of(self.documents)
        return self._keys


@dataclass(frozen=True)
class Insert:
    """A call that stores all documents within the given seconds."""

    documents: Documents
    seconds: float


class Probe:
    """A call that returns once the store could store."""


PROBE = Probe()


class StoreQueue:
    """One store: its state, the requests for its next insert, and the insert under way.

    `reason` says why it accepts no requests; it is None while the store is OPEN. `failures` counts
    consecutive failed calls.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = StoreState.PROBING
        self.reason: NotStored | None = NotStored("not connected yet")
        self.failures = 0
        self.is_called = False
        self.group: list[PendingRequest] = []
        # The group was handed over to the spool, so only a success of this insert still matters.
        self.is_handed_over = False
        self.waiting: list[PendingRequest] = []
        # How many requests the next insert should contain; the insert waits briefly for them.
        self.awaited = 0
        self._documents = self._bytes = 0

    @property
    def is_open(self) -> bool:
        return self.state is StoreState.OPEN

    @property
    def is_away(self) -> bool:
        """Whether only a successful call opens it again."""
        return self.state is StoreState.PROBING

    @property
    def is_probed(self) -> bool:
        return self.is_called and not self.group

    @property
    def has_work(self) -> bool:
        """Whether its thread is idle, has work, and awaits no more requests."""
        return not self.is_called and (self.is_away or (bool(self.waiting) and self.has_gathered))

    @property
    def has_gathered(self) -> bool:
        """Whether all awaited requests have arrived; a stop awaits none."""
        return len(self.waiting) >= self.awaited or not self.is_open

    @property
    def has_ended(self) -> bool:
        return self.state is StoreState.STOPPING and not self.is_called and not self.waiting

    def has_room(self, request: PendingRequest) -> bool:
        """Whether this request may wait, too; one larger than the bound only by itself."""
        documents = self._documents + len(request.documents)
        size = self._bytes + request.size
        return (documents <= MOST_DOCUMENTS and size <= MOST_BYTES) or not self.waiting

    def put(self, request: PendingRequest, now: float) -> None:
        """Queue the request for the next insert, until its deadline."""
        request.store = self
        request.fair = request.deadline - now >= FAIR_SECONDS
        self._documents += len(request.documents)
        self._bytes += request.size
        self.waiting.append(request)

    def put_back(self, requests: list[PendingRequest]) -> None:
        """Queue these again, ahead of all others."""
        self._documents += sum(len(request.documents) for request in requests)
        self._bytes += sum(request.size for request in requests)
        self.waiting[:0] = requests

    def take_waiting(self) -> list[PendingRequest]:
        """Return all waiting requests that are not done, and clear the queue."""
        waiting, self.waiting = self.waiting, []
        self._documents = self._bytes = 0
        return undone(waiting)

    def take_group(self) -> list[PendingRequest]:
        """Return the requests of the insert under way that are not done or handed over."""
        group = [] if self.is_handed_over else undone(self.group)
        self.is_handed_over = True
        return group

    def begin(self, group: list[PendingRequest]) -> None:
        """Note that a call with these requests is under way."""
        self.is_called, self.group, self.is_handed_over = True, group, False

    def end(self) -> list[PendingRequest]:
        """Note the end of the call; returns all its requests."""
        group, self.group, self.is_called = self.group, [], False
        return group


class Stores:
    """Two stores and one order: recvq first, the spool if recvq does not confirm in time.

    While any document of a key is in the spool or on its way there, later documents of that key go
    behind it.

    After a large insert, recvq has work again only once most of the answered clients have sent
    their next requests. The owner decides how long to wait for that before it calls `begin`.
    Each store is in one state. An empty cell cannot be, or changes nothing:

    | event | OPEN | PROBING | STOPPING |
    | --- | --- | --- | --- |
    | arrive at recvq | waits; refused above the bounds | to the spool | to the spool |
    | arrive at the spool | waits; refused above the bounds | refused | refused |
    | begin | insert of all that waits | probe | insert of what waits |
    | probed | | OPEN | |
    | inserted | group answered | group answered; OPEN | group answered |
    | failed | PROBING; gives up | PROBING; gives up | gives up, also what waits |
    | keys_spooled | keys to the spool, rest waits in front | nothing is left to spool | as OPEN |
    | expired | gives up; after fair time also PROBING | gives up | gives up |
    | left | is inserted no more, if it waits | the same | the same |
    | stop | STOPPING | STOPPING; gives up, unless an insert is under way | |
    | abandon | STOPPING; gives up all | the same | the same |

    To give up means for recvq: all waiting requests and those under way go to the spool, in their
    order. For the spool: the request that expired, or the group of the failed insert, is refused.
    Before each insert, recvq passes requests with a key on its way to the spool on to the spool.

    The owner calls one method at a time, then wakes the thread of each store that `has_work`. At
    most one call of each store is under way.
    """

    def __init__(self) -> None:
        self.recvq, self.spool = StoreQueue("MongoDB"), StoreQueue("the spool")
        self.spooled = 0
        """How many documents the spool has confirmed."""
        self._on_their_way: Counter[Key] = Counter()

    @property
    def unavailable(self) -> str | None:
        """Why neither store accepts requests; None when one does."""
        reasons = [store.reason for store in (self.recvq, self.spool)]
        return "; ".join(map(str, reasons)) if all(reasons) else None

    # --- requests

    def arrive(self, request: PendingRequest, now: float) -> None:
        if not self.recvq.is_open:
            self._to_spool([request], now, reason=str(self.recvq.reason), is_admitted=False)
        elif self.recvq.has_room(request):
            self.recvq.put(request, now)
        else:
            self._refuse(request, "too much is waiting to be stored")

    def expired(self, request: PendingRequest, now: float) -> None:
        """Handle a passed deadline; ignored if the request is done or its deadline has moved."""
        if request.is_done or now < request.deadline:
            return
        store = request.store
        assert store is not None
        error = NotStored(f"{store.name} did not confirm in time")
        if request.fair:
            self._is_away(store, error)
        if store is self.recvq:
            self._hand_over(error, now)
        else:
            self._refuse(request, str(error))

    def left(self, request: PendingRequest) -> None:
        """Handle a client that has left and needs no answer."""
        if not request.is_done:
            self._finish(request)

    # --- calls of a store

    def begin(self, store: StoreQueue, now: float) -> Insert | Probe | None:
        """Return the next call for the store's thread; None if there is none yet."""
        # guard: awaited-once
        store.awaited = 0
        # guard: only-a-probe-tells -> if store.is_away and not store.is_handed_over:
        if store.is_away:
            store.begin([])
            return PROBE
        group = store.take_waiting()
        # guard: on-its-way-to-the-spool
        if store is self.recvq and self._on_their_way:
            group = self._behind(group, self._on_their_way.keys(), now)
        if not group:
            return None
        store.begin(group)
        documents = [document for request in group for document in request.documents]
        left = max(request.deadline for request in group) - now
        return Insert(documents, max(left, SHORTEST_INSERT_SECONDS))

    def probed(self, store: StoreQueue) -> None:
        store.end()
        self._is_back(store)

    def failed(self, store: StoreQueue, error: NotStored, now: float) -> None:
        """Handle a call that failed; the documents of an insert may be stored nevertheless."""
        store.failures += 1
        self._is_away(store, error)
        if store is self.recvq:
            self._hand_over(error, now)
            store.end()
            return
        self._refuse_all(store.end(), str(error))
        if store.state is StoreState.STOPPING:
            self._refuse_all(store.take_waiting(), str(error))

    def inserted(self, store: StoreQueue, duplicates: Collection[int]) -> None:
        """Handle an insert that stored all; `duplicates` are the places of documents stored before.

        The insert may be too late for some of its requests. Its success is the best probe.
        """
        places = sorted(duplicates)
        group = store.end()
        self._is_back(store)
        if store is self.recvq and len(group) > SMALL_GROUP:
            # The clients that are answered now send their next requests soon.
            store.awaited = int(GATHERED_SHARE * (len(group) + len(store.waiting)))
        if store is self.spool:
            self.spooled += sum(len(request.documents) for request in group)
        end = counted = 0
        for request in group:
            end += len(request.documents)
            count = bisect_left(places, end) - counted
            counted += count
            self._answer(request, count)

    def keys_spooled(self, keys: Iterable[Key], now: float) -> None:
        """Handle recvq's insert that stored no document because the spool holds some of these keys.

        After a time-out the group is empty and the store is PROBING. Only a probe shows that the
        outage is over.
        """
        group = self.recvq.take_group()
        self.recvq.end()
        self.recvq.put_back(self._behind(group, keys, now))

    # --- the end

    def stop(self, store: StoreQueue, now: float) -> None:
        """Let a store finish its accepted requests, and stop it."""
        was_away = store.is_away
        self._stopped(store)
        if was_away and (store.is_probed or not store.is_called):
            self._give_up(store, now)

    def abandon(self, store: StoreQueue, now: float) -> None:
        """Give up a store whose thread makes no more calls."""
        self._stopped(store)
        self._give_up(store, now)
        store.end()

    def _stopped(self, store: StoreQueue) -> None:
        store.state, store.reason = StoreState.STOPPING, NotStored(STOPPING)

    def _give_up(self, store: StoreQueue, now: float) -> None:
        if store is self.recvq:
            self._hand_over(NotStored(STOPPING), now)
        else:
            self._refuse_all(store.take_group() + store.take_waiting(), STOPPING)

    # --- handing over to the spool

    def _behind(
        self, group: list[PendingRequest], keys: Iterable[Key], now: float
    ) -> list[PendingRequest]:
        """Spool the requests with one of these keys, and those that share a key with them, even
        ahead of them: a request goes to the spool as a whole. Returns the others.
        """
        behind, found = set(keys), True
        going: set[PendingRequest] = set()
        while found:
            found = False
            for request in group:
                if request not in going and not behind.isdisjoint(request.keys):
                    behind |= request.keys
                    going.add(request)
                    # guard: in-front-too
                    found = True
        # Requests that recvq had admitted compete for room like new ones: recvq keeps accepting
        # meanwhile.
        self._to_spool([r for r in group if r in going], now, reason="", is_admitted=False)
        return [request for request in group if request not in going]

    def _hand_over(self, error: NotStored, now: float) -> None:
        """Spool all that recvq has not confirmed, in order: later requests must not overtake it."""
        # guard: all-in-its-order -> requests = self.recvq.take_waiting() + self.recvq.take_group()
        requests = self.recvq.take_group() + self.recvq.take_waiting()
        self._to_spool(requests, now, reason=str(error), is_admitted=True)

    def _to_spool(
        self, requests: Iterable[PendingRequest], now: float, *, reason: str, is_admitted: bool
    ) -> None:
        """Make the only decision about the spool: these requests wait for it, or are refused.

        Requests that recvq `is_admitted` to are bounded already, and new ones must not overtake
        them.
        """
        spool = self.spool
        for request in requests:
            if not spool.is_open:
                self._refuse(request, "; ".join(filter(None, (reason, str(spool.reason)))))
            elif not is_admitted and not spool.has_room(request):
                self._refuse(request, "too much is waiting to be stored")
            else:
                request.deadline += SPOOL_SECONDS
                self._on_their_way.update(request.keys)
                spool.put(request, now)

    # --- states and answers

    def _is_away(self, store: StoreQueue, error: NotStored) -> None:
        if store.state is not StoreState.STOPPING:
            store.state, store.reason = StoreState.PROBING, error

    def _is_back(self, store: StoreQueue) -> None:
        store.failures = 0
        if store.state is not StoreState.STOPPING:
            store.state, store.reason = StoreState.OPEN, None

    def _answer(self, request: PendingRequest, answer: int | NotStored) -> None:
        if not request.is_done:
            request.answer = answer
            self._finish(request)

    def _refuse(self, request: PendingRequest, reason: str) -> None:
        self._answer(request, NotStored(reason))

    def _refuse_all(self, requests: Iterable[PendingRequest], reason: str) -> None:
        for request in requests:
            self._refuse(request, reason)

    def _finish(self, request: PendingRequest) -> None:
        request.ended.set()
        if request.store is self.spool:
            keys = request.keys
            self._on_their_way.subtract(keys)
            for key in keys:
                if not self._on_their_way[key]:
                    del self._on_their_way[key]


def undone(requests: Iterable[PendingRequest]) -> list[PendingRequest]:
    return [request for request in requests if not request.is_done]
