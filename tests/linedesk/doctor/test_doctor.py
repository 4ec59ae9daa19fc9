"""`linedesk doctor` as an operator runs it: on what is right, and on what was broken for it."""

import json
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest
from click.testing import CliRunner, Result

import linesim
from linedesk.doctor.checks import account, machine
from linedesk.doctor.checks import database as database_checks
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import FindingLevel
from linedesk.launch import main
from linedesk.operate.health import DAY_SECONDS
from linedesk.settings.settings import load_settings
from linedesk.setup.collections import set_audit_age
from linedesk.setup.private_mongod import free_port
from linedesk.store.client import Client
from linedesk.store.collections import DISPATCHER
from linedesk.store.documents import DEADLETTERS, LEASES, PROGRESS, RECVQ, SCHEMA, STATUS
from linedesk.store.queue import usage
from linedesk.store.queue.usage import Span
from tests.frontdesk.authority import Authority, Pair
from tests.frontdesk.desk import DeskProcess
from tests.linedesk.operate.hand import a_desk, a_dispatcher
from tests.rows import Db
from tests.servers import one_for_all
from tests.waiting import eventually

OK, WARN, BAD, SKIP = FindingLevel.OK, FindingLevel.WARN, FindingLevel.BAD, FindingLevel.SKIP
Doctor = Callable[..., Result]


@pytest.fixture(scope="module")
def sim() -> Iterator[linesim.Sim]:
    with linesim.running(rate_limits=False) as sim:
        yield sim


# No process writes this row anew, so it is of a later time.
RUNNING = a_dispatcher(now=datetime.now(UTC) + timedelta(hours=1))


@pytest.fixture(scope="module")
def well(client: Client) -> Iterator[Db]:
    """A database as it is where everything runs; nothing is written to it by a test."""
    with one_for_all(client) as database:
        until = datetime.now(UTC) + timedelta(hours=1)
        lease = {"owner": "machine.1/7/9", "epoch": 3, "until": until}
        database[LEASES].update_one({"_id": DISPATCHER}, {"$set": lease})
        row = {"_id": DISPATCHER, "schema": SCHEMA, "after": None, "finished": []}
        row["at"] = datetime.now(UTC)
        set_audit_age(database, days=400)
        database[PROGRESS].insert_one(row)
        database[STATUS].insert_one(RUNNING)
        yield database


@pytest.fixture(scope="module")
def desk(
    mongo_uri: str, well: Db, sim: linesim.Sim, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeskProcess]:
    """A front desk, to which the simulator sends."""
    spool = tmp_path_factory.mktemp("desk") / "spool.db"
    own = {"LINE_CHANNEL_SECRET": sim.secret, "SPOOL_PATH": str(spool)}
    process = DeskProcess(uri=mongo_uri, database=well.name, **own)
    process.start()
    try:
        process.wait_for_line("listening ")
        eventually(lambda: well[STATUS].find_one({"role": "frontdesk"}))
        sim.webhook_url = f"http://127.0.0.1:{process.port}/callback"
        yield process
    finally:
        # An orderly end would wait for clients that may still come.
        process.stop(signal.SIGKILL)


def _make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast the other tests fill the oplog, and the disk of this machine, is their business."""

    def slowly_filled(client: Client) -> Span | None:
        span = usage.oplog_span(client)
        return span and replace(span, seconds=365 * DAY_SECONDS)

    monkeypatch.setattr(database_checks, "oplog_span", slowly_filled)
    monkeypatch.setattr(database_checks, "DISK_BAD_BYTES", -(2**50))
    monkeypatch.setattr(database_checks, "DISK_WARN_BYTES", -(2**50))


@pytest.fixture
def doctor(
    mongo_uri: str,
    well: Db,
    sim: linesim.Sim,
    desk: DeskProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Doctor:
    _make_room(monkeypatch)
    environ = {
        "LINE_CHANNEL_SECRET": sim.secret,
        "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
        "LINE_API_BASE": sim.url,
        "LINE_ACCESS_INTERVAL_MS": "0",
        "MONGODB_URI": mongo_uri,
        "MONGODB_DATABASE": well.name,
        "FRONTDESK_PORT": str(desk.port),
        "SPOOL_PATH": str(tmp_path / "spool.db"),
        "SPOOL_MAX_MB": "1",
    }

    def run(*arguments: str, code: int = 0, **settings: str) -> Result:
        runner = CliRunner()
        answer = runner.invoke(main.linedesk, ["doctor", *arguments], env={**environ, **settings})
        assert answer.exit_code == code, answer.output
        assert sim.token not in answer.output
        return answer

    return run


def found(answer: Result) -> dict[str, dict[str, str]]:
    return {one["name"]: one for one in json.loads(answer.stdout)["checks"]}


def bad_ones(answer: Result) -> set[str]:
    checks = json.loads(answer.stdout)["checks"]
    return {one["name"] for one in checks if one["state"] == "bad"}


def test_a_healthy_installation_has_no_bad_findings(doctor: Doctor, sim: linesim.Sim) -> None:
    before = sim.platform.calls.count
    answer = doctor("--json", LINE_ACCESS_INTERVAL_MS="100")
    states = {name: one["state"] for name, one in found(answer).items()}
    not_ok = {name: state for name, state in states.items() if state != "ok"}
    # Parts that a trial on one machine lacks, and facts that no API reports.
    for name in ("spool disk", "backup"):
        not_ok.pop(name, None)
    assert not_ok == {
        "settings": "warn",
        "credentials": "skip",
        "authorization": "warn",
        "rights": "skip",
        "public certificate": "skip",
    }, found(answer)
    assert (sim.closest_starts(before) or 0) > 0.08
    assert [call.endpoint for call in sim.platform.calls.since(before)] == [
        "info",
        "webhook",
        "test_webhook",
    ]


def test_a_token_that_line_refuses_is_told_and_nothing_else_is_asked(
    doctor: Doctor, sim: linesim.Sim
) -> None:
    before = sim.platform.calls.count
    answer = doctor("--json", code=1, LINE_CHANNEL_ACCESS_TOKEN="a-wrong-token")
    assert bad_ones(answer) == {"LINE token"}
    assert found(answer)["webhook test"]["saw"] == "needs: LINE token"
    assert "a-wrong-token" not in answer.output
    assert sim.platform.calls.count == before + 1


def test_a_webhook_that_goes_elsewhere_is_told(doctor: Doctor, sim: linesim.Sim) -> None:
    right = sim.webhook_url
    try:
        sim.webhook_url = f"http://127.0.0.1:{free_port()}/line"
        answer = doctor("--json", code=1)
        sim.webhook_url, sim.webhook_active = right, False
        unused = doctor("--json", code=1)
    finally:
        sim.webhook_url, sim.webhook_active = right, True
    assert bad_ones(answer) == {"webhook test"}
    assert "FRONTDESK_PATH is /callback" in found(answer)["webhook"]["saw"]
    assert bad_ones(unused) == {"webhook"}
    assert "Use webhook" in found(unused)["webhook"]["do"]


def test_a_wrong_channel_secret_shows_in_lines_test_call(doctor: Doctor, sim: linesim.Sim) -> None:
    with linesim.running(secret="another channel's", webhook_url=sim.webhook_url) as other:
        of_other = {"LINE_API_BASE": other.url, "LINE_CHANNEL_ACCESS_TOKEN": other.token}
        answer = doctor("--json", code=1, **of_other)
    assert bad_ones(answer) == {"webhook test"}
    assert "LINE_CHANNEL_SECRET" in found(answer)["webhook test"]["do"]


def test_an_outage_of_line_is_one_bad_line(doctor: Doctor) -> None:
    answer = doctor("--json", code=1, LINE_API_BASE=f"http://127.0.0.1:{free_port()}")
    assert bad_ones(answer) == {"LINE token"}
    assert "LINE does not answer" in found(answer)["LINE token"]["saw"]


def test_a_token_quoted_by_line_is_masked(doctor: Doctor, sim: linesim.Sim) -> None:
    sim.answer_next("info", 403, {"message": f"no right\nfor {sim.token}\x1b[2J"})
    saw = found(doctor("--json", code=1))["LINE token"]["saw"]
    assert saw == "LINE answers 403: no right for ***\\x1b[2J"


def test_an_outage_of_mongodb_is_one_bad_line(doctor: Doctor) -> None:
    uri = f"mongodb://someone:secret-word@127.0.0.1:{free_port()}/?replicaSet=rs0"
    answer = doctor("--json", code=1, MONGODB_URI=uri)
    assert bad_ones(answer) == {"MongoDB"}
    assert found(answer)["collections"]["saw"] == "needs: MongoDB"
    assert found(answer)["front desk"]["state"] == "ok"
    assert "secret-word" not in answer.output


def test_an_uncapped_recvq_and_missing_processes_are_told(doctor: Doctor, database: Db) -> None:
    database[RECVQ].drop()
    database.create_collection(RECVQ)
    database["schedule"].drop_index("runAt")
    closed = {"FRONTDESK_PORT": str(free_port()), "MONGODB_DATABASE": database.name}
    answer = doctor("--json", "--no-line", code=1, **closed)
    assert bad_ones(answer) == {"recvq", "collections", "front desk"}
    assert "is not capped" in found(answer)["recvq"]["do"]
    assert "schedule's index runAt" in found(answer)["collections"]["saw"]
    assert found(answer)["running system"]["saw"] == "needs: recvq"


def test_the_running_system_is_judged_as_status_judges_it(mongo_uri: str, database: Db) -> None:
    settings = load_settings({"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name})
    box = DoctorContext(settings)
    now = datetime.now(UTC)
    database[DEADLETTERS].insert_one({"_id": "E1", "lastAt": now, "cause": "quota"})
    down = {(one.state, one.saw) for one in machine.running(box)}
    assert (WARN, "dead letters: 1 in the last 24 h, not replayed") in down
    assert {state for state, saw in down if saw.startswith("dispatcher: ")} == {BAD}
    database[DEADLETTERS].delete_many({})
    later = now + timedelta(hours=1)
    database[STATUS].insert_many([a_dispatcher(now=later), a_desk(now=later, perSecond={})])
    assert [one.state for one in machine.running(box)] == [OK]
    box.close()


@contextmanager
def showing(pair: Pair) -> Iterator[int]:
    """A port with this certificate, which answers like a front desk that is ready."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            try:
                with context.wrap_socket(self.request, server_side=True) as secure:
                    if secure.recv(4096):
                        secure.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"status": "ready"}')
            except OSError:
                return

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(5)


def test_the_public_certificate_is_verified_as_line_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with linesim.running() as sim, showing(authority.issue(serial=1, days=90)) as port:
        environ = {"LINE_API_BASE": sim.url, "LINE_CHANNEL_ACCESS_TOKEN": sim.token}
        box = DoctorContext(load_settings(environ))
        sim.webhook_url = f"https://localhost:{port}/callback"
        refused = account.certificate(box)
        assert (refused.state, "LINE refuses the certificate" in refused.saw) == (BAD, True)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.root))
        assert account.certificate(box).state is OK
        box.close()
        sim.webhook_url = f"https://localhost:{free_port()}/callback"
        away = DoctorContext(load_settings(environ))
        assert account.certificate(away).state is SKIP
        away.close()
