"""`linedesk dead`: lists, questions, replays, drops, and the rows that it does not change."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from linedesk.operate.dead_letters import Choice, frames, moment_of
from linedesk.operate.format import visible
from linedesk.store.documents import make_document
from linedesk.store.records.waits import code_of
from tests.jobworker.worker_harness import a_send
from tests.linedesk.commands.terminals import Run, terminal, to_the_end, typed, until
from tests.rows import Db

NOW = datetime.now(UTC)
SECRET = "ひみつのことば"
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/srv/bot.py", line 7, in order\n'
    "    return int(text)\n"
    f"ValueError: invalid literal for int() with base 10: '{SECRET}'\n"
)


@pytest.fixture
def environ(mongo_uri: str, database: Db) -> dict[str, str]:
    """Nothing but where MongoDB is: no secret and no token of a channel."""
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name}


@pytest.fixture
def run(environ: dict[str, str]) -> Run:
    return typed(environ, "dead")


def an_event_letter(name: str, *, hours: float = 1.0, **more: Any) -> dict[str, Any]:
    event = {
        "type": "message",
        "webhookEventId": name,
        "source": {"type": "user", "userId": "U花子"},
        "message": {"type": "text", "id": f"m-{name}", "text": SECRET},
    }
    document = make_document(event, channel="main", accept_time=NOW)
    letter = {"channel": "main", "key": "U花子", "document": document, "traceback": TRACEBACK}
    return _letter(name, hours, **{**letter, "cause": "handler: ValueError", **more})


def a_send_letter(name: str, *, hours: float = 1.0, cause: str = "quota", **send: Any) -> Any:
    messages = [{"type": "text", "text": SECRET}]
    effect = a_send(id=name, messages=messages, to="U太郎", **send).as_document()
    letter = {"channel": "main", "key": "U太郎", "effect": effect, "traceback": None}
    return _letter(name, hours, **letter, cause=cause)


def _letter(name: str, hours: float, **more: Any) -> dict[str, Any]:
    at = NOW - timedelta(hours=hours)
    return {"_id": name, "attempts": 3, "firstAt": at, "lastAt": at, **more}


@pytest.fixture
def letters(database: Db) -> Db:
    database.deadletters.insert_many(
        [
            an_event_letter("01OLD", hours=50),
            an_event_letter("01NEW", hours=1),
            a_send_letter("01S/0", hours=3),
            {**a_send_letter("01R/0", hours=2), "replays": 1, "replayedAt": NOW},
        ]
    )
    return database


def ids(database: Db) -> set[str]:
    return {row["_id"] for row in database.deadletters.find()}


def queue(database: Db) -> list[str]:
    return [row["eventId"] for row in database.recvq.find().sort("$natural", 1)]


def test_a_list_names_the_newest_first_and_shows_no_text(run: Run, letters: Any) -> None:
    named = {"_id": "main/U花子", "profile": {"displayName": "花子"}}
    letters.conversations.insert_one(named)
    lines = run("list").stdout.splitlines()
    rows = [re.split("  +", line) for line in lines]
    assert [row[0] for row in rows] == ["id", "01NEW", "01S/0", "01OLD"]
    assert rows[1][2:] == ["message text", "3", "-", "花子 main/U花子", "handler: ValueError"]
    assert rows[2][2:6] == ["send push", "3", "-", "main/U太郎"]
    assert datetime.fromisoformat(rows[1][1]) == (NOW - timedelta(hours=1)).replace(microsecond=0)
    assert SECRET not in str(lines)


def test_a_list_is_narrowed_by_cause_time_and_number(run: Run, letters: Any) -> None:
    four_hours_ago = (NOW - timedelta(hours=4)).isoformat()
    for options, shown in (
        (["--all"], ["01NEW", "01R/0", "01S/0", "01OLD"]),
        (["--cause", "quota"], ["01S/0"]),
        (["--cause", "Value"], ["01NEW", "01OLD"]),
        (["--since", "150m"], ["01NEW"]),
        (["--until", "2d"], ["01OLD"]),
        (["--limit", "1"], ["01NEW"]),
        (["--since", four_hours_ago], ["01NEW", "01S/0"]),
    ):
        rows = run("list", "--json", *options).stdout.splitlines()
        assert [json.loads(row)["id"] for row in rows] == shown, options


def test_a_list_reads_by_its_index_and_only_what_it_shows(database: Db) -> None:
    database.deadletters.insert_many(
        an_event_letter(str(n), hours=n / 10, cause="handler: X" if n % 50 == 0 else "quota")
        for n in range(500)
    )
    for choice in (Choice(), Choice(cause="handler"), Choice(since=NOW - timedelta(hours=9))):
        found = database.deadletters.find(choice.query()).sort("lastAt", -1).limit(5)
        assert found.explain()["executionStats"]["totalDocsExamined"] == 5


def test_show_hides_message_texts(run: Run, letters: Any) -> None:
    told = run("show", "01NEW").stdout
    assert "handler: ValueError" in told
    assert re.search(r' File "/srv/bot.py", line 7, in order\n +return int\(text\)\n', told)
    assert SECRET not in told
    assert "ValueError: invalid" not in told


def test_show_text_shows_message_texts(run: Run, letters: Any) -> None:
    assert run("show", "--text", "01NEW").stdout.count(SECRET) == 2
    told = json.loads(run("show", "--text", "--json", "01S/0").stdout)
    assert told["effect"]["messages"][0]["text"] == SECRET


def test_message_texts_cannot_control_the_terminal() -> None:
    assert visible("a\x1b[2Jb\x9bc\n👨‍👩‍👧") == "a\\x1b[2Jb\\x9bc\n👨‍👩‍👧"
    assert visible("مرحبا \u202ex") == "مرحبا \\x202ex"


def test_frames_of_an_error_within_an_error_hold_no_words_of_either() -> None:
    other = f"{TRACEBACK}\nDuring handling of the above ...:\n\n{TRACEBACK}{SECRET}\n    {SECRET}"
    told = frames(other, id_="01A/0")
    assert told is not None
    assert told.count("bot.py") == 2
    assert SECRET not in told
    assert "linedesk dead show 01A/0 --text" in told


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_a_command_that_changes_letters_needs_a_choice(
    run: Run, letters: Any, command: str
) -> None:
    assert "no dead letter '01NONE'\n" in run(command, "01NEW", "01NONE", code=1).stderr
    assert "name the letters" in run(command, code=2).stderr
    assert "either ids" in run(command, "01NEW", "--cause", "x", code=2).stderr
    assert "2 dead letters match: add --yes" in run(command, "--cause", "Value", code=2).stderr
    assert queue(letters) == []
    assert len(ids(letters)) == 4


def test_times_are_ago_or_local_unless_they_name_a_zone() -> None:
    assert moment_of("3d", now=NOW) == NOW - timedelta(days=3)
    assert moment_of("90s", now=NOW) == NOW - timedelta(seconds=90)
    assert moment_of("2026-01-31T09:00+09:00", now=NOW) == datetime(2026, 1, 31, 0, tzinfo=UTC)
    assert moment_of("2026-01-31", now=NOW) == datetime(2026, 1, 31).astimezone()


def test_a_replay_puts_the_letters_back_the_oldest_first(run: Run, letters: Any) -> None:
    told = run("replay", "--cause", "handler", "--yes").stdout.splitlines()
    assert told == ["replayed 01OLD as replay:01OLD:1", "replayed 01NEW as replay:01NEW:1"]
    assert queue(letters) == ["replay:01OLD:1", "replay:01NEW:1"]
    assert [line.split()[0] for line in run("list").stdout.splitlines()] == ["id", "01S/0"]


def test_a_send_that_may_arrive_twice_needs_force(run: Run, database: Db) -> None:
    old = a_send(tried_at=NOW - timedelta(days=2)).tried_at
    way = a_send().way
    database.deadletters.insert_one(a_send_letter("01U/0", tried_at=old, tried_as=way))
    answer = run("replay", "01U/0", code=1)
    assert "may arrive twice; --force replays it anyway" in answer.stderr
    assert queue(database) == []
    run("replay", "01U/0", "--force")
    assert queue(database) == ["replay:01U/0:1"]


def test_a_replayed_letter_is_replayed_again_only_with_all(run: Run, letters: Any) -> None:
    assert "replay:01R/0:1" in run("show", "01R/0").stdout
    assert "--all replays it again" in run("replay", "01R/0", code=1).stderr
    assert run("replay", "01R/0", "--all").stdout == "replayed 01R/0 as replay:01R/0:2\n"


def test_an_unsent_message_is_not_replayed_and_the_others_are(run: Run, letters: Any) -> None:
    letters.deadletters.update_one({"_id": "01OLD"}, {"$set": {"document.unsent": True}})
    answer = run("replay", "01OLD", "01NEW", "--yes", "--json", code=1)
    told = [json.loads(line) for line in answer.stdout.splitlines()]
    assert told == [
        {"id": "01OLD", "refused": "its message was taken back by its sender"},
        {"id": "01NEW", "replay": "replay:01NEW:1"},
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"document": {"channel": "main", "key": "U1", "event": {"$ref": "x", "$id": 1}}},
        {"document": None},
        {},
    ],
)
def test_a_letter_that_a_person_has_changed_is_shown_and_refused_in_words(
    run: Run, database: Db, changed: dict[str, Any]
) -> None:
    database.deadletters.insert_one({"_id": "odd", "lastAt": NOW, **changed})
    assert run("list").stdout.splitlines()[1].startswith("odd  ")
    assert run("show", "odd", "--text").stdout.startswith("id ")
    assert "linedesk: odd not replayed: it" in run("replay", "odd", code=1).stderr
    assert queue(database) == []


def test_a_terminal_is_asked_before_more_than_one_is_dropped(
    environ: dict[str, str], letters: Any
) -> None:
    with terminal(environ, "dead", "drop", "--cause", "Value") as (master, process):
        until(master, "Drop 2 dead letters? [y/N]")
        os.write(master, b"y\n")
        to_the_end(master)
        assert process.wait(30) == 0
    assert ids(letters) == {"01S/0", "01R/0"}
    (row,) = letters.audit.find()
    assert (row["act"], row["via"], code_of(row["outcome"])) == ("drop", "command", "done")
