"""Says what documents hold: codes with their values become sentences in the reader's language.

Documents have codes: why an event or a send waits, why one was given up, what came of an act, the
states of processes and workers. Only this module says them. A text that is no code is shown as it
is: rows of earlier releases have English sentences, and an error's class is its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from linedesk.runtime import status_row
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.control import NOTHING_STUCK
from linedesk.store.records import letters
from linedesk.store.records.letters import Cause
from linedesk.store.records.waits import Why, code_of

# Codes that are words already, by what they name.
WORDS = (
    # The work of a thread.
    *(mark("handler"), mark("step"), mark("job")),
    # The states and roles of processes, and why a dispatcher waits.
    *(mark("starting"), mark("waiting"), mark("standby"), mark("working"), mark("stopping")),
    *(mark("ended"), mark("silent"), mark("asked for its rules")),
    *(mark("frontdesk"), mark("dispatcher")),
    *(mark("waiting for MongoDB"), mark("scanning recvq"), mark("opening the feed")),
    mark("cannot renew the lease"),
    # Events and sends.
    *(mark("message text"), mark("message image"), mark("message video"), mark("message audio")),
    *(mark("message file"), mark("message location"), mark("message sticker")),
    *(mark("follow"), mark("unfollow"), mark("join"), mark("leave"), mark("memberJoined")),
    *(mark("memberLeft"), mark("postback"), mark("unsend"), mark("timer"), mark("replay")),
    *(mark("reply"), mark("push"), mark("multicast")),
    *(mark("send reply"), mark("send push"), mark("send multicast")),
    # What became of an event.
    *(mark("replayed"), mark("answered")),
    *(mark("failed"), mark("no reply"), mark("unknown")),
    # Acts in the audit, their ways and outcome, and the kinds of conversations.
    *(mark("pause"), mark("resume"), mark("resume and drop"), mark("release"), mark("drop")),
    mark("set timers"),
    *(mark("login"), mark("page"), mark("command"), mark("done")),
    *(mark("user"), mark("group"), mark("room")),
    # The operators without a name, and the reason of a forced replay.
    *(mark("(no name)"), mark("the token"), mark("may arrive twice")),
    # What the console itself cannot reach.
    *(mark("MongoDB does not answer"), mark("MongoDB does not answer yet")),
)
UNSENT = " (unsent)"

# Why events wait.
EVENTS: Mapping[str, str] = {
    Why.BEHIND_SLOW_HANDLER: mark("waiting behind a slow handler"),
    Why.CONVERSATION_CHANGED: mark("its conversation changed while its handler ran"),
    Why.CRASH_SUSPECT: mark("waiting until another crash suspect ends"),
    Why.DECIDED_ELSEWHERE: mark("another process has decided a message gathered with it"),
    Why.DEFERRED: mark("set aside"),
    Why.FETCHING_PROFILE: mark("fetching the sender's profile"),
    Why.GATHERING: mark("gathering the messages of its sender"),
    Why.HANDLER_FAILED: mark("failed tries of its handler: {failures}"),
    Why.HANDLER_RUNS: mark("its handler runs"),
    Why.LEASE_NOT_FRESH: mark("the dispatcher has not renewed its lease in time"),
    Why.LINE_NOT_CALLED: mark("LINE is not called for now"),
    Why.MESSAGE_TAKEN_BACK: mark("its sender took back a message gathered with it"),
    Why.MOVING_TO_HELD: mark("its documents are being moved to held"),
    Why.NO_SLOW_PLACE: mark("waiting until another slow handler ends"),
    Why.NO_TURN: mark("its handler got no turn at the gate"),
    Why.NO_WORKER: "{cause}",
    Why.NOT_READ: mark("MongoDB does not return its document"),
    Why.NOT_RECORDED: mark("MongoDB did not take the record"),
    Why.NOT_SAVED: mark("waiting until progress is saved"),
    Why.OUTBOX_FULL: mark("its outbox is full"),
    Why.PAUSED: mark("paused"),
    Why.STORE_SILENT: mark("MongoDB did not answer"),
    Why.SUSPECT_NOT_STORED: mark("MongoDB does not store the name of the suspect event"),
}
# Why sends wait.
SENDS: Mapping[str, str] = {
    Why.FIRST_OF: mark("{count} wait in its outbox; the first: not taken by LINE yet"),
    Why.FIRST_TRIED_OF: mark("{count} wait in its outbox; the first: tried, of unknown outcome"),
    Why.GATE: mark("waits for its turn at the gate"),
    Why.LINE_ANSWERED: mark("LINE answered {status}"),
    Why.LINE_FAILS: mark("LINE fails, and linedesk tries a single call now and then"),
    Why.MONTHS_LIMIT: mark(
        "LINE answered {status} for the month's limit, and LINE's count of this "
        "month has to be read"
    ),
    Why.NO_ANSWER: mark("LINE did not answer"),
    Why.NO_CONNECTION: mark("no connection to LINE"),
    Why.NOT_CONFIRMED: mark("MongoDB did not confirm in time"),
    Why.RATE_LIMITED: mark("LINE takes no more such calls for now (its rate limit)"),
    Why.SENDING: mark("is on its way to LINE"),
    Why.TOKEN_REFUSED: mark("LINE refuses the access token"),
}
# Causes of dead letters.
CAUSES: Mapping[str, str] = {
    letters.QUOTA.code: mark("quota: the month's messages are used up"),
    letters.LATE.code: mark(
        "late: its reply token had expired, and today's limit for late replies is used up"
    ),
    letters.NOT_FETCHED.code: mark("not fetched: its button was not tapped within a day"),
    letters.EXPIRED.code: mark("expired: it was not tried before the moment that the bot had set"),
    letters.RELEASED.code: mark("released by an operator"),
    letters.DROPPED: mark("dropped by {by}"),
    letters.POISON.code: mark("poison: took the process down"),
    letters.NOT_SENT.code: mark("not sent within 3 days"),
    letters.OUTCOME_UNKNOWN.code: mark("outcome unknown for 23 hours"),
    letters.NOT_JSON.code: mark("it cannot be written as JSON"),
    letters.NO_VERDICT: mark("no verdict of LINE's in {tries} tries"),
    letters.LINE_REFUSED: mark("LINE refused it with {status}"),
    letters.WRITE_REFUSED: mark("MongoDB refuses the write: code {errorCode}"),
    letters.LATER_ROW.code: mark("its row in schedule has a number above its conversation's"),
    letters.NO_LETTER.code: mark(
        "refused: it asks for a send or timer, and no dead letter under replay has one"
    ),
    letters.NO_ROW.code: mark(
        "refused: it looks like a fired timer, and no row of schedule matches it"
    ),
    letters.HANDLER: mark("handler: {error}"),
    "did_not_return": mark("did not return"),
    "took_worker_down": mark("took its worker down again and again"),
    "unsent_among_them": mark("a message handled together with it was taken back"),
    "job_not_sendable": mark("its job cannot be sent to a worker"),
    "restored_outbox": mark("restored: waited in an outbox"),
    "restored_replaced": mark("restored: replaced before it was sent"),
    "restored_held": mark("restored: waited in held"),
    "restored_timer": mark("restored: a timer past due"),
    "restored_state": mark("restored: the time of a state past due"),
}
# Worker processes and RabbitMQ.
WORKERS: Mapping[str, str] = {
    "no_worker_free": mark("no worker is free"),
    "no_worker_connected": mark("no worker is connected"),
    "no_worker_usable": mark("no worker can take jobs"),
    "needs_own_worker": mark("waits for a worker of its own"),
    "dispatcher_stops": mark("the dispatcher stops"),
    "worker_replaced": mark("its worker has been replaced by one of another version"),
    "other_bot_version": mark("its handler is in another version of the bot"),
    "worker_lost_it": mark("its worker does not have it"),
    "worker_ended": mark("its worker has ended"),
    "worker_vanished": mark("its worker has vanished"),
    status_row.OTHER_VERSION: mark("another version of the bot is in force"),
    status_row.UNACCEPTED: mark("an operator has not accepted its version of the bot"),
    status_row.RULES_REFUSED: mark("rules refused: {refused}"),
    status_row.OTHER_CONTRACT: mark("speaks contract {contract}, needed is {needed}"),
    "broker_connecting": mark("connecting to RabbitMQ"),
    "broker_lost": mark("no connection to RabbitMQ: {why}"),
    "broker_blocked": mark("RabbitMQ takes nothing: {why}"),
}
# Outcomes of releases and acts, and why an act is not done.
OUTCOMES: Mapping[str, str] = {
    "event_is_letter": mark("the event {id} is a dead letter"),
    "send_is_letter": mark("the send {id} is a dead letter"),
    NOTHING_STUCK: mark("nothing was stuck any more"),
    "release_replaced": mark("another order has replaced it"),
    "timers_set": mark("the timer is set in {count} conversations"),
    "no_timer_handler": mark("the bot has no handler for this timer"),
    "refused": mark("refused: {reason}"),
    "nothing_waits": mark("nothing of it waits"),
    "two_wait": mark("both an event and a send of it wait: name one of them"),
    "dropped_meanwhile": mark("it was dropped meanwhile"),
    "replayed_at": mark("it was replayed at {at}"),
    "changed_meanwhile": mark(
        "it was replayed or dropped meanwhile, or an earlier document with the name of its replay "
        "was refused: check the letter, then try again"
    ),
    "not_replayable": mark("it holds neither an event nor a send"),
    "refused_letter": mark("it holds no event: it was refused because it had no dead letter"),
    "taken_back": mark("its message was taken back by its sender"),
    "send_incomplete": mark("its send is incomplete, or names no conversation"),
    "may_arrive_twice": mark("a try of {at} may have arrived, so it may arrive twice"),
}
TEXTS: Mapping[str, str] = {
    **{word: word for word in WORDS},
    **EVENTS,
    **SENDS,
    **CAUSES,
    **WORKERS,
    **OUTCOMES,
}
# The texts of codes that have a further value.
WITH: Mapping[tuple[str, str], str] = {
    (letters.LINE_REFUSED, "reason"): mark("LINE refused it with {status}: {reason}"),
    (letters.WRITE_REFUSED, "tooLarge"): mark(
        "MongoDB refuses the write: the document would be larger than 16 MB"
    ),
    (Why.GATE, "behind"): mark("waits for its turn at the gate, behind {behind} calls"),
}
# Values that may be codes in turn. All others are of people, LINE or MongoDB, and stay as they are.
CODES = ("cause", "error", "reason")
COUNTS = ("behind", "count", "failures", "people", "tries")


def known(stored: object) -> str:
    """Return a stored code, alone or with its values, as a sentence; any other text as it is."""
    if isinstance(stored, Cause):
        stored = {**stored.about, "code": stored.code}
    if isinstance(stored, Mapping):
        return _said(stored)
    text = "" if stored is None else str(stored)
    if text.endswith(UNSENT):
        return _("{what} (unsent)").format(what=known(text.removesuffix(UNSENT)))
    return _(TEXTS[text]) if text in TEXTS and "{" not in TEXTS[text] else text


class _Values(dict[str, str]):
    """A row made by hand may lack values."""

    def __missing__(self, name: str) -> str:
        return "-"


def _said(found: Mapping[str, Any]) -> str:
    code = code_of(found)
    text = next((WITH[pair] for pair in WITH if pair[0] == code and found.get(pair[1])), None)
    text = text or TEXTS.get(code)
    if text is None:
        return code
    values = {name: _value(name, one) for name, one in found.items()}
    said = _(text).format_map(_Values(values))
    if isinstance(until := found.get("until"), datetime):
        at = f"{until.astimezone(UTC):%H:%M:%S} UTC"
        said = _("{reason}, next try at {at}").format(reason=said, at=at)
    if isinstance(since := found.get("since"), datetime):
        said = _("{reason} since {at}").format(reason=said, at=_value("since", since))
    if found.get("people"):
        said = _("{reason} (one multicast to {count} people)").format(
            reason=said, count=_value("people", found["people"])
        )
    if found.get("calledLine"):
        message = _("{error}, after it had called LINE itself: another try would send twice")
        said = message.format(error=said)
    return said


def _value(name: str, value: object) -> str:
    if name in CODES:
        return known(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"{value:,}" if isinstance(value, int) and name in COUNTS else str(value)


# Requests of an operator that are not fulfilled.

UNSEEN = mark("the names of {count} older conversations were not read; give the id to be sure")


class NotDone(Exception):
    """A request is refused; `problems` has one line for each reason, in the operator's language."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class NotOneConversation(NotDone):
    """A word means no conversation, or more than one; `found` has one line for each candidate."""

    def __init__(self, word: str, found: Sequence[str], *, unseen: int = 0) -> None:
        if len(found) > 1:
            message = _("{word!r} matches several conversations:")
        elif found and unseen:
            message = _("{word!r} may mean other conversations, too, besides:")
        elif found:
            message = _("{word!r} is only a part of a name; give the whole name, or the id:")
        else:
            message = _("no conversation {word!r}")
        left = [_(UNSEEN).format(count=unseen)] if unseen else []
        super().__init__(message.format(word=word), *found, *left)
        self.found = tuple(found)


class NotReplayed(NotDone):
    """A dead letter is not replayed; `unless` names the option that replays it anyway.

    `reason` is the code with its values, as a row of `audit` has it.
    """

    def __init__(
        self, code: str, *, unless: Literal["again", "force"] | None = None, **values: Any
    ) -> None:
        self.reason = {"code": code, **values}
        super().__init__(known(self.reason))
        self.unless = unless
