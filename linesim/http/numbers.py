"""LINE's numbers of what was sent: by day, by aggregation unit, and its insight.

The numbers of a day are ready once it has ended in Japan. Callers hold the simulator's lock.
"""

from datetime import datetime

from linesim.http.answers import Answer, json_answer
from linesim.http.reading import page
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.platform import Platform
from linesim.model.sent import day_of

# LINE began to count on these days.
FIRST_SENT, FIRST_DELIVERIES, FIRST_FOLLOWERS = "20180331", "20170301", "20161101"


def sent(platform: Platform, call: Call) -> Answer:
    """The users reached on a day by the way that the endpoint names."""
    if not _is_day(day := call.query.get("date", "")):
        raise errors.invalid_parameter("date")
    if (status := _status(platform, day, FIRST_SENT)) != "ready":
        return json_answer({"status": status})
    way = call.endpoint.removeprefix("sent_")
    return json_answer({"status": status, "success": platform.sent.of(day).get(way, 0)})


def unit_usage(platform: Platform, call: Call) -> Answer:
    return json_answer({"numOfCustomAggregationUnits": len(platform.sent.units_of_month)})


def unit_names(platform: Platform, call: Call) -> Answer:
    found, more = page(platform, call, platform.sent.units_of_month, 100)
    return json_answer({"customAggregationUnits": found, **more})


def deliveries(platform: Platform, call: Call) -> Answer:
    status = _status(platform, day := _day(call), FIRST_DELIVERIES)
    ways = ("broadcast", "push", "multicast", "narrowcast", "reply") if status == "ready" else ()
    numbers = {f"api{way.title()}": platform.sent.of(day).get(way, 0) for way in ways}
    return json_answer({"status": status, **numbers})


def followers(platform: Platform, call: Call) -> Answer:
    """Of today's users those who were friends, or had blocked the bot, as the day ended."""
    status = _status(platform, day := _day(call), FIRST_FOLLOWERS)
    users = platform.world.users.values()
    friends = [user for user in users if user.followed_at and day_of(user.followed_at) <= day]
    numbers = {
        "followers": len(friends),
        "targetedReaches": sum(user.takes_multicasts for user in friends),
        "blocks": sum(user.blocked and day_of(user.blocked_at or 0) <= day for user in users),
    }
    shown = numbers if status == "ready" else dict.fromkeys(numbers)
    return json_answer({"status": status, **shown})


def _day(call: Call) -> str:
    """The date of an insight call."""
    if not (day := call.query.get("date", "")):
        raise LineError(400, "date is required")
    if not _is_day(day):
        raise LineError(400, "Bad Request")
    return day


def _is_day(day: str) -> bool:
    try:
        return day_of(datetime.strptime(f"{day}+0900", "%Y%m%d%z").timestamp()) == day
    except ValueError:
        return False


def _status(platform: Platform, day: str, first: str) -> str:
    if day < first:
        return "out_of_service"
    return "ready" if day < platform.sent.today else "unready"
