"""What LINE's reference says of requests to many users and of coupons, in the table's style."""

from __future__ import annotations

import pytest

from linemessages import check_request
from tests.linemessages.table import ABSENT, TEXT, URL, Message, Rule, changed, each, named, rule

MALE: Message = {"type": "gender", "oneOf": ["male"]}
TEN = [MALE] * 10
AGE: Message = {"type": "age", "gte": "age_20", "lt": "age_25"}
DAYS: Message = {"type": "subscriptionPeriod", "gte": "day_7", "lt": "day_30"}
AGAIN: Message = {"type": "redelivery", "requestId": "5b59509c-c57b-11e9-aa8c-2a2ae2dbcce4"}
NARROWCAST: Message = {
    "messages": [TEXT],
    "recipient": {"type": "operator", "and": [{"type": "audience", "audienceGroupId": 1}]},
    "filter": {"demographic": {"type": "operator", "or": [MALE, AGE, DAYS]}},
    "limit": {"max": 100, "upToRemainingQuota": True, "forbidPartialDelivery": True},
}
COUPON: Message = {
    "title": "Friends-only coupon",
    "acquisitionCondition": {"type": "lottery", "lotteryProbability": 1, "maxAcquireCount": -1},
    "reward": {"type": "discount", "priceInfo": {"type": "fixed", "fixedAmount": 100}},
    "startTimestamp": 0,
    "endTimestamp": 1_924_959_599,
    "timezone": "ASIA_TOKYO",
    "visibility": "UNLISTED",
    "maxUseCountPerTicket": 1,
}
WHO, OR, FIRST = "recipient", "filter.demographic.or", "filter.demographic.or[0]"
PRICE = "reward.priceInfo"
PUSH: Message = {"to": "U1", "messages": [TEXT], "customAggregationUnits": ["promotion_a"]}

RULES: tuple[tuple[str, Rule], ...] = (
    (
        "NarrowcastRequest",
        rule(
            "narrowcast-recipient: audiences and requests, ten at most, by operators",
            NARROWCAST,
            (
                (f"{WHO}.and", [], f"{WHO}.and"),
                (f"{WHO}.not", AGAIN, WHO),
                (f"{WHO}.and[0]", {"type": "redelivery"}, f"{WHO}.and[0].requestId"),
                (f"{WHO}.and", [AGAIN] * 11, WHO),
                (WHO, {"type": "operator"}, WHO),
            ),
            ((f"{WHO}.and", [{"type": "operator", "not": AGAIN}] * 10), (WHO, AGAIN)),
        ),
    ),
    (
        "NarrowcastRequest",
        rule(
            "narrowcast-demographic-filter: attributes, ten at most, by operators",
            NARROWCAST,
            (
                (OR, [{"type": "operator", "and": TEN}, AGE], "filter.demographic"),
                (f"{FIRST}.oneOf", []),
                (FIRST, {"type": "area", "oneOf": ["jp_48"]}, f"{FIRST}.oneOf[0]"),
                (FIRST, {"type": "appType"}, f"{FIRST}.oneOf"),
                (FIRST, {"type": "age"}, FIRST),
            ),
            ((OR, TEN), (FIRST, {"type": "age", "lt": "age_15"})),
        ),
    ),
    (
        "NarrowcastRequest",
        rule(
            "narrowcast-demographic-filter: ranges rise; limits are positive",
            NARROWCAST,
            (
                (f"{OR}[1].gte", "age_25", f"{OR}[1].lt"),
                (f"{OR}[2].gte", "day_365", f"{OR}[2].lt"),
                (f"{OR}[1].gte", "age_21"),
                ("limit.max", 0),
            ),
            ((f"{OR}[2].gte", ABSENT), ("limit", {"max": 1})),
        ),
    ),
    (
        "PushMessageRequest",
        rule(
            "send-push-message: one unit of 30 letters, digits and underscores",
            PUSH,
            (
                ("customAggregationUnits", ["a", "b"]),
                *each("customAggregationUnits[0]", "a" * 31, "a-b", ""),
            ),
            (("customAggregationUnits[0]", "A_9" * 10), ("customAggregationUnits", [])),
        ),
    ),
    (
        "CouponCreateRequest",
        rule(
            "create-coupon: it is used once or without limit, by as many winners, until its end",
            COUPON,
            (
                *each("maxUseCountPerTicket", 0, 2),
                ("acquisitionCondition.maxAcquireCount", 0),
                ("endTimestamp", 0),
                ("couponCode", "1" * 17),
            ),
            (
                ("maxUseCountPerTicket", -1),
                ("acquisitionCondition.maxAcquireCount", 999_999),
                ("imageUrl", URL),
            ),
        ),
    ),
    (
        "CouponCreateRequest",
        rule(
            "create-coupon-reward-object: its kind says what it needs",
            COUPON,
            (
                ("reward", ABSENT),
                ("reward.type", "cash"),
                (f"{PRICE}.fixedAmount", 0),
                (PRICE, {"type": "percentage", "percentage": 100}, f"{PRICE}.percentage"),
                (PRICE, {"type": "explicit", "originalPrice": 2}, f"{PRICE}.priceAfterDiscount"),
            ),
            (("reward", {"type": "gift"}), (PRICE, {"type": "percentage", "percentage": 99})),
        ),
    ),
)


@pytest.mark.parametrize(("request_", "rule"), RULES, ids=lambda one: getattr(one, "says", one))
def test_a_rule(request_: str, rule: Rule) -> None:
    for change in rule.wrong:
        found = check_request(request_, changed(rule.base, change))
        assert named(change) in [one.property for one in found], change
    for right in (rule.base, *(changed(rule.base, change) for change in rule.right)):
        assert check_request(request_, right) == []
