"""The certificate that LINE is shown: its files, its days, its names, and what is really served."""

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

from frontdesk.tls import shown_to
from linedesk.console import health
from linedesk.doctor.checks.services import address
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip

CONNECT_SECONDS = 3.0
HTTPS = 443
SERVICE_USER = "linedesk"
NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which `ssl` has no name for."""


@dataclass(frozen=True)
class CertificateFacts:
    """What a certificate says of itself."""

    names: tuple[str, ...]
    until: datetime


def files(box: DoctorContext) -> Finding:
    """Whether certificate and key fit, the service may read them, and how long they are good."""
    paths = _paths(box)
    if paths is None:
        return skip("the front desk speaks plain HTTP: a proxy before it has the certificate")
    try:
        found = read(*paths)
    except ssl.SSLError as error:
        return bad(f"{paths[0]}: {error.reason or 'no certificate'}", "put both of one renewal")
    shut = [str(path) for path in paths if not _service_may_read(path)]
    if shut:
        return bad(
            f"the user {SERVICE_USER} may not read {', '.join(shut)}",
            f"chown root:{SERVICE_USER} and chmod 0640 on each",
        )
    return judge_days(found, box.now)


def served(box: DoctorContext) -> Finding:
    """Whether new connections get the certificate of the files."""
    paths = _paths(box)
    if paths is None:
        return skip("the front desk speaks plain HTTP")
    host, port = address(box)
    try:
        shown = _shown_at(host, port)
    except OSError as error:
        return bad(f"no TLS at {host}:{port} ({type(error).__name__})", "does the front desk run?")
    if shown != _leaf(paths[0]):
        return bad(
            f"{host}:{port} shows another certificate than {paths[0]}",
            "`systemctl reload linedesk-frontdesk`; its journal tells why it keeps the old one",
        )
    return ok(f"{host}:{port} shows that of the file")


def public(box: DoctorContext) -> Finding:
    """What is shown at the webhook URL, judged as LINE does: by the public authorities."""
    url = urlsplit(str(box.webhook.body.get("endpoint", "")))
    if url.scheme != "https" or not url.hostname:
        return skip("LINE has no https URL")
    try:
        return judge_days(_seen_at(url.hostname, url.port or HTTPS), box.now)
    except ssl.SSLCertVerificationError as error:
        return bad(
            f"{url.hostname} would be refused: {error.verify_message}",
            f"LINE sends nothing to it; the chain must be in the file as well. {health.RENEW}",
        )
    except OSError as error:
        # Many routers let nobody inside reach what lies outside; the test call goes the whole way.
        paths = _paths(box)
        if paths is None:
            return skip(f"not reached from here ({type(error).__name__}): the test call tells")
        return judge_names(read(*paths).names, url.hostname)


def read(certificate: Path, key: Path) -> CertificateFacts:
    """What the first certificate of a file says, which the key must fit.

    Told by a handshake with ourselves that trusts this very one, whatever its age. Raises
    ssl.SSLError, OSError.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without a password OpenSSL would ask a terminal for one, and wait.
    serving.load_cert_chain(certificate, key, password="")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    trusting.load_verify_locations(cadata=_leaf(certificate))
    return _told(shown_to(trusting, by=serving))


def judge_days(found: CertificateFacts, now: datetime) -> Finding:
    """By what is left of it."""
    saw = f"until {found.until:%Y-%m-%d}, {', '.join(found.names) or 'without names'}"
    problem = health.certificate(found.until - now)
    return ok(saw) if problem is None else of(problem, saw=f"{problem.saw}: {saw}")


def judge_names(known: tuple[str, ...], host: str) -> Finding:
    """A name such as *.example.com stands for one label (RFC 6125)."""
    _, _, parent = host.partition(".")
    if host in known or (parent and f"*.{parent}" in known):
        return ok(f"names {host}")
    return bad(
        f"LINE sends to {host}, the certificate names {', '.join(known) or 'no host'}",
        "have one made for that name, or set the webhook URL in LINE's console",
    )


def _paths(box: DoctorContext) -> tuple[Path, Path] | None:
    certificate, key = box.settings.frontdesk_tls_cert, box.settings.frontdesk_tls_key
    return None if certificate is None or key is None else (certificate, key)


def _leaf(path: Path) -> bytes:
    """The first certificate of a PEM file. Raises ssl.SSLError where it has none."""
    match = re.search(
        "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", path.read_text("ascii"), re.S
    )
    if match is None:
        raise ssl.SSLError("no certificate")
    return ssl.PEM_cert_to_DER_cert(match[0])


def _told(shown: Mapping[str, Any]) -> CertificateFacts:
    """By what `ssl` makes of it."""
    alternatives = shown.get("subjectAltName", ())
    until = ssl.cert_time_to_seconds(str(shown["notAfter"]))
    return CertificateFacts(
        names=tuple(str(value) for kind, value in alternatives if kind in ("DNS", "IP Address")),
        until=datetime.fromtimestamp(until, UTC),
    )


def _seen_at(host: str, port: int) -> CertificateFacts:
    """By a handshake that trusts what the system trusts. Raises ssl.SSLError, OSError."""
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
    """By the file's own mode; True where there is no such user, as on a machine for trials."""
    try:
        user = pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return True
    found = path.stat()
    groups = os.getgrouplist(SERVICE_USER, user.pw_gid)
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & 0o400)
    return bool(found.st_mode & (0o040 if found.st_gid in groups else 0o004))
