"""docs/reference/exit-codes.md has each exit code, and besides only those of signals and click."""

from __future__ import annotations

import re
from pathlib import Path

from linedesk.launch.main import linedesk
from linedesk.runtime.exit_codes import Exit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "exit-codes.md").read_text("utf-8")
USAGE, TERMINATED = 2, 143


def test_it_has_each_exit_code_and_no_other() -> None:
    cells = re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE)
    codes = {int(code) for cell in cells for code in cell.split(", ")}
    assert codes == {*Exit, USAGE, TERMINATED}


def test_each_command_with_a_meaning_of_its_own_is_one() -> None:
    rows = re.findall(r"^\| (`.*`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 5
    assert named <= set(linedesk.commands)


def test_systemd_restarts_none_of_the_two_that_the_page_names() -> None:
    units = [path.read_text("utf-8") for path in (ROOT / "deploy" / "systemd").glob("*.service")]
    restarted = [unit for unit in units if "\nRestart=" in unit]
    assert restarted
    # systemd's names of 78 and 65.
    for unit in restarted:
        assert re.search(r"^RestartPreventExitStatus=CONFIG CREDENTIALS DATAERR$", unit, re.M)
