"""`linedesk trace`: the story of one event, as the page tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option, text_option, with_database
from linedesk.operate.format import brief, clock, echo_json, local
from linedesk.store.records.calls import REQUEST_ID
from linedesk.store.records.timers import RUN_AT

if TYPE_CHECKING:
    from linedesk.commands.options import Opened
    from linedesk.operate.events.story import Step, Story

# Facts at the end of a line of the story, if there are any.
TOLD = (REQUEST_ID, "thread", "messages", RUN_AT, "isRedelivery", "event")


@click.command(cls=Command, examples=("trace 01HEV3K9QW", "trace 5a0c2f31-x-line-request-id"))
@click.argument("id_", metavar="ID")
@text_option
@json_option
@with_database
def trace(own: Opened, id_: str, text: bool, as_json: bool) -> None:
    """Show what happened to one event, from the webhook to LINE's request id.

    ID is the id of an event, a message, a document of recvq, an effect, a dead letter or a timer,
    or the x-line-request-id of a call.
    """
    from linedesk.commands.listing import show_page
    from linedesk.operate.events.story import tell

    story = tell(own.database, id_, text=text)
    if as_json:
        echo_json(story)
    else:
        show_page(page(story))


def page(story: Story) -> Iterator[tuple[str, Iterable[str]]]:
    """The labels and lines of the story."""
    from linedesk.operate.text import known

    yield "event", [story.event_id]
    if story.asked != story.event_id:
        yield "found by", [story.asked]
    yield "type", [known(story.what)]
    if story.key:
        yield "who", [f"{story.name or 'name not known'}  {story.channel}/{story.key}"]
    yield "result", [str(story.outcome)]
    if do := _to_do(story):
        yield "to do", [do]
    yield "story", _steps(story.steps)
    if story.related:
        yield "see also", story.related


def _to_do(story: Story) -> str | None:
    if story.outcome.result == "failed":
        ids = " ".join(story.letters)
        show, replay = f"linedesk dead show {ids}", f"linedesk dead replay {ids}"
        return f"`{show}` shows the cause; fix it, then run `{replay}`"
    if story.outcome.result == "replayed":
        return f"`linedesk trace {story.outcome.see}` shows its result"
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
