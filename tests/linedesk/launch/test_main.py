"""The command line as an operator meets it: help, exit codes, and one clear line for each error."""

import os
import re
import socket
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bson import json_util

from linedesk.runtime.exit_codes import Exit
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import free_port
from linedesk.store.client import Client
from linedesk.store.collections import check_recvq
from linedesk.store.documents import SCHEMA, make_document
from tests.fork_server import Written, nursery
from tests.waiting import Ended, ran

SECRETS = {
    "LINE_CHANNEL_SECRET": "8c570fa6dd201bb328f1c1eac23a96d8",
    "LINE_CHANNEL_ACCESS_TOKEN": "token-of-the-channel",
}


def linedesk(*arguments: str, module: str = "linedesk", **environ: str) -> Ended:
    return nursery.run(module, *arguments, env=os.environ | environ)


def refusal(*arguments: str, code: int, **environ: str) -> str:
    """The output on stderr, which has no traceback."""
    answer = linedesk(*arguments, **environ)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr


NONE = {"LINE_CHANNEL_SECRET": "", "LINE_CHANNEL_ACCESS_TOKEN": ""}


@pytest.mark.parametrize(
    ("command", "environ", "words"),
    [
        (
            "frontdesk",
            {"FRONTDESK_PORT": "x", "MAX_BODY_KB": "0"},
            ["FRONTDESK_PORT", "MAX_BODY_KB"],
        ),
        ("frontdesk", NONE, ["LINE_CHANNEL_SECRET"]),
        ("dispatcher", NONE, ["LINE_CHANNEL_ACCESS_TOKEN"]),
        ("up", NONE, list(NONE)),
        ("dispatcher", {"MONGODB_URI": "embedded"}, ["MONGODB_URI"]),
        # The unit of an earlier release restarts everything else.
        ("scheduler", {}, ["the"]),
    ],
)
def test_wrong_and_missing_settings_are_all_named_and_exit_with_config(
    command: str, environ: dict[str, str], words: list[str]
) -> None:
    text = refusal(command, code=Exit.CONFIG, **SECRETS | environ)
    assert [line.split()[1] for line in text.splitlines()] == words


@pytest.mark.long
def test_init_without_a_server_says_so_and_shows_no_password() -> None:
    secret_option = "tls=true&tlsCertificateKeyFilePassword=hunter2"
    answer = linedesk("init", MONGODB_URI=f"mongodb://u:hunter2@127.0.0.1:1/?{secret_option}")
    assert answer.returncode == 69
    assert answer.stderr.startswith("linedesk: MongoDB cannot be reached")
    assert "mongodb://***@127.0.0.1:1/" in answer.stdout
    assert "hunter2" not in answer.stdout + answer.stderr


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = refusal("frontdesk", code=78, FRONTDESK_PORT=port, **SECRETS)
        assert len(text.splitlines()) == 1
        assert f"port {port} is in use" in text
        text = refusal("sim", "--port", port, code=69, **SECRETS)
        assert f"linedesk: the simulator cannot use port {port}:" in text


@pytest.fixture
def unmade(client: Client) -> Iterator[str]:
    """The name of a database that does not exist yet."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    client.drop_database(name)


def test_init_makes_everything_once_and_leaves_it_after(
    client: Client, mongo_uri: str, unmade: str
) -> None:
    environ = {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": unmade}
    first = linedesk("init", "--capped-mb", "8", **environ)
    # As an insert brings it back after a drop.
    client[unmade].drop_collection("calls")
    client[unmade]["calls"].insert_one({})
    second = linedesk("init", "--capped-mb", "16", **environ, AUDIT_DAYS="30")
    assert (first.returncode, second.returncode) == (0, 0)
    assert re.search(r"^recvq +made +eventId", first.stdout, re.MULTILINE)
    assert re.search(r"^recvq +was there +eventId", second.stdout, re.MULTILINE)
    assert re.search(r"^calls +capped again +also, eventId", second.stdout, re.MULTILINE)
    assert "audit       rows are removed after 400 days" in first.stdout
    assert "audit       rows are removed after 30 days" in second.stdout
    age = client[unmade]["audit"].index_information()["at"]["expireAfterSeconds"]
    assert age == 30 * 24 * 3600


def test_init_caps_a_recvq_that_came_back_by_an_insert_and_keeps_what_it_holds(
    client: Client, mongo_uri: str, unmade: str
) -> None:
    stored = make_document({"type": "message"}, channel="main", accept_time=datetime.now(UTC))
    client[unmade]["recvq"].insert_one(stored)
    answer = linedesk("init", MONGODB_URI=mongo_uri, MONGODB_DATABASE=unmade)
    assert answer.returncode == 0
    assert re.search(r"^recvq +capped again +eventId, messageId", answer.stdout, re.MULTILINE)
    check_recvq(client[unmade])
    assert client[unmade]["recvq"].count_documents({}) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "import os\nraise RuntimeError(os.environ['LINE_CHANNEL_ACCESS_TOKEN'])\n",
            "RuntimeError: ***",
        ),
        ("from linedesk import Bot\nno_prices = Bot().nothing\n", "no attribute 'nothing'"),
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found'"),
    ],
)
def test_a_bot_that_cannot_be_imported_is_told_by_its_line(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "broken_bot.py").write_text(text)
    answer = linedesk("dispatcher", BOT="broken_bot:bot", PYTHONPATH=str(tmp_path), **SECRETS)
    assert answer.returncode == 78
    assert told in answer.stderr
    assert f"broken_bot.py:{len(text.splitlines())}" in answer.stderr
    assert SECRETS["LINE_CHANNEL_ACCESS_TOKEN"] not in answer.stderr


def test_up_imports_the_bot_before_all_else(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("from linedesk import Bot\n\nbot = Bot()\n")
    environ = {"PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    text = refusal("up", code=78, BOT="bad:bto", MONGODB_URI="embedded", **environ, **SECRETS)
    assert text == "linedesk: BOT: bad has no bto; it has bot\n"
    assert not (tmp_path / "state").exists()


def test_up_names_a_forgotten_server_at_once(tmp_path: Path) -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 27017)) == 0:
            pytest.skip("a MongoDB listens at the default address")
    environ = {"MONGODB_URI": "", "XDG_STATE_HOME": str(tmp_path)}
    told = [refusal(one, code=69, **environ, **SECRETS) for one in ("up", "status")]
    assert told[0] == told[1]
    assert "MONGODB_URI is not set, nothing listens at 127.0.0.1:27017" in told[0]


def test_a_closed_pipe_ends_a_command_without_a_message() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with Written() as told:
        child = nursery.start(
            *("linedesk", "doctor"),
            env=os.environ | {"MAX_BODY_KB": "much"},
            stdout=theirs,
            stderr=told.fd,
        )
        os.close(theirs)
        assert (child.wait(60), told.text) == (1, "")


def test_an_unexpected_error_is_logged_without_secrets() -> None:
    program = (
        "from linedesk.commands.failure import report\n"
        "from linedesk.runtime.logging import configure_logging\n"
        "configure_logging(secrets=['token-of-the-channel'])\n"
        "try:\n    raise RuntimeError('token-of-the-channel')\n"
        "except RuntimeError as error:\n    raise SystemExit(report(error))\n"
    )
    answer = ran([sys.executable, "-c", program])
    assert answer.returncode == 70
    assert "CRITICAL commands unexpected error" in answer.stderr
    assert "RuntimeError: ***" in answer.stderr
    assert "token-of-the-channel" not in answer.stderr


@pytest.mark.parametrize(
    ("schema", "words", "commands"),
    [
        (
            {"schema": SCHEMA + 1},
            f"(schema {SCHEMA + 1}, this release supports {SCHEMA})",
            ("init", "frontdesk", "dispatcher", "console", "pause all --yes", "export EXPORT"),
        ),
        ({}, "a development version of linedesk (schema 1, ", ("dispatcher",)),
    ],
)
def test_each_process_stops_with_a_message_at_documents_of_another_version(
    client: Client,
    mongo_uri: str,
    unmade: str,
    tmp_path: Path,
    schema: dict[str, int],
    words: str,
    commands: tuple[str, ...],
) -> None:
    """The conversations were read from the MongoDB of a dispatcher of schema 2."""
    environ = {
        "MONGODB_URI": mongo_uri,
        "MONGODB_DATABASE": unmade,
        "LINE_CHANNEL_SECRET": "0123456789abcdef0123456789abcdef",
        "LINE_CHANNEL_ACCESS_TOKEN": "t" * 20,
        "SPOOL_PATH": str(tmp_path / "spool.db"),
        "FRONTDESK_PORT": str(free_port()),
        "CONSOLE_PORT": str(free_port()),
    }
    create_collections(client[unmade], capped_bytes=1024 * 1024)
    progress = {"_id": "dispatcher", "epoch": 1, **schema}
    client[unmade]["progress"].insert_one(progress)
    stored = Path(__file__).with_name("schema_2.json").read_text(encoding="utf-8")
    client[unmade]["conversations"].insert_many(json_util.loads(stored))
    before = list(client[unmade]["conversations"].find())
    export = tmp_path / "export"
    for command in commands:
        answer = linedesk(*command.replace("EXPORT", str(export)).split(), **environ)
        assert answer.returncode == Exit.SCHEMA, (command, answer.stderr)
        assert words in answer.stderr
    assert re.search(
        r"^bad +collections +not as linedesk needs it",
        linedesk("doctor", "--no-line", **environ).stdout,
        re.M,
    )
    assert client[unmade]["progress"].find_one() == progress
    assert list(client[unmade]["conversations"].find()) == before
    assert not export.exists()
