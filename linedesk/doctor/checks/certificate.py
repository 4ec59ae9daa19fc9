"""The certificate for LINE: its files, its expiry, its names, and the one that is served."""

from __future__ import annotations

import os
import pwd
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frontdesk.tls import load
from linedesk.doctor.checks.services import address
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip
from linedesk.operate import health
from linedesk.runtime.language import gettext as _

CONNECT_SECONDS = 3.0
HTTPS = 443
SERVICE_USER = "linedesk"


@dataclass(frozen=True)
class CertificateFacts:
    """The names and the expiry of a certificate."""

    names: tuple[str, ...]
    until: datetime


def files(box: DoctorContext) -> Finding:
    """Whether certificate and key match, the service can read them, and when they expire."""
    paths = _paths(box)
    if paths is None:
        return skip(
            _("the front desk serves plain HTTP: the proxy in front of it has the certificate")
        )
    try:
        found = read(*paths)
    except ssl.SSLError as error:
        return bad(
            f"{paths[0]}: {error.reason or _('no certificate')}",
            _("install the certificate and the key of the same renewal"),
        )
    shut = [str(path) for path in paths if not _service_may_read(path)]
    if shut:
        return bad(
            _("the user {user} cannot read {files}").format(
                user=SERVICE_USER, files=", ".join(shut)
            ),
            _("run `chown root:{user}` and `chmod 0640` on each").format(user=SERVICE_USER),
        )
    return judge_days(found, box.now)


def served(box: DoctorContext) -> Finding:
    """Whether the front desk serves the certificate in the files."""
    paths = _paths(box)
    if paths is None:
        return skip(_("the front desk serves plain HTTP"))
    host, port = address(box)
    try:
        shown = _shown_at(host, port)
    except OSError as error:
        saw = _("no TLS at {address} ({error})")
        saw = saw.format(address=f"{host}:{port}", error=type(error).__name__)
        return bad(saw, _("check that the front desk runs"))
    if shown != _leaf(paths[0]):
        saw = _("{address} serves another certificate than {file}")
        return bad(
            saw.format(address=f"{host}:{port}", file=paths[0]),
            _("run `systemctl restart linedesk-frontdesk`"),
        )
    saw = _("{address} serves the certificate of the file")
    return ok(saw.format(address=f"{host}:{port}"))


def public(box: DoctorContext) -> Finding:
    """The certificate at the webhook URL, verified as LINE does: by public authorities."""
    url = urlsplit(str(box.webhook.body.get("endpoint", "")))
    if url.scheme != "https" or not url.hostname:
        return skip(_("LINE has no https URL"))
    try:
        return judge_days(_seen_at(url.hostname, url.port or HTTPS), box.now)
    except ssl.SSLCertVerificationError as error:
        saw = _("LINE refuses the certificate of {host}: {error}")
        do = _("LINE sends no webhooks. The file must also contain the chain. {renew}")
        return bad(
            saw.format(host=url.hostname, error=error.verify_message),
            do.format(renew=_(health.RENEW)),
        )
    except OSError as error:
        # Behind many routers the public address cannot be reached; the test call uses it.
        paths = _paths(box)
        if paths is None:
            saw = _("cannot be reached from here ({error}); the webhook test checks it")
            return skip(saw.format(error=type(error).__name__))
        return judge_names(read(*paths).names, url.hostname)


def read(certificate: Path, key: Path) -> CertificateFacts:
    """The facts of the first certificate of a file; the key must match.

    Raises ssl.SSLError, OSError.
    """
    return _told(load(certificate, key).details)


def judge_days(found: CertificateFacts, now: datetime) -> Finding:
    """By the time until the certificate expires."""
    saw = _("until {date}, {names}").format(
        date=f"{found.until:%Y-%m-%d}", names=", ".join(found.names) or _("without names")
    )
    problem = health.certificate(found.until - now)
    return ok(saw) if problem is None else of(problem, saw=f"{problem.saw}: {saw}")


def judge_names(known: tuple[str, ...], host: str) -> Finding:
    """A name such as *.example.com stands for one label (RFC 6125)."""
    parent = host.partition(".")[2]
    if host in known or (parent and f"*.{parent}" in known):
        return ok(_("contains {host}").format(host=host))
    return bad(
        _("LINE sends to {host}; the certificate contains {names}").format(
            host=host, names=", ".join(known) or _("no host")
        ),
        _("get a certificate for this name, or correct the webhook URL in LINE's console"),
    )


def _paths(box: DoctorContext) -> tuple[Path, Path] | None:
    certificate, key = box.settings.frontdesk_tls_cert, box.settings.frontdesk_tls_key
    return None if certificate is None or key is None else (certificate, key)


def _leaf(path: Path) -> bytes:
    """The first certificate of a PEM file. Raises ssl.SSLError if there is none."""
    match = re.search(
        "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", path.read_text("ascii"), re.S
    )
    if match is None:
        raise ssl.SSLError(_("no certificate"))
    return ssl.PEM_cert_to_DER_cert(match[0])


def _told(shown: Mapping[str, Any]) -> CertificateFacts:
    """The facts of a certificate as `ssl` returns it."""
    alternatives = shown.get("subjectAltName", ())
    until = ssl.cert_time_to_seconds(str(shown["notAfter"]))
    return CertificateFacts(
        names=tuple(str(value) for kind, value in alternatives if kind in ("DNS", "IP Address")),
        until=datetime.fromtimestamp(until, UTC),
    )


def _seen_at(host: str, port: int) -> CertificateFacts:
    """The facts by a handshake with the system's trust. Raises ssl.SSLError, OSError."""
    with (
        socket.create_connection((host, port), timeout=CONNECT_SECONDS) as plain,
        ssl.create_default_context().wrap_socket(plain, server_hostname=host) as secure,
    ):
        shown = secure.getpeercert()
    assert shown is not None, "it was verified"
    return _told(shown)


def _shown_at(host: str, port: int) -> bytes | None:
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout=CONNECT_SECONDS) as plain,
        asking.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True)


def _service_may_read(path: Path) -> bool:
    """Whether the file's mode allows it; True if there is no such user, as in a trial."""
    try:
        user = pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return True
    found = path.stat()
    groups = os.getgrouplist(SERVICE_USER, user.pw_gid)
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & 0o400)
    return bool(found.st_mode & (0o040 if found.st_gid in groups else 0o004))
