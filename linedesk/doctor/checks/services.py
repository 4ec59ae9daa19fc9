"""The processes of this box: as systemd keeps them, as the front desk answers, and the spool."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import ssl
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from linedesk.compose.addresses import REACHED_AT
from linedesk.console import health
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, size, skip, warn
from linedesk.store.collections import MEGABYTE

SOCKET = "linedesk-frontdesk.socket"
SYSTEMD = Path("/run/systemd/system")
EXPORT = ("linedesk-export.timer", "linedesk-export.service")
COMMAND_SECONDS = 3.0
ANSWER_SECONDS = 3.0
BUSY_SECONDS = 1.0
MOST_BYTES = 64 * 1024
SHOWN = ("Id", "LoadState", "ActiveState", "Result", "ExecMainStatus", "NRestarts")
JOURNAL = "`journalctl -u {}` tells why"

Unit = Mapping[str, str]


def units(box: DoctorContext) -> Finding:
    """Each service as systemd has it; skipped where systemd runs nothing of linedesk."""
    if not _has_systemd():
        return skip("no systemd here")
    return judge_units(list(parse(_systemctl(*SHOWN, units=_services(box)))))


def exports(_: DoctorContext) -> Finding:
    """How the last nightly export went, where they are made."""
    if not _has_systemd():
        return skip("no systemd here")
    shown = _systemctl("ActiveState", "ExecMainExitTimestamp", units=EXPORT)
    timer, service = parse(shown)
    return judge_exports(timer, service)


def front_desk(box: DoctorContext) -> Finding:
    """What it answers to /readyz."""
    host, port = address(box)
    try:
        with closing(_connection(host, port, tls=bool(box.settings.frontdesk_tls_cert))) as desk:
            desk.request("GET", "/readyz")
            answer = desk.getresponse()
            return judge_ready(answer.status, _object(answer.read(MOST_BYTES)))
    except (OSError, HTTPException) as error:
        return bad(
            f"no answer at {host}:{port} ({type(error).__name__})",
            "`systemctl start linedesk-frontdesk`; its journal tells more",
        )


def spooled(box: DoctorContext) -> Finding:
    """What waits in the spool, read without changing it."""
    path = box.settings.spool_path
    if not path.parent.is_dir():
        saw = f"no spool: {path.parent} is missing; make it, for the user linedesk"
        return of(health.no_spool(saw))
    if not path.is_file():
        return ok("empty: no file yet")
    try:
        name = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS)) as db:
            documents, held = db.execute("SELECT documents, bytes FROM totals").fetchone()
            [refused] = db.execute("SELECT count(*) FROM refused").fetchone()
    except sqlite3.Error as error:
        reason = error.sqlite_errorname if hasattr(error, "sqlite_errorname") else "unknown"
        return warn(
            f"{path} cannot be read ({reason})",
            "as root? `sudo linedesk doctor`; else it may be damaged",
        )
    most = box.settings.spool_max_mb * MEGABYTE
    return judge_spooled(documents, held, refused, most_bytes=most)


def address(box: DoctorContext) -> tuple[str, int]:
    """Where the front desk is reached on this machine: by its socket unit, else the settings.

    With several addresses it is the first.
    """
    told = _systemctl("Listen", units=[SOCKET]) if _has_systemd() else ""
    found = listens(told) or (box.settings.frontdesk_host, box.settings.frontdesk_port)
    return REACHED_AT.get(found[0], found[0]), found[1]


def listens(told: str) -> tuple[str, int] | None:
    """The first address of a socket unit, by `systemctl show`; None where it has none."""
    match = re.search(r"^Listen=(.*):(\d+) \(Stream\)$", told, re.MULTILINE)
    return (match[1].strip("[]"), int(match[2])) if match else None


def parse(text: str) -> Iterator[Unit]:
    """The blocks of `systemctl show`."""
    for block in text.strip().split("\n\n"):
        pairs = (line.partition("=") for line in block.splitlines())
        yield {name: value for name, _, value in pairs}


def judge_units(found: Sequence[Unit]) -> Finding:
    """Running, and not because systemd started them again and again."""
    there = [unit for unit in found if unit.get("LoadState") == "loaded"]
    if not there:
        return skip("no services of linedesk's are installed")
    saw = ", ".join(_told(unit) for unit in found)
    # A front desk may listen by itself, without a socket of systemd's.
    wanted = [unit for unit in found if unit in there or unit.get("Id") != SOCKET]
    down = [unit["Id"] for unit in wanted if unit.get("ActiveState") != "active"]
    if down:
        # Of a socket the journal tells only that its service failed.
        first = next((unit for unit in down if unit != SOCKET), SOCKET)
        return bad(saw, f"{JOURNAL.format(first)}; then {_start(wanted, down)}")
    restarted = [unit["Id"] for unit in there if int(unit.get("NRestarts") or 0)]
    return warn(saw, JOURNAL.format(restarted[0])) if restarted else ok(saw)


def judge_exports(timer: Unit, service: Unit) -> Finding:
    """By the timer and what it starts."""
    if timer.get("ActiveState") != "active":
        return skip("none is made", "`systemctl enable --now linedesk-export.timer`: each night")
    if service.get("ActiveState") == "failed":
        return bad("the last export failed", JOURNAL.format(EXPORT[1]))
    last = service.get("ExecMainExitTimestamp")
    return ok(f"each night{f', the last one {last}' if last else ''}")


def judge_ready(status: int, told: Mapping[str, Any]) -> Finding:
    """`told` is the body of /readyz."""
    if status != 200:
        return bad(
            f"answers {status}: {told.get('error', 'without a reason')}",
            "mend what it names: it answers LINE 503 meanwhile",
        )
    if "warning" in told:
        return warn(
            f"ready, but {told['warning']}",
            "without MongoDB it would answer LINE 503: make SPOOL_PATH's folder, for the user "
            "linedesk",
        )
    spool = told.get("spool")
    if spool:
        return warn(
            f"ready, all goes to the spool: {spool.get('documents', 0)} documents",
            "MongoDB takes nothing at the moment: see above",
        )
    return ok("ready")


def judge_spooled(documents: int, used_bytes: int, refused: int, *, most_bytes: int) -> Finding:
    """By the totals of the file; `most_bytes` is SPOOL_MAX_MB."""
    if refused:
        return warn(
            f"{refused} events that MongoDB will never take stand apart in it",
            "sqlite3 <SPOOL_PATH> 'select n, at, reason from refused' tells why",
        )
    problem = health.spooled(documents, used_bytes=used_bytes, most_bytes=most_bytes)
    if problem is None:
        return ok("empty")
    return of(problem, saw=f"{problem.saw}, {size(used_bytes)}")


def _services(box: DoctorContext) -> Iterator[str]:
    yield from (SOCKET, "linedesk-frontdesk.service", "linedesk-dispatcher.service")
    if box.settings.scheduler == "process":
        yield "linedesk-scheduler.service"


def _start(units: Sequence[Unit], down: Sequence[str]) -> str:
    if all(unit.get("ActiveState") != "failed" for unit in units):
        return f"`systemctl start {' '.join(down)}`"
    # After too many starts systemd refuses another one; a restart of the target hides that.
    return "`systemctl reset-failed 'linedesk-*'; systemctl start linedesk.target`"


def _told(unit: Unit) -> str:
    name = unit.get("Id", "?").removeprefix("linedesk-").removesuffix(".service")
    if unit.get("LoadState") != "loaded":
        return f"{name} {unit.get('LoadState', 'unknown')}"
    restarts = int(unit.get("NRestarts") or 0)
    state = unit["ActiveState"]
    if state == "failed":
        code = f" {unit['ExecMainStatus']}" if unit.get("Result") == "exit-code" else ""
        state += f" ({unit.get('Result', 'unknown')}{code})"
    return f"{name} {state}" + (f", {restarts} restarts" if restarts else "")


def _connection(host: str, port: int, *, tls: bool) -> HTTPConnection:
    if not tls:
        return HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    # Whose certificate it shows is another check's business: it is asked by its address.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=context)


def _has_systemd() -> bool:
    return SYSTEMD.is_dir() and shutil.which("systemctl") is not None


def _systemctl(*properties: str, units: Iterable[str]) -> str:
    return subprocess.run(
        ["systemctl", "show", f"--property={','.join(properties)}", *units],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    ).stdout


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
