"""The real mongod starts with deploy/mongod.conf; `linedesk init` gives it a set and users."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pymongo.errors import OperationFailure

from linedesk.setup import children
from linedesk.setup.private_mongod import free_port
from linedesk.store.client import connect
from linedesk.store.errors import UNAUTHORIZED
from tests.conftest import need_mongod
from tests.servers import data_folder
from tests.waiting import eventually, ran

ROOT = Path(__file__).parents[2]
CONF = ROOT / "deploy" / "mongod.conf"


def adapted(folder: Path, port: int) -> Path:
    """The shipped file with its paths below `folder` and its port replaced, nothing else."""
    conf: dict[str, Any] = yaml.safe_load(CONF.read_text("utf-8"))
    conf["systemLog"]["path"] = str(folder / "mongod.log")
    conf["storage"]["dbPath"] = str(folder / "data")
    conf["processManagement"]["pidFilePath"] = str(folder / "mongod.pid")
    conf["net"]["port"] = port
    conf["security"]["keyFile"] = str(key_file(folder))
    (folder / "data").mkdir()
    path = folder / "mongod.conf"
    path.write_text(yaml.safe_dump(conf), "utf-8")
    return path


def key_file(folder: Path) -> Path:
    """Made by the command that the file itself names, less the owner."""
    told = re.search(r"(openssl rand .*) \| install (-m \d+)", CONF.read_text("utf-8"))
    assert told is not None
    path = folder / "mongod.key"
    shell = f"{told[1]} | install {told[2]} /dev/stdin {path}"
    subprocess.run(["sh", "-c", shell], check=True, timeout=20)
    return path


@pytest.fixture
def configured() -> Iterator[int]:
    """The port of a mongod that runs with the shipped configuration, not yet a replica set."""
    program = need_mongod()
    port = free_port()
    with data_folder("conf") as folder:
        mongod = children.start([str(program), "--config", str(adapted(folder, port))])
        try:
            yield port
        finally:
            assert children.stop(mongod, timeout_seconds=20) == 0


def test_mongod_starts_with_it_and_init_makes_a_replica_set_and_users(
    configured: int, tmp_path: Path
) -> None:
    where = f"mongodb://127.0.0.1:{configured}"
    with connect(
        f"{where}/", app_name="tests", server_selection_seconds=20, directConnection=True
    ) as client:
        assert "setName" not in client.admin.command("hello")

    uri = f"{where}/?replicaSet=rs0"
    told = linedesk_init(uri, tmp_path)

    assert "replica set rs0 initiated with one node" in told
    assert told.count(": made, ") == 5
    with connect(uri, app_name="tests") as nobody, pytest.raises(OperationFailure) as refusal:
        nobody.line_bot.recvq.find_one()
    assert refusal.value.code == UNAUTHORIZED
    admin = (tmp_path / "credentials" / "admin" / "MONGODB_URI").read_text().strip()
    with connect(admin, app_name="tests") as client:
        parsed = client.admin.command("getCmdLineOpts")["parsed"]
        assert parsed["replication"] == {"oplogSizeMB": 3072, "replSetName": "rs0"}
        assert parsed["net"]["bindIp"] == "127.0.0.1"
        assert parsed["security"]["authorization"] == "enabled"
        assert client.line_bot.recvq.options() == {"capped": True, "size": 8 * 1024 * 1024}
        oplog = client.local.command("collStats", "oplog.rs")
        # Now everything is slow.
        client.line_bot.command("profile", 0, slowms=-1)
        client.line_bot.conversations.find_one_and_update({}, {"$set": {"text": "of a message"}})
        log = Path(parsed["systemLog"]["path"])
        assert "of a message" not in log.read_text("utf-8")
        # As logrotate does it by deploy/logrotate/mongod.
        log.rename(log.with_suffix(".log.1"))
        os.kill(client.admin.command("serverStatus")["pid"], signal.SIGUSR1)
        eventually(log.exists)
    assert oplog["maxSize"] == 3072 * 1024 * 1024


def linedesk_init(uri: str, folder: Path) -> str:
    answer = ran(
        [
            *(sys.executable, "-m", "linedesk", "init", "--capped-mb", "8"),
            *("--users", str(folder / "credentials")),
        ],
        cwd=ROOT,
        env=os.environ | {"MONGODB_URI": uri},
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout
