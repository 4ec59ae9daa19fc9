"""Two stores and one order: whatever arrives, fails, times out or ends, and in whichever order."""

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frontdesk import store_choice
from frontdesk.errors import NotStored
from frontdesk.store_choice import Insert, PendingRequest, Probe, Stores, StoreState

KEYS = ("A", "B")
AWAY = NotStored("does not answer")


def document(key: str, number: int) -> RawBSONDocument:
    return RawBSONDocument(bson.encode({"channel": "main", "key": key, "number": number}))


def request(*keys: str, number: int = 0, deadline: float = 1.0) -> PendingRequest:
    return PendingRequest([document(key, number) for key in keys], deadline)


def open_stores() -> Stores:
    stores = Stores()
    for store in (stores.recvq, stores.spool):
        assert isinstance(stores.begin(store, 0), Probe)
        stores.probed(store)
    return stores


def inserting(*requests: PendingRequest) -> Stores:
    """Both stores are open, and these are in recvq's insert under way."""
    stores = open_stores()
    for one in requests:
        stores.arrive(one, 0)
    assert isinstance(stores.begin(stores.recvq, 0), Insert)
    return stores


def keys_waiting(stores: Stores) -> list[str]:
    return [key for one in stores.spool.waiting for _, key in sorted(one.keys)]


# --- cells of the table that the machine below cannot distinguish


def test_only_a_time_out_after_fair_time_says_that_a_store_is_away() -> None:
    late, patient = request("A", deadline=0.1), request("B", deadline=0.5)
    stores = inserting(late, patient)
    stores.expired(late, 0.1)
    assert stores.recvq.state is StoreState.OPEN
    # In its spool, patient has a later deadline now.
    assert patient.is_done is False
    again = request("C", deadline=0.7)
    stores.arrive(again, 0.1)
    stores.expired(again, 0.7)
    assert stores.recvq.state is StoreState.PROBING
    assert str(stores.recvq.reason) == "MongoDB did not confirm in time"


def test_each_request_gets_its_own_duplicates() -> None:
    requests = [request("A", "B"), request("A"), request("A", "B", "C")]
    stores = inserting(*requests)
    stores.inserted(stores.recvq, frozenset({1, 3, 4, 5}))
    assert [one.answer for one in requests] == [1, 0, 3]


def test_a_request_ahead_of_a_spooled_one_with_a_shared_key_goes_to_the_spool_with_it() -> None:
    # While B alone is inserted, the spool could already have the B of a later request.
    requests = [request("B"), request("C"), request("A", "B")]
    stores = inserting(*requests)
    stores.keys_spooled([("main", "A")], 0)
    assert keys_waiting(stores) == ["B", "A", "B"]
    assert stores.begin(stores.recvq, 0) == Insert(requests[1].documents, 1)


def test_keys_found_spooled_after_a_time_out_leave_it_probing() -> None:
    late = request("A")
    stores = inserting(late)
    stores.expired(late, 1)
    stores.keys_spooled([("main", "A")], 1)
    assert isinstance(stores.begin(stores.recvq, 1), Probe)


# --- the machine


class Model(RuleBasedStateMachine):
    """A front desk on one host: two threads, a drain, clients, and time in steps of 0.1 s.

    A call takes effect in steps that the machine puts anywhere between its beginning and its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(store_choice, "MOST_DOCUMENTS", 6)
        self.stores = Stores()
        self.spool = self.stores.spool
        self.now = 0.0
        self.number = 0
        self.pending: list[PendingRequest] = []
        # In the order of arrival: number, and request.
        self.accepted: list[PendingRequest] = []
        # The contents of each store, as (key, number); the drain takes from the spool's front.
        self.in_recvq: list[tuple[str, int]] = []
        self.in_spool: list[tuple[str, int]] = []
        self.call: dict[str, list[tuple[str, int]] | None] = {}
        self.checked = False

    @initialize()
    def both_open(self) -> None:
        for store in (self.stores.recvq, self.spool):
            self.stores.begin(store, 0)
            self.stores.probed(store)

    # Actions of a store's thread.

    @rule(at=st.sampled_from(["recvq", "spool"]))
    def begin(self, at: str) -> None:
        store = getattr(self.stores, at)
        if store.is_called:
            return
        had_work = store.has_work or not store.has_gathered
        work = self.stores.begin(store, self.now)
        if isinstance(work, Insert):
            assert work.seconds > 0
            self.call[at] = [(doc["key"], doc["number"]) for doc in work.documents]
        elif isinstance(work, Probe):
            self.call[at] = None
        assert had_work or work is None
        self.checked = False
        self.look()

    def ends(self, at: str) -> list[tuple[str, int]] | None:
        return self.call.pop(at)

    @rule(succeeds=st.booleans())
    @precondition(lambda self: any(call is None for call in self.call.values()))
    def end_probes(self, succeeds: bool) -> None:
        for at in [at for at, call in self.call.items() if call is None]:
            self.ends(at)
            store = getattr(self.stores, at)
            if succeeds:
                self.stores.probed(store)
            else:
                self.stores.failed(store, AWAY, self.now)
        self.look()

    @rule()
    @precondition(lambda self: self.call.get("recvq") and not self.checked)
    def recvqs_insert_asks_the_spool(self) -> None:
        asked = {key for key, _ in self.call["recvq"] or ()}
        spooled = asked & {key for key, _ in self.in_spool}
        if spooled:
            self.ends("recvq")
            self.stores.keys_spooled([("main", key) for key in spooled], self.now)
        self.checked = not spooled
        self.look()

    @rule(at=st.sampled_from(["recvq", "spool"]), told=st.sampled_from(["yes", "no", "nothing"]))
    def insert(self, at: str, told: str) -> None:
        """The insert succeeds; or fails, and nothing is stored; or fails, and all is stored."""
        if not self.call.get(at) or (at == "recvq" and not self.checked):
            return
        rows = self.ends(at)
        assert rows is not None
        if told != "nothing":
            has = self.in_recvq if at == "recvq" else self.in_spool
            has.extend(rows)
        store = getattr(self.stores, at)
        if told == "yes":
            self.stores.inserted(store, ())
        else:
            self.stores.failed(store, AWAY, self.now)
        self.look()

    @rule()
    @precondition(lambda self: self.in_spool)
    def drain(self) -> None:
        self.in_recvq.append(self.in_spool.pop(0))

    # Actions of clients and time.

    @rule(keys=st.sampled_from([["A"], ["B"], ["A", "B"]]), steps=st.integers(2, 20))
    def arrive(self, keys: list[str], steps: int) -> None:
        self.number += 1
        one = request(*keys, number=self.number, deadline=self.now + steps / 10)
        self.pending.append(one)
        self.stores.arrive(one, self.now)
        self.look()

    @rule(steps=st.integers(1, 6))
    def time_passes(self, steps: int) -> None:
        self.now += steps / 10
        for one in list(self.pending):
            self.stores.expired(one, self.now)
        self.look()

    @rule(which=st.integers(0, 99))
    @precondition(lambda self: self.pending)
    def leave(self, which: int) -> None:
        one = self.pending.pop(which % len(self.pending))
        self.stores.left(one)
        assert one.is_done

    # Invariants.

    def look(self) -> None:
        """Take the answers: documents answered as stored are in one of the stores."""
        stored = {*self.in_recvq, *self.in_spool}
        for one in [one for one in self.pending if one.is_done]:
            self.pending.remove(one)
            if isinstance(one.answer, int):
                assert {(doc["key"], doc["number"]) for doc in one.documents} <= stored
                self.accepted.append(one)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        held = [
            *self.stores.recvq.waiting,
            *self.stores.recvq.group,
            *self.spool.waiting,
            *self.spool.group,
        ]
        assert all(one in held and not one.is_done for one in self.pending)

    @invariant()
    def nothing_waits_at_a_recvq_that_is_away(self) -> None:
        if self.stores.recvq.state is StoreState.PROBING:
            assert not self.stores.recvq.waiting

    @invariant()
    def a_reason_says_that_a_store_is_away(self) -> None:
        for store in (self.stores.recvq, self.spool):
            assert (store.reason is None) == store.is_open

    @invariant()
    def each_key_is_in_its_order(self) -> None:
        """Of two requests that were accepted, the one that arrived first is handled first."""
        order = list(dict.fromkeys([*self.in_recvq, *self.in_spool]))
        accepted = {doc["number"] for one in self.accepted for doc in one.documents}
        for key in KEYS:
            numbers = [n for k, n in order if k == key and n in accepted]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        """Stop at last: each request gets an answer, and nothing is left."""
        for at, store in (("recvq", self.stores.recvq), ("spool", self.spool)):
            self.stores.stop(store, self.now)
            for _ in range(20):
                self.begin(at)
                self.recvqs_insert_asks_the_spool_at_last()
                self.insert(at, "yes")
                if self.call.get(at, ()) is None:
                    self.ends(at)
                    self.stores.probed(store)
            assert store.has_ended
            self.look()
        assert not self.pending
        assert not self.stores._on_their_way
        self.each_key_is_in_its_order()
        self.patched.undo()

    def recvqs_insert_asks_the_spool_at_last(self) -> None:
        if self.call.get("recvq") and not self.checked:
            self.recvqs_insert_asks_the_spool()


TestTwoStores = Model.TestCase
TestTwoStores.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
