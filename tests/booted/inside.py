"""The part of a run that shares the machine's network: LINE, its users, and the checks."""

import importlib
import sys
from pathlib import Path

import linesim
from tests.booted.box import PORT, SIM_PORT, Box
from tests.booted.machine import Machine
from tests.booted.rounds import go

# In the order in which they are made.
CHAPTERS = ("installed", "restarting", "dying", "operating")


def main() -> int:
    pid, work, only = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    timeout_seconds = float(sys.argv[4])
    for chapter in CHAPTERS:
        importlib.import_module(f"tests.booted.{chapter}")
    machine = Machine(pid)
    with linesim.running(
        port=SIM_PORT,
        webhook_url=f"http://127.0.0.1:{PORT}/callback",
        webhook_timeout_seconds=timeout_seconds,
        rate_limits=False,
    ) as sim:
        box = Box(machine, sim, work, timeout_seconds=timeout_seconds)
        failed = go(box, only)
    journal = machine.run("journalctl", "--no-pager", "--output=short-iso-precise").stdout
    (work / "journal.txt").write_text(journal)
    if failed:
        print((work / "failures.txt").read_text(), file=sys.stderr)
        print(f"failed: {len(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
