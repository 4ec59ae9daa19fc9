"""What an operator does: wrong settings, doctor, backup, upgrade and roll-back."""

from __future__ import annotations

import re

from tests.booted.box import Box, wait_for
from tests.booted.installed import install
from tests.booted.restarting import none_failed, undisturbed
from tests.booted.rounds import check

CONFIG = "78"


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
