"""A replica set of three whose secondaries can be delayed, one for the whole run of tests."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
from pymongo.errors import PyMongoError

from linedesk.setup import children
from linedesk.setup.private_mongod import find_mongod, free_port
from linedesk.store.client import Client, connect
from tests.servers import make_data_folder
from tests.waiting import eventually


class LaggingSet:
    """Three mongods on loopback; the first one is the primary, but for an `electing`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hosts = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        self._processes: list[Popen[bytes]] = []
        self._secondaries: list[Client] = []
        self.uri = f"mongodb://{','.join(self._hosts)}/?replicaSet=rs0"
        self.client = connect(self.uri, app_name="tests", server_selection_seconds=20)

    def start(self) -> None:
        self._processes = [self._start_node(host) for host in self._hosts]
        direct = [self._direct(host) for host in self._hosts]
        members = [
            {"_id": number, "host": host, "priority": int(number == 0)}
            for number, host in enumerate(self._hosts)
        ]
        settings = {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 200}
        config = {"_id": "rs0", "members": members, "settings": settings}
        for client in direct:
            eventually(partial(answers, client, "ping"))
        eventually(lambda: answers(direct[0], {"replSetInitiate": config}))
        eventually(lambda: _states(direct[0]) == ["PRIMARY", "SECONDARY", "SECONDARY"], seconds=30)
        direct[0].close()
        self._secondaries = direct[1:]

    def stop(self) -> None:
        self.client.close()
        for client in self._secondaries:
            client.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(10)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """While it lasts nothing becomes majority-committed."""
        before = self._hold("alwaysOn")
        for client, count in zip(self._secondaries, before, strict=True):
            # Results of a fetch under way would still become committed.
            entered = {"timesEntered": count + 1, "maxTimeMS": 30_000}
            client.admin.command({"waitForFailPoint": "stopReplProducer", **entered})
        try:
            yield
        finally:
            self._hold("off")

    @contextmanager
    def electing(self) -> Iterator[None]:
        """While it lasts any node may become primary; afterwards all run and the first one is."""
        self._give_priorities(3, 1, 1)
        try:
            yield
        finally:
            self._start_missing()
            eventually(self._is_whole, seconds=60)
            self._give_priorities(1, 0, 0)

    def kill_primary(self) -> None:
        """End the primary as a crash would; it is started again when the electing is over."""
        process = self._processes[self._primary()]
        process.kill()
        process.wait(10)

    def step_down(self) -> None:
        """Have another node elected; the first one takes over again after some seconds."""
        before = self._primary()
        with suppress(PyMongoError):
            self.client.admin.command({"replSetStepDown": 3, "secondaryCatchUpPeriodSecs": 2})
        eventually(lambda: self._primary() != before, seconds=30)

    @contextmanager
    def stepping_down(self) -> Iterator[str]:
        """While it lasts the first node is neither primary nor secondary; returns its own URI.

        None of the others may be elected, so the step-down waits, until it is ended here.
        """
        uri = f"mongodb://{self._hosts[0]}/"
        step = {"replSetStepDown": 120, "secondaryCatchUpPeriodSecs": 110}
        with self._direct(self._hosts[0]) as client, self._direct(self._hosts[0]) as other:
            eventually(lambda: _is_known(client))
            running = threading.Thread(target=answers, args=(other, step))
            running.start()
            try:
                eventually(lambda: not _is_known(client))
                yield uri
            finally:
                found = {"currentOp": 1, "command.replSetStepDown": {"$exists": True}}
                for op in client.admin.command(found)["inprog"]:
                    client.admin.command({"killOp": 1, "op": op["opid"]})
                running.join()
                eventually(lambda: _is_known(client))

    def _primary(self) -> int:
        host, port = eventually(lambda: self.client.primary, seconds=30)
        return self._hosts.index(f"{host}:{port}")

    def _start_missing(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[number] = self._start_node(self._hosts[number])

    def _is_whole(self) -> bool:
        try:
            return _states(self.client) == ["PRIMARY", "SECONDARY", "SECONDARY"]
        except PyMongoError:
            return False

    def _give_priorities(self, *priorities: int) -> None:
        def give() -> bool:
            try:
                config = self.client.admin.command("replSetGetConfig")["config"]
                for member, priority in zip(config["members"], priorities, strict=True):
                    member["priority"] = priority
                config["version"] += 1
                self.client.admin.command({"replSetReconfig": config})
            except PyMongoError:
                return False
            return True

        eventually(give, seconds=30)

    def _hold(self, mode: str) -> list[int]:
        """Returns how often each secondary had been held before."""
        command = {"configureFailPoint": "stopReplProducer", "mode": mode}
        return [client.admin.command(command)["count"] for client in self._secondaries]

    def _direct(self, host: str) -> Client:
        uri = f"mongodb://{host}/"
        return connect(uri, app_name="tests", server_selection_seconds=20, directConnection=True)

    def _start_node(self, host: str) -> Popen[bytes]:
        port = host.partition(":")[2]
        folder = self._folder / port
        folder.mkdir(exist_ok=True)
        command = [
            *(str(find_mongod()), "--dbpath", str(folder), "--logpath", str(folder / "log")),
            *("--bind_ip", "127.0.0.1", "--port", port, "--nounixsocket", "--replSet", "rs0"),
            *("--oplogSize", "50", "--wiredTigerCacheSizeGB", "0.25"),
            *("--setParameter", "enableTestCommands=1"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        ]
        return children.start(command, stdout=DEVNULL, stderr=DEVNULL)


def answers(client: Client, command: str | dict[str, object]) -> bool:
    try:
        client.admin.command(command)
    except PyMongoError:
        return False
    return True


def _is_known(client: Client) -> bool:
    """Whether the node calls itself primary or secondary."""
    hello = client.admin.command("hello")
    return bool(hello["isWritablePrimary"] or hello["secondary"])


def _states(client: Client) -> list[str]:
    members = client.admin.command("replSetGetStatus")["members"]
    return [member["stateStr"] for member in members]


_KEY = pytest.StashKey[LaggingSet]()


def lagging_set(config: pytest.Config) -> LaggingSet:
    """The set of this run; started at its first use, stopped when pytest ends."""
    if _KEY not in config.stash:
        folder = make_data_folder("lagging")
        made = config.stash[_KEY] = LaggingSet(folder)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(made.stop)
        made.start()
    return config.stash[_KEY]
