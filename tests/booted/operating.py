"""An operator's tasks: wrong settings, doctor, backup, upgrade and roll-back."""

import re

from tests.booted.box import SERVICES, Box, wait_for
from tests.booted.installed import NEXT, NEXT_VERSION, NOW, install
from tests.booted.restarting import none_failed, undisturbed
from tests.booted.rounds import check

CONFIG = "78"
DISPATCHER = "linedesk-dispatcher.service"


@check("a wrong setting fails the unit with 78, once, and systemctl status says why")
def wrong_setting(box: Box) -> str:
    box.configure(HANDLER_TRIES="many")
    restarts = box.restarts("dispatcher")
    box.machine.systemctl("restart", "linedesk-dispatcher.service", check=False)
    wait_for(lambda: box.show("dispatcher", "ActiveState") == "failed", "the unit fails")
    assert box.show("dispatcher", "ExecMainStatus") == CONFIG
    undisturbed()
    assert box.restarts("dispatcher") in (0, restarts), "it was started again"
    shown = box.machine.systemctl("status", "linedesk-dispatcher.service", check=False)
    reason = next(line for line in reversed(shown.splitlines()) if "HANDLER_TRIES" in line)
    box.configure()
    box.machine.systemctl("start", "linedesk-dispatcher.service")
    return reason.strip().rpartition("]: ")[2]


@check("linedesk doctor finds nothing bad")
def doctor(box: Box) -> str:
    # The dispatcher has just been started.
    status = ("linedesk", "status")
    wait_for(lambda: not box.machine.run(*status, check=False).returncode, "it is well")
    done = box.machine.run("linedesk", "doctor", check=False)
    (box.work / "doctor.txt").write_text(done.stdout + done.stderr)
    lines = done.stdout.strip().splitlines() or [done.stderr]
    bad = [line for line in lines if line.startswith("bad ")]
    assert done.returncode == 0, f"{done.returncode}: {'; '.join(bad) or done.stderr}"
    return lines[-1]


@check("the nightly export works under its own unit")
def nightly(box: Box) -> str:
    box.machine.systemctl("start", "linedesk-export.service")
    folder = box.machine.files / "var/lib/private/linedesk-exports"
    (file,) = folder.iterdir()
    return f"{file.name}, {file.stat().st_size} bytes"


@check("an upgrade under load refuses no connection")
def upgrades(box: Box) -> str:
    return _changed(box, to_next=True, source=NEXT)


@check("a roll-back under load refuses no connection")
def rolls_back(box: Box) -> str:
    return _changed(box, "--roll-back", to_next=False)


def _changed(box: Box, *options: str, to_next: bool, source: str = NOW) -> str:
    before = _release(box)
    with box.load(rate=20) as outcome:
        undisturbed()
        said = install(box, *options, source=source)
        box.wait_until_active()
        undisturbed()
    after = _release(box)
    assert after.startswith(NEXT_VERSION) is to_next, f"{after} is in use"
    return f"{before} to {after}, {said}; {none_failed(outcome)}"


def _release(box: Box) -> str:
    """The release that the processes run, not only the one that is switched to."""
    running = {box.machine.run("cat", f"/proc/{box.pid(name)}/cmdline").stdout for name in SERVICES}
    releases = {found[1] for line in running if (found := re.search(r"/releases/([^/]+)/", line))}
    assert len(releases) == 1, str(running)
    return releases.pop()
