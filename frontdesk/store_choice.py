"""Where the documents of each request are stored: in recvq, else in the spool. Pure.

It keeps what waits for either store, and the state of both. It calls no store, starts no thread
and reads no clock: its owner does, and reports here how each call ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from bson.raw_bson import RawBSONDocument

from frontdesk.errors import NotStored
from linedesk.store.spool.spool_file import Key, keys_of

Documents = Sequence[RawBSONDocument]

# A time-out says something about a store only if the store had at least this long.
FAIR_SECONDS = 0.5
# The spool gets this long on top of what recvq was given: both have to end before LINE gives up.
SPOOL_SECONDS = 0.8
SHORTEST_INSERT_SECONDS = 0.05
# After an insert of so few requests the next one does not wait: there is little to share.
SMALL_GROUP = 4
# So much of what was under way is waited for: the slowest clients would hold up all others.
GATHERED_SHARE = 0.9
STOPPING = "stopping"


class StoreState(Enum):
    """What a store does with a request that arrives."""

    OPEN = "open"
    """It takes the request."""
    PROBING = "probing"
    """It is away and takes none until a probe, or the insert under way, succeeds."""
    STOPPING = "stopping"
    """It takes none, and ends once all that it has taken is answered."""


@dataclass(frozen=True)
class Bounds:
    """How much may wait for the next insert; what comes beyond is refused at once."""

    documents: int = 10_000
    bytes: int = 32 * 1024 * 1024


class PendingRequest:
    """The documents of one webhook, and what became of them.

    `answer` becomes the number of duplicates among the documents, or the reason why they are not
    known to be stored. `deadline` is monotonic; it moves when the request goes to the spool.
    """

    __slots__ = ("_keys", "answer", "deadline", "documents", "fair", "is_done", "size", "store")

    def __init__(self, documents: Documents, deadline: float) -> None:
        self.documents = documents
        self.deadline = deadline
        self.size = sum(len(document.raw) for document in documents)
        self.answer: int | NotStored | None = None
        self.is_done = False
        self.store: StoreQueue | None = None
        self.fair = False
        self._keys: frozenset[Key] | None = None

    @property
    def keys(self) -> frozenset[Key]:
        """The keys of its documents."""
        if self._keys is None:
            self._keys = keys_of(self.documents)
        return self._keys


@dataclass(frozen=True)
class Insert:
    """A call that stores all documents within so many seconds."""

    documents: Documents
    seconds: float


class Probe:
    """A call that returns once the store could store."""


PROBE = Probe()


class StoreQueue:
    """One store: its state, what waits for its next insert, and the insert under way.

    `reason` says why it takes nothing, and is None while it is OPEN. `failures` counts the calls
    in a row that failed.
    """

    def __init__(self, name: str, bounds: Bounds) -> None:
        self.name = name
        self.state = StoreState.PROBING
        self.reason: NotStored | None = NotStored("not connected yet")
        self.failures = 0
        self.is_called = False
        self.group: list[PendingRequest] = []
        # Of a group that went to the spool meanwhile, only a success is of interest any more.
        self.is_handed_over = False
        self.waiting: list[PendingRequest] = []
        # How many requests the next insert had better take; for a moment it waits for them.
        self.awaited = 0
        self._bounds = bounds
        self._documents = self._bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self.state is StoreState.OPEN

    @property
    def is_away(self) -> bool:
        """Whether only a call that succeeds opens it again."""
        return self.state is StoreState.PROBING

    @property
    def is_probed(self) -> bool:
        """Whether a probe is under way."""
        return self.is_called and not self.group

    @property
    def has_work(self) -> bool:
        """Whether its thread is idle and has something to do, and no more requests are awaited."""
        return not self.is_called and (self.is_away or (bool(self.waiting) and self.has_gathered))

    @property
    def has_gathered(self) -> bool:
        """Whether all that is awaited is there; at a stop nothing is."""
        return len(self.waiting) >= self.awaited or not self.is_open

    @property
    def has_ended(self) -> bool:
        """Whether nothing is to be done any more."""
        return self.state is StoreState.STOPPING and not self.is_called and not self.waiting

    def has_room(self, request: PendingRequest) -> bool:
        """Whether this one may wait, too. A request that is larger than the bound by itself gets
        its turn when nothing else waits.
        """
        documents = self._documents + len(request.documents)
        size = self._bytes + request.size
        within = documents <= self._bounds.documents and size <= self._bounds.bytes
        return within or not self.waiting

    def put(self, request: PendingRequest, now: float) -> None:
        """Let it wait for the next insert, until its deadline."""
        request.store = self
        request.fair = request.deadline - now >= FAIR_SECONDS
        self._documents += len(request.documents)
        self._bytes += request.size
        self.waiting.append(request)

    def put_back(self, requests: list[PendingRequest]) -> None:
        """Let these wait again, in front of all others."""
        self._documents += sum(len(request.documents) for request in requests)
        self._bytes += sum(request.size for request in requests)
        self.waiting[:0] = requests

    def take_waiting(self) -> list[PendingRequest]:
        """All that waits and is not done; nothing waits any more."""
        waiting, self.waiting = self.waiting, []
        self._documents = self._bytes = 0
        return undone(waiting)

    def take_group(self) -> list[PendingRequest]:
        """What is in the insert under way, is not done, and was not handed over before."""
        group = [] if self.is_handed_over else undone(self.group)
        self.is_handed_over = True
        return group

    def begin(self, group: list[PendingRequest]) -> None:
        """A call is under way with these."""
        self.is_called, self.group, self.is_handed_over = True, group, False

    def end(self) -> list[PendingRequest]:
        """The call is over; returns all that it was begun with."""
        group, self.group, self.is_called = self.group, [], False
        return group


class Stores:
    """Two stores and one order: recvq first, the spool for what recvq does not confirm in time.

    While anything of a key is in the spool, or on its way there, what comes later of that key goes
    behind it. Without a spool, what recvq does not confirm is refused.

    After an insert of many, recvq has work again only once most of those are back: its owner
    decides how long it waits for that before it calls `begin`.

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

    To give up means for recvq with a spool: all that waits or is under way goes there, in its
    order. Without one, and for the spool itself: the request that expired, or the group of the
    insert that failed, is refused. Before each insert recvq passes on to the spool what has a key
    on its way there.

    Its owner calls one method at a time, then answers `take_answered()` and wakes the thread of
    each store that `has_work`. At most one call of each store is under way.
    """

    def __init__(
        self,
        *,
        has_spool: bool,
        bounds: Bounds | None = None,
        spool_seconds: float = SPOOL_SECONDS,
    ) -> None:
        bounds = bounds or Bounds()
        self.recvq = StoreQueue("MongoDB", bounds)
        self.spool = StoreQueue("the spool", bounds) if has_spool else None
        self.spooled = 0
        """How many documents the spool has confirmed."""
        self.is_spooling = False
        """Whether requests went to the spool since recvq is away."""
        self._spool_seconds = spool_seconds
        self._on_their_way: Counter[Key] = Counter()
        self._answered: list[PendingRequest] = []

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be stored, neither here nor there; None when it can."""
        reasons = [store.reason for store in (self.recvq, self.spool) if store is not None]
        return "; ".join(map(str, reasons)) if all(reasons) else None

    def take_answered(self) -> list[PendingRequest]:
        """The requests that got their answer since this was asked last."""
        answered, self._answered = self._answered, []
        return answered

    # --- requests

    def arrive(self, request: PendingRequest, now: float) -> None:
        """Take a request, or refuse it at once."""
        if not self.recvq.is_open:
            self._to_spool([request], now, reason=str(self.recvq.reason), is_admitted=False)
        elif self.recvq.has_room(request):
            self.recvq.put(request, now)
        else:
            self._refuse(request, "too much is waiting to be stored")

    def expired(self, request: PendingRequest, now: float) -> None:
        """Its deadline has passed; nothing happens if it is done, or has a later deadline now."""
        if request.is_done or now < request.deadline:
            return
        store = request.store
        assert store is not None
        error = NotStored(f"{store.name} did not confirm in time")
        if request.fair:
            self._is_away(store, error)
        if store is self.recvq and self.spool is not None:
            self._hand_over(error, now)
        else:
            self._refuse(request, str(error))

    def left(self, request: PendingRequest) -> None:
        """Its client is gone, and needs no answer."""
        if not request.is_done:
            self._finish(request)

    # --- calls of a store

    def begin(self, store: StoreQueue, now: float) -> Insert | Probe | None:
        """What the store's thread has to do now; None if there is nothing yet."""
        # guard: nobody-is-awaited-twice
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
        """The probe under way has succeeded."""
        store.end()
        self._is_back(store)

    def failed(self, store: StoreQueue, error: NotStored, now: float) -> None:
        """The call under way has failed; the documents of an insert may be stored all the same."""
        store.failures += 1
        self._is_away(store, error)
        if store is self.recvq and self.spool is not None:
            self._hand_over(error, now)
            store.end()
            return
        self._refuse_all(store.end(), str(error))
        if store.state is StoreState.STOPPING:
            self._refuse_all(store.take_waiting(), str(error))

    def inserted(self, store: StoreQueue, duplicates: Collection[int]) -> None:
        """The insert under way has stored all; `duplicates` are the places of what was there.

        It may have been late for some of its requests; that it succeeded is the best probe.
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
        """recvq's insert under way has stored nothing, since the spool holds some of these keys.

        After a time-out nothing is left of the group, and the store is PROBING: only a probe tells
        when the outage is over.
        """
        group = self.recvq.take_group()
        self.recvq.end()
        self.recvq.put_back(self._behind(group, keys, now))

    # --- the end

    def stop(self, store: StoreQueue, now: float) -> None:
        """Let a store finish what it has taken."""
        was_away = store.is_away
        self._stopped(store)
        if was_away and (store.is_probed or not store.is_called):
            self._give_up(store, now)

    def abandon(self, store: StoreQueue, now: float) -> None:
        """Give a store up whose thread begins no call any more."""
        self._stopped(store)
        self._give_up(store, now)
        store.end()

    def _stopped(self, store: StoreQueue) -> None:
        store.state, store.reason = StoreState.STOPPING, NotStored(STOPPING)

    def _give_up(self, store: StoreQueue, now: float) -> None:
        if store is self.recvq and self.spool is not None:
            self._hand_over(NotStored(STOPPING), now)
        else:
            self._refuse_all(store.take_group() + store.take_waiting(), STOPPING)

    # --- what goes to the spool

    def _behind(
        self, group: list[PendingRequest], keys: Iterable[Key], now: float
    ) -> list[PendingRequest]:
        """Spool those with one of these keys, and those that share a key with one of them, be it
        in front of it: a request goes to the spool as a whole. Returns the others.
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
        # What recvq had admitted has to find room as what is new does: recvq goes on meanwhile.
        self._to_spool([r for r in group if r in going], now, reason="", is_admitted=False)
        return [request for request in group if request not in going]

    def _hand_over(self, error: NotStored, now: float) -> None:
        """Spool all that recvq has not confirmed, in its order: what came later of a key must not
        overtake what could not be confirmed.
        """
        # guard: all-in-its-order -> requests = self.recvq.take_waiting() + self.recvq.take_group()
        requests = self.recvq.take_group() + self.recvq.take_waiting()
        self._to_spool(requests, now, reason=str(error), is_admitted=True)

    def _to_spool(
        self, requests: Iterable[PendingRequest], now: float, *, reason: str, is_admitted: bool
    ) -> None:
        """The one decision about the spool: these wait for it, or are refused.

        What recvq `is_admitted` to is bounded already, and may not be overtaken by what is new.
        """
        spool = self.spool
        for request in requests:
            if spool is None:
                self._refuse(request, reason)
            elif not spool.is_open:
                self._refuse(request, "; ".join(filter(None, (reason, str(spool.reason)))))
            elif not is_admitted and not spool.has_room(request):
                self._refuse(request, "too much is waiting to be stored")
            else:
                self.is_spooling = self.is_spooling or not self.recvq.is_open
                request.deadline += self._spool_seconds
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
            # What still queues up behind others of its keys is no outage.
            self.is_spooling = self.is_spooling and store is not self.recvq

    def _answer(self, request: PendingRequest, answer: int | NotStored) -> None:
        if not request.is_done:
            request.answer = answer
            self._finish(request)
            self._answered.append(request)

    def _refuse(self, request: PendingRequest, reason: str) -> None:
        self._answer(request, NotStored(reason))

    def _refuse_all(self, requests: Iterable[PendingRequest], reason: str) -> None:
        for request in requests:
            self._refuse(request, reason)

    def _finish(self, request: PendingRequest) -> None:
        request.is_done = True
        if request.store is not None and request.store is self.spool:
            keys = request.keys
            self._on_their_way.subtract(keys)
            for key in keys:
                if not self._on_their_way[key]:
                    del self._on_their_way[key]


def undone(requests: Iterable[PendingRequest]) -> list[PendingRequest]:
    """Those that have no answer yet."""
    return [request for request in requests if not request.is_done]
