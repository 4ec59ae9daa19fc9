"""The front desk's own TLS: its certificate, its refusals, and the bound on handshakes."""

import os
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from frontdesk.tls import load
from tests.frontdesk.authority import Authority, Pair
from tests.frontdesk.authority import authority as authority
from tests.frontdesk.desk import ROOT, DeskProcess, read_answer
from tests.frontdesk.inprocess import in_loop, quick, request, running
from tests.rows import Db

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")
SERIAL = 100


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue(serial=SERIAL, days=90)


def opened(pair: Pair) -> ssl.SSLContext:
    return load(pair.certificate, pair.key).context


def trusting(authority: Authority) -> ssl.SSLContext:
    """A client that knows the root alone, as LINE knows Let's Encrypt's."""
    return ssl.create_default_context(cafile=str(authority.root))


@in_loop
async def test_it_shows_the_whole_chain_under_tls_1_2_and_1_3(
    authority: Authority, pair: Pair
) -> None:
    async with running(opened(pair)) as desk:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(authority)
            context.minimum_version = context.maximum_version = version
            line = await desk.connect(context)
            assert (await line.post()).status == 200
            assert line.serial == SERIAL


DESCRIPTORS = 256
# Shorter than in production.
HANDSHAKE_SECONDS = 2.0
QUICKLY = f"""
from frontdesk import tls
from linedesk.launch.main import frontdesk
tls.HANDSHAKE_SECONDS = {HANDSHAKE_SECONDS}
frontdesk()
"""
MOST = DESCRIPTORS // 2


class FewDescriptors(DeskProcess):
    """A front desk that may open few files, and so few connections."""

    def _begin(self, stderr: int) -> subprocess.Popen[bytes]:
        limited = ["prlimit", f"--nofile={DESCRIPTORS}", sys.executable]
        return subprocess.Popen(
            [*limited, "-c", QUICKLY], cwd=ROOT, env=self._environ, stderr=stderr
        )

    def sockets(self) -> int:
        """How many sockets the process holds."""
        found = 0
        for place in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += os.readlink(place).startswith("socket:")
        return found

    def answer(self, context: ssl.SSLContext) -> int:
        """The status that a webhook gets; 0 where its connection is refused."""
        try:
            with (
                self.raw() as plain,
                context.wrap_socket(plain, server_hostname="localhost") as line,
            ):
                line.sendall(request())
                return read_answer(line).status
        except OSError:
            return 0


def test_three_hundred_half_handshakes_stay_in_the_bound_and_stop_no_webhook_after_their_time(
    mongo_uri: str, database: Db, authority: Authority, pair: Pair
) -> None:
    files = {"FRONTDESK_TLS_CERT": str(pair.certificate), "FRONTDESK_TLS_KEY": str(pair.key)}
    with (
        FewDescriptors(uri=mongo_uri, database=database.name, **files) as desk,
        ExitStack() as stack,
    ):
        own, began = desk.sockets(), time.monotonic()
        for _ in range(300):
            stack.enter_context(desk.raw()).sendall(b"\x16\x03\x01")
        # Which ones are refused is known only when all are accepted.
        desk.wait_for_line("too many connections")
        while time.monotonic() < began + HANDSHAKE_SECONDS / 2:
            assert desk.sockets() - own <= MOST + 8
        status = 0
        while status != 200:
            assert time.monotonic() < began + HANDSHAKE_SECONDS + 5
            status = desk.answer(trusting(authority))
        assert time.monotonic() > began + HANDSHAKE_SECONDS - 1


def test_a_certificate_that_cannot_be_used_is_named(authority: Authority, pair: Pair) -> None:
    other = authority.issue(serial=2)
    for files in ((pair.key, pair.key), (pair.certificate, other.key)):
        desk = DeskProcess(
            uri="mongodb://127.0.0.1:1/",
            database="never_used",
            FRONTDESK_TLS_CERT=str(files[0]),
            FRONTDESK_TLS_KEY=str(files[1]),
        ).start()
        assert desk.wait() == 78
        assert "FRONTDESK_TLS_KEY" in desk.log
        assert len(desk.lines) == 1
