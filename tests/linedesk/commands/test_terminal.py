"""The commands on a terminal of 80 columns: names, whole ids and figures, the order."""

import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from linedesk.runtime.exit_codes import Exit
from linedesk.store.client import Client
from tests.linedesk.commands.terminals import COLOUR, shown_on, terminal, to_the_end, until
from tests.linedesk.operate.hand import HANAKO, a_call, a_desk, a_dispatcher, a_run, ago
from tests.rows import Db
from tests.servers import one_for_all

EVENT = "01HEV3K9QW8S4V2Y6Z0A1B2C3D"
REPLAYED = "01HEV3K9QWREPLAYED00000000"
REQUEST = "5a0c2f31-1d7e-4c55-9a0b-3f2d1e0c9b8a"
NAME = "佐藤花子"
REASON = "返信の期限が切れていました。" * 4


@pytest.fixture(scope="module")
def database(client: Client) -> Iterator[Db]:
    """One for all of them: each test asks for what no other changes."""
    with one_for_all(client) as database:
        now = datetime.now(UTC)
        named = {"_id": f"main/{HANAKO}", "profile": {"displayName": NAME}, "outbox": {}}
        database.conversations.insert_one({**named, "channel": "main", "key": HANAKO})
        refused = {"status": 400, "reason": {"message": "Invalid reply token"}}
        call = a_call(EVENT, at=ago(50, now=now), requestId=REQUEST, **refused)
        database.calls.insert_one(call)
        letter = {"channel": "main", "key": HANAKO, "cause": REASON, "attempts": 3}
        effect = {"type": "send", "way": "reply"}
        times = {"firstAt": ago(70, now=now), "lastAt": ago(60, now=now)}
        database.deadletters.insert_one({"_id": f"{EVENT}/0", **letter, "effect": effect, **times})
        again = {"replays": 2, "replayedAt": ago(9, now=now), "_id": f"{REPLAYED}/0"}
        database.deadletters.insert_one({**letter, "effect": effect, **times, **again})
        act = {"by": "hanako", "via": "command", "act": "release", "outcome": "done"}
        on = f"main/{HANAKO} {EVENT}"
        database.audit.insert_one({"at": now, "on": on, "why": "直した", **act})
        drop = {**act, "act": "drop", "on": [f"{EVENT}/{n}" for n in range(200)], "why": ""}
        database.audit.insert_one({"at": ago(9, now=now), **drop})
        yield database


@pytest.fixture
def environ(mongo_uri: str, database: Db) -> dict[str, str]:
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name, "SUDO_USER": "hanako"}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("calls",), (EVENT, REQUEST, f"{NAME} {HANAKO}", "Invalid reply token")),
        (("dead", "list", "--all"), (f"{EVENT}/0", f"{REPLAYED}/0", f"{NAME} main/{HANAKO}", "2x")),
        (("audit",), (f"{NAME} main/{HANAKO} {EVENT}", f"{EVENT}/0 and 199 more", "直した")),
    ],
)
def test_a_list_fits_the_terminal_and_cuts_no_id_and_no_figure(
    environ: dict[str, str], arguments: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    lines, code = shown_on(environ, *arguments, columns=80)
    assert code == Exit.OK
    assert max(map(cell_len, lines)) <= 80
    assert [one for one in shown if not any(one in line for line in lines)] == [], lines


def test_a_tail_shows_names_and_event_ids_on_one_line_each_in_order_of_time(
    environ: dict[str, str], database: Db
) -> None:
    with terminal(environ, "tail", columns=120) as (master, tailing):
        stop = threading.Event()

        def insert() -> None:
            # A run is written after the call that it decided.
            while not stop.wait(0.1):
                now = datetime.now(UTC)
                database.calls.insert_one(a_call(EVENT, at=now, key=HANAKO, ms=1.0))
                run = a_run(EVENT, at=ago(0.05, now=now), key=HANAKO, ms=1.0)
                database.jobs.insert_one(run)

        writer = threading.Thread(target=insert)
        writer.start()
        try:
            shown = "".join(until(master, "reply 200") for _ in range(3))
        finally:
            stop.set()
            writer.join(10)
        os.write(master, b"\x03")
        shown += to_the_end(master)
        assert tailing.wait(10) == Exit.INTERRUPTED
    # The terminal echoes Ctrl-C.
    plain = COLOUR.sub("", shown).replace("^C", "")
    lines = [line.rstrip() for line in plain.splitlines() if EVENT in line]
    kinds = [line.split()[1] for line in lines]
    # The stream may have been opened between a call and its run.
    first = kinds.index("call") - 1
    assert kinds[first : first + 4] == ["run", "call", "run", "call"]
    assert all(line.endswith(NAME) for line in lines)
    assert "Traceback" not in shown


def test_status_has_the_problems_first_and_names(environ: dict[str, str], database: Db) -> None:
    soon, since = datetime.now(UTC) + timedelta(seconds=60), datetime.now(UTC)
    waiting = {"channel": "main", "key": HANAKO, "since": since, "why": "its handler failed"}
    database.status.insert_many([a_desk(now=soon), a_dispatcher(now=soon, waiting=[waiting])])
    pause = {"act": "pause", "channel": None, "key": None, "by": "hanako", "why": "お引っ越し"}
    database.control.insert_one({"_id": "pause", **pause, "at": datetime.now(UTC)})
    try:
        lines, code = shown_on(environ, "status", columns=80)
    finally:
        database.control.delete_many({})
        database.status.delete_many({})
    assert code == Exit.FAILED, "everything is paused"
    at = next(n for n, line in enumerate(lines) if "✕ Critical: paused" in line)
    end = next(n for n, line in enumerate(lines) if line.startswith("waiting"))
    words = " ".join(line[9:].strip() for line in lines[at:end])
    assert "お引っ越し" in words
    assert "`linedesk resume all`" in words
    assert f"{NAME} main/{HANAKO}" in lines[end]
    # A row without events is an outbox whose first send waits.
    assert re.search("a send for .*: its handler failed", "".join(lines[end : end + 2]))
