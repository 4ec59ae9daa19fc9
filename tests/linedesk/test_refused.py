"""A process that MongoDB refuses ends late enough for systemd never to give it up."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from linedesk import dispatching, refused
from linedesk.dispatching import Ending
from linedesk.refused import LEAST_SECONDS, let_time_pass
from recvq.errors import AccessRefused
from recvq.service import Nobody

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT_SECONDS = {"min": 60.0, "s": 1.0}


class Told(Nobody):
    def __init__(self) -> None:
        self.words: list[str] = []

    def unwell(self, status: str) -> None:
        self.words.append(status)


def inbox_with(*messages: int | BaseException) -> SimpleQueue[int | BaseException]:
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    for message in messages:
        inbox.put(message)
    return inbox


def test_it_says_why_and_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(refused, "LEAST_SECONDS", 0.1)
    service, began = Told(), time.monotonic()
    # Another thread has met the same.
    let_time_pass(began, inbox_with(AccessRefused(18)), service, why="wrong password")
    assert time.monotonic() - began >= 0.1
    assert service.words == ["wrong password"]
    assert 'refused, ending in a while seconds=0 reason="wrong password"' in caplog.text


def test_a_signal_ends_the_wait() -> None:
    began = time.monotonic()
    let_time_pass(began, inbox_with(signal.SIGTERM), Told(), why="wrong password")
    assert time.monotonic() - began < LEAST_SECONDS / 2


def test_one_that_has_run_for_a_while_ends_at_once() -> None:
    service = Told()
    let_time_pass(time.monotonic() - LEAST_SECONDS, inbox_with(), service, why="wrong password")
    assert service.words == []


def test_systemd_never_gives_it_up() -> None:
    """The dispatcher's unit has no limit (tests/deploy/test_units.py)."""
    unit = (UNITS / "linedesk-scheduler.service").read_text("utf-8")
    [[number, word]] = re.findall(r"^StartLimitIntervalSec=(\d+)(min|s)$", unit, re.MULTILINE)
    [burst] = re.findall(r"^StartLimitBurst=(\d+)$", unit, re.MULTILINE)
    assert float(number) * UNIT_SECONDS[word] / LEAST_SECONDS < int(burst)


class Refused:
    """A dispatcher that MongoDB refuses before it begins, or at work."""

    def __init__(self, answer: Ending | AccessRefused) -> None:
        self._answer = answer

    def run(self) -> Ending:
        if isinstance(self._answer, AccessRefused):
            raise self._answer
        return self._answer


def test_a_dispatcher_waits_if_it_is_refused() -> None:
    error = AccessRefused(18)
    before, at_work = Told(), Told()
    with pytest.raises(AccessRefused):
        run(Refused(error), before)
    assert before.words == [str(error)]
    assert run(Refused(Ending.REFUSED), at_work) is Ending.REFUSED
    assert len(at_work.words) == 1


def test_a_dispatcher_that_is_stopped_does_not_wait() -> None:
    service = Told()
    assert run(Refused(Ending.STOPPED), service) is Ending.STOPPED
    assert service.words == []


def run(dispatcher: Refused, service: Told) -> Ending:
    return dispatching._run(dispatcher, inbox_with(signal.SIGTERM), service)  # type: ignore[arg-type]
