"""The transcript: the row of an event, and columns that align with Japanese and emoji."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len
from rich.console import Console

from linedesk.demo.conversation import BotAnswer, Deed, Event, Person, done
from linedesk.demo.scenarios import Scene
from linedesk.demo.timed_events import DemoTimer
from linedesk.demo.transcript import doubles, print_scene, print_summary

HANAKO = Person("佐藤花子", "U1")
EMILY = Person("Émile 🦜", "U2")


def event(who: Person, shown: str, *answers: BotAnswer, started_ms: float | None = 4.0) -> Event:
    return Event(Deed(who, shown, {}), "e1", 0.0, 3.5, started_ms, list(answers))


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_figures_line_up_whatever_the_names_and_messages(console: Console) -> None:
    answer = BotAnswer("はい、ですね。", 1234.5)
    events = [event(who, text, answer) for who in (HANAKO, EMILY) for text in ("あ☀", "ok", "👍")]
    print_scene(console, Scene("hello", events), bot="parrot")
    rows = [line.rstrip() for line in written(console).splitlines() if "1234.5" in line]
    assert len(rows) == 6
    assert len({cell_len(row) for row in rows}) == 1


def test_what_users_write_is_never_taken_for_markup(console: Console) -> None:
    asked = event(HANAKO, "[red]x[/red] [/]", BotAnswer("[bold]y", 1.0))
    print_scene(console, Scene("t", [asked]), bot="parrot")
    assert "[red]x[/red] [/]" in written(console)
    assert "[bold]y" in written(console)


def test_an_event_without_an_answer_has_a_dash(console: Console) -> None:
    blocks = event(HANAKO, "(blocks the bot)", started_ms=None)
    print_scene(console, Scene("t", [blocks]), bot="parrot")
    assert written(console).splitlines()[-1].split() == [
        "佐藤花子",
        "(blocks",
        "the",
        "bot)",
        "3.5",
        "-",
    ]


def test_double_answers_are_counted_and_shown(console: Console) -> None:
    once, twice = BotAnswer("a", 1.0), BotAnswer("b", 2.0)
    events = [event(HANAKO, "x", once), event(HANAKO, "y", once, twice)]
    print_summary(
        console, events, webhooks=2, timers=[], closest_seconds=0.1004, mongod_version="6.0.5"
    )
    assert doubles(events) == 1
    lines = {" ".join(line.split()) for line in written(console).splitlines()}
    assert {"double answers 1", "answers 3, none missing", "MongoDB 6.0.5"} <= lines
    assert any(one.startswith("closest two calls 100.4 ms apart on arrival") for one in lines)


def test_messages_of_timers_have_no_event_and_show_their_delay(console: Console) -> None:
    due = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
    rings = [DemoTimer(HANAKO, "飲んだ？", due, 12.4)]
    print_scene(console, Scene("t", advanced=41_234.5, timers=rings), bot="reminder")
    moved, rang = [line.split() for line in written(console).splitlines()[-2:]]
    assert moved == ["⏰", "+11:27:14"]
    expected = ["reminder", "to", "佐藤花子", "飲んだ？", "22", "Nov", "08:30:00", "12"]
    assert rang == expected
    print_summary(
        console,
        [event(HANAKO, "x", BotAnswer("a", 1.0))],
        webhooks=1,
        timers=[*rings, DemoTimer(HANAKO, "飲んだ？？", due, 20.0)],
        closest_seconds=None,
        mongod_version="6.0.5",
    )
    assert "2, none early, 20 ms late at most" in written(console)


def test_a_deed_is_complete_when_its_condition_is_met() -> None:
    answer = BotAnswer("a", 1.0)
    assert done(event(HANAKO, "x", answer))
    assert not done(event(HANAKO, "x"))
    assert not done(event(HANAKO, "x", answer, started_ms=None))
    assert done(Event(Deed(HANAKO, "x", {}, until="stored"), "e", 0.0, 1.0))
    assert not done(Event(Deed(HANAKO, "x", {}, until="started"), "e", 0.0, 1.0))
