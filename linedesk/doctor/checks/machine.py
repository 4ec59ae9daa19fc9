"""The running system: the problems of `linedesk status`, the front desk, its spool, the backup."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, FindingLevel, bad, ok, size, skip, warn
from linedesk.operate import health
from linedesk.operate.overview import read_overview
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.settings.addresses import REACHED_AT
from linedesk.store.collections import MEGABYTE

SOCKET = "linedesk-frontdesk.socket"
SYSTEMD = Path("/run/systemd/system")
EXPORT_TIMER, EXPORT = "linedesk-export.timer", "linedesk-export.service"
COMMAND_SECONDS = 3.0
ANSWER_SECONDS = 3.0
REPORT_SECONDS = 2.0
MOST_BYTES = 64 * 1024

Unit = Mapping[str, str]


def running(box: DoctorContext) -> list[Finding]:
    """The problems of `linedesk status`, a finding each.

    A process that has just started reports after a second, so a bad finding is looked at again.
    """
    found = _problems(box)
    if any(one.state is FindingLevel.BAD for one in found):
        threading.Event().wait(REPORT_SECONDS)
        found = _problems(box)
    return found or [ok(_("no problems, as `linedesk status` judges them"))]


def _problems(box: DoctorContext) -> list[Finding]:
    seen = read_overview(box.database)
    return [
        Finding(FindingLevel(one.level), f"{one.topic}: {one.saw}", one.do)
        for one in health.problems_of(seen)
    ]


def exports(box: DoctorContext) -> Finding:
    """The result of the last nightly export, if exports are enabled."""
    if not _has_systemd():
        return skip(_("no systemd on this machine"))
    if _shown(EXPORT_TIMER).get("ActiveState") != "active":
        do = _("`systemctl enable --now linedesk-export.timer` makes one each night")
        return skip(_("no exports are made"), do)
    service = _shown(EXPORT)
    if service.get("ActiveState") == "failed":
        return bad(
            _("the last export failed"),
            _("`journalctl -u {unit}` shows the reason").format(unit=EXPORT),
        )
    last = service.get("ExecMainExitTimestamp")
    return ok(_("each night, last {time}").format(time=last) if last else _("each night"))


def front_desk(box: DoctorContext) -> Finding:
    """The front desk's answer to /readyz."""
    listen = _shown(SOCKET).get("Listen", "") if _has_systemd() else ""
    host, port = listens(listen) or (box.settings.frontdesk_host, box.settings.frontdesk_port)
    host = REACHED_AT.get(host, host)
    try:
        with closing(_connection(host, port, tls=bool(box.settings.frontdesk_tls_cert))) as desk:
            desk.request("GET", "/readyz")
            answer = desk.getresponse()
            told = json.loads(answer.read(MOST_BYTES) or "{}")
    except (OSError, HTTPException, ValueError) as error:
        return bad(
            _("no answer at {address} ({error})").format(
                address=f"{host}:{port}", error=type(error).__name__
            ),
            _(
                "`journalctl -u linedesk-frontdesk` shows the reason; then run `systemctl "
                "reset-failed 'linedesk-*'; systemctl start linedesk.target`"
            ),
        )
    if answer.status == 200:
        return ok(_("ready"))
    why = known(str(told.get("error", _("without a reason"))))
    return bad(
        _("answers {status}: {error}").format(status=answer.status, error=why),
        _("repair the named part: until then LINE gets 503"),
    )


def spool(box: DoctorContext) -> Finding:
    """The spool's disk; needs no MongoDB, since the spool matters most while it is down."""
    folder = box.settings.spool_path.parent
    try:
        disk = os.statvfs(folder)
    except FileNotFoundError:
        do = _("create it for the user linedesk: see SPOOL_PATH")
        return bad(_("{file} is missing").format(file=folder), do)
    free_bytes = disk.f_bavail * disk.f_frsize
    most_bytes = box.settings.spool_max_mb * MEGABYTE
    saw = _("{free} free, SPOOL_MAX_MB is {most}")
    saw = saw.format(free=size(free_bytes), most=size(most_bytes))
    if free_bytes < health.SPOOL_SPARE_BYTES:
        return bad(saw, _("free space: without it LINE gets 503 while MongoDB is down"))
    if free_bytes < most_bytes + health.SPOOL_SPARE_BYTES:
        return warn(saw, _("free space, or lower SPOOL_MAX_MB to the free space"))
    return ok(saw)


def listens(told: str) -> tuple[str, int] | None:
    """The address of a socket unit's `Listen`; None if it has none."""
    match = re.fullmatch(r"(.*):(\d+) \(Stream\)", told)
    return (match[1].strip("[]"), int(match[2])) if match else None


def _connection(host: str, port: int, *, tls: bool) -> HTTPConnection:
    if not tls:
        return HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    # Another check verifies the certificate: this connection uses the address, not the name.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=context)


def _has_systemd() -> bool:
    return SYSTEMD.is_dir() and shutil.which("systemctl") is not None


def _shown(unit: str) -> Unit:
    """The properties of a unit. Of several addresses of a socket the first one counts."""
    told = subprocess.run(
        ["systemctl", "show", "--property=ActiveState,ExecMainExitTimestamp,Listen", unit],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    ).stdout
    pairs = (line.partition("=") for line in reversed(told.splitlines()))
    return {name: value for name, _, value in pairs}
