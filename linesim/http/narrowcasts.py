"""Narrowcasts: whom LINE chooses by recipients, attributes and limits, and their progress.

linesim has no audiences. Of the attributes of its users it knows only how long they have been
friends; the others are unknown. Callers hold the simulator's lock.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from linemessages.rules import conditions
from linesim.http.answers import Answer, json_answer
from linesim.http.sending import accept_counted
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.platform import Platform
from linesim.model.sent import Narrowcast

Tree = dict[str, Any]

LEAST_FRIENDS = 100
LEAST_RECIPIENTS = 50
DAY_SECONDS = 24 * 60 * 60
OVER_LIMIT, TOO_FEW, PARTIAL = 1, 2, 5
FAILURES = {
    OVER_LIMIT: "The messages of this month do not suffice for the target reach",
    TOO_FEW: "There are not enough recipients",
    PARTIAL: "Only a part of the recipients could have been reached",
}


def narrowcast(platform: Platform, call: Call) -> Answer:
    """A delivery that fails as it starts is accepted nevertheless; the progress has its error."""
    limit = call.body.get("limit") or {}
    if limit.get("forbidPartialDelivery") and not limit.get("upToRemainingQuota"):
        raise errors.partial_delivery()
    reach, left = platform.world.friends(), platform.quota.left
    chosen = _chosen(platform, call, reach)
    most = min(len(reach), limit.get("max") or len(reach))
    if limit.get("upToRemainingQuota"):
        most = int(min(most, max(left, 0)))
    has_attributes = bool((call.body.get("filter") or {}).get("demographic"))
    error = None
    if not chosen or (has_attributes and len(chosen) < LEAST_RECIPIENTS):
        error = TOO_FEW
    elif most > left:
        error = OVER_LIMIT
    elif len(chosen) > most and limit.get("forbidPartialDelivery"):
        error = PARTIAL
    to = [] if error else random.sample(chosen, min(len(chosen), most))
    accept_counted(platform, call, to, "narrowcast")
    made = Narrowcast(platform.clock.time(), tuple(to), error)
    platform.sent.narrowcasts[call.request_id] = made
    return json_answer({}, status=202)


def progress(platform: Platform, call: Call) -> Answer:
    if not (request_id := call.query.get("requestId")):
        raise errors.invalid_parameter("requestId")
    if (known := platform.sent.narrowcast(request_id)) is None:
        raise errors.not_found()
    phase = known.phase(platform.clock.time())
    told: Tree = {"phase": phase, "acceptedTime": _written(known.accepted_at)}
    if phase in ("sending", "succeeded"):
        reached = len(known.to) if phase == "succeeded" else 0
        told |= {"successCount": reached, "failureCount": 0, "targetCount": len(known.to)}
    if phase in ("succeeded", "failed"):
        told["completedTime"] = _written(known.completed_at)
    if phase == "failed" and known.error is not None:
        told |= {"errorCode": known.error, "failedDescription": FAILURES[known.error]}
    return json_answer(told)


def _chosen(platform: Platform, call: Call, reach: list[str]) -> list[str]:
    """The friends whom the recipients and the filter of the body select."""
    recipient = call.body.get("recipient")
    demographic = (call.body.get("filter") or {}).get("demographic")
    groups = {id(each): _group(platform, each) for each in conditions(recipient)}
    if demographic and len(reach) < LEAST_FRIENDS:
        raise errors.too_few_friends()
    now = platform.clock.time()

    def takes(user_id: str) -> bool:
        has = _holds(recipient, lambda each: user_id in groups[id(each)]) if recipient else True
        since = platform.world.users[user_id].followed_at
        days = None if since is None else (now - since) / DAY_SECONDS
        fits = _holds(demographic, lambda each: _fits(each, days)) if demographic else True
        return bool(has and fits)

    return [user_id for user_id in reach if takes(user_id)]


def _group(platform: Platform, condition: Tree) -> set[str]:
    """The users of an audience or of an earlier narrowcast, which has to have succeeded."""
    if condition["type"] == "audience":
        raise errors.invalid_audience(condition["audienceGroupId"])
    known = platform.sent.narrowcast(condition["requestId"])
    if known is None or known.phase(platform.clock.time()) != "succeeded":
        raise errors.invalid_request_id(condition["requestId"])
    return set(known.to)


def _holds(tree: Tree, test: Callable[[Tree], bool | None]) -> bool | None:
    """None where it depends on what is unknown: of an unknown attribute, neither it nor its
    contrary holds.
    """
    if tree["type"] != "operator":
        return test(tree)
    if tree.get("not"):
        inner = _holds(tree["not"], test)
        return None if inner is None else not inner
    decides = bool(tree.get("or"))
    found = {_holds(each, test) for each in tree.get("or") or tree["and"]}
    if decides in found:
        return decides
    return None if None in found else not decides


def _fits(condition: Tree, days: float | None) -> bool | None:
    if condition["type"] != "subscriptionPeriod" or days is None:
        return None
    least, most = (condition.get(name) for name in ("gte", "lt"))
    return (not least or days >= _days(least)) and (not most or days < _days(most))


def _days(name: str) -> int:
    return int(name.removeprefix("day_"))


def _written(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")
