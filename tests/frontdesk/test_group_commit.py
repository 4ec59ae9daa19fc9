"""Group commit, with an insert that the test holds and lets go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from queue import SimpleQueue
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from frontdesk import group_commit
from frontdesk.errors import NotStored
from frontdesk.group_commit import GroupCommit
from frontdesk.store_choice import Documents
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.errors import SpoolUnavailable
from linedesk.store.spool.spool import SpoolContents

WAIT_SECONDS = 10.0
Outcome = Collection[int] | Exception
FAST_SECONDS = 0.001


class Calls:
    """A store of these two calls."""

    def __init__(
        self,
        insert: Callable[[Documents, float], Collection[int]],
        probe: Callable[[], object] = lambda: None,
    ) -> None:
        self.insert = insert
        self._probe = probe

    def probe(self) -> None:
        self._probe()


class Away:
    """A spool that has never taken anything."""

    def keys_held(self, documents: Documents) -> frozenset[Any]:
        return frozenset()

    def append(self, documents: Documents) -> None:
        raise AssertionError("it is away")

    def probe(self) -> None:
        raise SpoolUnavailable("it is away")

    def close(self) -> None:
        """Nothing to do."""


class Resting(BackgroundThread):
    """A drain with nothing to do."""

    held = SpoolContents()

    def __init__(self) -> None:
        super().__init__("spool-drain", lambda: self._stop.wait() and None)

    def wake(self) -> None:
        """Nothing to do."""


class Held:
    """A blocking call that reports its begin and ends as the test decides."""

    def __init__(self) -> None:
        self.entered: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def __call__(self, *arguments: Any) -> Collection[int]:
        self.entered.put(arguments)
        outcome = self._outcomes.get(timeout=WAIT_SECONDS)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def let_go(self, outcome: Outcome = ()) -> None:
        """End the call under way, or the next one."""
        self._outcomes.put(outcome)

    async def group(self) -> list[str]:
        """Wait for the next insert to begin; returns the names of its documents."""
        documents, _seconds = await self.arguments()
        return [document["name"] for document in documents]

    async def arguments(self) -> tuple[Any, ...]:
        return await asyncio.to_thread(self.entered.get, timeout=WAIT_SECONDS)


def document(name: str) -> RawBSONDocument:
    return RawBSONDocument(bson.encode({"name": name}))


def soon() -> float:
    return time.monotonic() + WAIT_SECONDS


async def ask(store: GroupCommit, *names: str, deadline: float | None = None) -> asyncio.Task[int]:
    """Begin to store these documents as one request; returns once they wait for their turn."""
    documents = [document(name) for name in names]
    task = asyncio.create_task(store.store(documents, deadline=deadline or soon()))
    await asyncio.sleep(0)
    return task


def over(
    insert: Callable[[Documents, float], Collection[int]],
    probe: Callable[[], object] = lambda: None,
) -> GroupCommit:
    """A group commit over a store of these two calls."""
    return GroupCommit(Calls(insert, probe), Away(), Away(), Resting())


def never_asked(*_: Any) -> Collection[int]:
    raise AssertionError("nothing should have been inserted")


async def _play(scenario: Callable[[GroupCommit, Held], Awaitable[None]]) -> None:
    """Run it with an open store, close that, and leave no call hanging."""
    insert = Held()
    store = over(insert)
    await store.open()
    try:
        await scenario(store, insert)
    finally:
        insert.let_go()
        await store.close()


@pytest.fixture(autouse=True)
def _clean(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test leaves no thread behind, and probes often."""
    monkeypatch.setattr(group_commit, "FIRST_PAUSE_SECONDS", FAST_SECONDS)


def test_requests_that_arrive_meanwhile_share_the_next_insert() -> None:
    async def scenario(store: GroupCommit, insert: Held) -> None:
        first = await ask(store, "a")
        assert await insert.group() == ["a"]
        others = [await ask(store, "b"), await ask(store, "c", "d"), await ask(store, "e")]
        assert insert.entered.empty()
        insert.let_go()
        assert await insert.group() == ["b", "c", "d", "e"]
        assert first.done()
        assert not any(task.done() for task in others)
        insert.let_go()
        assert await asyncio.gather(*others) == [0, 0, 0]
        assert insert.entered.empty()

    asyncio.run(_play(scenario))


async def insert_together(store: GroupCommit, insert: Held, count: int) -> list[asyncio.Task[int]]:
    """An insert of this many requests is under way, which the test has to let go."""
    first = await ask(store, "first")
    await insert.group()
    tasks = [await ask(store, str(number)) for number in range(count)]
    insert.let_go()
    assert await insert.group() == [str(number) for number in range(count)]
    await first
    return tasks


def test_those_that_do_not_come_again_are_awaited_for_a_moment_and_only_once() -> None:
    async def scenario(store: GroupCommit, insert: Held) -> None:
        tasks = await insert_together(store, insert, 10)
        insert.let_go()
        await asyncio.gather(*tasks)
        for name in ("one", "another"):
            lone = await ask(store, name)
            assert await insert.group() == [name]
            insert.let_go()
            assert await lone == 0

    asyncio.run(_play(scenario))


def test_no_request_is_awaited_after_a_moment_without_any() -> None:
    async def scenario(store: GroupCommit, insert: Held) -> None:
        tasks = await insert_together(store, insert, 10)
        insert.let_go()
        await asyncio.gather(*tasks)
        queue = store._stores.recvq
        async with asyncio.timeout(WAIT_SECONDS):
            while not queue.has_gathered:  # noqa: ASYNC110  # no signal reports this end
                await asyncio.sleep(0)
        lone = await ask(store, "lone")
        assert await insert.group() == ["lone"]
        insert.let_go()
        assert await lone == 0

    asyncio.run(_play(scenario))


def test_a_store_whose_task_has_ended_by_itself_is_dead_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        insert = Held()
        store = over(insert)
        await store.open()
        assert not store.dead
        under_way = await ask(store, "a", deadline=time.monotonic() + 0.1)
        await insert.group()
        insert.let_go(None)  # type: ignore[arg-type]
        with pytest.raises(NotStored):
            await under_way
        await asyncio.wait([asyncio.create_task(_ended(store))], timeout=WAIT_SECONDS)
        assert store.dead
        await store.close()

    asyncio.run(scenario())
    [record] = [r for r in caplog.records if r.levelname == "CRITICAL"]
    assert record.exc_info is not None


async def _ended(store: GroupCommit) -> None:
    while not store.dead:  # noqa: ASYNC110  # no signal reports this end
        await asyncio.sleep(0)


def test_closing_during_a_pause_calls_the_store_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(group_commit, limit, WAIT_SECONDS)
    probes = []

    def away() -> None:
        probes.append(1)
        raise NotStored("away")

    async def scenario() -> None:
        store = over(never_asked, away)
        await store.open()
        await asyncio.wait_for(store.close(), 2)

    asyncio.run(scenario())
    assert probes == [1]
