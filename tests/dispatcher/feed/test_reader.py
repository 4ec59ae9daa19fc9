"""The reader after each kind of failure: its feed and its scan follow a script."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from bson.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.commit.committer import Change, Committer
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.feed.feed import FeedItem, PositionLost
from dispatcher.feed.reader import FeedReader, Heartbeat
from dispatcher.feed.rescan import Rescan, ScanPass
from dispatcher.pool.pool import Pool
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from tests.dispatcher.conftest import limit_feed
from tests.dispatcher.fakes import document
from tests.dispatcher.leader_terms import pool_at_rest

AWAY = StoreUnavailable("no primary")
LOST = PositionLost("MongoDB error 286")
QUIET = None
NOW = Timestamp(9, 1)

Outcome = Exception | FeedItem | None


def item(name: str, token: Any) -> FeedItem:
    return FeedItem({**document(name), "_id": name}, token, NOW)


class Script(Rescan, Committer):
    """A feed, a scan of recvq and a committer: each step ends as the script says, then it stops.

    `steps` are the calls, with the position where the feed was opened, and the pauses.
    """

    name = "script"

    def __init__(self, outcomes: Iterable[Outcome], *, seen: Iterable[str] = ()) -> None:
        self.steps: list[Any] = []
        self.token: Any = None
        self.ended = threading.Event()
        self._outcomes = list(outcomes)
        self._seen = seen
        self._moves = 0

    def _step(self, *step: Any) -> Outcome:
        self.steps.append(step if len(step) > 1 else step[0])
        if not self._outcomes:
            self.ended.set()
            return QUIET
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def open(self, token: Any) -> None:
        self.token = token
        self._step("open", token)

    def open_at(self, time: Timestamp) -> None:
        assert time == NOW
        self.token = None
        self._step("open_at")

    def read(self) -> FeedItem | None:
        found = self._step("read")
        assert not isinstance(found, Exception)
        self._moves += 1
        self.token = found.token if found is not None else f"moved {self._moves}"
        return found

    def close(self) -> None: ...

    def scan(
        self, after: Any, take: Callable[[Document], bool], stopped: Callable[[], bool]
    ) -> ScanPass | None:
        self._step("scan")
        start = ScanPass(NOW)
        for id_ in self._seen:
            start.note(id_)
        return start

    def commit(self, *changes: Change, seconds: float = 0.0) -> bool:
        return True

    def pause(self, failures: int) -> float:
        self.steps.append(failures)
        return 0.0


def run(
    script: Script, token: Any, *, healthy_seconds: float = 1e9, pool: Pool | None = None
) -> list[Any]:
    """The steps of a reader that began with this token."""
    reader = FeedReader(
        script,
        script,
        pool or pool_at_rest(ProgressTracker()),
        script,
        token=token,
        epoch_began=Timestamp(1, 1),
        has_room=lambda: True,
        heartbeat=Heartbeat(None, None),  # type: ignore[arg-type]
    )
    with pytest.MonkeyPatch.context() as patched:
        limit_feed(patched, pause_seconds=script.pause, healthy_seconds=healthy_seconds)
        reader.start()
        assert script.ended.wait(15)
        reader.stop()
        assert reader.join(15)
    return script.steps


def steps(token: Any, *outcomes: Outcome) -> list[Any]:
    """The steps until the feed is opened once more after these outcomes."""
    found = run(Script(outcomes), token)
    return found[: len(outcomes) + sum(isinstance(one, Exception) for one in outcomes) + 1]


OK = QUIET


@pytest.mark.parametrize(
    ("token", "outcomes", "expected"),
    [
        ("t", [AWAY], [("open", "t"), 1, ("open", "t")]),
        ("t", [OK, item("a", "u"), AWAY], [("open", "t"), "read", "read", 1, ("open", "u")]),
        ("t", [LOST, OK], [("open", "t"), 1, "scan", "open_at"]),
        ("t", [OK, LOST, OK], [("open", "t"), "read", 1, "scan", "open_at"]),
        (None, [AWAY], ["scan", 1, "scan"]),
        # A scan is good for one opening.
        (None, [OK, AWAY, OK], ["scan", "open_at", 1, "scan", "open_at"]),
        # It was opened behind the scan, and no position is known yet.
        (None, [OK, OK, AWAY], ["scan", "open_at", "read", 1, "scan"]),
        (None, [OK, OK, QUIET, AWAY], ["scan", "open_at", "read", "read", 1, ("open", "moved 1")]),
        # More documents of the same place move the token with the last.
        ("t", [OK, item("a", None), AWAY], [("open", "t"), "read", "read", 1, ("open", "t")]),
    ],
)
def test_after_a_pause_it_continues_with_unfinished_work(
    token: Any, outcomes: list[Outcome], expected: list[Any]
) -> None:
    assert steps(token, *outcomes) == expected


def test_documents_that_the_scan_has_met_are_not_taken_again_until_the_position_is_lost() -> None:
    pool = pool_at_rest(ProgressTracker())
    again, news = item("met", "u"), item("news", "v")
    run(Script([OK, OK, again, news], seen=["met"]), None, pool=pool)
    assert pool.standing()[0] == 1
    script = Script([LOST, OK, OK, again], seen=[])
    run(script, "v", pool=pool)
    assert pool.standing()[0] == 2, "the next scan begins anew"


def test_pauses_grow_until_the_feed_was_open_for_a_while() -> None:
    outcomes = [AWAY, OK, AWAY, OK, AWAY]
    found = [one for one in run(Script(outcomes), "t") if isinstance(one, int)]
    assert found == [1, 2, 3]
    found = [
        one for one in run(Script(outcomes), "t", healthy_seconds=-1.0) if isinstance(one, int)
    ]
    assert found == [1, 1, 1]


@settings(max_examples=200, deadline=None)
@given(
    token=st.sampled_from(["t", None]),
    kinds=st.lists(st.sampled_from(["fine", "fine", "quiet", "away", "lost"]), max_size=20),
)
def test_whatever_fails_in_whatever_order(token: Any, kinds: list[str]) -> None:
    outcomes: dict[str, Outcome] = {"quiet": QUIET, "away": AWAY, "lost": LOST}
    script = Script(
        outcomes.get(kind, item(f"e{number}", f"token {number}"))
        for number, kind in enumerate(kinds)
    )
    found = run(script, token)
    before: Any = None
    for step in found:
        if step == "read":
            assert before in ("open_at", "read") or before[0] == "open", "it is open"
        elif step == "open_at":
            assert before == "scan"
        elif not isinstance(step, int):
            assert before is None or isinstance(before, int), "nothing is tried without a pause"
        before = step
