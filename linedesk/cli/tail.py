"""`linedesk tail`: events, runs, calls and dead letters as they come, by one change stream.

It only reads, and reconnects where MongoDB goes away for a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError
from rich.cells import cell_len

from linedesk.compose.database import open_database
from linedesk.console import dead_letters
from linedesk.console.format import brief, clock, echo_json, one_line
from linedesk.console.search import key_of
from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.signals import until_ctrl_c
from linedesk.settings.settings import Settings
from linedesk.store.documents import CALLS, DEADLETTERS, JOBS, RECVQ, Document, name_of
from linedesk.store.errors import is_transient, translate
from linedesk.store.records.calls import ALSO_KEY, REQUEST_ID, CallRecord, is_taken
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import LAST_AT
from linedesk.store.records.runs import WAITED_MS, RunRecord

log = logging.getLogger(__name__)

KINDS = {RECVQ: "event", JOBS: "run", CALLS: "call", DEADLETTERS: "dead"}
COLOURS = {"event": "cyan", "run": "green", "call": "blue", "dead": "red"}
# A user's id has 33 characters.
KEY_WIDTH = 33
AWAIT_MS = 500
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.2, 5.0
# What a place in the stream cannot be taken up again after (the server's error_codes.yml).
LOST = frozenset({136, 222, 260, 280, 286})
RESUMABLE = "ResumableChangeStreamError"
SHOWN = (
    *("_id", EVENT_ID, "channel", "key", ACCEPT_TIME, "at", "ms", "unsent"),
    *("event.type", "event.message.type", "document.event.type", "document.event.message.type"),
    *("document.unsent", "effect.way", "effect.type", "cause", "attempts", LAST_AT),
    *("type", WAITED_MS, "attempt", "outcome", "effects", "error", "thread"),
    *("method", "endpoint", "status", REQUEST_ID),
)
TEXT = ("event.message.text", "document.event.message.text")


@dataclass(frozen=True)
class Came:
    """One thing that came, as a line and as values."""

    kind: str
    row: Document

    @property
    def has_failed(self) -> bool:
        """Whether a person may want to see it at once."""
        if self.kind == "call":
            return not is_taken(self.row.get("status"))
        return self.kind == "dead" or self.row.get("outcome") in ("failed", "timeout")


def tail(settings: Settings, *, key: str | None, text: bool, as_json: bool) -> None:
    """Print what comes until Ctrl-C."""
    with open_database(settings, app_name="linedesk-tail") as database:
        if key is not None:
            key = key_of(database, key, channel=settings.line_channel)
        with until_ctrl_c() as over:
            for came in coming(database, key=key, text=text, over=over):
                echo_json(told(came, text=text)) if as_json else _echo(came, text=text)


def coming(
    database: Database[Any],
    *,
    key: str | None,
    text: bool,
    over: threading.Event,
    await_ms: int = AWAIT_MS,
    first_pause_seconds: float = FIRST_PAUSE_SECONDS,
) -> Iterator[Came]:
    """What comes from now on, until it is over.

    Raises StoreUnavailable where MongoDB is away as it begins, and later what does not mend itself.
    """
    stages = _stages(key=key, text=text)
    token: Mapping[str, Any] | None = None
    failures, was_open = 0, False
    while not over.is_set():
        try:
            with database.watch(stages, resume_after=token, max_await_time_ms=await_ms) as stream:
                was_open = True
                while stream.alive and not over.is_set():
                    change = stream.try_next()
                    token, failures = stream.resume_token, 0
                    if change is not None:
                        yield Came(KINDS[change["ns"]["coll"]], change["fullDocument"])
                # Somebody dropped the database: its end cannot be gone beyond.
                token = None
        except PyMongoError as error:
            if not was_open:
                raise translate(error) from error
            failures += 1
            token = _place_after(error, token)
            over.wait(growing_seconds(failures, first=first_pause_seconds, most=MOST_PAUSE_SECONDS))


def _place_after(error: PyMongoError, token: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Where to go on. Raises what does not mend itself."""
    if isinstance(error, OperationFailure) and error.code in LOST:
        log.warning("stream lost, some of what came may be missing code=%s", error.code)
        return None
    if not is_transient(error) and not error.has_error_label(RESUMABLE):
        raise translate(error) from error
    log.warning("MongoDB does not answer, trying again error=%s", type(error).__name__)
    return token


def _stages(*, key: str | None, text: bool) -> list[Mapping[str, Any]]:
    wanted: Document = {
        "operationType": "insert",
        "ns.coll": {"$in": list(KINDS)},
        "fullDocument.heartbeat": {"$ne": True},
    }
    if key is not None:
        wanted["$or"] = [{f"fullDocument.{name}": key} for name in ("key", ALSO_KEY)]
    names = SHOWN + (TEXT if text else ())
    shown = {f"fullDocument.{name}": 1 for name in names}
    return [{"$match": wanted}, {"$project": {"ns": 1, **shown}}]


def told(came: Came, *, text: bool) -> Document:
    """The same for programs, under the names of the collection."""
    row = dict(came.row)
    if came.kind in ("event", "dead"):
        document = row.pop("document", None) or row
        row["what"] = dead_letters.what({"effect": row.get("effect"), "document": document})
        if text and (words := _text(document)) is not None:
            row["text"] = words
        row.pop("event", None)
    row["id"] = row.pop("_id")
    return {"kind": came.kind, **row}


def line(came: Came, *, text: bool) -> str:
    """One line for people, its columns by the width of what they show."""
    key = one_line(came.row.get("key") or "-")
    words = one_line(_words(came, text=text))
    padding = " " * max(0, KEY_WIDTH - cell_len(key))
    return f"{clock(_at(came.row))}  {came.kind:<5}  {key}{padding}  {words}"


def _at(row: Mapping[str, Any]) -> Any:
    return row.get("at") or row.get(LAST_AT) or row.get(ACCEPT_TIME)


def _words(came: Came, *, text: bool) -> str:
    row = came.row
    if came.kind == "call":
        call = CallRecord.from_document(row)
        answer = f"{call.status or 'no answer'} in {brief(call.ms / 1000)}"
        return f"{call.method} {call.endpoint} {answer}  {call.request_id or '-'}"
    if came.kind == "run":
        run = RunRecord.from_document(row)
        error = f" {run.error}" if run.error else ""
        effects = f", {run.effects} effect{'' if run.effects == 1 else 's'}" if run.effects else ""
        outcome = f"{run.type or '-'}: {run.outcome}{error}{effects}"
        took, waited = brief(run.ms / 1000), brief(run.waited_ms / 1000)
        return f"{outcome} in {took} after {waited}  {run.event_id or ''}"
    shown = told(came, text=text)
    cause = f": {row.get('cause')}" if came.kind == "dead" else ""
    said = f"  「{shown['text']}」" if "text" in shown else ""
    return f"{shown['what']}{cause}{said}  {name_of(row)}"


def _text(document: Mapping[str, Any]) -> str | None:
    message = (document.get("event") or {}).get("message") or {}
    words = message.get("text") if isinstance(message, Mapping) else None
    return words if isinstance(words, str) else None


def _echo(came: Came, *, text: bool) -> None:
    colour = "red" if came.has_failed else COLOURS[came.kind]
    click.echo(click.style(line(came, text=text), fg=colour))
