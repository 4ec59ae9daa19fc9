"""How one call reaches LINE once, despite crashes, time-outs and 5xx (architecture: G5). Pure.

The rules depend on earlier tries. *Fresh*: none, or each definitely refused. *Tried*: the outcome
of one is unknown, and the call is stored in its conversation. A reply has a token that LINE accepts
once. A push has a retry key under which LINE accepts it once within 24 hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from jobworker.effects import Call, Send, SendMethod
from jobworker.errors import LineError, NotSendable, NotSent
from jobworker.line.answer import (
    MONTHLY_LIMIT,
    LineAnswer,
    is_endpoint_limit,
    is_no_verdict,
    named_in,
    reason_of,
)
from linedesk.store.records.effects import RETRY_KEY_LIFE
from linedesk.store.records.letters import (
    EXPIRED,
    LINE_REFUSED,
    NOT_JSON,
    NOT_SENT,
    OUTCOME_UNKNOWN,
    QUOTA,
    Cause,
)

# For a send that LINE never had: a token that expired on Friday evening can be replaced on Monday.
# Older sends should not surprise people, so an operator decides about them.
SEND_LIFE = timedelta(days=3)
# LINE's error text, the only one that decides: no status identifies this error.
INVALID_REPLY_TOKEN = "invalid reply token"
NOT_GIVEN_UP = Cause("")
# LINE may count a token's minute from an earlier moment than its webhook's acceptance: in the last
# second of the minute a refusal may be for the token's age.
# guard: second-of-proof -> PROOF_SECONDS = 0.0
PROOF_SECONDS = 1.0


class ReplyUnknown(Enum):
    """The treatment of a reply that cannot be proved sent or repeated."""

    PUSH = "push"
    DROP = "drop"


class SendVerdict(Enum):
    """The result of one try of a call."""

    SENT = "sent"
    AGAIN = "again"
    DEAD = "dead"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Tried:
    """One call that was made, and what is known of it in addition to LINE's answer."""

    call: Call
    messages: Sequence[int]
    """The number of messages of each of its members, in order; empty for a batch."""
    was_tried: bool = False
    """Whether an earlier try of the same call is of unknown outcome."""
    to_user: bool = False
    """Whether it is a push to one user, which counts as one."""
    token_was_good: bool = False
    """Whether its reply token had more than PROOF_SECONDS left when the answer came: LINE then
    refuses it only if it is used.
    """

    @property
    def is_reply(self) -> bool:
        """Whether it used a reply token."""
        return self.call.way is SendMethod.REPLY

    def members_with(self, messages: Sequence[int]) -> list[str]:
        """The places of the members that brought these of its messages; empty for a batch, whose
        members all have the same ones.
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
    """The result of a try of a call."""

    ending: SendVerdict
    stands: bool = False
    """Whether an outcome is unknown, so that the next try has to be the same call again."""
    token_used_up: bool = False
    """Whether LINE refuses its reply token."""
    refused: Sequence[str] = ()
    """For a DEAD call: the places of the sends that LINE refuses. The others continue without
    them.
    """
    narrower: bool = False
    """Whether the next call has to carry fewer, since LINE does not name the refused one."""
    causes: Mapping[str, Cause] = field(default_factory=dict)
    """Of each of several sends; `cause` of the others."""
    cause: Cause = NOT_GIVEN_UP
    """Of a DEAD call, and QUOTA of one that is tried again for it."""
    wait_seconds: float | None = None
    """Wait at least this long before the next try; None: back off; 0: at once."""
    unanswered: bool = False
    """Whether LINE gave no verdict, so that it counts as a failed try."""
    unproved: bool = False
    """Whether this is the one exception of G5: it may be sent twice, or not at all."""


def expired(send: Send, now: datetime) -> Cause | None:
    """Return why a send without a call has expired; None if it has not."""
    if send.tried_at is not None:
        return outlived(send.tried_at, now)
    if send.until is not None and now >= send.until:
        return EXPIRED
    return NOT_SENT if now >= send.at + SEND_LIFE else None


def outlived(tried_at: datetime, now: datetime) -> Cause | None:
    """Return why a try of unknown outcome is not repeated any more; None if it is: LINE may have
    forgotten its key.
    """
    return OUTCOME_UNKNOWN if now >= tried_at + RETRY_KEY_LIFE else None


def judge(
    tried: Tried, answer: LineAnswer | LineError, *, reply_unknown: ReplyUnknown
) -> CallOutcome:
    """Return the meaning of an answer for a call that is stored in its conversation."""
    if isinstance(answer, NotSendable):
        return _refused(tried, NOT_JSON)
    if isinstance(answer, NotSent):
        return _again(tried, definite=True)
    if isinstance(answer, LineError) or is_no_verdict(answer.status):
        return replace(_again(tried, definite=False), unanswered=True)
    if answer.status < 300 or (answer.status == 409 and not tried.is_reply):
        return CallOutcome(SendVerdict.SENT)
    if tried.is_reply and answer.status == 400 and not answer.whole:
        # A refusal, but whether of the token or of the message is not known.
        return _again(tried, definite=True)
    is_about_token = INVALID_REPLY_TOKEN in answer.text.lower()
    if tried.is_reply and answer.status == 400 and is_about_token:
        return _invalid_token(tried, reply_unknown)
    if answer.status == 429:
        return _too_many(tried, answer)
    if answer.status == 401:
        # The send is correct; the breaker keeps it at the gate.
        return _again(tried, definite=True, wait_seconds=0)
    named = tried.members_with(named_in(answer, "messages"))
    causes, end = {}, 0
    # A batch has no number of messages for each of its members: they have the same ones.
    for place, count in zip(tried.call.members, tried.messages, strict=False):
        end += count
        causes[place] = _cause(answer, range(end - count, end))
    return replace(_refused(tried, _cause(answer), named), causes=causes)


def _cause(answer: LineAnswer, messages: range | None = None) -> Cause:
    """LINE's status and, if its body has one, the reason; for one send that of its messages."""
    reason = reason_of(answer)
    if reason is not None and messages is not None:
        reason = reason.about(messages)
    why = {"reason": reason.words} if reason else {}
    return Cause(LINE_REFUSED, {"status": answer.status, **why})


def _again(tried: Tried, *, definite: bool, wait_seconds: float | None = None) -> CallOutcome:
    """Try again; a definite refusal ends the call, unless an earlier try of it is unknown."""
    stands = tried.was_tried or not definite
    return CallOutcome(SendVerdict.AGAIN, stands, wait_seconds=wait_seconds)


def _dead(tried: Tried, cause: Cause) -> CallOutcome:
    """Give all of it up. Its letters say whether an earlier try may have arrived."""
    members = tried.call.members
    return CallOutcome(SendVerdict.DEAD, tried.was_tried, refused=members, cause=cause)


def _refused(tried: Tried, cause: Cause, named: Sequence[str] = ()) -> CallOutcome:
    """Give up a call that is impossible because of its content: the members that LINE names.

    Without a name a single send is given up; of several, the next call carries fewer.
    """
    if tried.was_tried or len(tried.messages) <= 1:
        return _dead(tried, cause)
    if not named:
        return CallOutcome(SendVerdict.AGAIN, narrower=True, wait_seconds=0)
    return CallOutcome(SendVerdict.DEAD, refused=named, cause=cause)


def _invalid_token(tried: Tried, reply_unknown: ReplyUnknown) -> CallOutcome:
    # guard: used-up-token-is-noted -> without_it = CallOutcome(SendVerdict.AGAIN, wait_seconds=0)
    without_it = CallOutcome(SendVerdict.AGAIN, token_used_up=True, wait_seconds=0)
    if not tried.was_tried:
        return without_it
    if tried.token_was_good:
        # The earlier try of unknown outcome has therefore used it.
        return CallOutcome(SendVerdict.SENT)
    if reply_unknown is ReplyUnknown.DROP:
        return CallOutcome(SendVerdict.DROPPED, unproved=True)
    return replace(without_it, unproved=True)


def _too_many(tried: Tried, answer: LineAnswer) -> CallOutcome:
    if not tried.is_reply and MONTHLY_LIMIT in answer.text.lower():
        # One user fits into any rest of the month, so a reading has to confirm that there is none.
        if tried.to_user:
            return replace(_again(tried, definite=True), cause=QUOTA)
        return _dead(tried, QUOTA)
    # LINE's wait for an endpoint applies to the endpoint (`is_endpoint_limit`), since a reply may
    # have become a push by then. A Retry-After of 0 must not cause a hot loop.
    own = not is_endpoint_limit(answer) and answer.retry_after
    return _again(tried, definite=True, wait_seconds=own or None)
