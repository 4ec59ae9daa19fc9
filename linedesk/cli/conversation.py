"""`linedesk conversation show`: one conversation as a page for people, or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len

from linedesk.compose.database import open_database
from linedesk.console.conversation import conversation_summary, find_conversation, read_conversation
from linedesk.console.format import echo_json, for_long, local, show_page
from linedesk.settings.settings import Settings


def show_conversation(settings: Settings, word: str, *, text: bool, as_json: bool) -> None:
    """Print the conversation that a word means (see `find_conversation`).

    Raises NotOneConversation.
    """
    with open_database(settings, app_name="linedesk-conversation") as database:
        told = conversation_summary(
            read_conversation(
                database, find_conversation(database, word, channel=settings.line_channel)
            )
        )
    if not text:
        told["outbox"].pop("effects")
    if as_json:
        echo_json(told)
        return
    show_page(page(told, now=datetime.now(UTC)))


def page(told: Mapping[str, Any], *, now: datetime) -> Iterator[tuple[str, Iterator[str]]]:
    """What stands there, with times as a person reads them."""
    yield "conversation", iter([told["id"]])
    yield "who", _who(told)
    yield "state", iter([_state(told, now)])
    yield "data", iter([_json(told["data"])])
    if told["members"]:
        yield "members", _members(told["members"], now)
    yield "timers", _timers(told["timers"], now)
    yield "outbox", _outbox(told["outbox"], now)
    if told["answers"]["waiting"]:
        yield "answers", iter([_answers(told["answers"], now)])
    yield "held", _held(told["held"], now)
    yield "dead letters", iter([str(told["deadLetters"] or "none")])
    yield "last record", iter([f"{_ago(told['at'], now)}, {told['records']} in all"])


def _who(told: Mapping[str, Any]) -> Iterator[str]:
    friend = {True: "friend", False: "no friend", None: ""}[told["friend"]]
    kind = ", ".join(part for part in (told["kind"], friend) if part)
    yield f"{told['name'] or 'name not known'}{f' ({kind})' if kind else ''}"


def _state(place: Mapping[str, Any], now: datetime) -> str:
    state, until = place["state"] or "none", place["until"]
    return state if until is None else f"{state}, until {local(until)} ({_when(until, now)})"


def _members(members: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    for one in members:
        who = f"{one['name']} {one['user']}" if one["name"] else one["user"]
        yield f"{who}: {_state(one, now)} {_json(one['data'])}"


def _timers(timers: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    if not timers:
        yield "none"
    width = max((cell_len(_named(one)) for one in timers), default=0)
    for one in timers:
        name = _named(one) + " " * (width - cell_len(_named(one)))
        every = f"  every day at {one['every']}" if one["every"] else ""
        data = f"  {_json(one['data'])}" if one["data"] else ""
        yield f"{name}  {local(one['at'])}  {_when(one['at'], now)}{every}{data}"


def _named(timer: Mapping[str, Any]) -> str:
    return f"{timer['name']} of {timer['member']}" if timer["member"] else str(timer["name"])


def _outbox(outbox: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if not outbox["count"]:
        yield "empty"
        return
    oldest = f", the oldest since {_ago(outbox['oldest'], now)}" if outbox["oldest"] else ""
    yield f"{outbox['count']} waiting{oldest}, {outbox['tried'] or 'none'} tried"
    for effect in outbox.get("effects", ()):
        yield _json(effect)


def _answers(answers: Mapping[str, Any], now: datetime) -> str:
    return (
        f"{answers['waiting']} waiting for a tap, the oldest since {_ago(answers['oldest'], now)}"
    )


def _held(held: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if not held["count"]:
        yield "none"
        return
    yield f"{held['count']} documents, the first since {_ago(held['since'], now)} ({held['why']})"


def _when(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {for_long(seconds)}" if seconds > 0 else f"due {for_long(-seconds)} ago"


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "-"
    return f"{local(moment)} ({for_long(max(0.0, (now - moment).total_seconds()))} ago)"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
