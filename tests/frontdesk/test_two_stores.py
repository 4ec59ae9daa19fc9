"""Two stores in one process, with inserts that the test holds: groups, order, and answers."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from frontdesk import group_commit
from frontdesk.errors import KeysSpooled, NotStored
from frontdesk.group_commit import GroupCommit
from linedesk.store.errors import SpoolUnavailable
from linedesk.store.spool.drain import Drain
from linedesk.store.spool.spool import Spool, SpoolContents
from tests.linedesk.store.spool.test_spool import MEGABYTE, names, raw

WAIT_SECONDS = 10.0


FAST_SECONDS = 0.001


class Held:
    """A blocking call that reports its begin and ends as the test decides."""

    def __init__(self) -> None:
        self.entered: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._outcomes: SimpleQueue[Any] = SimpleQueue()

    def __call__(self, *arguments: Any) -> Any:
        self.entered.put(arguments)
        outcome = self._outcomes.get(timeout=WAIT_SECONDS)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def let_go(self, outcome: Any = ()) -> None:
        """End the call under way, or the next one."""
        self._outcomes.put(outcome)

    async def arguments(self) -> tuple[Any, ...]:
        """Wait for the next call to begin."""
        return await asyncio.to_thread(self.entered.get, timeout=WAIT_SECONDS)


class Scene:
    """A store whose inserts into recvq are held, whose drain rests, and whose spool is real."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_commit, "FIRST_PAUSE_SECONDS", FAST_SECONDS)
        self.path = path
        self.patch = monkeypatch
        self.insert, self.probe = Held(), Held()
        self.writer, self.reader = self.connection(), self.connection()
        # Spooled documents stay until the test removes them.
        self.drained = self.connection()
        monkeypatch.setattr(self.drained, "held", SpoolContents)
        self.drain = Drain(self.drained, None)  # type: ignore[arg-type]
        recvq = SimpleNamespace(insert=self.insert, probe=self.probe)
        self.store = GroupCommit(recvq, self.writer, self.reader, self.drain)

    def connection(self) -> Spool:
        return Spool(self.path, max_bytes=16 * MEGABYTE)

    def spooled(self) -> list[str]:
        spool = self.connection()
        try:
            return names(spool)
        finally:
            spool.close()

    async def ask(self, *of: str, seconds: float = WAIT_SECONDS) -> asyncio.Task[int]:
        """Begin to store documents named `key-number`; returns once they wait for their turn."""
        documents = [raw(name, key=name.partition("-")[0]) for name in of]
        deadline = time.monotonic() + seconds
        task = asyncio.create_task(self.store.store(documents, deadline=deadline))
        await asyncio.sleep(0)
        return task

    async def inserted(self) -> list[str]:
        """Wait for the next insert to begin; returns the names of its documents."""
        documents, _ = await self.insert.arguments()
        return [document["eventId"] for document in documents]


Play = Callable[[Scene], Awaitable[None]]


def scene(play: Play) -> Callable[..., None]:
    """Run an async test on an open store whose first probe has succeeded."""

    @wraps(play)
    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asyncio.run(_play(play, Scene(tmp_path / "spool.db", monkeypatch)))

    del test.__wrapped__
    return test


async def _play(play: Play, scene: Scene) -> None:
    scene.probe.let_go()
    await scene.store.open()
    try:
        await play(scene)
    finally:
        for _ in range(10):
            scene.insert.let_go()
            scene.probe.let_go()
        await scene.store.close()


async def ten_together(scene: Scene) -> None:
    """Ten requests share an insert, and do not come again."""
    first = await scene.ask("Z-1")
    await scene.inserted()
    tasks = [await scene.ask(f"A-{number}") for number in range(10)]
    scene.insert.let_go()
    assert len(await scene.inserted()) == 10
    scene.insert.let_go()
    await asyncio.gather(first, *tasks)


@scene
async def test_those_that_do_not_come_again_are_awaited_for_a_moment_and_only_once(
    scene: Scene,
) -> None:
    await ten_together(scene)
    for name in ("B-1", "C-1"):
        lone = await scene.ask(name)
        assert await scene.inserted() == [name]
        scene.insert.let_go()
        assert await lone == 0


@scene
async def test_no_request_is_awaited_after_a_moment_without_any(scene: Scene) -> None:
    await ten_together(scene)
    await until(lambda: scene.store._stores.recvq.has_gathered)
    lone = await scene.ask("B-1")
    assert await scene.inserted() == ["B-1"]
    scene.insert.let_go()
    assert await lone == 0


def test_a_store_whose_task_has_ended_by_itself_is_dead_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(scene: Scene) -> None:
        assert not scene.store.dead
        await scene.ask("A-1")
        await scene.inserted()
        scene.insert.let_go(None)
        await until(lambda: scene.store.dead)

    asyncio.run(_play(play, Scene(tmp_path / "spool.db", monkeypatch)))
    [record] = [r for r in caplog.records if r.levelname == "CRITICAL"]
    assert record.exc_info is not None


def test_closing_during_a_pause_calls_the_store_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path / "spool.db", monkeypatch)
    for limit in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(group_commit, limit, WAIT_SECONDS)

    async def play() -> None:
        scene.probe.let_go(NotStored("away"))
        await scene.store.open()
        async with asyncio.timeout(2):
            await scene.store.close()

    asyncio.run(play())
    assert scene.probe.entered.qsize() == 1


def test_a_stop_waits_neither_for_mongodbs_answer_to_a_probe_nor_for_the_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "START_RECVQ_SECONDS", 0.0)
    monkeypatch.setattr(group_commit, "STOP_DRAIN_SECONDS", 0.05)
    scene, end = Scene(tmp_path / "spool.db", monkeypatch), threading.Event()
    monkeypatch.setattr(scene.drained, "held", lambda: end.wait(WAIT_SECONDS) and SpoolContents())

    async def play() -> None:
        await scene.store.open()
        await scene.probe.arguments()
        task = await scene.ask("A-1")
        assert await task == 0
        async with asyncio.timeout(2):
            await scene.store.close()
            await scene.store.close()

    try:
        asyncio.run(play())
        assert scene.spooled() == ["A-1"]
    finally:
        end.set()
        scene.probe.let_go()
        scene.drain.join(WAIT_SECONDS)


@scene
async def test_a_time_out_spools_all_that_is_under_way_and_waits_in_its_order(scene: Scene) -> None:
    first = await scene.ask("A-1", seconds=0.6)
    await scene.inserted()
    rest = [await scene.ask(name) for name in ("A-2", "B-1", "A-3")]
    assert await first == 0
    assert await asyncio.gather(*rest) == [0, 0, 0]
    assert scene.spooled() == ["A-1", "A-2", "B-1", "A-3"]
    # Later requests, while the insert still hangs, go straight behind them.
    assert await (await scene.ask("A-4")) == 0
    assert scene.spooled()[-1] == "A-4"
    assert scene.insert.entered.empty()


@scene
async def test_keys_found_held_only_after_the_time_out_do_not_keep_it_from_probing_again(
    scene: Scene,
) -> None:
    task = await scene.ask("A-1", seconds=0.6)
    await scene.inserted()
    assert await task == 0
    assert scene.store.spool is not None
    # The spool's disk was slow: it reports late that nothing was inserted.
    scene.insert.let_go(KeysSpooled([("main", "A")]))
    scene.probe.let_go()
    await until(lambda: scene.store.spool is None)
    other = await scene.ask("B-1")
    assert await scene.inserted() == ["B-1"]
    scene.insert.let_go()
    assert await other == 0


@scene
async def test_a_key_that_is_spooled_queues_up_there_while_others_continue(scene: Scene) -> None:
    await another_process_spools(scene, "A-1")
    tasks = [await scene.ask("A-2"), await scene.ask("B-1")]
    assert await scene.inserted() == ["B-1"]
    scene.insert.let_go()
    assert await asyncio.gather(*tasks) == [0, 0]
    assert scene.spooled() == ["A-1", "A-2"]
    remove_all(scene)
    again = await scene.ask("A-3")
    assert await scene.inserted() == ["A-3"]
    scene.insert.let_go()
    assert await again == 0


@scene
async def test_a_request_of_several_keys_goes_behind_as_a_whole_and_so_do_its_keys(
    scene: Scene,
) -> None:
    blocker = await scene.ask("Z-1")
    await scene.inserted()
    await another_process_spools(scene, "A-1")
    tasks = [await scene.ask("A-2", "B-1"), await scene.ask("B-2"), await scene.ask("C-1")]
    scene.insert.let_go()
    assert await scene.inserted() == ["C-1"]
    scene.insert.let_go()
    assert await asyncio.gather(blocker, *tasks) == [0, 0, 0, 0]
    assert scene.spooled() == ["A-1", "A-2", "B-1", "B-2"]


@scene
async def test_a_request_on_its_way_to_the_spool_is_not_overtaken(scene: Scene) -> None:
    append = Held()
    whole = scene.writer.append

    def held_append(documents: Sequence[Any]) -> None:
        append(documents)
        whole(documents)

    scene.patch.setattr(scene.writer, "append", held_append)
    failing = await scene.ask("A-1")
    await scene.inserted()
    scene.insert.let_go(NotStored("MongoDB does not answer"))
    await append.arguments()
    # recvq is back before the spool's disk has A-1.
    scene.probe.let_go()
    await until(lambda: scene.store.spool is None)
    second, other = await scene.ask("A-2"), await scene.ask("B-1")
    assert await scene.inserted() == ["B-1"]
    scene.insert.let_go()
    assert await other == 0
    for _ in range(2):
        append.let_go()
    assert [await failing, await second] == [0, 0]
    assert scene.spooled() == ["A-1", "A-2"]


@scene
async def test_closing_spools_what_mongodb_no_longer_confirms(scene: Scene) -> None:
    under_way = await scene.ask("A-1")
    await scene.inserted()
    waiting = await scene.ask("A-2")
    closing = asyncio.create_task(scene.store.close())
    await asyncio.sleep(0)
    scene.insert.let_go(NotStored("MongoDB does not answer"))
    assert [await under_way, await waiting] == [0, 0]
    await closing
    assert scene.spooled() == ["A-1", "A-2"]


async def another_process_spools(scene: Scene, *of: str) -> None:
    spool = scene.connection()
    spool.append([raw(name, key=name.partition("-")[0]) for name in of])
    spool.close()


def remove_all(scene: Scene) -> None:
    spool = scene.connection()
    spool.remove(spool.oldest(documents=1000, max_bytes=1 << 40))
    spool.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  # the condition sends no signal
            await asyncio.sleep(0.005)


@scene
async def test_where_neither_store_works_each_says_why_within_the_time(scene: Scene) -> None:
    def full(documents: Sequence[Any]) -> None:
        raise SpoolUnavailable("the spool's disk is full")

    scene.patch.setattr(scene.writer, "append", full)
    scene.patch.setattr(scene.writer, "probe", lambda: full(()))
    failing = await scene.ask("A-1")
    await scene.inserted()
    scene.insert.let_go(NotStored("MongoDB does not answer"))
    with pytest.raises(NotStored, match="disk is full"):
        await failing
    with pytest.raises(NotStored, match="MongoDB does not answer; the spool's disk is full"):
        await (await scene.ask("A-2"))
    assert scene.store.unavailable == "MongoDB does not answer; the spool's disk is full"
