"""Killed and frozen under load: systemd brings each back, and people notice nothing but a pause."""

import threading

from tests.booted.box import SERVICES, WATCHDOG_SECONDS, Box, wait_for
from tests.booted.restarting import undisturbed
from tests.booted.rounds import check


def killed(box: Box, name: str) -> str:
    with box.load() as outcome:
        undisturbed()
        pid = box.pid(name)
        box.signal(f"linedesk-{name}.service", "KILL")
        seconds = box.wait_for_successor(name, pid)
        undisturbed()
    return f"ready again after {seconds:.1f} s; {outcome}, {len(outcome.failed)} requests failed"


@check("kill -9 of the front desk under load")
def frontdesk_killed(box: Box) -> str:
    return killed(box, "frontdesk")


@check("kill -9 of the dispatcher under load")
def dispatcher_killed(box: Box) -> str:
    return killed(box, "dispatcher")


@check("kill -9 of mongod under load")
def mongod_killed(box: Box) -> str:
    before = {name: box.pid(name) for name in SERVICES}
    with box.load() as outcome:
        undisturbed()
        pid = box.machine.show("mongod.service", "MainPID")
        box.signal("mongod.service", "KILL")
        wait_for(
            lambda: box.machine.show("mongod.service", "MainPID") not in (pid, "0"),
            "mongod was started again",
        )
        undisturbed()
    after = {name: box.pid(name) for name in SERVICES}
    assert after == before, "a service was restarted"
    return f"{outcome}, {len(outcome.failed)} requests failed, no service restarted"


def frozen(box: Box, name: str) -> str:
    with box.load(rate=20) as outcome:
        undisturbed()
        pid, restarts = box.pid(name), box.restarts(name)
        box.signal(f"linedesk-{name}.service", "STOP")
        seconds = box.wait_for_successor(name, pid, seconds=WATCHDOG_SECONDS + 60)
        assert box.restarts(name) > restarts, "not restarted by systemd"
        undisturbed()
    said = box.machine.run("journalctl", "--no-pager", "-u", f"linedesk-{name}").stdout
    assert "Watchdog timeout" in said, "no word of the watchdog in the journal"
    return f"ready again after {seconds:.1f} s; {outcome}, {len(outcome.failed)} requests failed"


@check(f"a frozen dispatcher is ended by its watchdog ({WATCHDOG_SECONDS} s here)")
def dispatcher_frozen(box: Box) -> str:
    return frozen(box, "dispatcher")


@check(f"a frozen front desk is ended by its watchdog ({WATCHDOG_SECONDS} s here)")
def frontdesk_frozen(box: Box) -> str:
    return frozen(box, "frontdesk")


@check(
    "MongoDB away for longer than the watchdog allows: no service is restarted, the spool takes "
    "over"
)
def mongod_away(box: Box) -> str:
    before = {name: box.pid(name) for name in SERVICES}
    with box.load(rate=20) as outcome:
        undisturbed()
        box.machine.systemctl("stop", "mongod.service")
        away = wait_for(lambda: _waits(box), "the dispatcher says that it waits", seconds=30)
        sleep_past_the_watchdog()
        assert {name: box.pid(name) for name in SERVICES} == before, "a service was restarted"
        box.machine.systemctl("start", "mongod.service")
        undisturbed()
    assert {name: box.pid(name) for name in SERVICES} == before, "a service was restarted"
    return f"{outcome}, {len(outcome.failed)} requests failed; {away}"


def sleep_past_the_watchdog() -> None:
    threading.Event().wait(1.5 * WATCHDOG_SECONDS)


def _waits(box: Box) -> str:
    status = box.status("dispatcher")
    return status if "MongoDB" in status else ""


@check("a loop of crashes ends loudly, and reset-failed lets it start again")
def crash_loop(box: Box) -> str:
    # Two starts in place of thirty, so that it does not take minutes.
    with box.drop_in("linedesk-console.service", "[Unit]\nStartLimitBurst=2\n"):
        box.machine.systemctl("restart", "linedesk-console.service")
        wait_for(lambda: _gives_up(box), "systemd gives it up")
        result = box.show("console", "Result")
    box.machine.systemctl("reset-failed", "linedesk-*")
    box.machine.systemctl("start", "linedesk-console.service")
    box.wait_until_active()
    return f"failed, {result}"


def _gives_up(box: Box) -> bool:
    # There may be no process to kill at this moment.
    killing = ("kill", "--kill-whom=main", "--signal=KILL", "linedesk-console.service")
    box.machine.systemctl(*killing, check=False)
    return box.show("console", "ActiveState") == "failed"
