"""Clean restarts and stops: users who write at that time do not notice."""

import socket
import threading
import time

from tests.booted.booted_bot import SLOW_SECONDS, SLOW_WORDS
from tests.booted.box import PORT, SERVICES, Box, Outcome, wait_for
from tests.booted.rounds import check

TIMES = 3
UNDISTURBED_SECONDS = 1.5


def none_failed(outcome: Outcome) -> str:
    assert not outcome.failed, f"{len(outcome.failed)} failed: {', '.join(outcome.failed[:5])}"
    return f"{outcome}, 0 failed"


def undisturbed() -> None:
    """Let people write for a while."""
    threading.Event().wait(UNDISTURBED_SECONDS)


@check(f"{TIMES} restarts of the front desk under load refuse no connection")
def frontdesk_restarts(box: Box) -> str:
    took = []
    with box.load() as outcome:
        for _ in range(TIMES):
            undisturbed()
            began = time.monotonic()
            box.machine.systemctl("restart", "linedesk-frontdesk.service")
            took.append(f"{time.monotonic() - began:.1f}")
        undisturbed()
    return f"{none_failed(outcome)}; {', '.join(took)} s each"


@check("a restart of the whole target under load refuses no connection")
def target_restarts(box: Box) -> str:
    before = [box.pid(name) for name in SERVICES]
    with box.load() as outcome:
        undisturbed()
        box.machine.systemctl("restart", "linedesk.target")
        box.wait_until_active()
        undisturbed()
    assert not set(before) & {box.pid(name) for name in SERVICES}, "a service was not restarted"
    return none_failed(outcome)


@check("a stop waits for a slow handler, which does not run again")
def drains(box: Box) -> str:
    (user,) = box.people(1)
    since = len(box.sim.deliveries)
    before = _slow_ones(box)
    box.sim.say(user, "slow-1")
    wait_for(lambda: _slow_ones(box) > before, "the handler runs", seconds=SLOW_SECONDS)
    began = time.monotonic()
    box.machine.systemctl("stop", "linedesk-dispatcher.service")
    took = time.monotonic() - began
    result = box.show("dispatcher", "Result")
    assert result == "success", result
    box.machine.systemctl("start", "linedesk-dispatcher.service")
    box.judge(since)
    assert _slow_ones(box) == before + 1, "the handler ran again"
    return f"stopped in {took:.1f} s, answered once after the next start"


def _slow_ones(box: Box) -> int:
    return box.machine.journal("-u", "linedesk-dispatcher").count(SLOW_WORDS)


@check("stop of the target closes the door, start opens it, nothing is lost")
def stops_and_starts(box: Box) -> str:
    with box.load() as outcome:
        undisturbed()
        began = time.monotonic()
        box.machine.systemctl("stop", "linedesk.target")
        # The target's own stop is done at once.
        wait_for(lambda: _states(box) == {"inactive"}, "all services are inactive")
        took = time.monotonic() - began
        undisturbed()
        assert not _listens(), "a process listens"
        box.machine.systemctl("start", "linedesk.target")
        box.wait_until_active()
        undisturbed()
    return f"{outcome}; stopped in {took:.1f} s, {len(outcome.failed)} requests refused meanwhile"


def _states(box: Box) -> set[str]:
    return {box.show(name, "ActiveState") for name in SERVICES}


def _listens() -> bool:
    try:
        socket.create_connection(("127.0.0.1", PORT), timeout=2).close()
    except OSError:
        return False
    return True
