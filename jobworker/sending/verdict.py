"""How one send reaches LINE once, through crashes, time-outs and 5xx (architecture: G5). Pure.

The rules, by what is known of earlier tries. *Fresh*: none, or each definitely refused. *Tried*:
the outcome of one is unknown, and `tried_at` stands in the outbox. A reply has a token that LINE
takes once; a push has a retry key under which LINE takes it once within 24 hours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from jobworker.effects import RETRY_KEY_LIFE, Send, SendMethod
from jobworker.errors import LineError, NotSendable, NotSent
from jobworker.line.answer import MONTHLY_LIMIT, LineAnswer, is_endpoint_limit, is_no_verdict

# Of a send that LINE never had: a token that ran out on Friday evening can be replaced on Monday;
# what is older should not reach people by surprise, so an operator decides.
SEND_LIFE = timedelta(days=3)
# LINE's error body, the one place where an error's words decide: no status tells it apart.
INVALID_REPLY_TOKEN = "invalid reply token"
# The cause of a send that met a used-up quota.
QUOTA = "quota"


class ReplyUnknown(Enum):
    """What becomes of a reply that can neither be proved sent nor repeated."""

    PUSH = "push"
    DROP = "drop"


class SendVerdict(Enum):
    """What one try of a send came to."""

    SENT = "sent"
    AGAIN = "again"
    DEAD = "dead"
    DROPPED = "dropped"


@dataclass(frozen=True)
class SendOutcome:
    """The ending of a try, and the send as it has to stand in the outbox now."""

    ending: SendVerdict
    send: Send
    cause: str = ""
    wait_seconds: float | None = None
    """Wait at least this long before the next try; None: back off; 0: at once."""
    unanswered: bool = False
    """Whether LINE gave no verdict, so that it counts as a failed try."""
    unproved: bool = False
    """Whether this is the one exception of G5: it may be sent twice, or not at all."""


def expired(send: Send, now: datetime) -> str | None:
    """Why a send is too old to be tried at all; None while it is not."""
    if send.tried_at is not None:
        too_old = now >= send.tried_at + RETRY_KEY_LIFE
        return "outcome unknown for 23 hours" if too_old else None
    return "not sent within 3 days" if now >= send.at + SEND_LIFE else None


def way_of(send: Send, now: datetime) -> SendMethod:
    """How to try next a send that is not too old."""
    if send.tried_at is not None and send.tried_as is not None:
        return send.tried_as
    until = send.token_until
    may_reply = (
        send.way is SendMethod.REPLY
        and send.token
        and send.tried_as is not SendMethod.PUSH  # guard: once-push-never-reply
    )
    if may_reply and until is not None and now < until:
        return SendMethod.REPLY
    return SendMethod.PUSH if send.way is SendMethod.REPLY else send.way


def judge(
    send: Send,
    way: SendMethod,
    answer: LineAnswer | LineError,
    *,
    was_tried: bool,
    started: datetime,
    reply_unknown: ReplyUnknown,
) -> SendOutcome:
    """What an answer means for the send that stands in the outbox as tried.

    `was_tried`: an earlier try is of unknown outcome. `started`: when the call began.
    """
    if isinstance(answer, NotSendable):
        return _dead(send, was_tried, "it cannot be written as JSON")
    if isinstance(answer, NotSent):
        return _again(send, was_tried, definite=True)
    if isinstance(answer, LineError) or is_no_verdict(answer.status):
        return replace(_again(send, was_tried, definite=False), unanswered=True)
    if answer.status < 300 or (answer.status == 409 and way is not SendMethod.REPLY):
        return SendOutcome(SendVerdict.SENT, send)
    if way is SendMethod.REPLY and answer.status == 400 and not answer.whole:
        # A refusal, but whether of the token or of the message is not known.
        return _again(send, was_tried, definite=True)
    if way is SendMethod.REPLY and _is_invalid_token(answer):
        return _invalid_token(send, was_tried, started, reply_unknown)
    if answer.status == 429:
        return _too_many(send, way, answer, was_tried)
    if answer.status == 401:
        # Nothing is wrong with the send; the breaker keeps it at the gate.
        return _again(send, was_tried, definite=True, wait_seconds=0)
    return _dead(send, was_tried, f"LINE refused it with {answer.status}")


def _again(
    send: Send, was_tried: bool, *, definite: bool, wait_seconds: float | None = None
) -> SendOutcome:
    """Try again; a definite refusal clears the try, unless an earlier one is unknown."""
    stands = send.refused() if definite and not was_tried else send
    return SendOutcome(SendVerdict.AGAIN, stands, wait_seconds=wait_seconds)


def _dead(send: Send, was_tried: bool, cause: str) -> SendOutcome:
    """Give it up; a definite refusal clears the try, unless an earlier one is unknown."""
    return SendOutcome(SendVerdict.DEAD, send if was_tried else send.refused(), cause=cause)


def _is_invalid_token(answer: LineAnswer) -> bool:
    return answer.status == 400 and INVALID_REPLY_TOKEN in answer.text.lower()


def _invalid_token(
    send: Send, was_tried: bool, started: datetime, reply_unknown: ReplyUnknown
) -> SendOutcome:
    as_push = send.refused(next_way=SendMethod.PUSH)
    if not was_tried:
        return SendOutcome(SendVerdict.AGAIN, as_push, wait_seconds=0)
    if send.token_until is not None and started < send.token_until:
        # The token was good, so the earlier try of unknown outcome has used it.
        return SendOutcome(SendVerdict.SENT, send)
    if reply_unknown is ReplyUnknown.DROP:
        return SendOutcome(SendVerdict.DROPPED, send, unproved=True)
    return SendOutcome(SendVerdict.AGAIN, as_push, wait_seconds=0, unproved=True)


def _too_many(send: Send, way: SendMethod, answer: LineAnswer, was_tried: bool) -> SendOutcome:
    if way is not SendMethod.REPLY and MONTHLY_LIMIT in answer.text.lower():
        return _dead(send, was_tried, QUOTA)
    # What LINE says of the endpoint is waited for there (`is_endpoint_limit`), since by then a
    # reply may have become a push. A Retry-After of 0 must not make a hot loop of it.
    own = not is_endpoint_limit(answer) and answer.retry_after
    return _again(send, was_tried, definite=True, wait_seconds=own or None)
