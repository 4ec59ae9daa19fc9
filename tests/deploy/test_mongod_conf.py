"""The real mongod starts with deploy/mongod.conf; `linedesk init` makes it a replica set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from linedesk import children
from linedesk.embedded import MongodNotFound, find_mongod, free_port
from recvq.connect import connect
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
CONF = ROOT / "deploy" / "mongod.conf"


def adapted(folder: Path, port: int) -> Path:
    """The shipped file with its paths below `folder` and its port replaced, nothing else."""
    conf: dict[str, Any] = yaml.safe_load(CONF.read_text("utf-8"))
    conf["systemLog"]["path"] = str(folder / "mongod.log")
    conf["storage"]["dbPath"] = str(folder / "data")
    conf["processManagement"]["pidFilePath"] = str(folder / "mongod.pid")
    conf["net"]["port"] = port
    (folder / "data").mkdir()
    path = folder / "mongod.conf"
    path.write_text(yaml.safe_dump(conf), "utf-8")
    return path


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[int]:
    """The port of a mongod that runs with the shipped configuration, not yet a replica set."""
    try:
        program = find_mongod()
    except MongodNotFound as error:
        missing(str(error))
    port = free_port()
    mongod = children.start([str(program), "--config", str(adapted(tmp_path, port))])
    try:
        yield port
    finally:
        assert children.stop(mongod, timeout_seconds=20) == 0


def test_mongod_starts_with_it_and_init_makes_it_a_replica_set(
    configured: int, tmp_path: Path
) -> None:
    with connect(
        f"mongodb://127.0.0.1:{configured}/",
        app_name="tests",
        server_selection_seconds=20,
        directConnection=True,
    ) as client:
        parsed = client.admin.command("getCmdLineOpts")["parsed"]
    assert parsed["replication"] == {"oplogSizeMB": 3072, "replSetName": "rs0"}
    assert parsed["net"]["bindIp"] == "127.0.0.1"

    first, second = linedesk_init(configured), linedesk_init(configured)

    assert "replica set rs0 initiated with one node" in first
    assert "replica set rs0 is there" in second
    uri = f"mongodb://127.0.0.1:{configured}/?replicaSet=rs0"
    with connect(uri, app_name="tests") as client:
        assert client.line_bot.recvq.options() == {"capped": True, "size": 8 * 1024 * 1024}
        oplog = client.local.command("collStats", "oplog.rs")
    assert oplog["maxSize"] == 3072 * 1024 * 1024


def linedesk_init(port: int) -> str:
    environ = os.environ | {"MONGODB_URI": f"mongodb://127.0.0.1:{port}/?replicaSet=rs0"}
    answer = subprocess.run(
        [sys.executable, "-m", "linedesk", "init", "--capped-mb", "8"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_appends_to_its_log_and_writes_a_pid_file() -> None:
    conf = yaml.safe_load(CONF.read_text("utf-8"))
    assert conf["systemLog"]["destination"] == "file"
    assert conf["systemLog"]["logAppend"] is True
    assert conf["processManagement"]["pidFilePath"].endswith("mongod.pid")
    assert conf["processManagement"]["fork"] is False
