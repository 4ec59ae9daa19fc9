"""Coupons as LINE keeps them: created, listed, closed. Callers hold the simulator's lock."""

from typing import Any

from linemessages import Finding
from linesim.http.answers import Answer, json_answer
from linesim.http.reading import page
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.platform import Platform

MOST_VALID = 5_000
MOST_LISTED = 100
STATUSES = ("DRAFT", "RUNNING", "CLOSED")


def create_coupon(platform: Platform, call: Call) -> Answer:
    now = platform.clock.time()
    if call.body["endTimestamp"] <= now:
        raise _refused("Must be in the future", "endTimestamp")
    if sum(_status(platform, one) == "RUNNING" for one in platform.coupons) >= MOST_VALID:
        raise _refused("You have too many coupons created.")
    coupon_id, reward = ids.coupon_id(now), call.body["reward"]
    if (price := reward.get("priceInfo")) and price["type"] != "percentage":
        reward = {**reward, "priceInfo": {**price, "currency": "JPY"}}
    made = {"couponId": coupon_id, "createdTimestamp": int(now), "maxTicketPerUser": 1}
    platform.coupons[coupon_id] = {**call.body, **made, "reward": reward, "status": "RUNNING"}
    return json_answer({"couponId": coupon_id})


def coupon(platform: Platform, call: Call, coupon_id: str) -> Answer:
    return json_answer({**_find(platform, coupon_id), "status": _status(platform, coupon_id)})


def close_coupon(platform: Platform, call: Call, coupon_id: str) -> Answer:
    found = _find(platform, coupon_id)
    if _status(platform, coupon_id) == "CLOSED":
        raise _refused("The coupon has already been closed.", status=410)
    found["status"] = "CLOSED"
    return json_answer({})


def coupons(platform: Platform, call: Call) -> Answer:
    """The newest first."""
    limit, status = call.query.get("limit", "0"), call.query.get("status")
    wanted = status.split(",") if status else STATUSES
    if limit.isdecimal() and (len(limit) > 9 or int(limit) > MOST_LISTED):
        raise _refused(f"Must be less than or equal to {MOST_LISTED}", "limit")
    if not {*wanted} <= {*STATUSES}:
        told = f"Must be one of the following values: [{','.join(STATUSES)}]"
        raise _refused(told, "status")
    found = [one for one in reversed(platform.coupons) if _status(platform, one) in wanted]
    taken, more = page(platform, call, found, MOST_LISTED, usual=20)
    items = [{"couponId": one, "title": platform.coupons[one]["title"]} for one in taken]
    return json_answer({"items": items, **more})


def _status(platform: Platform, coupon_id: str) -> str:
    """LINE closes a coupon at its end."""
    found = platform.coupons[coupon_id]
    has_ended = found["endTimestamp"] <= platform.clock.time()
    return "CLOSED" if has_ended else found["status"]


def _find(platform: Platform, coupon_id: str) -> dict[str, Any]:
    if coupon_id not in platform.coupons:
        raise _refused("coupon not found", status=404)
    return platform.coupons[coupon_id]


def _refused(told: str, place: str = "", *, status: int = 400) -> LineError:
    """LINE gives each of them the form of an invalid body."""
    return errors.invalid_body(Finding(told, place), status=status)
