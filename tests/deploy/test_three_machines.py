"""The installation of docs/how-to/three-machines.md, with nginx on a fourth: any of the
three goes off.

Each is a network namespace with a mongod of deploy/mongod.conf; two have a front desk, all three a
dispatcher. `linedesk init` makes the replica set and its users. LINE is linesim.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pymongo
import pytest
import requests
import yaml
from pymongo.errors import OperationFailure, PyMongoError

import linesim
from linedesk.setup.private_mongod import find_mongod
from linedesk.setup.replica_set import STILL_CHANGING
from linedesk.store.client import Client, connect
from linedesk.store.documents import DEADLETTERS, HELD, LEASES, RECVQ
from tests.conftest import missing
from tests.deploy.machines import Machine, machines, mongod_conf, several_machines
from tests.deploy.test_nginx import MAIN
from tests.servers import data_folder
from tests.waiting import eventually

pytestmark = several_machines

ROOT = Path(__file__).parents[2]
BOTS = ROOT / "tests" / "acceptance"
NGINX = ROOT / "deploy" / "nginx" / "linedesk-two-hosts.conf"
MONGODB_PORT, FRONTDESK_PORT, NGINX_PORT = 27017, 8000, 8080
DATABASE = "line_bot"
RATE = 20.0
USERS = 24
MORE = 40
SECONDS = 60.0
# By default MongoDB takes 10 s of silence and heartbeats of 2 s; the test would take 100 s.
SOONER = {"electionTimeoutMillis": 3000, "heartbeatIntervalMillis": 500}
# For a judgement of nginx's answers, and not of this machine's speed. LINE itself waits for 2 s.
PATIENCE_SECONDS = 15.0
LINE_SECONDS = 2.0
ROOM = "events { worker_connections 1024; }"


class Site:
    """The three machines with all that runs on them, and the fourth one with nginx."""

    def __init__(self, sim: linesim.Sim, made: list[Machine], data: Path, key: Path) -> None:
        self.sim = sim
        self.three, self.balancer = made[:3], made[3]
        self.desks = self.three[:2]
        self._data = data
        self._key = key
        self._credentials = self.three[0].folder / "credentials"

    def start(self) -> None:
        """Start everything; the first machine has the primary and the leader then."""
        for machine in self.three:
            self._start_mongod(machine)
        hosts = ",".join(f"{machine.address}:{MONGODB_PORT}" for machine in self.three)
        told = self.three[0].ran_module(
            *("linedesk", "init", "--capped-mb", "64", "--users", str(self._credentials)),
            env={"MONGODB_URI": f"mongodb://{hosts}/?replicaSet=rs0"},
        )
        assert told.count(" added") == 2, told
        with self.client() as client:
            eventually(lambda: elects_sooner(client))
        for machine in self.three:
            self._start_linedesk(machine)
        self._start_nginx()
        self.sim.webhook_url = f"http://{self.balancer.address}:{NGINX_PORT}/callback"

    def start_again(self, machine: Machine) -> None:
        """Bring it back, under load, and wait until it is a whole member again.

        The first front desk has its webhooks again: with a second failure before that, both spools
        would hold messages, and no order is kept between two spools.
        """
        machine.come_back()
        machine.begin_logs()
        self._start_mongod(machine)
        self._start_linedesk(machine)
        eventually(lambda: machine.address in self.states("SECONDARY", "PRIMARY"), seconds=SECONDS)
        if machine in self.desks:
            eventually(lambda: self.readiness(machine).get("status") == "ready", seconds=SECONDS)
        if machine is self.desks[0]:
            eventually(lambda: "accepted " in machine.log_of("frontdesk"), seconds=SECONDS)

    def lose_data(self, machine: Machine) -> None:
        """Remove all that its mongod has stored."""
        shutil.rmtree(self._data / machine.address)

    def client(self) -> Client:
        """A client of all three, as the administrator."""
        return connect(self._uri("admin"), app_name="tests", server_selection_seconds=2.0)

    def states(self, *wanted: str) -> list[str]:
        """The addresses of the members in one of these states, as the set says."""
        try:
            with self.client() as client, pymongo.timeout(2):
                members = client.admin.command("replSetGetStatus")["members"]
        except PyMongoError:
            return []
        return [m["name"].partition(":")[0] for m in members if m["stateStr"] in wanted]

    def primary(self) -> Machine:
        """The machine with the primary, which has to be there within a minute."""
        address = eventually(lambda: self.states("PRIMARY"), seconds=SECONDS)[0]
        return next(machine for machine in self.three if machine.address == address)

    def leads(self, machine: Machine) -> bool:
        """Whether the leading dispatcher runs on it."""
        with self.client() as client:
            row = client[DATABASE][LEASES].find_one({"_id": "dispatcher"}) or {}
        return f"/{machine.pid_of('dispatcher')}/" in str(row.get("owner"))

    def readiness(self, machine: Machine) -> dict[str, Any]:
        """Its front desk's own report; empty if it does not answer."""
        url = f"http://{machine.address}:{FRONTDESK_PORT}/readyz"
        try:
            answer: dict[str, Any] = requests.get(url, timeout=2).json()
        except (requests.RequestException, ValueError):
            return {}
        return answer

    def _uri(self, who: str) -> str:
        return (self._credentials / who / "MONGODB_URI").read_text("utf-8").strip()

    def _start_mongod(self, machine: Machine) -> None:
        conf = mongod_conf(machine.address)
        conf["net"]["unixDomainSocket"] = {"enabled": False}
        conf["systemLog"]["path"] = str(machine.folder / "mongod.log")
        conf["processManagement"]["pidFilePath"] = str(machine.folder / "mongod.pid")
        conf["storage"]["dbPath"] = str(self._data / machine.address)
        conf["storage"]["wiredTiger"] = {"engineConfig": {"cacheSizeGB": 0.25}}
        conf["replication"]["oplogSizeMB"] = 200
        conf["security"]["keyFile"] = str(self._key)
        conf["setParameter"] = {"diagnosticDataCollectionEnabled": False}
        path = machine.folder / "mongod.conf"
        path.write_text(yaml.safe_dump(conf), "utf-8")
        (self._data / machine.address).mkdir(exist_ok=True)
        machine.run("mongod", [str(find_mongod()), "--config", str(path)])

    def _start_linedesk(self, machine: Machine) -> None:
        settings = {
            "LINE_CHANNEL_SECRET": self.sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": self.sim.token,
            "LINE_API_BASE": self.sim.url,
            "LINE_API_DATA_BASE": self.sim.url,
            "LINE_ACCESS_INTERVAL_MS": "5",
            "LATE_REPLIES_A_DAY": "100000",
            "MONGODB_DATABASE": DATABASE,
            "FRONTDESK_HOST": machine.address,
            "FRONTDESK_PORT": str(FRONTDESK_PORT),
            # In memory, where the syncs of other tests do not delay it.
            "SPOOL_PATH": str(self._data / f"spool-{machine.address}.db"),
            "BOT": "acceptance_bots:echo",
            "PYTHONPATH": f"{BOTS}{os.pathsep}{ROOT}",
        }
        if machine in self.desks:
            env = settings | {"MONGODB_URI": self._uri("frontdesk")}
            machine.run_module("frontdesk", "--verbose", env=env)
            eventually(lambda: "listening " in machine.log_of("frontdesk"), seconds=SECONDS)
        env = settings | {"MONGODB_URI": self._uri("dispatcher")}
        machine.run_module("dispatcher", "--verbose", env=env)
        eventually(
            lambda: any(
                words in machine.log_of("dispatcher")
                for words in ("dispatcher ready ", "standby: ")
            ),
            seconds=SECONDS,
        )

    def _start_nginx(self) -> None:
        folder, address = self.balancer.folder, self.balancer.address
        text = NGINX.read_text()
        for old, new in (
            ("listen 443 ssl;", f"listen {address}:{NGINX_PORT};"),
            ("listen [::]:443 ssl;", ""),
            ("ssl_certificate /etc/linedesk/tls/fullchain.pem;", ""),
            ("ssl_certificate_key /etc/linedesk/tls/privkey.pem;", ""),
            ("10.0.0.1:8000", f"{self.desks[0].address}:{FRONTDESK_PORT}"),
            ("10.0.0.2:8000", f"{self.desks[1].address}:{FRONTDESK_PORT}"),
        ):
            assert old in text
            text = text.replace(old, new)
        (folder / "linedesk.conf").write_text(text)
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder, room=ROOM))
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert nginx is not None
        self.balancer.run(
            "nginx", [nginx, "-e", "stderr", "-p", str(folder), "-c", f"{folder}/nginx.conf"]
        )
        eventually(self._nginx_answers)

    def _nginx_answers(self) -> bool:
        try:
            requests.get(f"http://{self.balancer.address}:{NGINX_PORT}/", timeout=2)
        except requests.ConnectionError:
            return False
        return True


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """All machines, on and ready; gone when this ends."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        missing("nginx is not installed")
    with ExitStack() as stack:
        data = stack.enter_context(data_folder("three-machines"))
        key = data / "mongod.key"
        key.touch(0o400)
        subprocess.run(["chmod", "0600", str(key)], check=True)
        key.write_text(secrets.token_hex(100))
        own, made = stack.enter_context(machines(4, folder))
        options = {"host": own, "rate_limits": False, "webhook_timeout_seconds": PATIENCE_SECONDS}
        sim = stack.enter_context(linesim.running(**options))
        one = Site(sim, made, data, key)
        one.start()
        yield one


def elects_sooner(client: Client) -> bool:
    """Whether MongoDB takes SOONER; not while another change of the set is under way."""
    config = client.admin.command("replSetGetConfig")["config"]
    config["settings"] |= SOONER
    config["version"] += 1
    try:
        client.admin.command("replSetReconfig", config)
    except OperationFailure as error:
        if error.code not in STILL_CHANGING:
            raise
        return False
    return True


def answered_after(sim: linesim.Sim, load: linesim.Load) -> None:
    """Wait until all accepted messages and `more` further ones are answered."""
    goal = load.counts.accepted + MORE
    eventually(lambda: load.counts.accepted >= goal, seconds=SECONDS)
    # A cheap count: the checker would take processor time from the processes under test.
    chats = list(sim.platform.world.users.values())
    eventually(lambda: sum(len(sim.answers(user)) for user in chats) >= goal, seconds=SECONDS)


@pytest.mark.timeout(240)
def test_any_machine_goes_off_under_load_and_no_webhook_fails_or_is_lost(
    mongod: Any, tmp_path: Path
) -> None:
    del mongod  # Without one the test is skipped.
    with site(tmp_path) as here:
        first = here.three[0]
        assert here.primary() is first
        assert here.leads(first)
        users = [here.sim.add_user(f"客{number}") for number in range(USERS)]
        load = linesim.Load(here.sim, users, rate=RATE, concurrency=16)
        load.start()
        try:
            answered_after(here.sim, load)
            # It has the primary, the leader, and the front desk that takes all webhooks.
            first.go_off()
            answered_after(here.sim, load)
            here.start_again(first)
            second = here.primary()
            assert second is not first
            second.go_off()
            answered_after(here.sim, load)
            here.start_again(second)
            (third,) = {*here.three} - {first, second}
            third.go_off()
            answered_after(here.sim, load)
            # Its disk is lost, too, so it copies all from the others.
            here.lose_data(third)
            here.start_again(third)
        finally:
            load.stop()
        assert load.join(SECONDS)
        eventually(partial(nothing_is_owed, here), seconds=SECONDS)

        late = [d for d in here.sim.deliveries if (d.milliseconds or 0) > LINE_SECONDS * 1000]
        slowest = max(d.milliseconds or 0 for d in here.sim.deliveries)
        print(f"webhooks={load.counts.sent} late={len(late)} slowest_ms={slowest:.0f}")
        assert [(d.status, d.error) for d in here.sim.deliveries if not d.delivered] == []
        assert load.counts.retried == 0
        assert linesim.check(here.sim).problems() == []
        with here.client() as client:
            stored = client[DATABASE][RECVQ].distinct("eventId")
            assert {id_ for d in here.sim.deliveries for id_ in d.event_ids} <= set(stored)
            assert client[DATABASE][DEADLETTERS].count_documents({}) == 0
            assert client[DATABASE][HELD].count_documents({}) == 0


def nothing_is_owed(here: Site) -> bool:
    """Whether all is answered and no spool holds anything."""
    spools = [here.readiness(machine).get("spool") or {} for machine in here.desks]
    left = sum(spool.get("documents", 0) for spool in spools)
    return left == 0 and not linesim.check(here.sim).unanswered
