"""The commands on a terminal of 80 or 120 columns, and in a pipe: names, whole ids, the order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database
from rich.cells import cell_len

from linedesk.commands.listing import Column, moment
from linedesk.commands.people import cut, endpoint_words, short, who
from linedesk.commands.tail import Came, Ordering
from linedesk.runtime.exit_codes import Exit
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from tests.linedesk.commands.terminals import COLOUR, shown_on, terminal, to_the_end, until
from tests.linedesk.operate.hand import HANAKO, a_call, a_desk, a_dispatcher, a_run, ago, an_event

EVENT = "01HEV3K9QW8S4V2Y6Z0A1B2C3D"
REPLAYED = "01HEV3K9QWREPLAYED00000000"
REQUEST = "5a0c2f31-1d7e-4c55-9a0b-3f2d1e0c9b8a"
NAME = "佐藤花子"
SHORT = f"{HANAKO[:9]}…"
REASON = "返信の期限が切れていました。" * 4


@pytest.fixture(scope="module")
def database(client: Client) -> Iterator[Database[Any]]:
    """One for all of them: each test asks for what no other changes."""
    database = client[f"test_terminal_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
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
    client.drop_database(database.name)


@pytest.fixture
def environ(mongo_uri: str, database: Database[Any]) -> dict[str, str]:
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name, "SUDO_USER": "hanako"}


def piped(environ: dict[str, str], *arguments: str, code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "linedesk", *arguments],
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout


# Lists


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("calls",), (EVENT,)),
        (("dead", "list"), (f"{EVENT}/0",)),
        (("audit",), (EVENT, f"main/{SHORT}", f"{EVENT}/0 and")),
    ],
)
def test_a_list_fits_the_terminal_with_whole_ids_and_names(
    environ: dict[str, str], arguments: tuple[str, ...], ids: tuple[str, ...], columns: int
) -> None:
    lines, code = shown_on(environ, *arguments, columns=columns)
    assert code == Exit.OK
    assert max(map(cell_len, lines)) <= columns
    for id_ in (*ids, NAME):
        assert any(id_ in line for line in lines), (id_, lines)
    zone = datetime.now().astimezone().tzname()
    assert f"({zone})" in lines[0]


def test_calls_are_a_line_each_on_80_columns_with_the_reason_of_a_refusal(
    environ: dict[str, str], database: Database[Any]
) -> None:
    well = {"status": 200, "reason": None}
    asked = ("calls", "--endpoint", "profile")
    database.calls.insert_many(
        a_call(f"{EVENT[:-1]}{n}", at=datetime.now(UTC), endpoint="/v2/bot/profile/{}", **well)
        for n in range(3)
    )
    lines, _ = shown_on(environ, *asked, columns=80)
    assert len(lines) == 1 + 3
    assert all(f"profile/{{}} 200    {NAME} {EVENT[:-1]}" in line for line in lines[1:]), lines
    lines, _ = shown_on(environ, "calls", "--failed", columns=80)
    assert "reason" in lines[0]
    assert re.search(rf"reply 400    {NAME} {EVENT} Invalid", lines[1]), lines


def test_dead_letters_show_tries_and_replays_on_80_columns(environ: dict[str, str]) -> None:
    lines, _ = shown_on(environ, "dead", "list", columns=80)
    assert any("3 tries" in line for line in lines)
    assert not any("replayed" in line for line in lines)
    lines, _ = shown_on(environ, "dead", "list", "--all", columns=80)
    assert any(f"{REPLAYED}/0" in line and "replayed 2x" in line for line in lines), lines


def test_an_empty_list_says_so_without_a_heading(
    environ: dict[str, str], database: Database[Any]
) -> None:
    nothing = environ | {"MONGODB_DATABASE": f"{database.name}_empty"}
    for arguments, words in ((["audit"], "no acts yet"), (["calls"], "no calls match")):
        assert shown_on(nothing, *arguments, columns=80)[0] == [words]


def test_a_dead_letter_shows_its_cause_once(environ: dict[str, str]) -> None:
    shown = piped(environ, "dead", "show", f"{EVENT}/0")
    assert shown.count(REASON) == 1
    assert "explained" not in shown


def test_a_wide_terminal_also_shows_the_request_id(environ: dict[str, str]) -> None:
    wide, _ = shown_on(environ, "calls", columns=120)
    assert any(REQUEST in line for line in wide), wide
    assert any(SHORT in line for line in wide), wide
    narrow, _ = shown_on(environ, "calls", columns=80)
    assert not any("5a0c2f31" in line for line in narrow), "left out, and not cut"


@pytest.mark.parametrize(
    ("arguments", "cells"),
    [
        (("calls",), [HANAKO, EVENT, REQUEST, NAME, "POST /v2/bot/message/reply", "400"]),
        (("dead", "list"), [f"{EVENT}/0", HANAKO, REASON, NAME]),
        (("audit",), [f"main/{HANAKO} {EVENT}", NAME, "直した"]),
    ],
)
def test_a_pipe_gets_tabs_and_everything_whole(
    environ: dict[str, str], arguments: tuple[str, ...], cells: list[str]
) -> None:
    rows = [line.split("\t") for line in piped(environ, *arguments).splitlines()]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert {*cells} <= {cell for row in rows for cell in row}


def test_a_trace_names_the_person(environ: dict[str, str], database: Database[Any]) -> None:
    database.recvq.insert_one(an_event("01TRACED", key=HANAKO))
    lines, _ = shown_on(environ, "trace", "01TRACED", columns=80)
    assert any(NAME in line for line in lines)


def test_short_forms() -> None:
    names = {f"main/{HANAKO}": NAME}
    assert who(names, "main", HANAKO) == f"{NAME} {SHORT}"
    assert who({}, "main", HANAKO) == SHORT
    assert who(names, "main", None) == "-"
    assert cut("とても長い名前の人", 12) == "とても長い…"
    assert short(f"main/{HANAKO} と {HANAKO}") == f"main/{SHORT} と {SHORT}"
    assert endpoint_words("/v2/bot/message/push") == "push"
    assert endpoint_words("/v2/bot/profile/{}") == "profile/{}"
    assert moment(None) == "-"
    assert Column("x", str).cell(1) == "1"


# tail


def test_lines_are_in_order_of_time_even_if_rows_are_written_late() -> None:
    now = datetime.now(UTC)

    def came(name: str, seconds: float, ms: float = 0.0) -> Came:
        return Came("call", {"at": now + timedelta(seconds=seconds), "ms": ms, "eventId": name})

    ordering = Ordering(1.0)
    ordering.put(came("third", 3), now=10.0)
    ordering.put(came("first", 1), now=10.5)
    ordering.put(came("second", 0, ms=2_000), now=10.6)
    assert list(ordering.due(now=10.9)) == []
    assert [one.event_id for one in ordering.due(now=11.0)] == ["first", "second", "third"]
    ordering.put(came("late", 0), now=11.1)
    assert [one.event_id for one in ordering.due(now=12.1)] == ["late"]


@pytest.mark.parametrize(("columns", "whose"), [(80, NAME), (120, f"{NAME} {SHORT}")])
def test_a_tail_shows_names_and_event_ids_on_one_line_each(
    environ: dict[str, str], database: Database[Any], columns: int, whose: str
) -> None:
    with terminal(environ, "tail", columns=columns) as (master, tailing):
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
            shown = until(master, "reply 200")
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
    assert all(f"{EVENT} {whose}" in line for line in lines)
    assert max(map(cell_len, lines)) <= columns
    assert "Traceback" not in shown


# status


FIGURES = (
    *("oplog retention left 3 d 1 h", "queue retention left 30 d", "held 1,204 of 2,000"),
    *("wait 2.0 s / 5 min", "recvq 12% unread", "quota 1,312 of 5,000"),
)


@pytest.mark.parametrize("watched", [True, False])
def test_no_figure_is_cut_on_80_columns(
    environ: dict[str, str], database: Database[Any], watched: bool
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=600)
    row = a_dispatcher(now=soon)
    row["figures"] |= {"recvqLeftSeconds": 30 * 86400, "oplogLeftSeconds": 73 * 3600}
    row["figures"] |= {"heldDocuments": 1204, "heldKeys": 2000, "recvqUnreadShare": 0.12}
    row["figures"] |= {"quotaMessages": 5000, "quotaUsedMessages": 1312, "outboxEffects": 1204}
    row["lately"]["waitSeconds"] = {"count": 9, "p50": 2.0, "p90": 300.0, "p99": 300.0}
    database.status.insert_many([a_desk(now=soon), row])
    try:
        if watched:
            with terminal(environ, "status", "--watch") as (master, watching):
                shown = until(master, "capacity")
                os.write(master, b"\x03")
                shown += to_the_end(master)
                watching.wait(10)
            shown = COLOUR.sub("", shown).replace("^C", "")
            lines = [line.rstrip() for line in shown.splitlines()]
        else:
            lines, _ = shown_on(environ, "status", columns=80)
    finally:
        database.status.delete_many({})
    text = "\n".join(lines)
    assert [one for one in FIGURES if one not in text] == []
    assert max(map(cell_len, lines)) <= 80
    # Ids are short, and end so.
    assert not [line for line in lines if line.endswith("…") and SHORT not in line]


def test_a_small_watched_screen_has_the_problems_first_and_whole(
    environ: dict[str, str], database: Database[Any]
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=60)
    since = datetime.now(UTC)
    waiting = [
        {"channel": "main", "key": HANAKO, "since": since, "why": "its handler failed"},
        *({"channel": "main", "key": f"U{n}", "since": since, "why": "x"} for n in range(20)),
    ]
    database.status.insert_many([a_desk(now=soon), a_dispatcher(now=soon, waiting=waiting)])
    pause = {"act": "pause", "channel": None, "key": None, "by": "hanako", "why": "お引っ越し"}
    database.control.insert_one({"_id": "pause", **pause, "at": datetime.now(UTC)})
    try:
        with terminal(environ, "status", "--watch") as (master, watching):
            shown = until(master, "queue")
            os.write(master, b"\x03")
            shown += to_the_end(master)
            assert watching.wait(10) == Exit.INTERRUPTED
        once, code = shown_on(environ, "status", columns=80)
    finally:
        database.control.delete_many({})
        database.status.delete_many({})
    assert code == Exit.FAILED, "everything is paused"
    assert "\x1b[1;31m✕ Critical: paused: " in shown
    lines = [COLOUR.sub("", line).rstrip() for line in shown.splitlines()]
    at = next(n for n, line in enumerate(lines) if "Critical: paused" in line)
    end = next(n for n, line in enumerate(lines) if line.startswith("waiting"))
    words = "".join(line[9:].strip() for line in lines[at:end])
    assert "お引っ越し" in words
    assert "`linedeskresumeall`" in words.replace(" ", ""), "folded anywhere"
    assert f"{NAME} main/{SHORT}" in lines[end]
    assert any(NAME in line for line in once)
    # A row without events is an outbox whose first send waits.
    assert any(
        re.search(rf"{NAME} main/{SHORT}  a send for .*: its handler", line) for line in once
    )
    calls = once[next(n for n, line in enumerate(once) if line.startswith("calls")) :]
    assert all(NAME in line for line in calls)
