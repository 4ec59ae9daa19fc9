"""How the bot called LINE: how close together, over another call, and with what used up before.

Pure over linesim's record of calls.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from linesim.judge.history import Asked
from linesim.judge.report import Pair
from linesim.model.calls import Call

# A call that takes longer has been given up by its caller, who may go on.
ANSWER_SECONDS = 10.0


def by_host(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """The calls to each of LINE's hosts, in order of their starts."""
    hosts: defaultdict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: (call.started, call.number)):
        hosts[call.host].append(call)
    return hosts


def closest(hosts: Mapping[str, Sequence[Call]]) -> dict[str, float]:
    """Seconds between the two calls that started closest together, by host with at least two."""
    return {
        host: min(later.started - first.started for first, later in pairwise(calls))
        for host, calls in hosts.items()
        if len(calls) > 1
    }


def too_close(calls: Sequence[Call], least_seconds: float) -> Iterable[Pair]:
    return (
        pair(first, later)
        for first, later in pairwise(calls)
        if later.started - first.started < least_seconds
    )


def overlaps(calls: Sequence[Call]) -> Iterable[Pair]:
    """Calls that began while another was under way, which then was answered in time.

    What was closed, or given up by its caller, says nothing of when its caller went on.
    """
    open_: Call | None = None
    end = float("-inf")
    for call in calls:
        if open_ is not None and call.started < end:
            yield pair(open_, call)
        if _answered_in_time(call) and call.finished is not None and call.finished > end:
            open_, end = call, call.finished


def _answered_in_time(call: Call) -> bool:
    return (
        call.status is not None
        and call.hung_up is None
        and call.finished is not None
        and call.finished - call.started < ANSWER_SECONDS
    )


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
            self._note(same)

    def _note(self, same: Sequence[Call]) -> None:
        used = next((call for call in same if call.accepted), None)
        if used is None or used.accepted_at is None:
            return
        for call in same:
            if call is not used and call.started > used.accepted_at:
                self.all.append((used, call))
                self._of[used.number].append(call)

    def needless(self) -> Iterable[Pair]:
        """Those made by a caller who had heard that the token was taken."""
        return (pair(*each) for each in self.all if heard(*each))

    def excuse(self, calls: Sequence[Call], asked: Asked, token_seconds: float) -> bool:
        """Whether this text was doubled by the one exception: a reply of unknown outcome, and a
        push under one key when its token's minute was over.
        """
        if [call.endpoint for call in calls] != ["reply", "push"]:
            return False
        reply, push = calls
        late = push.started > asked.posted + token_seconds
        return late and (_unknown(reply) or any(self._asked_again(reply, push)))

    def _asked_again(self, reply: Call, push: Call) -> Iterable[bool]:
        """The token was tried again from elsewhere, so its outcome had not been heard."""
        return (
            call.started < push.started and not heard(reply, call)
            for call in self._of[reply.number]
        )


def _unknown(call: Call) -> bool:
    """Whether the caller was not told that LINE has taken it."""
    told = call.status is not None and call.status < 300 and call.fault != "status"
    return not told or call.hung_up is not None


def heard(first: Call, later: Call) -> bool:
    """Whether who makes the later call must have read the answer to the first: only the same
    connection proves that, since a process that died may have had another.
    """
    answered = first.finished is not None and first.finished <= later.started
    same = first.connection is not None and first.connection == later.connection
    return not _unknown(first) and answered and same


def reused_keys(calls: Iterable[Call]) -> Iterable[Pair]:
    """Keys that came with another body than the first time: LINE wants the same one again."""
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
