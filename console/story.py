"""The story of one event: from the webhook to LINE's request id, or to what holds it up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pymongo
from pymongo.database import Database

from console import known as knowing
from console import rows
from console.asjson import as_json
from console.known import Known
from console.letters import last_replay
from console.steps import SENDS, Step, event_in, is_sent, steps_of, what
from console.tracing import event_of
from console.words import brief, for_long
from recvq.documents import Document
from recvq.errors import translated
from recvq.orders import Pause

READ_SECONDS = 10.0
DECIDED = ("recorded", "finished", "applied", "unheard")
Stands = Literal[
    "waits", "in hand", "given up", "replayed", "sending", "answered", "done", "unknown"
]


@dataclass(frozen=True)
class Story:
    """What became of one event."""

    asked: str
    """The id by which it was asked for."""
    event_id: str
    channel: str | None
    key: str | None
    what: str
    """Its type, and that of its message."""
    stands: Stands
    verdict: str
    """Where it stands, in a sentence."""
    steps: list[Step]
    gaps: list[str]
    """What nobody can tell any more, or what did not happen, and why."""
    related: list[str]
    """Ids of other events that belong to it: of what it is a replay, and its own replays."""
    letters: list[str]
    """Ids of its dead letters, and of those of its effects, that were not replayed."""
    replay: str | None
    """The eventId of the newest replay of one of them."""

    def as_json(self) -> Document:
        """The same for programs."""
        told: Document = as_json(self)
        return told


def tell(database: Database[Any], asked: str, *, text: bool = False) -> Story:
    """The story of the event that an id means (see `tracing.event_of`).

    `text` tells what people wrote, too. Raises NoSuchEvent, StoreUnavailable.
    """
    with translated(), pymongo.timeout(READ_SECONDS):
        name = event_of(database, asked)
        known = knowing.read(database, name, row=knowing.leader(database))
    return story_of(known, asked=asked, now=datetime.now(UTC), text=text)


def story_of(known: Known, *, asked: str, now: datetime, text: bool = False) -> Story:
    """A story of what is known. Pure."""
    channel, key = known.conversation or (None, None)
    stands, verdict = _verdict(known, now)
    return Story(
        asked=asked,
        event_id=known.name,
        channel=channel,
        key=key,
        what=what(known),
        stands=stands,
        verdict=verdict,
        steps=steps_of(known, text=text),
        gaps=list(_gaps(known)),
        related=list(_related(known)),
        letters=[str(row["_id"]) for row in _letters(known) if not row.get("replayedAt")],
        replay=next((last_replay(row) for row in _replayed(known)), None),
    )


def _verdict(known: Known, now: datetime) -> tuple[Stands, str]:
    if known.letter is not None:
        return _given_up(known.letter)
    if _is_decided(known):
        return _decided(known)
    return _undecided(known, now)


def _given_up(letter: Mapping[str, Any]) -> tuple[Stands, str]:
    cause = letter.get("cause")
    if letter.get("replayedAt"):
        return "replayed", f"given up ({cause}), and replayed since as {last_replay(letter)}"
    begun = "; a replay was begun and is not confirmed" if letter.get("replaying") else ""
    return "given up", f"given up: {cause}{begun}"


def _letters(known: Known) -> list[Document]:
    return [row for row in (known.letter, *known.letters) if row is not None]


def _replayed(known: Known) -> list[Document]:
    """The letters that were replayed, the newest replay first."""
    rows = [row for row in _letters(known) if isinstance(row.get("replayedAt"), datetime)]
    return sorted(rows, key=lambda row: row["replayedAt"], reverse=True)


def _is_decided(known: Known) -> bool:
    last = known.runs[-1].get("outcome") if known.runs else None
    return last in DECIDED or known.was_applied or (known.is_finished and known.held is None)


def _decided(known: Known) -> tuple[Stands, str]:
    sent = [row for row in known.calls if is_sent(row)]
    failed = [row for row in known.letters if not row.get("replayedAt")]
    waiting = [one for one in known.pending if one.get("type") == "send"]
    if failed:
        return (
            "given up",
            f"decided, but {_effects(len(failed))} given up: {failed[0]['cause']}",
        )
    if waiting:
        last = known.calls[-1] if known.calls else {}
        why = f"; LINE's last answer was {last.get('status') or 'none'}" if last else ""
        return "sending", f"decided; {len(waiting)} of its sends wait in the outbox{why}"
    if (again := _replayed(known)) and not sent:
        how = f"given up ({again[0].get('cause')}), and replayed since as {last_replay(again[0])}"
        return "replayed", f"decided, but {_effects(len(again))} {how}"
    if sent:
        return "answered", f"answered{_after(known, sent[0])}: LINE took {_times(len(sent))}"
    if known.runs and known.runs[-1].get("outcome") == "unheard":
        return "done", "passed over: its message was taken back, or its timer was set anew"
    if event_in(known.document).get("mode") == "standby":
        return "done", "decided; nothing is carried out, since the channel was in standby"
    return "done", "handled; no message was sent"


def _effects(count: int) -> str:
    return "one of its effects was" if count == 1 else f"{count} of its effects were"


def _times(count: int) -> str:
    return "one send" if count == 1 else f"{count} sends"


def _after(known: Known, call: Mapping[str, Any]) -> str:
    came, called = (known.document or {}).get("acceptTime"), call.get("at")
    if not isinstance(came, datetime) or not isinstance(called, datetime):
        return ""
    took = (called - came).total_seconds() + (call.get("ms") or 0) / 1000
    return f" {brief(max(0.0, took))} after it came"


def _undecided(known: Known, now: datetime) -> tuple[Stands, str]:
    paused = known.pauses.covering(*(known.conversation or (None, None)))
    if paused:
        return "waits", f"waits: {_told(paused[0], now)}"
    row = known.row or {}
    if not rows.is_fresh(row, now=now):
        return "waits", "waits: no dispatcher runs that holds the lease"
    doing = _of(row, "threads", "eventId", known.name)
    if doing is not None:
        ago = _ago(doing.get("since"), now)
        return "in hand", f"in hand{ago}: {doing.get('doing')} on {doing.get('name')}"
    why = _why(known)
    if known.held is not None:
        behind = f" behind {known.before} others of its conversation" if known.before else ""
        return "waits", f"waits{behind}: {why or known.held.get('why')}"
    if why is not None:
        return "waits", f"waits: {why}"
    if known.in_recvq:
        return "waits", "stored, and neither decided nor held: about to be read, or in hand"
    return "unknown", "nothing tells any more what became of it"


def _told(pause: Pause, now: datetime) -> str:
    why = f" ({pause.why})" if pause.why else ""
    return f"{pause.scope} is paused{_ago(pause.at, now)} by {pause.by or 'somebody'}{why}"


def _ago(since: Any, now: datetime) -> str:
    known = isinstance(since, datetime)
    return f" for {for_long(max(0.0, (now - since).total_seconds()))}" if known else ""


def _why(known: Known) -> str | None:
    """Why its key waits, as the dispatcher tells."""
    channel, key = known.conversation or (None, None)
    row = known.row or {}
    own = _of(row, "waiting", "eventId", known.name)
    if own is not None:
        return str(own.get("why"))
    for one in rows.listed(row, "waiting"):
        if (one.get("channel"), one.get("key")) == (channel, key):
            return f"behind {one.get('eventId')} of its conversation: {one.get('why')}"
    return None


def _of(row: Mapping[str, Any], name: str, field: str, value: str) -> Mapping[str, Any] | None:
    return next((one for one in rows.listed(row, name) if one.get(field) == value), None)


def _gaps(known: Known) -> Iterator[str]:
    if not known.in_recvq:
        yield "recvq has it no longer: it was overwritten since, or never stored here"
    decided = _is_decided(known)
    if not known.runs and (decided or known.letter is not None):
        yield "no run of it stands in jobs: overwritten since, or it never ran a handler"
    if not decided or any(str(row.get("endpoint", "")).startswith(SENDS) for row in known.calls):
        return
    effects = known.runs[-1].get("effects") if known.runs else None
    if effects == 0:
        yield "no call was made: the handler returned nothing"
    elif not any((known.calls, known.pending, known.letter, known.letters, known.timers)):
        yield "no call of it stands in calls: overwritten since, or none was made"


def _related(known: Known) -> Iterator[str]:
    if known.replayed is not None:
        effect = known.replayed.get("effect") or {}
        yield str(effect.get("eventId") or known.replayed["_id"])
    for row in _letters(known):
        for number in range(1, 1 + int(row.get("replays") or 0)):
            yield f"replay:{row['_id']}:{number}"
    event = event_in(known.document)
    timer = event.get("timer")
    if isinstance(timer, Mapping) and isinstance(timer.get("id"), str):
        yield timer["id"]
