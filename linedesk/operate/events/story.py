"""The story of one event: the steps from the webhook to LINE's request id, or to the current wait.

Each step has its time, a sentence, and details for programs. Text that people wrote is included
only on request. Sentences are in the language of the context; make a story for JSON inside
`speaking("en")`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from linedesk.operate import dead_letters
from linedesk.operate.calls import cost_words, reason_words
from linedesk.operate.conversation import names_of
from linedesk.operate.events.rows import Present, Rows, read_one, read_present
from linedesk.operate.events.verdict import Verdict, event_in, placed, verdict
from linedesk.operate.find import event_of
from linedesk.operate.format import brief
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext
from linedesk.store.documents import Document
from linedesk.store.errors import translated
from linedesk.store.records.answers import BY, STATE, AnswerState, state_of
from linedesk.store.records.calls import PAID, REASON, REQUEST_ID, SENDS, CallRecord, is_taken
from linedesk.store.records.effects import TRIED_AT
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import DEADLETTER, LAST_AT, REPLAY, REPLAYED_AT
from linedesk.store.records.runs import GATHERED_WITH, WAITED_MS
from linedesk.store.records.timers import ENDED_AT, RANG, RUN_AT, SET_ASIDE

Kind = Literal["received", "waits", "run", "send", "call", "timer", "letter", "replay", "unsend"]
# The shown fields of an effect: all but tokens, keys and texts.
EFFECT = ("id", "type", "way", "at", TRIED_AT, "as", "name", RUN_AT, "cause", "about")
RUN = (
    *("ms", "attempt", "outcome", "effects", "error", "unreadable", "thread"),
    *(WAITED_MS, GATHERED_WITH),
)
CALL = (
    *("method", "endpoint", "status", REQUEST_ID, REASON),
    *("ms", "attempt", "class", WAITED_MS, PAID),
)
TIMER = ("_id", "name", "n", RUN_AT, "every", ENDED_AT, RANG, SET_ASIDE)


@dataclass(frozen=True)
class Step:
    """One step of the event, or the reason for its wait."""

    at: datetime | None
    """None where no row has the time."""
    kind: Kind
    words: str
    facts: Document = field(default_factory=dict)

    @property
    def look(self) -> str:
        """`bad` for a failure, `look` for a wait, else empty."""
        has_failed = self.facts.get("error") or self.facts.get("outcome") == "timeout"
        if self.kind in ("letter", "unsend") or has_failed:
            return "bad"
        if self.kind == "call" and not is_taken(self.facts.get("status")):
            return "bad"
        return "look" if self.kind in ("waits", "send") else ""

    @property
    def is_answer(self) -> bool:
        """Whether it is about a send: LINE took or refused it, it waits, or it was given up."""
        return self.kind in ("send", "letter") or self.facts.get("endpoint") in SENDS


def steps_of(rows: Rows, *, text: bool = False) -> list[Step]:
    """Return all steps in the order of time; a step without a time keeps its place."""
    found = [
        *_received(rows, text=text),
        *_taken_back(rows),
        *(_run(row, is_given_up=rows.letter is not None) for row in rows.runs),
        *(_on_its_way(effect, text=text) for effect in rows.effects),
        *_answer(rows),
        *(_call(row) for row in rows.calls),
        *(_timer(row, rows) for row in rows.timers),
        *(_letter(row) for row in rows.all_letters),
        *_replays(rows),
        *_held(rows),
    ]
    dated = {id(step): step.at for step in found if step.at is not None}
    last = max(dated.values(), default=datetime.now(UTC))
    return sorted(found, key=lambda step: dated.get(id(step), last))


def _received(rows: Rows, *, text: bool) -> Iterator[Step]:
    if rows.document is None:
        return
    event = event_in(rows.document)
    details: Document = {"type": event.get("type"), "document": rows.document.get("_id")}
    if (event.get("deliveryContext") or {}).get("isRedelivery"):
        details["isRedelivery"] = True
    if event.get("mode") == "standby":
        details["mode"] = "standby"
    if text:
        details["event"] = {name: value for name, value in event.items() if name != "replyToken"}
    if event.get("type") == REPLAY:
        effect = (rows.replayed or {}).get("effect")
        details["effect"] = _details(effect, EFFECT) if isinstance(effect, Mapping) else {}
    at = rows.document.get(ACCEPT_TIME)
    words = {
        "timer": _("a timer fired"),
        REPLAY: _("replayed: a send or a timer, carried out again"),
    }
    yield Step(
        at if isinstance(at, datetime) else None,
        "received",
        words.get(str(event.get("type"))) or _("received and stored, then confirmed to LINE"),
        details,
    )


def _taken_back(rows: Rows) -> Iterator[Step]:
    if rows.was_unsent:
        words = _("its message was taken back by its sender: the stored copies are empty")
        yield Step(None, "unsend", words)


RUNS = {
    "finished": mark("the handler decided to do nothing"),
    "applied": mark("it had been decided before"),
    "no_handler": mark("no handler of the bot takes it"),
    "unheard": mark(
        "skipped without its handler: taken back, edited again, or a timer that was set again"
    ),
    "again": mark("could not be decided yet"),
}


def _run(row: Document, *, is_given_up: bool) -> Step:
    outcome = row.get("outcome")
    effects = row.get("effects") or 0
    tried, error = row.get("attempt") or 1, row.get("error")
    if outcome == "recorded" and is_given_up:
        words = _("recorded that it is given up")
    elif outcome == "recorded":
        words = ngettext(
            "handled, {count} send or timer recorded",
            "handled, {count} sends or timers recorded",
            effects,
        ).format(count=effects)
    elif outcome == "failed":
        words = _("the handler failed, try {number}: {error}").format(
            number=tried, error=placed(known(str(error)) if error else _("an error"), row)
        )
    elif outcome == "gathered":
        words = _("handled together with {event}").format(event=row.get(GATHERED_WITH))
    elif outcome == "timeout":
        words = _("the handler did not return, try {number}").format(number=tried)
    else:
        run = RUNS.get(str(outcome))
        words = _(run) if run else _("ran: {outcome}").format(outcome=outcome)
        if error:
            words = _("{step}: {error}").format(step=words, error=known(str(error)))
    if row.get("unreadable"):
        words = _("{step}; line-bot-sdk cannot read it").format(step=words)
    if outcome != "again":
        words = _("{step} in {time}").format(step=words, time=brief(_seconds(row)))
    return Step(row.get("at"), "run", words, _details(row, RUN))


def _on_its_way(effect: Document, *, text: bool) -> Step:
    details = _details(effect, EFFECT)
    if isinstance(effect.get("messages"), list):
        details["messages"] = effect["messages"] if text else len(effect["messages"])
    kind = effect.get("type")
    if kind == "timer":
        words = _("the timer {name} is not set yet").format(name=effect.get("name"))
        return Step(effect.get("at"), "timer", words, details)
    if kind == DEADLETTER:
        cause = dead_letters.explained(effect)
        words = _("given up, its dead letter is being written: {cause}").format(cause=cause)
        return Step(effect.get(LAST_AT), "letter", words, details)
    if effect.get(TRIED_AT):
        words = _("a {way} waits in the outbox: a try is of unknown outcome")
    else:
        words = _("a {way} waits in the outbox: LINE has not taken it yet")
    return Step(effect.get("at"), "send", words.format(way=known(str(effect.get("way")))), details)


def _answer(rows: Rows) -> Iterator[Step]:
    """Yield the step of an answer that waits for a tap because its reply token had expired."""
    state, entry = state_of(rows.answer), rows.answer or {}
    words = {
        AnswerState.OFFERED: _("LINE is asked to show a button, or was asked"),
        AnswerState.SHOWN: _("LINE shows a button, and the handler has not ended"),
        AnswerState.WAITING: _("the answer waits for a tap on its button, for a day at most"),
        AnswerState.TAKEN: _("the answer went to the outbox without a tap"),
    }
    if state is not None:
        by = entry.get(BY)
        taken = _("a tap brought the answer to the outbox: {event}").format(event=by)
        yield Step(
            entry.get("at"), "send", taken if by else words[state], _details(entry, (STATE, BY))
        )


def _call(row: Document) -> Step:
    status = row.get("status")
    if status == 409:
        words = _("{method} {endpoint}: LINE answered 409 (it had it already) in {time}")
    elif status:
        words = _("{method} {endpoint}: LINE answered {status} in {time}")
    else:
        words = _("{method} {endpoint}: no answer in {time}")
    words = words.format(
        method=row.get("method"),
        endpoint=row.get("endpoint"),
        status=status,
        time=brief(_seconds(row)),
    )
    if (why := reason_words(row)) is not None:
        words = _("{step} ({reason})").format(step=words, reason=why)
    details = _details(row, CALL)
    if row.get("also"):
        # Its ids belong to other people.
        details["sends"] = 1 + len(CallRecord.from_document(row).also)
    if (cost := cost_words(row)) is not None:
        words = _("{step}, {cost}").format(step=words, cost=cost)
    return Step(row.get("at"), "call", words, details)


def _seconds(row: Mapping[str, Any]) -> float | None:
    ms = row.get("ms")
    return ms / 1000 if isinstance(ms, (int, float)) else None


def _timer(row: Document, rows: Rows) -> Step:
    at = row.get(RUN_AT)
    name = row.get("name")
    if isinstance(at, datetime):
        words = _("set the timer {name}").format(name=name)
    else:
        words = _("its timer {name} has fired or was cancelled").format(name=name)
    run = rows.last_run
    ran, ms = run.get("at"), run.get("ms")
    when = ran + timedelta(milliseconds=ms or 0) if isinstance(ran, datetime) else None
    return Step(when, "timer", words, _details(row, TIMER))


def _letter(row: Document) -> Step:
    told = dead_letters.summary(row)
    tries, what = row.get("attempts"), known(told["what"])
    if tries:
        words = ngettext(
            "{what} given up after {count} try: {cause}",
            "{what} given up after {count} tries: {cause}",
            tries,
        ).format(what=what, count=tries, cause=told["explained"])
    else:
        words = _("{what} given up: {cause}").format(what=what, cause=told["explained"])
    return Step(row.get(LAST_AT), "letter", words, told)


def _replays(rows: Rows) -> Iterator[Step]:
    for row in rows.all_letters:
        if row.get("replays"):
            name = dead_letters.last_replay(row)
            is_begun = row.get("replaying")
            words = _("a replay was begun as {replay}") if is_begun else _("replayed as {replay}")
            told = words.format(replay=name)
            yield Step(row.get(REPLAYED_AT), "replay", told, {"replay": name})
    if rows.replayed is not None:
        id_ = rows.replayed["_id"]
        words = _("it is a replay of the dead letter {id}").format(id=id_)
        yield Step(None, "replay", words, {"letter": id_})


def _held(rows: Rows) -> Iterator[Step]:
    if rows.held is not None:
        why = known(rows.held.get("why"))
        words = _("waits in held: {reason}").format(reason=why)
        if rows.before:
            words = _("waits in held, behind {count} of its conversation: {reason}").format(
                count=rows.before, reason=why
            )
        yield Step(rows.held.get("since"), "waits", words, _details(rows.held, ("n", "why")))


def _details(row: Mapping[str, Any], names: tuple[str, ...]) -> Document:
    return {name.removeprefix("_"): row[name] for name in names if row.get(name) is not None}


READ_SECONDS = 10.0


@dataclass(frozen=True)
class Story:
    """The result of one event, and its steps."""

    asked: str
    """The id in the request."""
    event_id: str
    channel: str | None
    key: str | None
    what: str
    """The type of the event, and of its message."""
    outcome: Verdict
    steps: list[Step]
    related: list[str]
    """Ids of related events: the event that it was handled together with, the original of a replay,
    and its own replays."""
    letters: list[str]
    """Ids of its dead letters, and of its effects' dead letters, that were not replayed."""
    name: str | None = None
    """The name in LINE of its user or group, where it is known."""


def tell(database: Database[Any], asked: str, *, text: bool = False) -> Story:
    """Return the story of the event that belongs to an id (see `find.event_of`).

    `text` includes the text that people wrote. Raises NotDone, StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        rows = read_one(database, event_of(database, asked))
        present = read_present(database)
        whose = "/".join(rows.conversation or ())
        name = names_of(database, [whose]).get(whose)
    found = story_of(rows, present, asked=asked, now=datetime.now(UTC), text=text)
    return replace(found, name=name)


def story_of(
    rows: Rows, present: Present, *, asked: str, now: datetime, text: bool = False
) -> Story:
    """Return the story of these rows. Pure."""
    channel, key = rows.conversation or (None, None)
    return Story(
        asked=asked,
        event_id=rows.name,
        channel=channel,
        key=key,
        what=rows.what,
        outcome=verdict(rows, present, now=now),
        steps=steps_of(rows, text=text),
        related=list(_related(rows)),
        letters=[str(row["_id"]) for row in rows.all_letters if not row.get(REPLAYED_AT)],
    )


def _related(rows: Rows) -> Iterator[str]:
    if (first := rows.gathered_with) is not None:
        yield first
    if rows.replayed is not None:
        effect = rows.replayed.get("effect") or {}
        yield str(effect.get(EVENT_ID) or rows.replayed["_id"])
    for row in rows.all_letters:
        for number in range(1, 1 + int(row.get("replays") or 0)):
            yield f"replay:{row['_id']}:{number}"
    event = event_in(rows.document)
    timer = event.get("timer")
    if isinstance(timer, Mapping) and isinstance(timer.get("id"), str):
        yield timer["id"]
