"""Clean restarts and stops: users who write at that time do not notice."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

from tests.booted.booted_bot import SLOW_SECONDS, SLOW_WORDS
from tests.booted.box import PORT, SERVICES, Box, Outcome, wait_for
from tests.booted.rounds import check

TIMES = 3
UNDISTURBED_SECONDS = 1.5
TLS_PORT = 443
SOCKET = "linedesk-frontdesk.socket"
TLS = Path("etc/linedesk/tls")


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


@check("HTTPS at 443 by a drop-in; a restart serves the renewed certificate")
def renews(box: Box) -> str:
    folder = box.machine.files / TLS
    first, second = (_certificate(box.work, name) for name in ("first", "second"))
    _lay(folder, first)
    box.configure(
        FRONTDESK_TLS_CERT=f"/{TLS}/fullchain.pem", FRONTDESK_TLS_KEY=f"/{TLS}/privkey.pem"
    )
    with box.drop_in(SOCKET, f"[Socket]\nListenStream=\nListenStream={TLS_PORT}\n"):
        box.machine.systemctl("restart", SOCKET, "linedesk-frontdesk.service")
        _renew(box, folder, first[0], second)
    box.configure()
    box.machine.systemctl("restart", SOCKET, "linedesk-frontdesk.service")
    return "the new certificate"


def _renew(box: Box, folder: Path, before: bytes, pair: tuple[bytes, Path, Path]) -> None:
    assert _served() == before, "another certificate is served"
    _lay(folder, pair)
    box.machine.systemctl("restart", "linedesk-frontdesk.service")
    assert _served() == pair[0], "the renewed certificate is not served"
    box.wait_until_active("frontdesk")


def _certificate(work: Path, name: str) -> tuple[bytes, Path, Path]:
    """In DER, and the files of certificate and key."""
    certificate, key = work / f"{name}.crt", work / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    command += ["-subj", f"/CN={name}", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return ssl.PEM_cert_to_DER_cert(certificate.read_text()), certificate, key


def _lay(folder: Path, pair: tuple[bytes, Path, Path]) -> None:
    """As the hook for certbot does: beside, then renamed."""
    group = folder.stat().st_gid
    for source, name in [(pair[2], "privkey.pem"), (pair[1], "fullchain.pem")]:
        beside = folder / f".{name}"
        beside.write_bytes(source.read_bytes())
        beside.chmod(0o640)
        os.chown(beside, 0, group)
        beside.rename(folder / name)


def _served() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", TLS_PORT), timeout=10) as plain,
        context.wrap_socket(plain) as connection,
    ):
        served = connection.getpeercert(binary_form=True)
    assert served
    return served


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
