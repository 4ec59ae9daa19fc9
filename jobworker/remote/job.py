"""A job and its decision: the messages between leader and worker, as JSON.

docs/reference/worker-contract.md describes them with their JSON Schema. `job_of` makes a job from
the leader's talk; `RemoteTalk` is made from it where the handler runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from jobworker.bot.bot import Rule
from jobworker.bot.events import model_of
from jobworker.bot.messages import MessageCheck
from jobworker.bot.places import note_unused
from jobworker.bot.talk import Talk, TalkContext
from jobworker.errors import BotError
from jobworker.handler_retry import Failure
from jobworker.line.month import MonthlyQuota
from jobworker.record.conversations import StoredConversation, checked
from jobworker.remote.actions import NotingTalk
from jobworker.remote.values import (
    from_json,
    from_line,
    moment_from_json,
    moment_to_json,
    to_json,
    to_line,
)
from linedesk.store.documents import Document, text_of
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.timers import TIMER

CONTRACT = 1
"""The version of this form of jobs and decisions; leader and worker must have the same."""
LEADERS = "leaders"
"""To every leader: usually one, and for a while also a replaced one that has not noticed it."""
MOST_BYTES = 16 * 1024 * 1024
"""The size of a message to leaders; larger ones are not delivered."""
LARGE_BYTES = 1024 * 1024
"""A leader reads a larger message only as the decision of an attempt under way."""
MOST_VALUES = 200_000
"""A value needs up to a hundred times its bytes in memory, twice for `data`."""
# Python needs four bytes for each character of a line that has one beyond U+FFFF.
_WIDE, MOST_WIDE_BYTES = re.compile(rb"[\xf0-\xf4]"), 8 * 1024 * 1024
# Matches each separator of values. It skips texts, also one without an end.
_SEPARATORS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([\[{,])', re.DOTALL)
MOST_TRACEBACK = 20_000
MOST_WORDS = 500
DECIDED, FAILED = "decided", "failed"
MOST_ADDRESS = 200
# The errors that parsing a message from outside may raise.
NOT_UNDERSTOOD = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
REFUSED = "not in a worker process: only the dispatcher calls LINE (DISPATCHER_WORKERS=local)"


@dataclass(frozen=True)
class Job:
    """One call of a handler, as its worker gets it. `message` is its JSON."""

    attempt: str
    rule: str
    limit_seconds: float
    epoch: int
    message: Mapping[str, Any]

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Job:
        """Return the job of a message. Raises KeyError, TypeError, ValueError."""
        return cls(
            attempt=str(message["attempt"]),
            rule=str(message["rule"]),
            limit_seconds=float(message["limitSeconds"]),
            epoch=int(message["epoch"]),
            message=message,
        )


def job_of(
    talk: Talk,
    *,
    rule: str,
    limit_seconds: float,
    epoch: int,
    is_list: bool = False,
    choose: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the job of a handler with this talk, without an attempt. With `choose` no handler
    runs: the decision is the first of these rules whose condition holds.

    Raises BotError, StoreUnavailable.
    """
    quota = talk.quota
    profile = talk.profile
    return {
        "type": "job",
        "contract": CONTRACT,
        "epoch": epoch,
        "rule": rule,
        "try": talk.try_number,
        "limitSeconds": limit_seconds,
        "now": moment_to_json(talk.now),
        "channel": talk.channel,
        "key": talk.key,
        EVENT_ID: talk.event_id,
        "events": [_with_timer(raw, to_json) for raw in talk.raws],
        "together": is_list,
        "accepted": moment_to_json(talk.accepted),
        "replyToken": talk.reply_token,
        "state": talk.state,
        "data": to_json(talk.data),
        "friend": talk.friend,
        "profile": None if profile is None else to_json(profile),
        "members": talk.members_count,
        "quota": {"limit": quota.limit, "used": quota.used, "closed": quota.is_closed},
        **({"choose": [*choose]} if choose else {}),
    }


def decide(
    job: Job, rules: Sequence[tuple[str, Rule]], talk: NotingTalk, events: list[Any]
) -> dict[str, Any]:
    """Run the handler of a rule of this process on a job, or choose one of the rules; returns the
    decision. Raises the bot's error.
    """
    if "choose" in job.message:
        filters = ((name, rule.filter) for name, rule in rules)
        holds = (name for name, one in filters if one is not None and one.holds(events[0], talk))
        return {**_decision(job.attempt, DECIDED), "actions": [], "rule": next(holds, None)}
    [(_, rule)] = rules
    before = to_json(talk.data)
    note_unused(rule.handler, rule.handler(event_of(job, events), talk))
    return decided(job, talk, before)


def event_of(job: Job, events: list[Any]) -> Any:
    """Return what the handler gets of these events."""
    return events if job.message["together"] else events[0]


def decided(job: Job, talk: NotingTalk, before: Any) -> dict[str, Any]:
    """Return the decision of a handler that has returned; `before` is the data before it."""
    data = to_json(talk.data)
    # MongoDB's refusal would be the handler's fault; it is raised here, with the handler's line.
    checked(talk.decision())
    changed = {} if repr(data) == repr(before) else {"data": data}
    return {**_decision(job.attempt, DECIDED), "actions": talk.actions, **changed}


def talk_of(
    job: Job,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    check: MessageCheck,
    elapsed: Callable[[], float],
) -> tuple[NotingTalk, list[Any]]:
    """Return the talk of a job and its events' models. Raises ValueError, KeyError, TypeError.

    `elapsed` returns the seconds since the job arrived.
    """
    told, quota = job.message, job.message["quota"]
    began = moment_from_json(told["now"])
    raws = [_with_timer(one, from_json) for one in told["events"]]
    document = {
        "channel": told["channel"],
        "key": told["key"],
        EVENT_ID: told[EVENT_ID],
        ACCEPT_TIME: moment_from_json(told["accepted"]),
        "event": raws[-1],
    }
    around = TalkContext(
        load=lambda: _conversation(told, raws[-1]),
        api=_refused,
        content=_refused,
        quota=lambda: MonthlyQuota(quota["limit"], quota["used"], bool(quota["closed"])),
        members=lambda _: told.get("members"),
        now=lambda: began + timedelta(seconds=elapsed()),
        settings=settings,
        secrets=secrets,
        check=check,
    )
    talk = NotingTalk(document, around)
    talk.reply_token = told["replyToken"]
    talk.try_number = int(told["try"])
    return talk, [model_of(one) for one in raws]


def failed(attempt: str, failure: Failure) -> dict[str, Any]:
    """Return the message of a handler that failed."""
    return {
        **_decision(attempt, FAILED),
        "what": failure.what[:MOST_WORDS],
        "place": failure.place[:MOST_WORDS],
        "traceback": failure.traceback[-MOST_TRACEBACK:],
        "lasting": failure.lasting,
        "passing": failure.passing,
        **({"comesAgain": True} if failure.comes_again else {}),
        **({} if failure.after is None else {"after": failure.after}),
    }


def _decision(attempt: str, outcome: str) -> dict[str, Any]:
    return {"type": "decision", "attempt": attempt, "outcome": outcome}


def failure_of(decision: Mapping[str, Any], masked: Callable[[str], str]) -> Failure | None:
    """Return the failure in a decision; None for a successful one. Raises ValueError."""
    outcome, after = decision.get("outcome"), decision.get("after")
    if outcome == DECIDED:
        return None
    if outcome != FAILED:
        raise ValueError(f"outcome: {DECIDED} or {FAILED}")
    return Failure(
        what=_line(decision.get("what"), "failed"),
        place=_line(decision.get("place"), "-"),
        traceback=masked(str(decision.get("traceback", ""))[-MOST_TRACEBACK:]),
        lasting=decision.get("lasting") is True,
        passing=decision.get("passing") is True,
        comes_again=decision.get("comesAgain") is True,
        after=None if after is None else float(str(after)),
    )


def written(message: Mapping[str, Any]) -> bytes:
    """Return a decision as a line; one that is too large or not JSON becomes a failure."""
    try:
        line = to_line(message)
        if len(line) <= MOST_BYTES:
            return line
        what = f"decision has {len(line)} bytes, at most {MOST_BYTES}"
    except (ValueError, TypeError) as error:
        what = f"decision is no JSON: {type(error).__name__}"
    return to_line(_lasting(message["attempt"], what))


def needs_too_much_memory(line: bytes) -> bool:
    """Whether a line is too costly to read, by its text alone."""
    if len(line) <= LARGE_BYTES:
        return False
    # At most two texts follow a separator, or it is no JSON.
    found = islice(_SEPARATORS.finditer(line), 4 * MOST_VALUES)
    has_many = any(islice((one for one in found if one[1]), MOST_VALUES, None))
    return has_many or (len(line) > MOST_WIDE_BYTES and _WIDE.search(line) is not None)


def too_much_memory(attempt: str) -> dict[str, Any]:
    """Return the decision in place of one that is too costly to read."""
    what = f"more than {MOST_VALUES} values, or than 8 MiB with characters beyond U+FFFF"
    return _lasting(attempt, f"decision needs too much memory: {what}")


def read(line: bytes) -> dict[str, Any]:
    """Return the message of a line. Raises ValueError for an invalid one."""
    if len(line) > 4 * MOST_BYTES:
        raise ValueError(f"{len(line)} bytes")
    message = from_line(line)
    if not isinstance(message.get("type"), str):
        raise ValueError("no type")
    return message


def address_of(value: object) -> str:
    """Return the address in a message. Raises ValueError for one that no broker has."""
    if not isinstance(value, str) or not value.isascii() or not 0 < len(value) <= MOST_ADDRESS:
        raise ValueError("address: not one of a queue")
    return value


def _lasting(attempt: str, what: str) -> dict[str, Any]:
    return failed(attempt, Failure(f"BotError: {what}", "-", "", lasting=True))


def _line(value: object, default: str) -> str:
    """One line of a text from outside: it goes to the log and into a letter's cause."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text[:MOST_WORDS] or default


def _with_timer(event: Mapping[str, Any], form: Callable[[Any], Any]) -> Document:
    """LINE's JSON unchanged; a timer's data changes between stored values and JSON."""
    return {name: form(one) if name == TIMER else one for name, one in event.items()}


def _conversation(told: Mapping[str, Any], raw: Mapping[str, Any]) -> StoredConversation:
    """The sender's state and data only, as the conversation's own."""
    profile = told["profile"]
    member = text_of(raw, "source", "userId")
    is_member = member is not None and member != told["key"]
    known = None if profile is None else from_json(profile)
    return StoredConversation(
        id=f"{told['channel']}/{told['key']}",
        profile=None if is_member else known,
        members={member: known} if is_member and member and known else {},
        friend=told["friend"],
        state=told["state"],
        data=from_json(told["data"]),
    )


def _refused(*_: Any, **__: Any) -> Any:
    raise BotError(REFUSED, reason="not in a worker process")
