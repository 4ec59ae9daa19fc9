"""The front desk's own TLS: its certificate, its refusals, and a renewed certificate."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from frontdesk.errors import CannotListen
from frontdesk.tls import CertificateFiles
from tests.frontdesk.authority import Authority, Pair
from tests.frontdesk.inprocess import QUICK, Line, Running, burst, in_loop, quick, running

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")
OLD, NEW = 100, 200


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def old(authority: Authority) -> Pair:
    return authority.issue(serial=OLD, days=90)


@pytest.fixture(scope="module")
def new(authority: Authority) -> Pair:
    return authority.issue(serial=NEW, days=90)


@pytest.fixture
def files(tmp_path: Path, old: Pair) -> Pair:
    """The files that the settings name."""
    files = Pair(tmp_path / "fullchain.pem", tmp_path / "privkey.pem")
    put(old.certificate, files.certificate)
    put(old.key, files.key)
    return files


# Only SIGHUP has the files read.
NO_LOOK = replace(QUICK, certificate_ticks=1_000_000)


def put(new: Path, place: Path) -> None:
    """As the renewal's hook does it: beside, then in place of the old one."""
    beside = place.with_suffix(".new")
    shutil.copy(new, beside)
    beside.replace(place)


def opened(files: Pair) -> CertificateFiles:
    return CertificateFiles(files.certificate, files.key)


def trusting(authority: Authority) -> ssl.SSLContext:
    """A client that knows the root alone, as LINE knows Let's Encrypt's."""
    return ssl.create_default_context(cafile=str(authority.root))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# --- handshakes -------------------------------------------------------------------------------


def test_it_shows_the_whole_chain_under_tls_1_2_and_1_3(authority: Authority, files: Pair) -> None:
    async def scenario() -> None:
        async with running(opened(files)) as desk:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = trusting(authority)
                context.minimum_version = context.maximum_version = version
                line = await desk.connect(context)
                assert (await line.post()).status == 200
                assert line.serial == OLD

    in_loop(scenario)


def test_tls_1_1_is_refused_and_logged(
    authority: Authority, files: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    context = trusting(authority)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    # Without this OpenSSL's client would not even try.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")

    async def scenario() -> None:
        async with running(opened(files)) as desk:
            with pytest.raises(OSError):  # noqa: PT011 - an alert, or the end of the connection
                await desk.connect(context)
            await desk.reach(lambda: "UNSUPPORTED_PROTOCOL" in caplog.text)

    in_loop(scenario)


def test_half_a_handshake_is_ended_by_its_time_or_by_a_newer_connection(
    authority: Authority, files: Pair
) -> None:
    async def scenario() -> None:
        patient = replace(QUICK, handshake_seconds=60.0)
        async with running(opened(files), limits=patient, most_connections=2) as desk:
            older, newer = [await half_a_handshake(desk) for _ in range(2)]
            line = await desk.connect(trusting(authority))
            assert await older.ended()
            assert desk.figures.refused["evicted"] == 1
            assert (await line.post()).status == 200
            # With 1 of 2 places proved, strangers have one among them.
            await desk.connect()
            assert await newer.ended()
            assert (await line.post()).status == 200
        hasty = replace(QUICK, handshake_seconds=0.3)
        async with running(opened(files), limits=hasty) as desk:
            half = await half_a_handshake(desk)
            assert await half.ended()
            await desk.reach(lambda: not desk.server.server_state.connections)

    in_loop(scenario)


def test_of_several_handshakes_at_once_each_ends_another_one(
    files: Pair,
) -> None:
    async def scenario() -> None:
        patient = replace(QUICK, handshake_seconds=60.0)
        async with running(opened(files), limits=patient, most_connections=4) as desk:
            halves = [await half_a_handshake(desk) for _ in range(4)]
            with ExitStack() as stack:
                burst(desk, stack, 3)
                for half in halves[:3]:
                    assert await half.ended()
                assert desk.figures.refused["evicted"] == 3

    in_loop(scenario)


async def half_a_handshake(desk: Running) -> Line:
    before = len(desk.server.server_state.connections)
    line = await desk.connect()
    line.send(b"\x16\x03\x01")
    await desk.reach(lambda: len(desk.server.server_state.connections) == before + 1)
    return line


def test_a_handshake_is_not_cut_by_a_stop(authority: Authority, files: Pair) -> None:
    async def scenario() -> None:
        async with running(opened(files), limits=replace(QUICK, silent_seconds=10.0)) as desk:
            line = await desk.connect()
            await desk.reach(lambda: len(desk.server.server_state.connections) == 1)
            stop = asyncio.create_task(desk.stop())
            await desk.reach(lambda: not desk.server.servers[0].is_serving())
            await line.writer.start_tls(trusting(authority), server_hostname="localhost")
            assert (await line.post()).headers["connection"] == "close"
            await stop

    in_loop(scenario)


# --- renewal ----------------------------------------------------------------------------------


def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_stay(
    authority: Authority, files: Pair, new: Pair
) -> None:
    async def scenario() -> None:
        certificate = opened(files)
        before = certificate.context
        async with running(certificate) as desk:
            open_before = await desk.connect(trusting(authority))
            put(new.certificate, files.certificate)
            put(new.key, files.key)
            await desk.reach(lambda: certificate.context is not before)
            assert (await desk.connect(trusting(authority))).serial == NEW
            assert (await open_before.post()).status == 200
            assert open_before.serial == OLD

    in_loop(scenario)


def test_sighup_reads_it_at_once_and_the_service_hears_of_both_ends(
    authority: Authority, files: Pair, new: Pair
) -> None:
    async def scenario() -> None:
        async with running(opened(files), limits=NO_LOOK) as desk:
            put(new.certificate, files.certificate)
            put(new.key, files.key)
            desk.server.handle_hangup(1, None)
            await desk.reach(lambda: ("reloading", "") in desk.service.words)
            await desk.reach(lambda: desk.service.last("alive"))
            assert (await desk.connect(trusting(authority))).serial == NEW

    in_loop(scenario)


def test_while_the_files_are_read_no_word_ends_the_reload(
    files: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, end, ticks = opened(files), threading.Event(), itertools.count()
    monkeypatch.setattr(certificate, "reread", lambda: end.wait(20))

    async def scenario() -> None:
        async with running(certificate, limits=NO_LOOK) as desk:
            on_tick, seen = desk.server.on_tick, 0

            async def counting(counter: int) -> bool:
                nonlocal seen
                seen = next(ticks)
                return await on_tick(counter)

            monkeypatch.setattr(desk.server, "on_tick", counting)
            desk.server.handle_hangup(1, None)
            await desk.reach(lambda: ("reloading", "") in desk.service.words)
            before = seen
            await desk.reach(lambda: seen > before + 2)
            assert desk.service.words[-1][0] == "reloading"
            end.set()
            await desk.reach(lambda: desk.service.last("alive"))

    in_loop(scenario)


def test_half_a_renewal_keeps_the_old_pair_and_is_logged_once_if_it_stays(
    files: Pair, new: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = opened(files)
    before = certificate.context
    put(new.certificate, files.certificate)
    certificate.look()
    assert (certificate.context, errors(caplog)) == (before, [])
    for _ in range(3):
        certificate.look()
    assert certificate.context is before
    [told] = errors(caplog)
    assert "keeping the previous one" in told
    assert "KEY_VALUES_MISMATCH" in told
    put(new.key, files.key)
    certificate.look()
    assert certificate.context is not before


@pytest.mark.parametrize("broken", [b"", b"no certificate", None, os.mkfifo])
def test_a_broken_or_missing_file_keeps_the_old_pair(
    files: Pair,
    old: Pair,
    broken: bytes | Callable[[Path], None] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificate = opened(files)
    before = certificate.context
    files.certificate.unlink()
    if isinstance(broken, bytes):
        files.certificate.write_bytes(broken)
    elif broken is not None:
        # Opening it would wait for a writer.
        broken(files.certificate)
    for _ in range(3):
        certificate.look()
    assert certificate.context is before
    assert len(errors(caplog)) == 1
    put(old.certificate, files.certificate)
    certificate.look()
    assert certificate.context is not before


def test_an_expired_pair_does_not_take_the_place_of_a_valid_one(
    authority: Authority, files: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, expired = opened(files), authority.issue(serial=302, days=-1)
    before = certificate.context
    put(expired.certificate, files.certificate)
    put(expired.key, files.key)
    certificate.reread()
    assert certificate.context is before
    assert "certificate has expired" in errors(caplog)[0]


def test_each_reload_reports_an_unusable_pair_at_once(
    files: Pair, new: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = opened(files)
    put(new.key, files.key)
    certificate.reread()
    certificate.reread()
    assert len(errors(caplog)) == 2


def test_files_that_are_as_they_were_are_not_read_again(files: Pair) -> None:
    certificate = opened(files)
    before = certificate.context
    certificate.look()
    assert certificate.context is before


# --- certificates that no client would accept --------------------------------------------------


def test_an_expired_certificate_is_served_with_a_shout(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    expired = authority.issue(serial=300, days=-1)
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE

    async def scenario() -> None:
        async with running(opened(expired)) as desk:
            assert (await (await desk.connect(untrusting)).post()).status == 200

    in_loop(scenario)
    assert errors(caplog) == [
        'certificate will not be accepted by LINE reason="certificate has expired"'
    ]


def test_a_missing_renewal_is_logged_once_a_day(
    files: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, day = opened(files), 86_400.0
    began = time.time()
    for days, told in ((70, 0), (76, 1), (76.5, 1), (77.1, 2), (91, 3)):
        monkeypatch.setattr(time, "time", lambda days=days: began + days * day)
        pair.look()
        assert len(errors(caplog)) == told
    assert errors(caplog)[0].startswith('certificate is not renewed until="')


def test_a_key_with_a_password_is_refused(files: Pair, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", files.key, "-aes128", "-passout", "pass:secret"]
    subprocess.run([*command, "-out", locked], check=True, capture_output=True, timeout=30)
    with pytest.raises(CannotListen, match="FRONTDESK_TLS_KEY"):
        CertificateFiles(files.certificate, locked)
