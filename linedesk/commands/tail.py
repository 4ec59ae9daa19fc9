"""`linedesk tail`: events, runs, calls and dead letters as they happen, by one change stream.

It only reads, and reconnects after an outage of MongoDB. Rows of runs and calls are written up to
half a second late: each line is held back for a second and then printed in order of time.
"""

from __future__ import annotations

import logging
import math
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any

import click
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError
from rich.cells import cell_len

from linedesk.commands.interrupts import until_ctrl_c
from linedesk.commands.listing import NARROW_BELOW, padded
from linedesk.commands.people import (
    NAME_CELLS,
    Names,
    conversation_id,
    cut,
    endpoint_words,
    known_names,
    who,
    who_briefly,
)
from linedesk.operate import dead_letters
from linedesk.operate.dead_letters import explained
from linedesk.operate.format import brief, clock, echo_json, local, one_line, tabbed
from linedesk.operate.reading import ALSO_KEY, rows_in
from linedesk.operate.search import key_of
from linedesk.operate.text import known
from linedesk.runtime.backoff import growing_seconds
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database
from linedesk.store.documents import CALLS, DEADLETTERS, JOBS, RECVQ, Document, name_of
from linedesk.store.errors import StoreUnavailable, is_transient, translate
from linedesk.store.records.calls import REQUEST_ID, CallRecord, is_taken
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import LAST_AT
from linedesk.store.records.rows import ROWS, USUAL
from linedesk.store.records.runs import WAITED_MS

log = logging.getLogger(__name__)

KINDS = {RECVQ: "event", JOBS: "run", CALLS: "call", DEADLETTERS: "dead"}
NAMES = {"event": "event", "run": "run", "call": "call", "dead": "dead"}
ROW_KINDS = ("run", "call")
COLOURS = {"event": "cyan", "run": "green", "call": "blue", "dead": "red"}
WHO_WIDTH, EVENT_WIDTH = 23, 26
AWAIT_MS = 250
HOLD_SECONDS = 1.0
# A tail may run for days.
MOST_NAMES = 10_000
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.2, 5.0
# Errors after which the stream cannot be resumed (the server's error_codes.yml).
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
    """One event, run, call or dead letter."""

    kind: str
    row: Document

    @property
    def at(self) -> datetime | None:
        """The time at which it happened; for a run and a call the end."""
        row = self.row
        at = row.get("at") or row.get(LAST_AT) or row.get(ACCEPT_TIME)
        if not isinstance(at, datetime):
            return None
        return at + timedelta(milliseconds=row.get("ms") or 0.0)

    @property
    def happened(self) -> float:
        """The same in seconds since 1970; a row without a time comes first."""
        return self.at.timestamp() if self.at is not None else 0.0

    @property
    def event_id(self) -> str:
        """The id of its event, or of the dead letter."""
        if self.kind in ROW_KINDS:
            return self.row.get(EVENT_ID) or "-"
        return name_of(self.row)

    @property
    def has_failed(self) -> bool:
        """Whether the line is shown in red."""
        if self.kind == "call":
            return not is_taken(self.row.get("status"))
        return self.kind == "dead" or self.row.get("outcome") in ("failed", "timeout")


def tail(settings: Settings, *, key: str | None, text: bool, as_json: bool) -> int:
    """Print what happens until Ctrl-C."""
    with open_database(settings, app_name="linedesk-tail") as database:
        if key is not None:
            key = key_of(database, key, channel=settings.line_channel)
        names: dict[str, str] = {}
        with until_ctrl_c() as over:
            for came in coming(database, key=key, text=text, over=over):
                # A row of `calls` has no channel.
                channel = came.row.get("channel") or settings.line_channel
                if len(names) >= MOST_NAMES:
                    names.clear()
                names |= _unknown(database, names, conversation_id(channel, came.row.get("key")))
                _print(came, names, channel, text=text, as_json=as_json)
    return Exit.INTERRUPTED


def _unknown(database: Database[Any], names: Names, id_: str) -> Names:
    """The name of a conversation that is not among the names yet, if MongoDB has it."""
    if not id_ or id_ in names:
        return {}
    try:
        return known_names(database, [id_])
    except StoreUnavailable:
        return {}


def _print(came: Came, names: Names, channel: str, *, text: bool, as_json: bool) -> None:
    key = came.row.get("key")
    name = names.get(conversation_id(channel, key))
    if as_json:
        echo_json({**told(came, text=text), "name": name})
    elif sys.stdout.isatty():
        colour = "red" if came.has_failed else COLOURS[came.kind]
        width = shutil.get_terminal_size().columns
        whom = (who_briefly if width < NARROW_BELOW else who)(names, channel, key)
        click.echo(click.style(line(came, whom, text=text, width=width), fg=colour))
    else:
        words = _wordings(came, text=text)[0]
        parts = (came.kind, came.event_id, key or "-", name or "-", words)
        click.echo(tabbed([local(came.at), *parts]))


def coming(
    database: Database[Any],
    *,
    key: str | None,
    text: bool,
    over: threading.Event,
    await_ms: int = AWAIT_MS,
    first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    hold_seconds: float = HOLD_SECONDS,
) -> Iterator[Came]:
    """Yield the rows that are written from now on, until `over`.

    Rows that arrive within the hold are in order of time. Raises StoreUnavailable if MongoDB is
    down at first, later only errors that are not transient.
    """
    ordering = Ordering(hold_seconds)
    stages = _stages(key=key, text=text)
    pauses = {"await_ms": await_ms, "first_pause_seconds": first_pause_seconds}
    for change in _changes(database, stages, over, **pauses):
        for came in _came(change, key) if change is not None else ():
            ordering.put(came, now=time.monotonic())
        yield from ordering.due(now=time.monotonic())
    yield from ordering.due(now=math.inf)


class Ordering:
    """Holds back each row for a while, and gives rows out in order of time."""

    def __init__(self, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._held: list[tuple[float, int, Came]] = []
        self._arrived: deque[tuple[float, int]] = deque()
        self._gone: set[int] = set()
        self._numbers = count()

    def put(self, came: Came, *, now: float) -> None:
        """Take a row that arrived at this monotonic time."""
        number = next(self._numbers)
        heappush(self._held, (came.happened, number, came))
        self._arrived.append((now + self._hold_seconds, number))

    def due(self, *, now: float) -> Iterator[Came]:
        """The rows whose hold is over, each after all held rows that happened before it."""
        while self._arrived and self._arrived[0][0] <= now:
            _, last = self._arrived.popleft()
            while last not in self._gone:
                _, number, came = heappop(self._held)
                self._gone.add(number)
                yield came
            self._gone.discard(last)


def _changes(
    database: Database[Any],
    stages: Sequence[Mapping[str, Any]],
    over: threading.Event,
    *,
    await_ms: float,
    first_pause_seconds: float,
) -> Iterator[Mapping[str, Any] | None]:
    """Yield each document as it is written, and None if there was none for a moment."""
    token: Mapping[str, Any] | None = None
    failures, was_open = 0, False
    while not over.is_set():
        try:
            with database.watch(
                stages, resume_after=token, max_await_time_ms=int(await_ms)
            ) as stream:
                was_open = True
                while stream.alive and not over.is_set():
                    change = stream.try_next()
                    token, failures = stream.resume_token, 0
                    yield change
                # The database was dropped: the stream cannot be resumed.
                token = None
        except PyMongoError as error:
            if not was_open:
                raise translate(error) from error
            failures += 1
            token = _place_after(error, token)
            over.wait(growing_seconds(failures, first=first_pause_seconds, most=MOST_PAUSE_SECONDS))


def _came(change: Mapping[str, Any], key: str | None) -> Iterator[Came]:
    kind, document = KINDS[change["ns"]["coll"]], change["fullDocument"]
    if kind not in ROW_KINDS:
        yield Came(kind, document)
        return
    for row in rows_in(document):
        others = CallRecord.from_document(row).also
        row.pop("also", None)
        if key is None or key in (row.get("key"), *(one.get("key") for one in others)):
            yield Came(kind, row)


def _place_after(error: PyMongoError, token: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return where the stream resumes. Raises errors that are not transient."""
    if isinstance(error, OperationFailure) and error.code in LOST:
        log.warning("change stream lost, some lines may be missing code=%s", error.code)
        return None
    if not is_transient(error) and not error.has_error_label(RESUMABLE):
        raise translate(error) from error
    log.warning("MongoDB does not answer, retrying error=%s", type(error).__name__)
    return token


def _stages(*, key: str | None, text: bool) -> list[Mapping[str, Any]]:
    wanted: Document = {
        "operationType": "insert",
        "ns.coll": {"$in": list(KINDS)},
        "fullDocument.heartbeat": {"$ne": True},
    }
    if key is not None:
        keys = ("key", ALSO_KEY, f"{ROWS}.key", f"{ROWS}.{ALSO_KEY}")
        wanted["$or"] = [{f"fullDocument.{name}": key} for name in keys]
    names = (*SHOWN, *(TEXT if text else ()), *([] if key is None else [ALSO_KEY]))
    shown = {f"fullDocument.{name}": 1 for name in (*names, USUAL, *(f"{ROWS}.{n}" for n in names))}
    return [{"$match": wanted}, {"$project": {"ns": 1, **shown}}]


def told(came: Came, *, text: bool) -> Document:
    """The row for programs, with the field names of the collection."""
    row = dict(came.row)
    if came.kind in ("event", "dead"):
        document = row.pop("document", None) or row
        row["what"] = dead_letters.what({"effect": row.get("effect"), "document": document})
        if text and (words := _text(document)) is not None:
            row["text"] = words
        row.pop("event", None)
    if "_id" in row:
        row["id"] = row.pop("_id")
    return {"kind": came.kind, **row}


def line(came: Came, whom: str, *, text: bool, width: int | None = None) -> str:
    """One line for a terminal.

    On a terminal of `width` columns the line is cut to this width, unless it has message texts. A
    narrow terminal gets whole seconds.
    """
    is_narrow = width is not None and width < NARROW_BELOW
    at = clock(came.at)[: len("00:00:00") if is_narrow else None]
    event = one_line(came.event_id)
    whose = (whom, NAME_CELLS if is_narrow else WHO_WIDTH)
    columns = (
        (NAMES[came.kind], max(cell_len(name) for name in NAMES.values())),
        (event, EVENT_WIDTH),
        whose,
    )
    head = " ".join([at, *(padded(cell, cells) for cell, cells in columns), ""])
    wordings = list(map(one_line, _wordings(came, text=text)))
    if width is None:
        return f"{head}{wordings[0]}"
    left = max(1, width - cell_len(head))
    fitting = next((one for one in wordings if cell_len(one) <= left), wordings[-1])
    return f"{head}{fitting if text else cut(fitting, left)}"


def _wordings(came: Came, *, text: bool) -> Sequence[str]:
    """The text of the line: in full, then a shorter one for a narrow terminal."""
    row = came.row
    if came.kind == "call":
        call = CallRecord.from_document(row)
        answer = "{call} {status} in {duration}"
        short = answer.format(
            call=endpoint_words(call.endpoint),
            status=call.status or "no answer",
            duration=brief(call.ms / 1000),
        )
        return [f"{short}  {call.request_id or ''}".rstrip(), short]
    if came.kind == "run":
        # Of a row made by hand any field may be missing.
        outcome = known(row.get("outcome") or "-") + (
            f" {row['error']}" if row.get("error") else ""
        )
        count = row.get("effects") or 0
        effects = ", {count} effect" if count == 1 else ", {count} effects"
        effects = effects.format(count=count) if count else ""
        took, waited = (brief((row.get(name) or 0.0) / 1000) for name in ("ms", WAITED_MS))
        full = "{type}: {outcome} in {took} after {waited}".format(
            type=row.get("type") or "-", outcome=f"{outcome}{effects}", took=took, waited=waited
        )
        return [full, f"{outcome} in {took}"]
    shown = told(came, text=text)
    said = f"  「{shown['text']}」" if "text" in shown else ""
    if came.kind == "dead":
        cause = explained(row)
        return [f"{known(shown['what'])}: {cause}{said}", f"{cause}{said}"]
    return [f"{known(shown['what'])}{said}"]


def _text(document: Mapping[str, Any]) -> str | None:
    message = (document.get("event") or {}).get("message") or {}
    words = message.get("text") if isinstance(message, Mapping) else None
    return words if isinstance(words, str) else None
