"""`linedesk trace` and `linedesk calls`: the story of one event, and the newest calls of LINE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from linedesk.commands.listing import Column, lately, moment, show_page, show_rows, zoned
from linedesk.commands.people import (
    Names,
    endpoint_words,
    name_in,
    named,
    names_beside,
    who,
    who_briefly,
)
from linedesk.operate.calls import Wanted, newest_calls, reason_words
from linedesk.operate.conversation import find_conversation
from linedesk.operate.events.story import Step, Story, tell
from linedesk.operate.format import brief, clock, echo_json, local, one_line
from linedesk.operate.search import Recent, recent
from linedesk.operate.text import known
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database
from linedesk.store.records.calls import REQUEST_ID, CallRecord, is_taken
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.timers import RUN_AT

WHO_CELLS, REASON_CELLS = 12, 12
# Facts at the end of a line of the story, if there are any.
TOLD = (REQUEST_ID, "thread", "messages", RUN_AT, "isRedelivery", "event")


def trace(settings: Settings, asked: str, *, text: bool, as_json: bool) -> None:
    """Print the story of the event that an id belongs to. Raises NoSuchEvent."""
    with open_database(settings, app_name="linedesk-trace") as database:
        story = tell(database, asked, text=text)
    if as_json:
        echo_json(story.as_json())
    else:
        show_page(page(story))


def page(story: Story) -> Iterator[tuple[str, Iterator[str]]]:
    """The labels and lines of the story."""
    yield "event", iter([story.event_id])
    if story.asked != story.event_id:
        yield "found by", iter([story.asked])
    yield "type", iter([known(story.what)])
    if story.key:
        name = story.name or "name not known"
        who = f"{name}  {story.channel}/{story.key}"
        yield "who", iter([who])
    yield "result", iter([story.verdict])
    if do := _to_do(story):
        yield "to do", iter([do])
    yield "story", _steps(story.steps)
    if story.gaps:
        yield "not known", iter(story.gaps)
    if story.related:
        yield "see also", iter(story.related)


def _to_do(story: Story) -> str | None:
    if story.stands == "given up":
        ids = " ".join(story.letters)
        told = "`{show}` shows the cause; fix it, then run `{replay}`"
        return told.format(show=f"linedesk dead show {ids}", replay=f"linedesk dead replay {ids}")
    if story.stands == "replayed":
        return "`{trace}` shows its result".format(trace=f"linedesk trace {story.replay}")
    return None


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    began = next((step.at for step in steps if step.at is not None), None)
    if began is not None:
        yield local(began)
    for step in steps:
        facts = "  ".join(_fact(name, step.facts[name]) for name in TOLD if name in step.facts)
        yield f"{clock(step.at):>12}  {_later(step.at, began):>12}  {step.words}  {facts}".rstrip()


def _later(at: datetime | None, began: datetime | None) -> str:
    if at is None or began is None or at <= began:
        return ""
    return f"+{brief((at - began).total_seconds())}"


def _fact(name: str, value: Any) -> str:
    return f"{name}={local(value) if isinstance(value, datetime) else value}"


def list_calls(settings: Settings, wanted: Wanted, *, as_json: bool) -> None:
    """Print the newest calls first."""
    with open_database(settings, app_name="linedesk-calls") as database:
        found = newest_calls(database, wanted)
        # A row of `calls` has no channel.
        rows = [{"channel": settings.line_channel, **row} for row in found]
        names = names_beside(database, rows)
    if as_json:
        for row in rows:
            shown = named(row, names)
            del shown["channel"]
            echo_json(shown)
        return
    show_rows(
        rows,
        screen=_screen(names),
        narrow=_narrow(names, rows),
        pipe=_pipe(names),
        nothing="no calls match",
    )


def _narrow(names: Names, rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """One line a call on 80 columns; with refusals their reason takes the place of the duration."""
    took = Column("took", lambda row: brief((row.get("ms") or 0.0) / 1000))
    reason = Column("reason", lambda row: reason_words(row) or "-", fold=REASON_CELLS)
    return (
        Column(zoned("at"), lambda row: lately(row.get("at"))),
        Column("call", lambda row: endpoint_words(row.get("endpoint")), fold=5),
        Column("status", _status, style=_status_style),
        Column("who", lambda row: who_briefly(names, row["channel"], row.get("key"))),
        Column("event", lambda row: row.get(EVENT_ID) or "-"),
        reason if any(map(reason_words, rows)) else took,
    )


def _screen(names: Names) -> tuple[Column, ...]:
    return (
        Column(zoned("at"), lambda row: moment(row.get("at"))),
        Column("call", lambda row: endpoint_words(row.get("endpoint")), fold=8),
        Column("status", _status, style=_status_style),
        Column("took", lambda row: brief((row.get("ms") or 0.0) / 1000), left_out=2),
        Column("who", lambda row: who(names, row["channel"], row.get("key")), fold=WHO_CELLS),
        Column("event", lambda row: row.get(EVENT_ID) or "-"),
        Column("try", lambda row: row.get("attempt") or 1, left_out=3),
        Column("request id", lambda row: row.get(REQUEST_ID) or "-", left_out=1),
        Column("reason", lambda row: reason_words(row) or "-", fold=REASON_CELLS),
    )


def _pipe(names: Names) -> tuple[Column, ...]:
    return (
        Column("at", lambda row: local(row.get("at"))),
        Column("call", lambda row: f"{row.get('method')} {row.get('endpoint')}"),
        Column("status", _status),
        Column("took", lambda row: brief((row.get("ms") or 0.0) / 1000)),
        Column("try", lambda row: row.get("attempt") or 1),
        Column("request id", lambda row: row.get(REQUEST_ID) or "-"),
        Column("key", lambda row: row.get("key") or "-"),
        Column("event", lambda row: row.get(EVENT_ID) or "-"),
        Column("name", lambda row: name_in(names, row) or "-"),
        Column("reason", lambda row: reason_words(row) or "-"),
    )


def _status(row: Mapping[str, Any]) -> str:
    return str(row.get("status") or "no answer")


def _status_style(row: Mapping[str, Any]) -> str:
    return "" if is_taken(row.get("status")) else "red"


def show_recent(settings: Settings, who: str, *, as_json: bool) -> None:
    """Print the newest events and calls of a conversation. Raises NotOneConversation."""
    with open_database(settings, app_name="linedesk-conversation") as database:
        id_ = find_conversation(database, who, channel=settings.line_channel)
        found = recent(database, id_)
    if as_json:
        echo_json({"id": id_, **vars(found)})
        return
    show_page(_recent(id_, found))


def _recent(id_: str, found: Recent) -> Iterator[tuple[str, Iterator[str]]]:
    yield "conversation", iter([id_])
    yield "events", (_event(row) for row in found.events)
    yield "calls", (_call(row) for row in found.calls)
    looked = ", ".join(f"newest {count:,} of {name}" for name, count in found.looked.items())
    yield "searched", iter([looked])


def _event(row: Mapping[str, Any]) -> str:
    why = row.get("held")
    held = "  " + f"held: {known(why)}" if why else ""
    return f"{local(row.get('at'))}  {known(str(row.get('what')))}  {row.get(EVENT_ID)}{held}"


def _call(row: Mapping[str, Any]) -> str:
    call = CallRecord.from_document(row)
    parts = (
        local(call.at),
        f"{call.method} {call.endpoint}",
        str(call.status or "no answer"),
        brief(call.ms / 1000),
        *(str(part or "-") for part in (call.request_id, call.event_id)),
    )
    return "  ".join(map(one_line, parts))
