"""Narrowcasts: whom LINE chooses by recipients, attributes and limits, and their progress.

linesim has no audiences. Of the attributes of its users it knows only how long they have been
friends; the others are unknown. Callers hold the simulator's lock.
"""

import random
from collections.abc import Callable
from typing import Any

from linemessages.rules import conditions
from linesim.http.answers import Answer, json_answer, moment
from linesim.http.sending import accept_counted
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.platform import Platform
from linesim.model.sent import Narrowcast

Tree = dict[str, Any]

LEAST_FRIENDS = 100
LEAST_RECIPIENTS = 50
DAY_SECONDS = 24 * 60 * 60
OVER_LIMIT, TOO_FEW, PARTIAL = 1, 2, 5
FAILURES = {
    OVER_LIMIT: "The messages left this month are fewer than the target reach",
    TOO_FEW: "There are not enough recipients",
    PARTIAL: "Only a part of the recipients could have been reached",
}


def narrowcast(platform: Platform, call: Call) -> Answer:
    """A delivery that fails as it starts is accepted nevertheless; the progress has its error."""
    limit, left = call.body.get("limit") or {}, platform.quota.left
    is_whole, is_capped = limit.get("forbidPartialDelivery"), limit.get("upToRemainingQuota")
    if is_whole and not is_capped:
        told = "The option forbidPartialDelivery must be used with upToRemainingQuota."
        raise LineError(400, told)
    demographic = (call.body.get("filter") or {}).get("demographic")
    reach = platform.world.friends()
    chosen = _chosen(platform, reach, call.body.get("recipient"), demographic)
    most = min(len(reach), limit.get("max") or len(reach))
    most = int(max(min(most, left), 0)) if is_capped else most
    error = None
    if len(chosen) < (LEAST_RECIPIENTS if demographic else 1):
        error = TOO_FEW
    elif most > left:
        error = OVER_LIMIT
    elif len(chosen) > most and is_whole:
        error = PARTIAL
    to = [] if error else random.sample(chosen, min(len(chosen), most))
    accept_counted(platform, call, to, "narrowcast")
    made = Narrowcast(platform.clock.time(), tuple(to), error)
    platform.sent.narrowcasts[call.request_id] = made
    return json_answer({}, status=202)


def narrowcast_progress(platform: Platform, call: Call) -> Answer:
    if not (request_id := call.query.get("requestId")):
        raise errors.invalid_parameter("requestId")
    if (known := platform.sent.narrowcasts.get(request_id)) is None:
        raise errors.not_found()
    phase = known.phase(platform.clock.time())
    told: Tree = {"phase": phase, "acceptedTime": moment(known.accepted_at)}
    if phase in ("sending", "succeeded"):
        reached = len(known.to) if phase == "succeeded" else 0
        told |= {"successCount": reached, "failureCount": 0, "targetCount": len(known.to)}
    if phase in ("succeeded", "failed"):
        told["completedTime"] = moment(known.completed_at)
    if phase == "failed" and known.error:
        told |= {"errorCode": known.error, "failedDescription": FAILURES[known.error]}
    return json_answer(told)


def _chosen(
    platform: Platform, reach: list[str], recipient: Tree | None, demographic: Tree | None
) -> list[str]:
    groups = {id(each): _group(platform, each) for each in conditions(recipient)}
    if demographic and len(reach) < LEAST_FRIENDS:
        raise LineError(403, "Your account does not have enough friends")
    now, users = platform.clock.time(), platform.world.users

    def takes(user_id: str) -> bool:
        since = users[user_id].followed_at
        days = None if since is None else (now - since) / DAY_SECONDS
        has = recipient is None or _holds(recipient, lambda each: user_id in groups[id(each)])
        return bool(has and (not demographic or _holds(demographic, lambda one: _fits(one, days))))

    return [user_id for user_id in reach if takes(user_id)]


def _group(platform: Platform, condition: Tree) -> set[str]:
    """The users of an audience or of an earlier narrowcast, which has to have succeeded."""
    if condition["type"] == "audience":
        raise LineError(400, f"Invalid audience group id: {condition['audienceGroupId']}")
    known = platform.sent.narrowcasts.get(condition["requestId"])
    if known is None or known.phase(platform.clock.time()) != "succeeded":
        raise LineError(400, f"Invalid request id: {condition['requestId']}")
    return set(known.to)


def _holds(tree: Tree, test: Callable[[Tree], bool | None]) -> bool | None:
    """None where it depends on what is unknown: of an unknown attribute, neither a condition nor
    its contrary holds.
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
    least, most = condition.get("gte") or "day_0", condition.get("lt") or "day_inf"
    return float(least[4:]) <= days < float(most[4:])
