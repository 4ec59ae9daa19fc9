"""G5 as a table: the meaning of each answer of LINE for a call, by its earlier tries."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from jobworker.effects import Call, Send, SendMethod
from jobworker.errors import LineError, NotSendable, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.sending.verdict import ReplyUnknown, SendVerdict, Tried, expired, judge, outlived
from linedesk.operate.text import known
from linedesk.store.records.letters import NOT_SENT, OUTCOME_UNKNOWN, Cause
from tests.jobworker.worker_harness import a_send

ACCEPTED = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SOON = ACCEPTED + timedelta(seconds=2)
TOKEN = "0" * 31 + "1"
KEY = "8a1c3b42-9f6e-4f0a-8f2b-6a1f0f6f0001"

INVALID = LineAnswer(400, '{"message":"Invalid reply token"}')
BAD_BODY = LineAnswer(400, '{"message":"The request body has 1 error(s)"}')
QUOTA = LineAnswer(429, '{"message":"You have reached your monthly limit."}')
BUSY = LineAnswer(429, '{"message":"The API rate limit has been exceeded. Try again later."}')
CUT = LineAnswer(400, '{"message":"Inv', whole=False)
FLOOD = LineAnswer(429, '{"message":"You have sent too many messages to the same user."}')


def naming(*properties: str, status: int = 400, whole: bool = True) -> LineAnswer:
    """A refusal in the form of LINE's reference, with the property at fault."""
    details = [{"message": "May not be empty", "property": one} for one in properties]
    told = {"message": f"The request body has {len(details)} error(s)", "details": details}
    return LineAnswer(status, json.dumps(told), whole=whole)


AGAIN, SENT, DEAD, DROPPED = (
    SendVerdict.AGAIN,
    SendVerdict.SENT,
    SendVerdict.DEAD,
    SendVerdict.DROPPED,
)


REPLY, PUSH = SendMethod.REPLY, SendMethod.PUSH


def called(
    way: SendMethod, *messages: int, was_tried: bool = False, token_was_good: bool = True
) -> Tried:
    """A call with members A, B, C, which bring these numbers of messages."""
    members = tuple("ABCDE"[: len(messages)])
    is_reply = way is REPLY
    key, token = (None, TOKEN) if is_reply else (KEY, None)
    return Tried(
        Call(SOON, way, members, key=key, token=token),
        messages,
        was_tried=was_tried,
        token_was_good=is_reply and token_was_good,
    )


FRESH_REPLY, FRESH_PUSH = (called(way, 1) for way in (REPLY, PUSH))
UNKNOWN_REPLY, UNKNOWN_PUSH = (called(way, 1, was_tried=True) for way in (REPLY, PUSH))
LATE_UNKNOWN_REPLY = called(REPLY, 1, was_tried=True, token_was_good=False)
# Several sends of one conversation; B brings two messages.
SEVERAL, SEVERAL_PUSHES = (called(way, 1, 2, 1) for way in (REPLY, PUSH))
SEVERAL_UNKNOWN = called(REPLY, 1, 2, 1, was_tried=True)
SEVERAL_UNKNOWN_PUSHES = called(PUSH, 1, 2, 1, was_tried=True)


@dataclass(frozen=True)
class Case:
    """A call, LINE's answer to it, and the expected result."""

    name: str
    tried: Tried
    answer: LineAnswer | LineError
    ending: SendVerdict
    stands: bool = False
    """Whether the next try has to be the same call again."""
    used_up: bool = False
    refused: str = ""
    narrower: bool = False
    cause: str = ""
    waits: float | None = None
    unproved: bool = False
    reply_unknown: ReplyUnknown = ReplyUnknown.PUSH


CASES = [
    Case("a fresh reply in time is sent", FRESH_REPLY, LineAnswer(200, "{}"), SENT),
    Case("a fresh reply refused as invalid goes on at once without its token", FRESH_REPLY,
         INVALID, AGAIN, used_up=True, waits=0),
    Case("a reply after a 500 repeats its token", FRESH_REPLY, LineAnswer(500), AGAIN,
         stands=True),
    Case("a reply that met no connection stays fresh", FRESH_REPLY, NotSent("refused"), AGAIN),
    Case("a reply that LINE finds malformed is given up", FRESH_REPLY, BAD_BODY, DEAD,
         refused="A", cause="LINE refused it with 400"),
    Case("a reply refused in words that did not all come is tried again", FRESH_REPLY, CUT, AGAIN),
    Case("a reply held back by the rate limit stays fresh", FRESH_REPLY, BUSY, AGAIN),
    Case("a reply of unknown outcome, its token now invalid in its minute, was sent",
         UNKNOWN_REPLY, INVALID, SENT),
    Case("a reply of unknown outcome, invalid after its minute, is pushed and counted",
         LATE_UNKNOWN_REPLY, INVALID, AGAIN, used_up=True, waits=0, unproved=True),
    Case("a reply of unknown outcome, invalid after its minute, is dropped if so set",
         LATE_UNKNOWN_REPLY, INVALID, DROPPED, unproved=True, reply_unknown=ReplyUnknown.DROP),
    Case("a fresh reply with a token that is too old goes on without it, and proves nothing",
         called(REPLY, 1, token_was_good=False), INVALID, AGAIN, used_up=True, waits=0),
    Case("a reply of unknown outcome stays so through the rate limit", UNKNOWN_REPLY, BUSY, AGAIN,
         stands=True),
    Case("a 409 says nothing good of a reply", FRESH_REPLY, LineAnswer(409), DEAD, refused="A",
         cause="LINE refused it with 409"),
    Case("a monthly limit told to a reply is an ordinary 429", FRESH_REPLY, QUOTA, AGAIN),
    Case("a push is sent", FRESH_PUSH, LineAnswer(200, "{}"), SENT),
    Case("a push whose key LINE knows was sent", UNKNOWN_PUSH, LineAnswer(409), SENT),
    Case("even a push that was not tried is sent by a 409", FRESH_PUSH, LineAnswer(409), SENT),
    Case("a push beyond the month's quota is given up as such", FRESH_PUSH, QUOTA, DEAD,
         refused="A", cause="quota"),
    Case("a Retry-After of the endpoint is not the send's own", FRESH_PUSH,
         LineAnswer(429, BUSY.text, retry_after=7.0), AGAIN, waits=None),
    Case("a Retry-After of one user's is waited for", FRESH_PUSH,
         LineAnswer(429, FLOOD.text, retry_after=7.0), AGAIN, waits=7.0),
    Case("a push of unknown outcome stays so through the rate limit", UNKNOWN_PUSH, BUSY, AGAIN,
         stands=True),
    Case("a push of unknown outcome that LINE refuses may have arrived", UNKNOWN_PUSH, BAD_BODY,
         DEAD, stands=True, refused="A", cause="LINE refused it with 400"),
    Case("a send that is no JSON is given up before it is called", FRESH_PUSH,
         NotSendable("TypeError"), DEAD, refused="A", cause="it cannot be written as JSON"),
    Case("a redirect is not followed and says nothing of LINE", FRESH_PUSH, LineAnswer(302),
         AGAIN, stands=True),
    Case("a refused access token leaves a push fresh", FRESH_PUSH, LineAnswer(401), AGAIN,
         waits=0),
    Case("either message of a send names it", SEVERAL_PUSHES, naming("messages[1].text"), DEAD,
         refused="B", cause="LINE refused it with 400"),
    Case("a send is given up once for both of its messages", SEVERAL,
         naming("messages[1].text", "messages[2]"), DEAD, refused="B",
         cause="LINE refused it with 400"),
    Case("all that are named are given up", SEVERAL, naming("messages[0]", "messages[3].text"),
         DEAD, refused="AC", cause="LINE refused it with 400"),
    Case("of several without a name fewer are called for", SEVERAL, BAD_BODY, AGAIN,
         narrower=True, waits=0),
    Case("so it is where the message that is named was not in the call", SEVERAL,
         naming("messages[4].text"), AGAIN, narrower=True, waits=0),
    Case("so it is where the words of a refused push did not all come", SEVERAL_PUSHES,
         naming("messages[0]", whole=False), AGAIN, narrower=True, waits=0),
    Case("several replies refused in words that did not all come are tried again", SEVERAL,
         naming("messages[0]", whole=False), AGAIN),
    Case("several whose token LINE refuses go on at once without it", SEVERAL, INVALID, AGAIN,
         used_up=True, waits=0),
    Case("several beyond the quota are given up together: it takes no fewer either",
         SEVERAL_PUSHES, QUOTA, DEAD, refused="ABC", cause="quota"),
    Case("several of unknown outcome, then refused without a name, too", SEVERAL_UNKNOWN_PUSHES,
         BAD_BODY, DEAD, stands=True, refused="ABC", cause="LINE refused it with 400"),
    Case("several of unknown outcome, their token now invalid in its minute, were sent",
         SEVERAL_UNKNOWN, INVALID, SENT),
]  # fmt: skip


def test_each_of_several_refused_sends_has_its_own_error() -> None:
    details = [
        {"property": "messages[0].text", "message": "May not be empty"},
        {"property": "messages[2].altText", "message": "Too long"},
    ]
    body = json.dumps({"message": "The request body has 2 error(s)", "details": details})
    outcome = judge(SEVERAL, LineAnswer(400, body), reply_unknown=ReplyUnknown.PUSH)
    assert [outcome.causes[one].about["reason"] for one in outcome.refused] == [
        "The request body has 2 error(s): messages[0].text May not be empty",
        "The request body has 2 error(s): messages[1].altText Too long",
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_meaning_of_an_answer(case: Case) -> None:
    outcome = judge(case.tried, case.answer, reply_unknown=case.reply_unknown)
    assert outcome.ending is case.ending
    assert (outcome.stands, outcome.token_used_up) == (case.stands, case.used_up)
    # LINE's own reason, if any, follows the colon.
    cause = known(outcome.cause).partition(":")[0]
    assert ("".join(outcome.refused), cause) == (case.refused, case.cause)
    assert (outcome.narrower, outcome.unproved) == (case.narrower, case.unproved)
    assert outcome.wait_seconds == case.waits
    status = getattr(case.answer, "status", 200)
    no_verdict = status >= 500 or status < 200 or status in (302, 408)
    assert outcome.unanswered is (isinstance(case.answer, OutcomeUnknown) or no_verdict)


@pytest.mark.parametrize("way", SendMethod)
def test_a_call_of_unknown_outcome_is_repeated_for_as_long_as_line_keeps_its_key(
    way: SendMethod,
) -> None:
    call = called(way, 1).call
    assert outlived(call.at, SOON + timedelta(hours=22, minutes=59)) is None
    assert outlived(call.at, SOON + timedelta(hours=23)) == OUTCOME_UNKNOWN


REPLAYED = a_send(at=ACCEPTED, tried_at=ACCEPTED - timedelta(hours=20), tried_as=PUSH)


@pytest.mark.parametrize(
    ("send", "now", "cause"),
    [
        pytest.param(a_send(at=ACCEPTED), ACCEPTED + timedelta(days=3), NOT_SENT, id="a push"),
        pytest.param(
            a_send(at=ACCEPTED),
            ACCEPTED + timedelta(days=3) - timedelta(seconds=1),
            None,
            id="a push that was refused until now, within three days",
        ),
        pytest.param(
            REPLAYED,
            ACCEPTED + timedelta(hours=2, minutes=59),
            None,
            id="a replay under the key of its try",
        ),
        pytest.param(
            REPLAYED,
            ACCEPTED + timedelta(hours=3),
            OUTCOME_UNKNOWN,
            id="a replay whose key LINE may have forgotten",
        ),
    ],
)
def test_a_send_that_is_too_old_to_be_called(
    send: Send, now: datetime, cause: Cause | None
) -> None:
    assert expired(send, now) == cause
