"""What LINE's reference says of requests to many users and of coupons, in the table's style."""

import pytest

from linemessages import check_request
from tests.linemessages.table import ABSENT, TEXT, Message, Rule, changed, each, named, rule

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
WHO, OR, PRICE = "recipient", "filter.demographic.or", "reward.priceInfo"

RULES: tuple[tuple[str, Rule], ...] = (
    (
        "NarrowcastRequest",
        rule(
            "narrowcast-recipient: ten audiences and requests at most, by operators; a limit",
            NARROWCAST,
            (
                (f"{WHO}.and", []),
                (f"{WHO}.not", AGAIN, WHO),
                (f"{WHO}.and[0]", {"type": "redelivery"}, f"{WHO}.and[0].requestId"),
                (f"{WHO}.and", [AGAIN] * 11, WHO),
                (WHO, {"type": "operator"}),
                ("limit.max", 0),
            ),
            ((f"{WHO}.and", [{"type": "operator", "not": AGAIN}] * 10), (WHO, AGAIN)),
        ),
    ),
    (
        "NarrowcastRequest",
        rule(
            "narrowcast-demographic-filter: ten attributes at most, by operators; ranges rise",
            NARROWCAST,
            (
                (OR, [{"type": "operator", "and": TEN}, AGE], "filter.demographic"),
                (f"{OR}[0].oneOf", []),
                (f"{OR}[0].oneOf", ["jp_48"], f"{OR}[0].oneOf[0]"),
                (f"{OR}[0]", {"type": "appType"}, f"{OR}[0].oneOf"),
                (f"{OR}[0]", {"type": "age"}),
                (f"{OR}[1].gte", "age_25", f"{OR}[1].lt"),
                (f"{OR}[2].gte", "day_365", f"{OR}[2].lt"),
                (f"{OR}[1].gte", "age_21"),
            ),
            ((OR, TEN), (f"{OR}[1].gte", ABSENT), (f"{OR}[2].gte", ABSENT)),
        ),
    ),
    (
        "PushMessageRequest",
        rule(
            "send-push-message: one unit of 30 letters, digits and underscores",
            {"to": "U1", "messages": [TEXT], "customAggregationUnits": ["promotion_a"]},
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
            "create-coupon: used once or without limit, by as many winners, until an end; a reward",
            COUPON,
            (
                *each("maxUseCountPerTicket", 0, 2),
                ("acquisitionCondition.maxAcquireCount", 0),
                ("endTimestamp", 0),
                ("couponCode", "1" * 17),
                *each("reward", ABSENT),
                ("reward.type", "cash"),
                (f"{PRICE}.fixedAmount", 0),
                (PRICE, {"type": "percentage", "percentage": 100}, f"{PRICE}.percentage"),
                (PRICE, {"type": "explicit", "originalPrice": 2}, f"{PRICE}.priceAfterDiscount"),
            ),
            (
                ("maxUseCountPerTicket", -1),
                ("acquisitionCondition.maxAcquireCount", 999_999),
                ("reward", {"type": "gift"}),
                (PRICE, {"type": "percentage", "percentage": 99}),
            ),
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
