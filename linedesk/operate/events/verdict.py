"""The judgement of an event by its rows, for its story, the lists, and commands. Pure.

The result is in the language of the context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from linedesk.operate import processes
from linedesk.operate.calls import sends_of
from linedesk.operate.dead_letters import explained, last_replay
from linedesk.operate.events.rows import Present, Rows
from linedesk.operate.format import brief, for_long
from linedesk.operate.text import known
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext
from linedesk.store.control import Pause
from linedesk.store.documents import Document
from linedesk.store.records.answers import AnswerState, state_of
from linedesk.store.records.calls import PAID, CallRecord
from linedesk.store.records.effects import EFFECT_ID, SEND
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.letters import REPLAYED_AT, Cause
from linedesk.store.records.runs import PLACE

Result = Literal["answered", "waiting", "failed", "replayed", "no reply", "unknown"]
RESULTS: tuple[Result, ...] = get_args(Result)


@dataclass(frozen=True)
class Verdict:
    """The judgement of one event."""

    result: Result
    words: str
    """Why or how, in a few words."""
    letter: str | None = None
    """The id of the dead letter that counts."""
    see: str | None = None
    """The event that has the rest: its replay, or the message that it was handled with."""

    def __str__(self) -> str:
        return _("{standing}: {words}").format(standing=known(self.result), words=self.words)


def verdict(rows: Rows, present: Present, *, now: datetime) -> Verdict:
    """Judge an event by its rows and by what holds now."""
    if rows.letter is not None:
        error = Cause.of(rows.letter).about.get("error", "-")
        failed = next((run for run in reversed(rows.runs) if run.get("error") == error), {})
        return _given_up([rows.letter], placed(explained(rows.letter), failed))
    if rows.is_decided:
        return _decided(rows, present)
    return Verdict(*_undecided(rows, present, now))


def _given_up(letters: Sequence[Mapping[str, Any]], words: str) -> Verdict:
    letter, id_ = letters[0], str(letters[0]["_id"])
    if letter.get(REPLAYED_AT):
        return Verdict("replayed", words, id_, last_replay(letter))
    if letter.get("replaying"):
        words = _("{cause}; a replay was begun and is not confirmed").format(cause=words)
    return Verdict("failed", words, id_)


def placed(error: str, run: Mapping[str, Any]) -> str:
    """Return the error of a run with its file and line, where these are known."""
    return f"{error}, {run[PLACE]}" if run.get(PLACE) else error


def newest_replayed(rows: Rows) -> list[Document]:
    """Return its letters that were replayed, the newest replay first."""
    found = [row for row in rows.all_letters if isinstance(row.get(REPLAYED_AT), datetime)]
    return sorted(found, key=lambda row: row[REPLAYED_AT], reverse=True)


def _of_effects(letters: Sequence[Mapping[str, Any]]) -> Verdict:
    words = ngettext(
        "{cause} (one of its sends or timers)",
        "{cause} ({count} of its sends or timers)",
        len(letters),
    )
    return _given_up(letters, words.format(cause=explained(letters[0]), count=len(letters)))


def _decided(rows: Rows, present: Present) -> Verdict:
    if failed := [row for row in rows.letters if not row.get(REPLAYED_AT)]:
        return _of_effects(failed)
    if waiting := [one for one in rows.effects if one.get("type") == SEND]:
        return Verdict("waiting", _in_outbox(len(waiting), rows, present))
    if state_of(rows.answer) is AnswerState.WAITING:
        return Verdict("waiting", _("a button is shown, and the answer waits for a tap on it"))
    sent = [row for row in rows.calls if CallRecord.from_document(row).is_sent]
    if (again := newest_replayed(rows)) and not sent:
        return _of_effects(again)
    if sent:
        return Verdict("answered", _answered(rows, sent))
    if (first := rows.gathered_with) is not None:
        return Verdict("answered", _("handled together with {event}").format(event=first), first)
    if rows.last_run.get("outcome") == "unheard":
        told = _("its message was taken back or edited again, or its timer was set again")
        return Verdict("no reply", told)
    if rows.last_run.get("outcome") == "no_handler":
        return Verdict("no reply", _("no handler of the bot takes it"))
    if event_in(rows.document).get("mode") == "standby":
        return Verdict("no reply", _("nothing is carried out, because the channel was in standby"))
    return Verdict("no reply", _("no message was sent"))


def event_in(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return LINE's event in a document; a document made by hand may have any value there."""
    event = (document or {}).get("event")
    return event if isinstance(event, Mapping) else {}


def _answered(rows: Rows, sent: Sequence[Document]) -> str:
    """Return how and when LINE took the answers."""
    count = sum(max(1, sends_of(row, rows.name)) for row in sent)
    words = ngettext("LINE took one send", "LINE took {count} sends", count).format(count=count)
    if (took := _took(rows, sent[0])) is not None:
        words = _("{step} after {time}").format(step=words, time=brief(took))
    if any(row.get(PAID, 0) != 0 for row in sent):
        words = _("{step}, by a counted push").format(step=words)
    return words


def _took(rows: Rows, call: Mapping[str, Any]) -> float | None:
    """Return the seconds from the event's arrival to LINE's answer."""
    came, called = (rows.document or {}).get(ACCEPT_TIME), call.get("at")
    if not isinstance(came, datetime) or not isinstance(called, datetime):
        return None
    ms = call.get("ms")
    took = (called - came).total_seconds() + (ms if isinstance(ms, (int, float)) else 0) / 1000
    return max(0.0, took)


def _in_outbox(count: int, rows: Rows, present: Present) -> str:
    """Return that sends wait, with the reason where one is known."""
    words = ngettext(
        "one of its sends waits in the outbox", "{count} of its sends wait in the outbox", count
    ).format(count=count)
    if (why := _why(rows, present)) is not None:
        return _("{step}: {reason}").format(step=words, reason=why)
    return words


def _undecided(rows: Rows, present: Present, now: datetime) -> tuple[Result, str]:
    if paused := present.pauses.covering(*(rows.conversation or (None, None))):
        return "waiting", _paused(paused[0], now)
    if not present.leader:
        return "waiting", _("no running dispatcher holds the lease")
    if (doing := _of(present, "threads", rows.name)) is not None:
        step, thread = known(str(doing.get("doing"))), doing.get("name")
        words = _("{step} on {thread}").format(step=step, thread=thread)
        if (time := _since(doing.get("since"), now)) is not None:
            words = _("{step} for {time}").format(step=words, time=time)
        return "waiting", words
    why = _why(rows, present)
    if rows.held is not None:
        why = why or known(rows.held.get("why"))
    if rows.before:
        words = _("behind {count} others of its conversation: {reason}")
        return "waiting", words.format(count=rows.before, reason=why)
    if why is not None:
        return "waiting", why
    if not rows.in_recvq:
        return "unknown", _("the rows about it are overwritten")
    tried = _tried(rows.last_run)
    return "waiting", tried or _("stored; a dispatcher reads it next, or handles it now")


def _tried(run: Mapping[str, Any]) -> str | None:
    """Return how its last try ended, where that was no decision."""
    attempt, error = run.get("attempt") or 1, run.get("error")
    if run.get("outcome") == "timeout":
        return _("try {number} did not return in time").format(number=attempt)
    if run.get("outcome") == "failed":
        told = placed(known(str(error)) if error else _("an error"), run)
        return _("try {number} failed: {error}").format(number=attempt, error=told)
    return known(str(error)) if error else None


def _paused(pause: Pause, now: datetime) -> str:
    time = _since(pause.at, now)
    words = _("{scope} is paused by {name}")
    if time is not None:
        words = _("{scope} is paused for {time} by {name}")
    told = words.format(scope=pause.scope, time=time, name=pause.by or _("an operator"))
    return _("{step} ({reason})").format(step=told, reason=pause.why) if pause.why else told


def _since(since: Any, now: datetime) -> str | None:
    is_known = isinstance(since, datetime)
    return for_long(max(0.0, (now - since).total_seconds())) if is_known else None


def _why(rows: Rows, present: Present) -> str | None:
    """Return the dispatcher's reason for the wait of the event's conversation."""
    own = _of(present, "waiting", rows.name)
    if own is not None and (rows.is_decided or EFFECT_ID not in own):
        return known(own.get("why"))
    for one in processes.listed(present.leader, "waiting"):
        if (one.get("channel"), one.get("key")) == rows.conversation:
            return _("behind {event} of its conversation: {reason}").format(
                event=one.get(EVENT_ID), reason=known(one.get("why"))
            )
    return None


def _of(present: Present, name: str, event_id: str) -> Mapping[str, Any] | None:
    listed = processes.listed(present.leader, name)
    return next((one for one in listed if one.get(EVENT_ID) == event_id), None)
