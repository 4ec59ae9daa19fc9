"""`linedesk trace` and `linedesk calls`: what became of one event, and the newest calls of LINE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from linedesk.compose.database import open_database
from linedesk.console.calls import Wanted, newest_calls
from linedesk.console.conversation import find_conversation
from linedesk.console.format import brief, clock, echo_json, local, show_page, tabbed
from linedesk.console.search import Recent, recent
from linedesk.console.story import Step, Story, tell
from linedesk.settings.settings import Settings
from linedesk.store.records.calls import REQUEST_ID, CallRecord
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.timers import RUN_AT

# Facts that a line of the story ends with, where they are there.
TOLD = (REQUEST_ID, "thread", "messages", RUN_AT, "isRedelivery", "event")


def trace(settings: Settings, asked: str, *, text: bool, as_json: bool) -> None:
    """Print the story of the event that an id means. Raises NoSuchEvent."""
    with open_database(settings, app_name="linedesk-trace") as database:
        story = tell(database, asked, text=text)
    if as_json:
        echo_json(story.as_json())
    else:
        show_page(page(story))


def page(story: Story) -> Iterator[tuple[str, Iterator[str]]]:
    """The story for people, label by label."""
    yield "event", iter([story.event_id])
    if story.asked != story.event_id:
        yield "found by", iter([story.asked])
    whose = f" of {story.channel}/{story.key}" if story.key else ""
    yield "what", iter([f"{story.what}{whose}"])
    yield "stands", iter([story.verdict])
    if do := _to_do(story):
        yield "to do", iter([do])
    yield "story", (line for line in _steps(story.steps))
    if story.gaps:
        yield "not known", iter(story.gaps)
    if story.related:
        yield "see also", iter(story.related)


def _to_do(story: Story) -> str | None:
    if story.stands == "given up":
        ids = " ".join(story.letters)
        return f"`linedesk dead show {ids}` tells where; once mended, `linedesk dead replay {ids}`"
    if story.stands == "replayed":
        return f"`linedesk trace {story.replay}` tells what came of it"
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
        rows = newest_calls(database, wanted)
    if not as_json:
        click.echo("\t".join(CALLS_HEAD))
    for row in rows:
        if as_json:
            echo_json(row)
        else:
            click.echo(_call(row))


CALLS_HEAD = ("at", "call", "status", "took", "try", "request id", "key", "event")


def _call(row: Mapping[str, Any]) -> str:
    call = CallRecord.from_document(row)
    parts = (
        local(call.at),
        f"{call.method} {call.endpoint}",
        str(call.status or "no answer"),
        brief(call.ms / 1000),
        str(call.attempt),
        *(str(part or "-") for part in (call.request_id, call.key, call.event_id)),
    )
    return tabbed(parts)


def show_recent(settings: Settings, who: str, *, as_json: bool) -> None:
    """Print what a conversation did lately. Raises NotOneConversation."""
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
    yield "calls", (_call(row).replace("\t", "  ") for row in found.calls)
    looked = ", ".join(f"{count:,} of {name}" for name, count in found.looked.items())
    yield "looked at", iter([f"the newest {looked}"])


def _event(row: Mapping[str, Any]) -> str:
    held = f"  held: {row['held']}" if row.get("held") else ""
    return f"{local(row.get('at'))}  {row.get('what')}  {row.get(EVENT_ID)}{held}"
