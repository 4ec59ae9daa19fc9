"""`linedesk conversation show`: the state of one conversation, and its newest events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click import option

from linedesk.commands.failure import Command
from linedesk.commands.options import json_option, with_database
from linedesk.commands.removed import recent
from linedesk.operate.format import echo_json, for_long, local

if TYPE_CHECKING:
    from linedesk.commands.options import Opened
    from linedesk.operate.events.lists import EventLine


@click.group()
def conversation() -> None:
    """Show one conversation with the bot."""


conversation.add_command(recent)


@conversation.command("show", cls=Command)
@click.argument("who", metavar="USER")
@option("--text", is_flag=True, help="Also show the texts of waiting sends.")
@json_option
@with_database
def conversation_show(own: Opened, who: str, text: bool, as_json: bool) -> None:
    """Show state, data, timers, outbox and newest events of one conversation.

    USER is the id of a user, group or room, a unique start of the id, <channel>/<id>, or a name in
    LINE.
    """
    from linedesk.commands.listing import show_page
    from linedesk.operate.conversation import read_conversation
    from linedesk.operate.events.lists import events_of
    from linedesk.operate.find import find_conversation

    id_ = find_conversation(own.database, who, channel=own.channel)
    told = read_conversation(own.database, id_)
    if not text:
        told["outbox"].pop("effects")
    lines = events_of(own.database, *id_.split("/", 1))
    if as_json:
        echo_json({**told, "events": lines})
        return
    events = [text for one in lines for text in _event(one)]
    nothing = "none in the queue; `linedesk calls --key` shows older calls"
    show_page([*page(told, now=datetime.now(UTC)), ("events", events or [nothing])])


def _event(one: EventLine) -> Iterator[str]:
    from linedesk.operate.text import known

    yield f"{local(one.at)}  {known(one.what)}  {one.event_id}  {one.outcome}"
    for step in one.answers:
        yield f"  {local(step.at)}  {step.words}"


def page(told: Mapping[str, Any], *, now: datetime) -> Iterator[tuple[str, Iterable[str]]]:
    """The labels and lines of the page, with ages beside times."""
    yield "conversation", [told["id"]]
    yield "who", [_who(told)]
    yield "state", [_state(told, now)]
    yield "data", [_json(told["data"])]
    if told["members"]:
        yield "members", _members(told["members"], now)
    yield "timers", _timers(told["timers"], now)
    yield "outbox", _outbox(told["outbox"], now)
    if told["answers"]["waiting"]:
        yield "answers", [_answers(told["answers"], now)]
    yield "held", [_held(told["held"], now)]
    yield "dead letters", [str(told["deadLetters"] or "none")]
    yield "last record", [f"{_ago(told['at'], now)}, {told['records']} in all"]


def _who(told: Mapping[str, Any]) -> str:
    from linedesk.operate.text import known

    friend = {True: "friend", False: "no friend", None: ""}[told["friend"]]
    kind = ", ".join(part for part in (known(str(told["kind"] or "")), friend) if part)
    name = told["name"] or "name not known"
    return f"{name} ({kind})" if kind else name


def _state(place: Mapping[str, Any], now: datetime) -> str:
    state, until = place["state"] or "none", place["until"]
    return f"{state}, until {local(until)} ({_when(until, now)})" if until else str(state)


def _members(members: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    for one in members:
        who = f"{one['name']} {one['user']}" if one["name"] else one["user"]
        yield f"{who}: {_state(one, now)} {_json(one['data'])}"


def _timers(timers: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    if not timers:
        yield "none"
    for one in timers:
        name = f"{one['name']} of {one['member']}" if one["member"] else one["name"]
        every = f"  repeats: {one['every']}" if one["every"] else ""
        data = f"  {_json(one['data'])}" if one["data"] else ""
        yield f"{name}  {local(one['at'])}  {_when(one['at'], now)}{every}{data}"


def _outbox(outbox: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if not outbox["count"]:
        yield "empty"
        return
    oldest = f", oldest from {_ago(outbox['oldest'], now)}" if outbox["oldest"] else ""
    yield f"{outbox['count']} waiting{oldest}, {outbox['tried']} tried"
    yield from map(_json, outbox.get("effects", ()))


def _answers(answers: Mapping[str, Any], now: datetime) -> str:
    oldest = _ago(answers["oldest"], now)
    return f"{answers['waiting']} waiting for a tap on the button, oldest from {oldest}"


def _held(held: Mapping[str, Any], now: datetime) -> str:
    from linedesk.operate.text import known

    if not held["count"]:
        return "none"
    count = "1 document" if held["count"] == 1 else f"{held['count']} documents, the first"
    return f"{count} held since {_ago(held['since'], now)} ({known(held['why'])})"


def _when(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {for_long(seconds)}" if seconds > 0 else f"due {for_long(-seconds)} ago"


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "-"
    return f"{local(moment)} ({for_long(max(0.0, (now - moment).total_seconds()))} ago)"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
