"""The transcript: the row of an event, and columns that align with Japanese and emoji."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from linedesk.launch.play import Deed, Event, Ring, Scene
from linedesk.launch.transcript import print_scene, print_summary
from linesim.judge.report import Finding, Report
from linesim.model.calls import Call
from linesim.model.deliveries import Delivery

HANAKO, EMILY = "佐藤花子", "Émile 🦜"


def event(who: str, shown: str, *answers: float, started_ms: float | None = 4.0) -> Event:
    """An event whose answers came these milliseconds after its webhook."""
    deed = Deed(who, shown, lambda drafts: {}, "はい、ですね。" if answers else None)
    delivery = Delivery(1, 0.0, 0.0, ("e1",), (), answered=0.0035, status=200)
    calls = [Call(1, ms / 1000, 0.0, "reply", "POST", "/", "R") for ms in answers]
    return Event(deed, "e1", delivery, started_ms, calls)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summary(console: Console, events: list[Event], rings: list[Ring], **found: Any) -> None:
    sim = SimpleNamespace(deliveries=[one.delivery for one in events])
    play: Any = SimpleNamespace(events=events, rings=rings, sim=sim)
    report = Report(
        events_sent=2, accepted=2, refused=0, answered_once=2, answered_unaccepted=0, **found
    )
    print_summary(console, play, report, mongod_version="6.0.5")


def test_figures_line_up_whatever_the_names_and_messages(console: Console) -> None:
    events = [event(who, text, 1234.5) for who in (HANAKO, EMILY) for text in ("あ☀", "ok", "👍")]
    print_scene(console, Scene("hello", events), bot="parrot")
    rows = [line.rstrip() for line in written(console).splitlines() if "1234.5" in line]
    assert len(rows) == 6
    assert len({cell_len(row) for row in rows}) == 1


def test_what_users_write_is_never_taken_for_markup(console: Console) -> None:
    print_scene(console, Scene("t", [event(HANAKO, "[red]x[/red] [/]", 1.0)]), bot="parrot")
    assert "[red]x[/red] [/]" in written(console)


def test_an_event_without_an_answer_has_a_dash(console: Console) -> None:
    blocks = event(HANAKO, "(blocks the bot)", started_ms=None)
    print_scene(console, Scene("t", [blocks]), bot="parrot")
    row = written(console).splitlines()[-1]
    assert " ".join(row.split()) == "佐藤花子 (blocks the bot) 3.5 -"


def test_the_summary_has_the_judge_s_figures(console: Console) -> None:
    events = [event(HANAKO, "x", 1.0), event(HANAKO, "y", 1.0, 2.0)]
    found = {"answered_twice": (Finding("e1", "U1", ()),), "closest_starts": {"a": 0.1004}}
    summary(console, events, [], **found)
    lines = {" ".join(line.split()) for line in written(console).splitlines()}
    assert {"double answers 1", "answers 3, none missing", "MongoDB 6.0.5"} <= lines
    assert any(one.startswith("closest two calls 100.4 ms apart on arrival") for one in lines)


def test_messages_of_timers_have_no_event_and_show_their_delay(console: Console) -> None:
    due = datetime(2026, 11, 21, 23, 30, tzinfo=UTC).timestamp()
    rings = [Ring(HANAKO, "飲んだ？", due, 12.4)]
    print_scene(console, Scene("t", advanced=41_234.5, rings=rings), bot="reminder")
    moved, rang = [line.split() for line in written(console).splitlines()[-2:]]
    assert moved == ["⏰", "+11:27:14"]
    expected = ["reminder", "to", "佐藤花子", "飲んだ？", "22", "Nov", "08:30:00", "12"]
    assert rang == expected
    summary(console, [event(HANAKO, "x", 1.0)], [*rings, Ring(HANAKO, "飲んだ？？", due, 20.0)])
    assert "2, none early, 20 ms late at most" in written(console)
