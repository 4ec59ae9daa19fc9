"""The arithmetic of the guard, over every order of sizes that hypothesis can think of."""

from hypothesis import given, settings
from hypothesis import strategies as st

from linedesk.store.limits import ORDER_SLACK
from linedesk.store.queue.usage import Reach, Reading

MEGABYTE = 1024 * 1024


def reading(after: int | None) -> Reading:
    return Reading(after, newest=[], shape=None)


def test_the_documents_just_before_the_last_finished_one_may_be_unread_too() -> None:
    assert reading(500).behind == 500 - ORDER_SLACK
    assert reading(10).behind == 0


class Ring:
    """A capped collection as MongoDB keeps it: bytes, the oldest out first."""

    def __init__(self, capped_bytes: int) -> None:
        self.capped_bytes = capped_bytes
        self.sizes: dict[int, int] = {}
        self.newest = self.held = 0

    def insert(self, size: int) -> None:
        self.newest += 1
        self.sizes[self.newest] = size
        self.held += size
        while self.held > self.capped_bytes:
            self.held -= self.sizes.pop(min(self.sizes))

    def reach(self, after: int) -> Reach:
        behind = reading(after if after in self.sizes else None).behind or 0
        unread = sum(size for n, size in self.sizes.items() if n > behind)
        return Reach(unread, self.capped_bytes)


sizes = st.lists(st.sampled_from([300, 1_000, 5_000, 20_000, 60_000]), min_size=1, max_size=60)


@settings(max_examples=50, deadline=None)
@given(read=sizes, unread=st.lists(sizes, max_size=15))
def test_whatever_the_order_of_sizes_nothing_unread_is_overwritten(
    read: list[int], unread: list[list[int]]
) -> None:
    ring = Ring(2 * MEGABYTE)
    for size in read:
        ring.insert(size)
    after = ring.newest
    accepted = []
    for size in (size for sizes in unread for size in sizes):
        if not ring.reach(after).plus(size).closes(closed=False):
            ring.insert(size)
            accepted.append(ring.newest)
    assert set(accepted) <= set(ring.sizes)
