"""LINE's numbers of what was sent: by day, by aggregation unit, and its insight.

The numbers of a day are ready once it has ended in Japan. Callers hold the simulator's lock.
"""

from datetime import datetime

from linesim.http.answers import Answer, json_answer
from linesim.http.reading import page
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.platform import Platform
from linesim.model.sent import day_of

# LINE began to count on these days.
FIRST_SENT = "20180331"
FIRST_DELIVERIES = "20170301"
FIRST_FOLLOWERS = "20161101"


def sent(platform: Platform, call: Call) -> Answer:
    """The users reached on a day by the way that the endpoint names."""
    day, way = call.query.get("date", ""), call.endpoint.removeprefix("sent_")
    if not _is_day(day):
        raise errors.invalid_parameter("date")
    if (status := _status(platform, day, FIRST_SENT)) != "ready":
        return json_answer({"status": status})
    return json_answer({"status": status, "success": platform.sent.days.get(day, {}).get(way, 0)})


def unit_usage(platform: Platform, call: Call) -> Answer:
    return json_answer({"numOfCustomAggregationUnits": len(_units(platform))})


def unit_names(platform: Platform, call: Call) -> Answer:
    found, more = page(platform, call, _units(platform), most=100)
    return json_answer({"customAggregationUnits": found, **more})


def deliveries(platform: Platform, call: Call) -> Answer:
    day = _day(call)
    status = _status(platform, day, FIRST_DELIVERIES)
    ways = ("broadcast", "push", "multicast", "narrowcast", "reply") if status == "ready" else ()
    numbers = platform.sent.days.get(day, {})
    return json_answer(
        {"status": status, **{f"api{way.title()}": numbers.get(way, 0) for way in ways}}
    )


def followers(platform: Platform, call: Call) -> Answer:
    """The users of today's world who were there at the end of the day."""
    day = _day(call)
    if (status := _status(platform, day, FIRST_FOLLOWERS)) != "ready":
        empty = dict.fromkeys(("followers", "targetedReaches", "blocks"))
        return json_answer({"status": status, **empty})
    users = platform.world.users.values()
    friends = [user for user in users if user.followed_at and day_of(user.followed_at) <= day]
    blocks = sum(1 for one in users if one.blocked and day_of(one.blocked_at or 0.0) <= day)
    return json_answer(
        {
            "status": status,
            "followers": len(friends),
            "targetedReaches": sum(1 for one in friends if one.takes_multicasts),
            "blocks": blocks,
        }
    )


def _units(platform: Platform) -> list[str]:
    return platform.sent.units.get(platform.sent.today[:6], [])


def _day(call: Call) -> str:
    """The date of an insight call."""
    if not (day := call.query.get("date")):
        raise errors.date_required()
    if not _is_day(day):
        raise errors.bad_request()
    return day


def _is_day(day: str) -> bool:
    try:
        return datetime.strptime(day, "%Y%m%d").strftime("%Y%m%d") == day
    except ValueError:
        return False


def _status(platform: Platform, day: str, first: str) -> str:
    if day < first:
        return "out_of_service"
    return "ready" if day < platform.sent.today else "unready"
