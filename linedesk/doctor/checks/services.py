"""The processes of this machine by systemd, the front desk's answer, and the spool."""

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

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip, warn
from linedesk.operate import health
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.settings.addresses import REACHED_AT

SOCKET = "linedesk-frontdesk.socket"
SYSTEMD = Path("/run/systemd/system")
SERVICES = (SOCKET, "linedesk-frontdesk.service", "linedesk-dispatcher.service")
EXPORT = ("linedesk-export.timer", "linedesk-export.service")
COMMAND_SECONDS = 3.0
ANSWER_SECONDS = 3.0
BUSY_SECONDS = 1.0
MOST_BYTES = 64 * 1024
SHOWN = ("Id", "LoadState", "ActiveState", "Result", "ExecMainStatus", "NRestarts")
JOURNAL = mark("`journalctl -u {unit}` shows the reason")
NO_SYSTEMD = mark("no systemd on this machine")

Unit = Mapping[str, str]


def units(box: DoctorContext) -> Finding:
    """The state of each service; skipped if systemd runs no service of linedesk."""
    if not _has_systemd():
        return skip(_(NO_SYSTEMD))
    return judge_units(list(parse(_systemctl(*SHOWN, units=SERVICES))))


def exports(box: DoctorContext) -> Finding:
    """The result of the last nightly export, if exports are enabled."""
    if not _has_systemd():
        return skip(_(NO_SYSTEMD))
    shown = _systemctl("ActiveState", "ExecMainExitTimestamp", units=EXPORT)
    timer, service = parse(shown)
    return judge_exports(timer, service)


def front_desk(box: DoctorContext) -> Finding:
    """The front desk's answer to /readyz."""
    host, port = address(box)
    try:
        with closing(_connection(host, port, tls=bool(box.settings.frontdesk_tls_cert))) as desk:
            desk.request("GET", "/readyz")
            answer = desk.getresponse()
            return judge_ready(answer.status, _object(answer.read(MOST_BYTES)))
    except (OSError, HTTPException) as error:
        return bad(
            _("no answer at {address} ({error})").format(
                address=f"{host}:{port}", error=type(error).__name__
            ),
            _("run `systemctl start linedesk-frontdesk`; its journal shows the reason"),
        )


def spooled(box: DoctorContext) -> Finding:
    """Whether the spool can be read, and what is set aside in it; nothing is changed."""
    path = box.settings.spool_path
    if not path.parent.is_dir():
        saw = _("no spool: the folder {folder} is missing; create it for the user linedesk")
        return of(health.no_spool(saw.format(folder=path.parent)))
    if not path.is_file():
        return ok(_("empty: no file yet"))
    try:
        name = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS)) as db:
            [refused] = db.execute("SELECT count(*) FROM refused").fetchone()
    except sqlite3.Error as error:
        reason = error.sqlite_errorname if hasattr(error, "sqlite_errorname") else "unknown"
        return warn(
            _("{file} cannot be read ({error})").format(file=path, error=reason),
            _("run `sudo linedesk doctor`; if it fails as well, the file may be damaged"),
        )
    return judge_spooled(refused)


def address(box: DoctorContext) -> tuple[str, int]:
    """The front desk's address on this machine, by its socket unit, else by the settings.

    Of several addresses it is the first.
    """
    told = _systemctl("Listen", units=[SOCKET]) if _has_systemd() else ""
    found = listens(told) or (box.settings.frontdesk_host, box.settings.frontdesk_port)
    return REACHED_AT.get(found[0], found[0]), found[1]


def listens(told: str) -> tuple[str, int] | None:
    """The first address of a socket unit, by `systemctl show`; None if it has none."""
    match = re.search(r"^Listen=(.*):(\d+) \(Stream\)$", told, re.MULTILINE)
    return (match[1].strip("[]"), int(match[2])) if match else None


def parse(text: str) -> Iterator[Unit]:
    """The blocks of `systemctl show`."""
    for block in text.strip().split("\n\n"):
        pairs = (line.partition("=") for line in block.splitlines())
        yield {name: value for name, _, value in pairs}


def judge_units(found: Sequence[Unit]) -> Finding:
    """Whether all run, without restarts by systemd."""
    there = [unit for unit in found if unit.get("LoadState") == "loaded"]
    if not there:
        return skip(_("no services of linedesk are installed"))
    saw = ", ".join(_told(unit) for unit in found)
    # A front desk may listen itself, without a socket of systemd.
    wanted = [unit for unit in found if unit in there or unit.get("Id") != SOCKET]
    down = [unit["Id"] for unit in wanted if unit.get("ActiveState") != "active"]
    if down:
        # The journal of a socket shows only that its service failed.
        first = next((unit for unit in down if unit != SOCKET), SOCKET)
        do = _("{reason}; then run {command}")
        return bad(
            saw, do.format(reason=_(JOURNAL).format(unit=first), command=_start(wanted, down))
        )
    restarted = [unit["Id"] for unit in there if int(unit.get("NRestarts") or 0)]
    if restarted:
        return warn(saw, _(JOURNAL).format(unit=restarted[0]))
    return ok(saw)


def judge_exports(timer: Unit, service: Unit) -> Finding:
    """By the timer and its service."""
    if timer.get("ActiveState") != "active":
        do = _("`systemctl enable --now linedesk-export.timer` makes one each night")
        return skip(_("no exports are made"), do)
    if service.get("ActiveState") == "failed":
        return bad(_("the last export failed"), _(JOURNAL).format(unit=EXPORT[1]))
    last = service.get("ExecMainExitTimestamp")
    return ok(_("each night, last {time}").format(time=last) if last else _("each night"))


def judge_ready(status: int, told: Mapping[str, Any]) -> Finding:
    """`told` is the body of /readyz."""
    if status != 200:
        return bad(
            _("answers {status}: {error}").format(
                status=status, error=known(str(told.get("error", _("without a reason"))))
            ),
            _("repair the named part: until then LINE gets 503"),
        )
    if "warning" in told:
        return warn(
            _("ready, but {warning}").format(warning=known(str(told["warning"]))),
            _(
                "create the folder of SPOOL_PATH for the user linedesk: without it LINE gets 503 "
                "while MongoDB is down"
            ),
        )
    spool = told.get("spool")
    if spool:
        return warn(
            _("ready, but stores in the spool: {count} events").format(
                count=spool.get("documents", 0)
            ),
            _("MongoDB accepts no writes now: see the checks above"),
        )
    return ok(_("ready"))


def judge_spooled(refused: int) -> Finding:
    """By the number of events that MongoDB refuses for ever."""
    if not refused:
        return ok(_("nothing is set aside in it"))
    return warn(
        ngettext(
            "{count} event that MongoDB refuses for ever is set aside in it",
            "{count} events that MongoDB refuses for ever are set aside in it",
            refused,
        ).format(count=refused),
        _("`sqlite3 <SPOOL_PATH> 'select n, at, reason from refused'` shows the reasons"),
    )


def _start(units: Sequence[Unit], down: Sequence[str]) -> str:
    if all(unit.get("ActiveState") != "failed" for unit in units):
        return f"`systemctl start {' '.join(down)}`"
    # After too many starts systemd refuses another one; a restart of the target would hide this.
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
    if not restarts:
        return f"{name} {state}"
    return f"{name} {state}, " + _("{count} restarts").format(count=restarts)


def _connection(host: str, port: int, *, tls: bool) -> HTTPConnection:
    if not tls:
        return HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    # Another check compares the certificate: this connection uses the address, not the name.
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
