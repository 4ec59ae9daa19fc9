"""G5 as a table: what each answer of LINE means for a send, by what is known of earlier tries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.effects import Send, SendMethod
from jobworker.errors import LineError, NotSendable, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer, is_endpoint_limit
from jobworker.sending.verdict import ReplyUnknown, SendVerdict, expired, judge, way_of
from tests.jobworker.worker_harness import a_send

ACCEPTED = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SOON = ACCEPTED + timedelta(seconds=2)
LATE = ACCEPTED + timedelta(seconds=61)
TOKEN = "0" * 31 + "1"

INVALID = LineAnswer(400, '{"message":"Invalid reply token"}')
BAD_BODY = LineAnswer(400, '{"message":"The request body has 1 error(s)"}')
QUOTA = LineAnswer(429, '{"message":"You have reached your monthly limit."}')
BUSY = LineAnswer(429, '{"message":"The API rate limit has been exceeded. Try again later."}')
CUT = LineAnswer(400, '{"message":"Inv', whole=False)
FLOOD = LineAnswer(429, '{"message":"You have sent too many messages to the same user."}')


def reply(**fields: Any) -> Send:
    known = {"way": SendMethod.REPLY, "token": TOKEN, "token_from": ACCEPTED, "at": ACCEPTED}
    return a_send(**{**known, **fields})


def push(**fields: Any) -> Send:
    return a_send(**{"at": ACCEPTED, **fields})


def tried(send: Send, way: SendMethod, at: datetime = SOON) -> Send:
    return send.tried(way, at)


@dataclass(frozen=True)
class Case:
    """A send, LINE's answer at a time, and what has to come of it."""

    name: str
    send: Send
    answer: LineAnswer | LineError
    ending: SendVerdict
    way: SendMethod = SendMethod.REPLY
    """How it travels in this try."""
    now: datetime = SOON
    fresh_after: bool | None = None
    """Whether nothing is unknown any more, for a send that stays in the outbox."""
    next_way: SendMethod | None = None
    cause: str | None = None
    waits: float | None = None
    unproved: bool = False
    reply_unknown: ReplyUnknown = ReplyUnknown.PUSH


FRESH_REPLY = reply()
FRESH_PUSH = push()
UNKNOWN_REPLY = tried(reply(), SendMethod.REPLY)
UNKNOWN_PUSH = tried(push(), SendMethod.PUSH)
REPLY_AS_PUSH = tried(reply(tried_as=SendMethod.PUSH), SendMethod.PUSH)
MULTICAST = push(way=SendMethod.MULTICAST, to=["U1", "U2"])

AGAIN, SENT, DEAD, DROPPED = (
    SendVerdict.AGAIN,
    SendVerdict.SENT,
    SendVerdict.DEAD,
    SendVerdict.DROPPED,
)
REPLY, PUSH, MANY = SendMethod.REPLY, SendMethod.PUSH, SendMethod.MULTICAST

CASES = [
    Case("a fresh reply in time is sent", FRESH_REPLY, LineAnswer(200, "{}"), SENT),
    Case("a fresh reply past its minute travels as push", FRESH_REPLY, LineAnswer(200), SENT, PUSH,
         LATE),
    Case("a fresh reply refused as invalid becomes a push at once", FRESH_REPLY, INVALID, AGAIN,
         fresh_after=True, next_way=PUSH, waits=0),
    Case("the words of a refusal are read whatever their case", FRESH_REPLY,
         LineAnswer(400, "INVALID REPLY TOKEN"), AGAIN, fresh_after=True, next_way=PUSH, waits=0),
    Case("a reply after a 500 repeats its token", FRESH_REPLY, LineAnswer(500), AGAIN,
         fresh_after=False, next_way=REPLY),
    Case("a reply after a time-out repeats its token", FRESH_REPLY, OutcomeUnknown("late"), AGAIN,
         fresh_after=False, next_way=REPLY),
    Case("a reply that met no connection stays fresh", FRESH_REPLY, NotSent("refused"), AGAIN,
         fresh_after=True, next_way=REPLY),
    Case("a reply that LINE finds malformed is given up", FRESH_REPLY, BAD_BODY, DEAD,
         cause="LINE refused it with 400"),
    Case("a reply refused in words that did not all come is tried again", FRESH_REPLY, CUT, AGAIN,
         fresh_after=True, next_way=REPLY),
    Case("a reply of unknown outcome, refused in such words, stays so", UNKNOWN_REPLY, CUT, AGAIN,
         fresh_after=False, next_way=REPLY),
    Case("a push refused with 400 needs no words", FRESH_PUSH, CUT, DEAD, PUSH),
    Case("a reply held back by the rate limit stays fresh", FRESH_REPLY, BUSY, AGAIN,
         fresh_after=True, next_way=REPLY),
    Case("a refused access token leaves a reply fresh, at the gate", FRESH_REPLY,
         LineAnswer(401), AGAIN, fresh_after=True, next_way=REPLY, waits=0),
    Case("a reply of unknown outcome, then accepted, is sent", UNKNOWN_REPLY, LineAnswer(200),
         SENT),
    Case("a reply of unknown outcome, its token now invalid in its minute, was sent",
         UNKNOWN_REPLY, INVALID, SENT),
    Case("a reply of unknown outcome, invalid after its minute, is pushed and counted",
         UNKNOWN_REPLY, INVALID, AGAIN, now=LATE, fresh_after=True, next_way=PUSH, waits=0,
         unproved=True),
    Case("a reply of unknown outcome, invalid after its minute, is dropped if so set",
         UNKNOWN_REPLY, INVALID, DROPPED, now=LATE, unproved=True,
         reply_unknown=ReplyUnknown.DROP),
    Case("a reply of unknown outcome is tried by token also long after its minute",
         UNKNOWN_REPLY, LineAnswer(200), SENT, now=LATE + timedelta(hours=22)),
    Case("a reply of unknown outcome stays so through no connection", UNKNOWN_REPLY,
         NotSent("refused"), AGAIN, fresh_after=False, next_way=REPLY),
    Case("a reply of unknown outcome stays so through the rate limit", UNKNOWN_REPLY, BUSY, AGAIN,
         fresh_after=False, next_way=REPLY),
    Case("a reply of unknown outcome stays so through a refused access token", UNKNOWN_REPLY,
         LineAnswer(401), AGAIN, fresh_after=False, next_way=REPLY, waits=0),
    Case("a 409 says nothing good of a reply", FRESH_REPLY, LineAnswer(409), DEAD),
    Case("a monthly limit told to a reply is an ordinary 429", FRESH_REPLY, QUOTA, AGAIN,
         fresh_after=True, next_way=REPLY),
    Case("a push is sent", FRESH_PUSH, LineAnswer(200, "{}"), SENT, PUSH),
    Case("a push answered 200 with garbage is sent", FRESH_PUSH, LineAnswer(200, "<html>"), SENT,
         PUSH),
    Case("a push answered 202 is sent", FRESH_PUSH, LineAnswer(202), SENT, PUSH),
    Case("a push after a 503 repeats its key", FRESH_PUSH, LineAnswer(503), AGAIN, PUSH,
         fresh_after=False, next_way=PUSH),
    Case("an answer below 200 says nothing", FRESH_PUSH, LineAnswer(102), AGAIN, PUSH,
         fresh_after=False, next_way=PUSH),
    Case("a push after a reset repeats its key", FRESH_PUSH, OutcomeUnknown("reset"), AGAIN, PUSH,
         fresh_after=False, next_way=PUSH),
    Case("a push whose key LINE knows was sent", UNKNOWN_PUSH, LineAnswer(409), SENT, PUSH),
    Case("even a push that was not tried is sent by a 409", FRESH_PUSH, LineAnswer(409), SENT,
         PUSH),
    Case("a push beyond the month's quota is given up as such", FRESH_PUSH, QUOTA, DEAD, PUSH,
         cause="quota"),
    Case("a push held back by the rate limit stays fresh", FRESH_PUSH, BUSY, AGAIN, PUSH,
         fresh_after=True, next_way=PUSH),
    Case("a Retry-After of the endpoint is not the send's own", FRESH_PUSH,
         LineAnswer(429, BUSY.text, retry_after=7.0), AGAIN, PUSH, fresh_after=True, waits=None),
    Case("a Retry-After of one user's is waited for", FRESH_PUSH,
         LineAnswer(429, FLOOD.text, retry_after=7.0), AGAIN, PUSH, fresh_after=True, waits=7.0),
    Case("a Retry-After of nothing still backs off", FRESH_PUSH,
         LineAnswer(429, FLOOD.text, retry_after=0.0), AGAIN, PUSH, fresh_after=True, waits=None),
    Case("a push of unknown outcome stays so through the rate limit", UNKNOWN_PUSH, BUSY, AGAIN,
         PUSH, fresh_after=False, next_way=PUSH),
    Case("a push of unknown outcome stays so through no connection", UNKNOWN_PUSH, NotSent("no"),
         AGAIN, PUSH, fresh_after=False, next_way=PUSH),
    Case("a send that is no JSON is given up before it is called", FRESH_PUSH,
         NotSendable("TypeError"), DEAD, PUSH, cause="it cannot be written as JSON"),
    Case("a malformed push is given up", FRESH_PUSH, BAD_BODY, DEAD, PUSH),
    Case("the token's words mean nothing to a push", FRESH_PUSH, INVALID, DEAD, PUSH),
    Case("a forbidden push is given up", FRESH_PUSH, LineAnswer(403), DEAD, PUSH),
    Case("a redirect is followed by nobody and says nothing of LINE", FRESH_PUSH, LineAnswer(302),
         AGAIN, PUSH),
    Case("a time-out of a proxy says nothing of LINE", FRESH_PUSH, LineAnswer(408), AGAIN, PUSH),
    Case("a refused access token leaves a push fresh", FRESH_PUSH, LineAnswer(401), AGAIN, PUSH,
         fresh_after=True, waits=0),
    Case("a reply that went as push is proved by its key", REPLY_AS_PUSH, LineAnswer(409), SENT,
         PUSH),
    Case("a reply that went as push never replies again", REPLY_AS_PUSH, LineAnswer(500), AGAIN,
         PUSH,
         fresh_after=False, next_way=PUSH),
    Case("a reply refused as push stays a push", reply(tried_as=PUSH), BUSY, AGAIN, PUSH,
         fresh_after=True, next_way=PUSH),
    Case("a multicast is sent", MULTICAST, LineAnswer(200, "{}"), SENT, MANY),
    Case("a multicast after a 500 repeats its key", MULTICAST, LineAnswer(500), AGAIN, MANY,
         fresh_after=False, next_way=MANY),
    Case("a multicast whose key LINE knows was sent", tried(MULTICAST, MANY), LineAnswer(409),
         SENT, MANY),
    Case("a multicast beyond the quota is given up", MULTICAST, QUOTA, DEAD, MANY,
         cause="quota"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_an_answer_means(case: Case) -> None:
    assert expired(case.send, case.now) is None
    assert way_of(case.send, case.now) is case.way
    was_tried = case.send.tried_at is not None
    noted = case.send if was_tried else case.send.tried(case.way, case.now)
    outcome = judge(
        noted,
        case.way,
        case.answer,
        was_tried=was_tried,
        started=case.now,
        reply_unknown=case.reply_unknown,
    )
    assert outcome.ending is case.ending
    assert outcome.unproved is case.unproved
    assert outcome.wait_seconds == case.waits
    counts = isinstance(case.answer, OutcomeUnknown) or getattr(case.answer, "status", 0) >= 500
    assert outcome.unanswered or not counts
    assert not outcome.unanswered or outcome.send.tried_at is not None
    if case.fresh_after is not None:
        assert (outcome.send.tried_at is None) is case.fresh_after
    if case.next_way is not None:
        assert way_of(outcome.send, case.now) is case.next_way
    if case.cause is not None:
        assert outcome.cause == case.cause


@pytest.mark.parametrize(
    ("send", "now", "way"),
    [
        pytest.param(reply(), SOON, REPLY, id="a fresh reply in its minute"),
        pytest.param(reply(), LATE, PUSH, id="a fresh reply past its minute"),
        pytest.param(
            reply(),
            ACCEPTED + timedelta(minutes=1),
            PUSH,
            id="a reply at its minute's last instant",
        ),
        pytest.param(reply(token=None), SOON, PUSH, id="a reply without a token"),
        pytest.param(reply(tried_as=PUSH), SOON, PUSH, id="once push, never reply again"),
        pytest.param(push(), LATE, PUSH, id="a push"),
        pytest.param(
            tried(push(), PUSH),
            SOON + timedelta(hours=22, minutes=59),
            PUSH,
            id="a push of unknown outcome within its key's life",
        ),
    ],
)
def test_how_a_send_travels_next(send: Send, now: datetime, way: SendMethod) -> None:
    assert way_of(send, now) is way


@pytest.mark.parametrize(
    ("send", "now", "cause"),
    [
        pytest.param(
            one,
            SOON + timedelta(hours=23),
            "outcome unknown for 23 hours",
            id=f"{one.way.value} tried as {one.tried_as and one.tried_as.value}",
        )
        for one in (
            UNKNOWN_PUSH,
            UNKNOWN_REPLY,
            REPLY_AS_PUSH,
            tried(MULTICAST, MANY),
        )
    ]
    + [
        pytest.param(push(), ACCEPTED + timedelta(days=3), "not sent within 3 days", id="a push"),
        pytest.param(reply(), ACCEPTED + timedelta(days=3), "not sent within 3 days", id="a reply"),
        pytest.param(
            push(),
            ACCEPTED + timedelta(days=3) - timedelta(seconds=1),
            None,
            id="a push that was refused until now, within three days",
        ),
        pytest.param(
            tried(push(), PUSH, ACCEPTED + timedelta(days=3) - timedelta(minutes=1)),
            ACCEPTED + timedelta(days=3, hours=22),
            None,
            id="a try of unknown outcome is settled by its key, however old the send",
        ),
    ],
)
def test_what_is_too_old_to_be_tried(send: Send, now: datetime, cause: str | None) -> None:
    assert expired(send, now) == cause


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        (BUSY, True),
        (LineAnswer(429), True),
        (LineAnswer(429, "<html>Too Many Requests"), True),
        (QUOTA, False),
        (FLOOD, False),
        (LineAnswer(200, BUSY.text), False),
        (LineAnswer(503, BUSY.text), False),
    ],
)
def test_which_answer_holds_its_endpoint_back(answer: LineAnswer, held: bool) -> None:
    assert is_endpoint_limit(answer) is held


def test_a_letter_tells_whether_a_try_is_unknown() -> None:
    for send, was_tried in ((FRESH_PUSH.tried(PUSH, SOON), False), (UNKNOWN_PUSH, True)):
        for answer in (BAD_BODY, QUOTA):
            outcome = judge(
                send,
                PUSH,
                answer,
                was_tried=was_tried,
                started=SOON,
                reply_unknown=ReplyUnknown.PUSH,
            )
            assert outcome.ending is DEAD
            assert (outcome.send.tried_at is not None) is was_tried


def test_the_key_s_life_counts_from_the_first_unknown_try() -> None:
    first = push().tried(PUSH, SOON)
    assert first.tried(PUSH, SOON + timedelta(hours=5)).tried_at == SOON


@pytest.mark.parametrize("send", [FRESH_REPLY, UNKNOWN_REPLY, REPLY_AS_PUSH, MULTICAST])
def test_a_send_reads_back_from_its_document(send: Send) -> None:
    assert Send.from_document(send.as_document()) == send
