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

Coupon = dict[str, Any]


def create(platform: Platform, call: Call) -> Answer:
    now = platform.clock.time()
    if call.body["endTimestamp"] <= now:
        raise errors.invalid_body(Finding("Must be in the future", "endTimestamp"))
    valid = sum(_status(platform, one) == "RUNNING" for one in platform.coupons.values())
    if valid >= MOST_VALID:
        raise errors.invalid_body(Finding("You have too many coupons created."))
    coupon_id = ids.coupon_id(now)
    made = {**call.body, "couponId": coupon_id, "createdTimestamp": int(now), "maxTicketPerUser": 1}
    price = call.body["reward"].get("priceInfo") or {}
    if price.get("type") in ("fixed", "explicit"):
        made["reward"] = {**call.body["reward"], "priceInfo": {**price, "currency": "JPY"}}
    platform.coupons[coupon_id] = made
    return json_answer({"couponId": coupon_id})


def detail(platform: Platform, call: Call, coupon_id: str) -> Answer:
    coupon = _find(platform, coupon_id)
    return json_answer({**coupon, "status": _status(platform, coupon)})


def close(platform: Platform, call: Call, coupon_id: str) -> Answer:
    coupon = _find(platform, coupon_id)
    if _status(platform, coupon) == "CLOSED":
        raise _refused(410, "The coupon has already been closed.")
    coupon["status"] = "CLOSED"
    return json_answer({})


def listed(platform: Platform, call: Call) -> Answer:
    """The newest first."""
    limit, wanted = call.query.get("limit", ""), call.query.get("status", "").split(",")
    if limit.isdecimal() and int(limit) > MOST_LISTED:
        told = f"Must be less than or equal to {MOST_LISTED}"
        raise errors.invalid_body(Finding(told, "limit"))
    if wanted != [""] and not {*wanted} <= {*STATUSES}:
        told = f"Must be one of the following values: [{','.join(STATUSES)}]"
        raise errors.invalid_body(Finding(told, "status"))
    found = [
        coupon_id
        for coupon_id, coupon in platform.coupons.items()
        if wanted == [""] or _status(platform, coupon) in wanted
    ]
    taken, more = page(platform, call, found, most=MOST_LISTED, usual=20, newest_first=True)
    items = [{"couponId": one, "title": platform.coupons[one]["title"]} for one in taken]
    return json_answer({"items": items, **more})


def _status(platform: Platform, coupon: Coupon) -> str:
    """LINE closes a coupon at its end."""
    has_ended = coupon["endTimestamp"] <= platform.clock.time()
    return "CLOSED" if has_ended else coupon.get("status", "RUNNING")


def _find(platform: Platform, coupon_id: str) -> Coupon:
    if coupon_id not in platform.coupons:
        raise _refused(404, "coupon not found")
    return platform.coupons[coupon_id]


def _refused(status: int, told: str) -> LineError:
    """As LINE refuses a coupon, in the form of an invalid body."""
    refused = errors.invalid_body(Finding(told))
    refused.status = status
    return refused
