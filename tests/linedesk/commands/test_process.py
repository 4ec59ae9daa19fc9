"""The command as a process: its imports, Ctrl-C, exit codes and completion."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import load_settings
from linedesk.setup.database import open_database, operator
from linedesk.store.errors import StoreUnavailable
from tests.fork_server import nursery
from tests.linedesk.commands.terminals import terminal, to_the_end, until_asked
from tests.rows import Db
from tests.servers import frozen, throwaway_mongod

# Each takes tens of milliseconds to import.
HEAVY = {
    *("pymongo", "pydantic", "rich", "asyncio", "fastapi", "uvicorn", "linebot", "requests"),
    *("frontdesk", "dispatcher", "jobworker", "linesim", "prometheus_client", "cryptography"),
}
DEAD_PORT = "mongodb://127.0.0.1:1/?replicaSet=rs0"
LISTS_MODULES = (
    "import sys\n"
    "from linedesk.__main__ import main\n"
    "sys.argv = ['linedesk', *sys.argv[1:]]\n"
    "try:\n    main()\n"
    "finally:\n    print(*sys.modules, file=sys.stderr)\n"
)


def linedesk(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return nursery.run("linedesk", *arguments, env=os.environ | environ)


@pytest.mark.parametrize(
    ("arguments", "environ", "shown"),
    [
        (["--version"], {}, "linedesk, version "),
        (["calls", "--help"], {}, "Usage: "),
        (
            [],
            {
                "_LINEDESK_COMPLETE": "bash_complete",
                "COMP_WORDS": "linedesk sta",
                "COMP_CWORD": "1",
            },
            "plain,status",
        ),
    ],
)
def test_version_help_and_completion_import_almost_nothing(
    arguments: list[str], environ: dict[str, str], shown: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", LISTS_MODULES, *arguments],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(shown)
    assert not HEAVY & set(ran.stderr.split())


@pytest.mark.parametrize("module", ["click", "pymongo"])
def test_ctrl_c_ends_a_command_quietly_wherever_its_start_is(module: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-P", "-m", "linedesk", "status"],
        env=os.environ | {"MONGODB_URI": DEAD_PORT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.endswith(f" {module}\n"):
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)
    # While Python ends, the signal itself ends the process, and a shell has 130 as well.
    assert process.returncode in (Exit.INTERRUPTED, -signal.SIGINT)
    assert "Traceback" not in rest
    assert "KeyboardInterrupt" not in rest


def test_ctrl_c_during_the_search_for_mongodb_ends_a_command_quietly() -> None:
    with terminal({"MONGODB_URI": DEAD_PORT}, "audit", "-v") as (master, process):
        # The terminal has echoed it before Python reads anything.
        time_out = time.monotonic() + 20
        while b"pymongo" not in maps_of(process.pid) and time.monotonic() < time_out:
            pass
        os.write(master, b"\x03")
        shown = to_the_end(master)
        assert process.wait(20) == Exit.INTERRUPTED
    assert "Traceback" not in shown


def maps_of(pid: int) -> bytes:
    """The files that a process has mapped, among them compiled modules."""
    return Path(f"/proc/{pid}/maps").read_bytes()


def test_a_background_job_still_ignores_ctrl_c() -> None:
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    program += "from linedesk.commands.interrupts import take_ctrl_c; take_ctrl_c()\n"
    program += "signal.raise_signal(signal.SIGINT); print('goes on')\n"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ran.stdout == b"goes on\n"


def test_exit_codes_are_those_of_the_documentation(mongo_uri: str, database: Db) -> None:
    for words, code, told in (
        ("dead replay --cause nothing", Exit.FAILED, "no dead letters match"),
        ("dead show 01NONE", Exit.FAILED, "no dead letter '01NONE'"),
        ("dead list --cause nothing", Exit.OK, "no dead letters match"),
        ("conversation show Unone", Exit.FAILED, "no conversation 'Unone'"),
        ("status", Exit.FAILED, ""),
        ("trace 01NONE", Exit.FAILED, "01NONE"),
        ("pause", 2, "add --yes"),
        ("nonsense", 2, "No such command"),
    ):
        ran = linedesk(*words.split(), MONGODB_URI=mongo_uri, MONGODB_DATABASE=database.name)
        assert ran.returncode == code, ran.stderr
        assert told in ran.stderr
        assert "Traceback" not in ran.stderr


def test_an_act_reports_within_two_seconds_that_mongodb_is_down() -> None:
    with throwaway_mongod() as mongod, frozen(mongod.pid):
        for uri in (DEAD_PORT, mongod.uri):
            began = time.monotonic()
            with (
                pytest.raises(StoreUnavailable),
                open_database(load_settings({"MONGODB_URI": uri}), app_name="tests", to_act=True),
            ):
                pass
            assert time.monotonic() - began < 2.0


def test_ctrl_c_at_a_question_ends_a_command_and_does_nothing(mongo_uri: str, database: Db) -> None:
    environ = {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name}
    letter = {"cause": "late", "lastAt": datetime.now(UTC)}
    database.deadletters.insert_many([{"_id": id_, **letter} for id_ in ("E1/0", "E2/0")])
    with terminal(environ, "dead", "drop", "--cause", "late") as (master, process):
        shown = until_asked(master, process, "Drop 2 dead letters?")
        os.write(master, b"\x03")
        shown += to_the_end(master)
        assert process.wait(20) == Exit.INTERRUPTED, shown
    assert database.deadletters.count_documents({}) == 2
    assert "Traceback" not in shown


def test_the_audit_names_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    import pwd

    assert operator() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setenv("LOGNAME", "taro")
    assert operator() == "taro"
    monkeypatch.setenv("SUDO_USER", "hanako")
    assert operator() == "hanako"


@pytest.mark.parametrize("arguments", [["status"], ["pause", "main"]], ids=" ".join)
def test_without_an_up_each_command_says_what_to_do(tmp_path: Path, arguments: list[str]) -> None:
    ran = linedesk(*arguments, MONGODB_URI="embedded", XDG_STATE_HOME=str(tmp_path))
    assert ran.returncode == Exit.UNAVAILABLE, ran.stderr
    assert "start `linedesk up` with MONGODB_URI=embedded" in ran.stderr


def test_check_prints_what_line_would_refuse(tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    bubble = {"type": "flex", "altText": "予定", "contents": {"type": "bubble"}}
    file.write_text(json.dumps({"to": "U1", "messages": [bubble, {"type": "text", "mood": "a"}]}))
    ended = linedesk("check", str(file), "--json")
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["finding"], row["property"]) for row in rows] == [
        ("wrong", "messages[0].contents"),
        ("wrong", "messages[1].text"),
        ("unknown", "messages[1].mood"),
    ]
    assert ended.returncode == 1
    file.write_text(json.dumps({"type": "text", "text": "はい"}))
    ended = linedesk("check", str(file))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "no findings\n")
    file.write_text("はい")
    ended = linedesk("check", str(file))
    assert (ended.returncode, "is not JSON" in ended.stderr) == (2, True)
