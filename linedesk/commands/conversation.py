"""`linedesk conversation show`: one conversation as a page, or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len

from linedesk.commands.listing import padded, show_page
from linedesk.operate.conversation import conversation_summary, find_conversation, read_conversation
from linedesk.operate.format import echo_json, for_long, local
from linedesk.operate.text import known
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database


def show_conversation(settings: Settings, word: str, *, text: bool, as_json: bool) -> None:
    """Print the conversation that a word matches (see `find_conversation`).

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
    """The labels and lines of the page, with ages beside times."""
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
    last = "{ago}, {count} in all".format(ago=_ago(told["at"], now), count=told["records"])
    yield "last record", iter([last])


def _who(told: Mapping[str, Any]) -> Iterator[str]:
    friend = {True: "friend", False: "no friend", None: ""}[told["friend"]]
    kind = ", ".join(part for part in (known(str(told["kind"] or "")), friend) if part)
    name = told["name"] or "name not known"
    yield f"{name} ({kind})" if kind else name


def _state(place: Mapping[str, Any], now: datetime) -> str:
    state, until = place["state"] or "none", place["until"]
    if until is None:
        return str(state)
    told = "{state}, until {until} ({when})"
    return told.format(state=state, until=local(until), when=_when(until, now))


def _members(members: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    for one in members:
        who = f"{one['name']} {one['user']}" if one["name"] else one["user"]
        yield f"{who}: {_state(one, now)} {_json(one['data'])}"


def _timers(timers: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    if not timers:
        yield "none"
    width = max((cell_len(_named(one)) for one in timers), default=0)
    for one in timers:
        name = padded(_named(one), width)
        every = "  " + "every day at {time}".format(time=one["every"]) if one["every"] else ""
        data = f"  {_json(one['data'])}" if one["data"] else ""
        yield f"{name}  {local(one['at'])}  {_when(one['at'], now)}{every}{data}"


def _named(timer: Mapping[str, Any]) -> str:
    if not timer["member"]:
        return str(timer["name"])
    return "{timer} of {member}".format(timer=timer["name"], member=timer["member"])


def _outbox(outbox: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if not outbox["count"]:
        yield "empty"
        return
    parts = ["{count} waiting".format(count=outbox["count"])]
    if outbox["oldest"]:
        parts.append("oldest from {ago}".format(ago=_ago(outbox["oldest"], now)))
    parts.append("{count} tried".format(count=outbox["tried"] or 0))
    yield ", ".join(parts)
    for effect in outbox.get("effects", ()):
        yield _json(effect)


def _answers(answers: Mapping[str, Any], now: datetime) -> str:
    told = "{count} waiting for a tap on the button, oldest from {ago}"
    return told.format(count=answers["waiting"], ago=_ago(answers["oldest"], now))


def _held(held: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if not held["count"]:
        yield "none"
        return
    told = (
        "{count} document, held since {ago} ({why})"
        if held["count"] == 1
        else "{count} documents, the first held since {ago} ({why})"
    )
    why = known(held["why"])
    yield told.format(count=held["count"], ago=_ago(held["since"], now), why=why)


def _when(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    if seconds > 0:
        return f"in {for_long(seconds)}"
    return f"due {for_long(-seconds)} ago"


def _ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "-"
    duration = for_long(max(0.0, (now - moment).total_seconds()))
    ago = f"{duration} ago"
    return f"{local(moment)} ({ago})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
