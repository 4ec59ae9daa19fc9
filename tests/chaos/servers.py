"""A replica set of mongods, each reached by everybody, the other members too, through a line that
can be cut.
"""

import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

from pymongo.errors import PyMongoError

from linedesk.setup import children
from linedesk.setup.private_mongod import find_mongod
from linedesk.store.client import Client, connect
from tests.chaos.proxy import Mode, Proxy
from tests.linedesk.store.lagging import answers
from tests.rabbitmq import free_ports
from tests.servers import make_data_folder
from tests.waiting import eventually

START_SECONDS = 60.0
WRITE_CONCERN_FAILED = 64


class Node:
    """One mongod. It is a member under the address of its line, and listens behind it."""

    def __init__(self, place: int, folder: Path) -> None:
        self.place = place
        self.port, self.line = free_ports(2)
        self.host = f"127.0.0.1:{self.line}"
        self._data = make_data_folder(f"chaos-mongod-{place}")
        self._log = folder / f"mongod-{place}.log"
        self._process: subprocess.Popen[bytes] | None = None
        # Bypasses the line: the checker must read the database during any disconnection.
        self.client: Client = connect(
            f"mongodb://127.0.0.1:{self.port}/",
            app_name="chaos",
            directConnection=True,
            server_selection_seconds=2.0,
            socket_seconds=5.0,
        )

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [
            *(str(find_mongod()), "--dbpath", str(self._data)),
            *("--logpath", str(self._log), "--logappend"),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *("--replSet", "rs0", "--oplogSize", "200", "--wiredTigerCacheSizeGB", "0.25"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            *("--setParameter", "enableTestCommands=1"),
        ]
        self._process = children.start(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)

    def end(self) -> None:
        """Kill it and leave nothing but its log."""
        self.kill()
        self.client.close()
        shutil.rmtree(self._data, ignore_errors=True)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


class Servers:
    """One or three nodes with their lines; `start` first, `stop` at the end."""

    def __init__(self, folder: Path, *, nodes: int) -> None:
        self.nodes = [Node(place, folder) for place in range(nodes)]
        hosts = ",".join(node.host for node in self.nodes)
        self.uri = f"mongodb://{hosts}/?replicaSet=rs0"
        self._proxy: Proxy | None = None

    def start(self) -> None:
        """Start all nodes and wait for a primary."""
        self._proxy = Proxy([(node.line, node.port) for node in self.nodes])
        for node in self.nodes:
            node.start()
        first = self.nodes[0].client
        for node in self.nodes:
            eventually(partial(answers, node.client, {"ping": 1}), seconds=START_SECONDS)
        members = [{"_id": node.place, "host": node.host} for node in self.nodes]
        settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
        config = {"_id": "rs0", "members": members, "settings": settings}
        eventually(lambda: answers(first, {"replSetInitiate": config}), seconds=START_SECONDS)
        self.wait_until_whole()

    def stop(self) -> None:
        for node in self.nodes:
            node.go_on()
            node.end()
        if self._proxy is not None:
            self._proxy.stop()

    def cut(self, node: Node, mode: Mode) -> None:
        assert self._proxy is not None, "cut before start"
        self._proxy.switch(node.place, mode)

    def primary(self) -> Node | None:
        """The node that takes writes at this moment, as far as it says so itself."""
        return next((node for node in self.nodes if _is_primary(node.client)), None)

    def step_down(self) -> None:
        """Ask the primary to let another one be elected; nothing where it is alone or away."""
        node = self.primary()
        if node is not None and len(self.nodes) > 1:
            answers(node.client, {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 2})

    def force_down(self) -> None:
        """Have the primary step down, whatever the others have, and another one elected at once:
        an election by time-out may outlast a lease.
        """
        node = self.primary()
        if node is None:
            return
        force = {"secondaryCatchUpPeriodSecs": 0, "force": True}
        answers(node.client, {"replSetStepDown": 5, **force})
        others = (other for other in self.nodes if other is not node)
        any(answers(other.client, {"replSetStepUp": 1}) for other in others)

    def doubt_writes(self, *, probability: float) -> None:
        """The share of writes that are done and reported as unconfirmed by a majority."""
        unsure = {"code": WRITE_CONCERN_FAILED, "errmsg": "waiting for replication timed out"}
        commands = ["insert", "update", "findAndModify"]
        data = {"failCommands": commands, "writeConcernError": unsure}
        mode = {"activationProbability": probability}
        for node in self.nodes:
            answers(node.client, {"configureFailPoint": "failCommand", "mode": mode, "data": data})

    def trust_writes(self) -> None:
        for node in self.nodes:
            answers(node.client, {"configureFailPoint": "failCommand", "mode": "off"})

    def wait_until_whole(self) -> None:
        """Every node runs, and one of them is primary."""
        eventually(self._is_whole, seconds=START_SECONDS)

    def _is_whole(self) -> bool:
        return all(answers(node.client, "ping") for node in self.nodes) and bool(self.primary())


def _is_primary(client: Client) -> bool:
    try:
        return bool(client.admin.command("hello").get("isWritablePrimary"))
    except PyMongoError:
        return False
