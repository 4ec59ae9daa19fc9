"""Boots a Debian, installs linedesk in it and tries it there: `scripts/test-systemd`."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from linedesk.setup.private_mongod import find_mongod
from tests.booted.installed import NEXT_VERSION, RUNNING
from tests.booted.machine import Nspawn
from tests.booted.root import PROJECT, Missing, checkout, copied, prepare

# Where they are seen inside.
SOURCE, WHEELS = "/src", "/wheels"
MOST_SECONDS = 1_200


def main() -> int:
    """Prepare, boot, check, switch off; 1 if a check failed, 77 where it cannot be tried here."""
    options = _options()
    if os.geteuid() != 0:
        print("test-systemd: booting a machine takes root", file=sys.stderr)
        return 77
    try:
        root, wheels = prepare(options.root)
    except Missing as error:
        print(f"test-systemd: missing here: {error}", file=sys.stderr)
        return 77
    # A stop by a signal goes through `finally`, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="booted-", dir=options.root))
    # A copy, since a checkout in use may change in the meantime.
    checkout(work / "src" / "now")
    checkout(work / "src" / "next", version=NEXT_VERSION)
    bound = {work / "src": SOURCE, wheels: WHEELS, find_mongod(): "/usr/bin/mongod"}
    machine = Nspawn(copied(root, work / "machine"), work / "boot.log", read_only=bound)
    try:
        pid = machine.start().pid
        print(f"Debian 12 booted under systemd in {time.monotonic() - began:.0f} s", flush=True)
        code = _check_inside(pid, work, options)
        code = code or _check_reboot(machine)
        if options.keep and sys.stdin.isatty():
            input(f"nsenter -t {pid} -a gets in; Enter ends it. ")
    finally:
        machine.stop()
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{time.monotonic() - began:.0f} s in all")
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/test-systemd", description=__doc__)
    parser.add_argument(
        "--root",
        type=Path,
        default=PROJECT / ".venv" / "booted",
        help="where the Debian root and the wheels are kept",
    )
    parser.add_argument("--keep", action="store_true", help="keep the machine's files and logs")
    parser.add_argument("--only", default="", metavar="WORDS", help="checks with these words only")
    parser.add_argument(
        "--timeout",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="how long LINE waits for an answer; more than its 2 s only where others use this "
        "machine at the same time",
    )
    return parser.parse_args()


def _check_inside(pid: int, work: Path, options: argparse.Namespace) -> int:
    """In the machine's network, where 127.0.0.1 is the machine's; everything else is this
    machine's.
    """
    command = ["nsenter", "-t", str(pid), "-n", sys.executable, "-m", "tests.booted.inside"]
    command += [str(pid), str(work), options.only, str(options.timeout)]
    try:
        return subprocess.run(command, timeout=MOST_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"✗ not done after {MOST_SECONDS} s", flush=True)
        return 1


def _check_reboot(machine: Nspawn) -> int:
    """All enabled services start at boot."""
    began = time.monotonic()
    try:
        rebooted = machine.reboot()
        states = {unit: rebooted.show(unit, "ActiveState") for unit in RUNNING}
        note, bad = ", ".join(states), [unit for unit in states if states[unit] != "active"]
    except AssertionError as error:
        note, bad = str(error), ["the machine"]
    mark, words = ("✗", f"not so: {', '.join(bad)}; {note}") if bad else ("✓", note)
    print(f"{mark} {time.monotonic() - began:6.1f} s  off and on again, all is active: {words}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
