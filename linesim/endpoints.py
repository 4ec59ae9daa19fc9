"""LINE's endpoints that the simulator answers: name, method, path template and rate limit.

The limits are LINE's own, per channel and endpoint whatever the parameters (reference, "Rate
limits").
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """A token bucket: it holds `calls` at most and is refilled by that many in `seconds`,
    continuously.
    """

    calls: int
    seconds: float = 1.0


MOST = Rate(2_000)


@dataclass(frozen=True)
class Endpoint:
    name: str
    method: str
    path: str
    rate: Rate = MOST
    takes_retry_key: bool = False
    body_is_optional: bool = False


ENDPOINTS = (
    Endpoint("reply", "POST", "/v2/bot/message/reply"),
    Endpoint("push", "POST", "/v2/bot/message/push", takes_retry_key=True),
    Endpoint("multicast", "POST", "/v2/bot/message/multicast", Rate(200), takes_retry_key=True),
    Endpoint("validate_reply", "POST", "/v2/bot/message/validate/reply"),
    Endpoint("validate_push", "POST", "/v2/bot/message/validate/push"),
    Endpoint("validate_multicast", "POST", "/v2/bot/message/validate/multicast"),
    Endpoint("quota", "GET", "/v2/bot/message/quota"),
    Endpoint("consumption", "GET", "/v2/bot/message/quota/consumption"),
    Endpoint("content", "GET", "/v2/bot/message/{message_id}/content"),
    Endpoint("preview", "GET", "/v2/bot/message/{message_id}/content/preview"),
    Endpoint("transcoding", "GET", "/v2/bot/message/{message_id}/content/transcoding"),
    Endpoint("profile", "GET", "/v2/bot/profile/{user_id}"),
    Endpoint("group_member", "GET", "/v2/bot/group/{group_id}/member/{user_id}"),
    Endpoint("room_member", "GET", "/v2/bot/room/{room_id}/member/{user_id}"),
    Endpoint("group_summary", "GET", "/v2/bot/group/{group_id}/summary"),
    Endpoint("info", "GET", "/v2/bot/info"),
    Endpoint("loading", "POST", "/v2/bot/chat/loading/start", Rate(100)),
    Endpoint("webhook", "GET", "/v2/bot/channel/webhook/endpoint", Rate(1_000, 60)),
    Endpoint("set_webhook", "PUT", "/v2/bot/channel/webhook/endpoint", Rate(1_000, 60)),
    Endpoint(
        "test_webhook",
        "POST",
        "/v2/bot/channel/webhook/test",
        Rate(60, 3_600),
        body_is_optional=True,
    ),
)

BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}
