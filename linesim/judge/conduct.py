"""Judges the bot's calls of LINE: their intervals, overlaps, used or expired tokens, unreachable
chats, and timers, each of which is to send its message once and not before its time.

Pure, from linesim's record of calls.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from linesim.judge.history import SENDS, Asked, Place, messages_of, taken
from linesim.judge.report import Finding, Missed, Pair, TimerFinding
from linesim.model.calls import Call

# After this time the caller has given up a call and may continue.
ANSWER_SECONDS = 10.0
# The reasons for chats that their user has closed to the bot.
CLOSED_BY_USER = frozenset({"blocked", "left"})


def too_close(calls: Sequence[Call], least_seconds: float) -> Iterable[Pair]:
    return (
        pair(first, later)
        for first, later in pairwise(calls)
        if later.started - first.started < least_seconds
    )


def overlaps(calls: Sequence[Call]) -> Iterable[Pair]:
    """Calls that began while another was under way, which then was answered in time.

    Calls that were closed or given up do not show when their caller continued.
    """
    open_: Call | None = None
    end = float("-inf")
    for call in calls:
        if open_ is not None and call.started < end:
            yield pair(open_, call)
        if call.status is None or call.hung_up is not None or call.finished is None:
            continue
        if end < call.finished < call.started + ANSWER_SECONDS:
            open_, end = call, call.finished


class Repeats:
    """Replies with a token that LINE had taken before, each with the reply that used it."""

    def __init__(self, calls: Iterable[Call]) -> None:
        replies: defaultdict[str, list[Call]] = defaultdict(list)
        for call in calls:
            match call.body:
                case {"replyToken": str(token)} if call.endpoint == "reply":
                    replies[token].append(call)
        self.all: list[tuple[Call, Call]] = []
        self._of: defaultdict[int, list[Call]] = defaultdict(list)
        for same in replies.values():
            used = next((call for call in same if call.accepted), None)
            for call in same:
                if used and call is not used and call.started > taken(used):
                    self.all.append((used, call))
                    self._of[used.number].append(call)

    def needless(self) -> Iterable[Pair]:
        """The ones made by a caller that knew that the token was used."""
        return (pair(*each) for each in self.all if heard(*each))

    def excuse(self, calls: Sequence[Call], asked: Asked, token_seconds: float) -> bool:
        """Whether this text was doubled by the one exception: a reply of unknown outcome, and a
        push under one key when its token's minute was over.
        """
        if [call.endpoint for call in calls] != ["reply", "push"]:
            return False
        reply, push = calls
        late = push.started > asked.posted + token_seconds
        # If the token was tried again from elsewhere, the outcome was unknown, too.
        again = (one for one in self._of[reply.number] if one.started < push.started)
        return late and (_unknown(reply) or any(not heard(reply, one) for one in again))


def _unknown(call: Call) -> bool:
    """Whether the caller got no confirmation from LINE."""
    told = call.status is not None and call.status < 300 and call.fault != "status"
    return not told or call.hung_up is not None


def heard(first: Call, later: Call) -> bool:
    """Whether the caller of `later` must have read the answer to `first`: only the same connection
    proves that, since another process may have made the first call.
    """
    answered = first.finished is not None and first.finished <= later.started
    same = first.connection is not None and first.connection == later.connection
    return not _unknown(first) and answered and same


def reused_keys(calls: Iterable[Call]) -> Iterable[Pair]:
    """Keys used with another body than the first time: LINE requires the same one."""
    first: dict[str, Call] = {}
    for call in calls:
        if call.retry_key is None or call.body is None:
            continue
        known = first.setdefault(call.retry_key.lower(), call)
        if known.body != call.body:
            yield pair(known, call)


def pair(first: Call, second: Call) -> Pair:
    return Pair(second.host, first.number, second.number, second.started - first.started)


def by_status(calls: Iterable[Call]) -> dict[str, dict[str, int]]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for call in calls:
        open_ = "under way" if call.finished is None else "closed"
        counts[call.endpoint][str(call.status or open_)] += 1
    return {endpoint: dict(sorted(found.items())) for endpoint, found in sorted(counts.items())}


def lapsed_tokens(
    asked: Iterable[Asked], calls: Iterable[Call], life_seconds: float
) -> Iterable[Finding]:
    """Events that a push or multicast answered after their token had run out without being used.

    Such an answer counts toward the month's quota; a reply in time would have been free.
    """
    replies = (call.body for call in calls if call.accepted and call.endpoint == "reply")
    used = {(body or {}).get("replyToken") for body in replies}
    for each in asked:
        if each.token is None or each.token in used:
            continue
        late = {
            text: said[0].number
            for text, said in zip(each.texts, each.said, strict=True)
            if said and said[0].endpoint != "reply"
            if said[0].at >= each.token_at + life_seconds
        }
        if late:
            numbers = tuple(sorted(set(late.values())))
            yield Finding(each.event_id, each.chat, tuple(late), numbers)


def missed(calls: Iterable[Call]) -> list[Missed]:
    """Chats for which LINE accepted a message without delivering it, and which no later call
    reached with the same message; each later call counts for one.
    """
    sends = [call for call in calls if call.accepted and call.endpoint in SENDS]
    chats = {chat for call in sends for chat, _ in call.unreached}
    waiting = _without(sends, chats) if chats else {}
    found = {(each.call, each.chat): each for lacking in waiting.values() for each in lacking}
    return [found[place] for place in sorted(found)]


def _without(sends: Iterable[Call], chats: set[str]) -> Mapping[tuple[str, str], Iterable[Missed]]:
    """The messages that these chats still lack in the end, by chat and message."""
    waiting: defaultdict[tuple[str, str], deque[Missed]] = defaultdict(deque)
    for call in sorted(sends, key=lambda call: (taken(call), call.number)):
        reasons = dict(call.unreached)
        for chat in chats.intersection(call.to):
            for message in messages_of(call):
                lacking = waiting[chat, json.dumps(message, sort_keys=True)]
                if chat in reasons:
                    lacking.append(Missed(chat, reasons[chat], call.number))
                elif lacking:
                    lacking.popleft()
    return waiting


@dataclass(frozen=True)
class Timer:
    """A text that the chat gets once, at `due` (Unix seconds) or at most `within_seconds` later."""

    chat: str
    text: str
    due: float
    within_seconds: float


Timing = defaultdict[Literal["early", "late", "missing", "double"], list[TimerFinding]]


def timing(expected: Sequence[Timer], said: Mapping[Place, Sequence[Call]]) -> Timing:
    """Timers with the same chat and text are met in the order in which they are due."""
    met: Timing = defaultdict(list)
    places: defaultdict[Place, list[Timer]] = defaultdict(list)
    for timer in sorted(expected, key=lambda timer: timer.due):
        places[timer.chat, timer.text].append(timer)
    for place, due in places.items():
        _judge_place(due, said.get(place, ()), met)
    return met


def _judge_place(due: Sequence[Timer], calls: Sequence[Call], met: Timing) -> None:
    for number, timer in enumerate(due):
        if number >= len(calls):
            met["missing"].append(TimerFinding(timer.chat, timer.text, timer.due, None))
            continue
        found = _found(timer, calls[number])
        if calls[number].at < timer.due:
            met["early"].append(found)
        elif calls[number].at > timer.due + timer.within_seconds:
            met["late"].append(found)
    met["double"].extend(_found(due[-1], call) for call in calls[len(due) :])


def _found(timer: Timer, call: Call) -> TimerFinding:
    return TimerFinding(timer.chat, timer.text, timer.due, call.at, (call.number,))
