"""How one call reaches LINE once, through crashes, time-outs and 5xx (architecture: G5). Pure.

The rules, by what is known of earlier tries. *Fresh*: none, or each definitely refused. *Tried*:
the outcome of one is unknown, and the call stands in its conversation. A reply has a token that
LINE takes once; a push has a retry key under which LINE takes it once within 24 hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from jobworker.effects import RETRY_KEY_LIFE, Call, Send, SendMethod
from jobworker.errors import LineError, NotSendable, NotSent
from jobworker.line.answer import (
    MONTHLY_LIMIT,
    LineAnswer,
    is_endpoint_limit,
    is_no_verdict,
    named_in,
    reason_of,
)

# Of a send that LINE never had: a token that ran out on Friday evening can be replaced on Monday;
# what is older should not reach people by surprise, so an operator decides.
SEND_LIFE = timedelta(days=3)
# LINE's error body, the one place where an error's words decide: no status tells it apart.
INVALID_REPLY_TOKEN = "invalid reply token"
# The cause of a send that met a used-up quota, and of one whose time was over.
QUOTA = "quota"
EXPIRED = "expired"


class ReplyUnknown(Enum):
    """What becomes of a reply that can neither be proved sent nor repeated."""

    PUSH = "push"
    DROP = "drop"


class SendVerdict(Enum):
    """What one try of a call came to."""

    SENT = "sent"
    AGAIN = "again"
    DEAD = "dead"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Tried:
    """One call that was made, and what is known of it besides LINE's answer."""

    call: Call
    messages: Sequence[int]
    """How many messages each of its members brings, in order; empty for a batch."""
    was_tried: bool = False
    """Whether an earlier try of the same call is of unknown outcome."""
    people: int = 1
    """How many people it reaches; of a group LINE alone knows."""
    to_user: bool = False
    """Whether it is a push to one user, who is counted as one."""
    token_was_good: bool = False
    """Whether its reply token was young enough when the call began."""

    @property
    def is_reply(self) -> bool:
        """Whether it travelled on a reply token."""
        return self.call.way is SendMethod.REPLY

    def members_with(self, messages: Sequence[int]) -> list[str]:
        """The places of the members that brought these of its messages; of a batch, whose members
        have all the same, none.
        """
        if not self.messages:
            return []
        brought_by = [
            place
            for place, count in zip(self.call.members, self.messages, strict=True)
            for _ in range(count)
        ]
        return list(dict.fromkeys(brought_by[i] for i in messages if i < len(brought_by)))


@dataclass(frozen=True)
class CallOutcome:
    """What a try of a call came to."""

    ending: SendVerdict
    stands: bool = False
    """Whether an outcome is unknown, so that the next try has to be the same call again."""
    token_used_up: bool = False
    """Whether LINE refuses its reply token."""
    refused: Sequence[str] = ()
    """Of a call that is DEAD: the places of what LINE refuses. The others go on without them."""
    narrower: bool = False
    """Whether the next call is to carry fewer, since LINE does not say which one it refuses."""
    cause: str = ""
    wait_seconds: float | None = None
    """Wait at least this long before the next try; None: back off; 0: at once."""
    unanswered: bool = False
    """Whether LINE gave no verdict, so that it counts as a failed try."""
    unproved: bool = False
    """Whether this is the one exception of G5: it may be sent twice, or not at all."""


def expired(send: Send, now: datetime) -> str | None:
    """Why a send that was not called is too old to be; None while it is not."""
    if send.tried_at is not None:
        return _forgotten(send.tried_at, now)
    if send.until is not None and now >= send.until:
        return EXPIRED
    return "not sent within 3 days" if now >= send.at + SEND_LIFE else None


def outlived(call: Call, now: datetime) -> str | None:
    """Why a call of unknown outcome is not repeated any more; None while it is."""
    return _forgotten(call.at, now)


def _forgotten(tried_at: datetime, now: datetime) -> str | None:
    """Why a try can be repeated no more: LINE may have forgotten its key."""
    return "outcome unknown for 23 hours" if now >= tried_at + RETRY_KEY_LIFE else None


def judge(
    tried: Tried, answer: LineAnswer | LineError, *, reply_unknown: ReplyUnknown
) -> CallOutcome:
    """What an answer means for a call that stands in its conversation."""
    if isinstance(answer, NotSendable):
        return _refused(tried, "it cannot be written as JSON")
    if isinstance(answer, NotSent):
        return _again(tried, definite=True)
    if isinstance(answer, LineError) or is_no_verdict(answer.status):
        return replace(_again(tried, definite=False), unanswered=True)
    if answer.status < 300 or (answer.status == 409 and not tried.is_reply):
        return CallOutcome(SendVerdict.SENT)
    if tried.is_reply and answer.status == 400 and not answer.whole:
        # A refusal, but whether of the token or of the message is not known.
        return _again(tried, definite=True)
    if tried.is_reply and _is_invalid_token(answer):
        return _invalid_token(tried, reply_unknown)
    if answer.status == 429:
        return _too_many(tried, answer)
    if answer.status == 401:
        # Nothing is wrong with the send; the breaker keeps it at the gate.
        return _again(tried, definite=True, wait_seconds=0)
    named = tried.members_with(named_in(answer, "messages"))
    return _refused(tried, _cause(answer), named)


def _cause(answer: LineAnswer) -> str:
    """LINE's status and, where its body tells one, the reason."""
    reason = reason_of(answer)
    why = f": {reason.words}" if reason else ""
    return f"LINE refused it with {answer.status}{why}"


def _again(tried: Tried, *, definite: bool, wait_seconds: float | None = None) -> CallOutcome:
    """Try again; a definite refusal ends the call, unless an earlier try of it is unknown."""
    stands = tried.was_tried or not definite
    return CallOutcome(SendVerdict.AGAIN, stands, wait_seconds=wait_seconds)


def _dead(tried: Tried, cause: str) -> CallOutcome:
    """Give all of it up. Its letters say whether an earlier try may have arrived."""
    members = tried.call.members
    return CallOutcome(SendVerdict.DEAD, tried.was_tried, refused=members, cause=cause)


def _refused(tried: Tried, cause: str, named: Sequence[str] = ()) -> CallOutcome:
    """The call cannot be made for what is in it: the members that LINE names are given up.

    Without a name that is a lone send; of several, fewer are called for.
    """
    if tried.was_tried or len(tried.messages) <= 1:
        return _dead(tried, cause)
    if not named:
        return CallOutcome(SendVerdict.AGAIN, narrower=True, wait_seconds=0)
    return CallOutcome(SendVerdict.DEAD, refused=named, cause=cause)


def _is_invalid_token(answer: LineAnswer) -> bool:
    return answer.status == 400 and INVALID_REPLY_TOKEN in answer.text.lower()


def _invalid_token(tried: Tried, reply_unknown: ReplyUnknown) -> CallOutcome:
    # guard: used-up-token-is-noted -> without_it = CallOutcome(SendVerdict.AGAIN, wait_seconds=0)
    without_it = CallOutcome(SendVerdict.AGAIN, token_used_up=True, wait_seconds=0)
    if not tried.was_tried:
        return without_it
    if tried.token_was_good:
        # So the earlier try of unknown outcome has used it.
        return CallOutcome(SendVerdict.SENT)
    if reply_unknown is ReplyUnknown.DROP:
        return CallOutcome(SendVerdict.DROPPED, unproved=True)
    return replace(without_it, unproved=True)


def _too_many(tried: Tried, answer: LineAnswer) -> CallOutcome:
    if not tried.is_reply and MONTHLY_LIMIT in answer.text.lower():
        # One user fits into any rest of the month, so a reading has to say that there is none.
        if tried.to_user:
            return replace(_again(tried, definite=True), cause=QUOTA)
        return _dead(tried, QUOTA)
    # What LINE says of the endpoint is waited for there (`is_endpoint_limit`), since by then a
    # reply may have become a push. A Retry-After of 0 must not make a hot loop of it.
    own = not is_endpoint_limit(answer) and answer.retry_after
    return _again(tried, definite=True, wait_seconds=own or None)
