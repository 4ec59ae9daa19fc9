"""LINE's endpoints that the simulator answers: name, method, path template and rate limit.

The limits are LINE's own, one token bucket per channel and endpoint whatever the parameters
(reference, "Rate limits").
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from linesim.model import errors
from linesim.model.clock import Clock
from linesim.model.ids import Recent


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
    """Its act, of linesim.http, has the same name. `schema` is that of its JSON in LINE's OpenAPI,
    `media_types` those of another body. With `takes_form` it takes a form, or a query, and no
    bearer token.
    """

    name: str
    method: str
    path: str
    rate: Rate = MOST
    schema: str | None = None
    takes_key: bool = False
    body_is_optional: bool = False
    media_types: tuple[str, ...] = ()
    takes_form: bool = False


FORM = ("application/x-www-form-urlencoded",)
OF_CHANNEL_TOKENS = tuple(
    Endpoint(
        name, method, path, rate, media_types=FORM if method == "POST" else (), takes_form=True
    )
    for name, method, path, rate in (
        ("issue_token", "POST", "/v2/oauth/accessToken", Rate(370)),
        ("verify_token", "POST", "/v2/oauth/verify", MOST),
        ("revoke_token", "POST", "/v2/oauth/revoke", MOST),
        ("issue_token_by_jwt", "POST", "/oauth2/v2.1/token", MOST),
        ("verify_token_by_jwt", "GET", "/oauth2/v2.1/verify", MOST),
        ("revoke_token_by_jwt", "POST", "/oauth2/v2.1/revoke", MOST),
        ("token_key_ids", "GET", "/oauth2/v2.1/tokens/kid", MOST),
        ("issue_stateless_token", "POST", "/oauth2/v3/token", MOST),
    )
)

FEWER = Rate(200)
HOURLY = Rate(60, 3_600)
OF_WEBHOOKS = Rate(1_000, 60)
OF_MENUS = Rate(100, 3_600)
IMAGES = ("image/jpeg", "image/png")
WEBHOOK = "/channel/webhook/endpoint"
MENU = "/richmenu/{rich_menu_id}"
ALIAS = "/richmenu/alias/{rich_menu_alias_id}"
DEFAULT_MENU = "/user/all/richmenu"
USER_MENU = "/user/{user_id}/richmenu"

VALIDATED = "ValidateMessageRequest"

# The paths are below /v2/bot. Where those of two fit a call, the first of them takes it.
OF_BOTS = (
    Endpoint("reply", "POST", "/message/reply", schema="ReplyMessageRequest"),
    Endpoint("push", "POST", "/message/push", schema="PushMessageRequest", takes_key=True),
    *(
        Endpoint(way, "POST", f"/message/{way}", rate, f"{way.title()}Request", takes_key=True)
        for way, rate in (("multicast", FEWER), ("narrowcast", HOURLY), ("broadcast", HOURLY))
    ),
    *(
        Endpoint(f"validate_{way}", "POST", f"/message/validate/{way}", schema=VALIDATED)
        for way in ("reply", "push", "multicast", "narrowcast", "broadcast")
    ),
    *(
        Endpoint(f"sent_{way}", "GET", f"/message/delivery/{way}")
        for way in ("reply", "push", "multicast", "broadcast", "pnp")
    ),
    Endpoint("narrowcast_progress", "GET", "/message/progress/narrowcast"),
    Endpoint("quota", "GET", "/message/quota"),
    Endpoint("consumption", "GET", "/message/quota/consumption"),
    Endpoint("unit_usage", "GET", "/message/aggregation/info"),
    Endpoint("unit_names", "GET", "/message/aggregation/list"),
    Endpoint("insight_deliveries", "GET", "/insight/message/delivery", HOURLY),
    Endpoint("insight_followers", "GET", "/insight/followers", HOURLY),
    Endpoint("content", "GET", "/message/{message_id}/content"),
    Endpoint("preview", "GET", "/message/{message_id}/content/preview"),
    Endpoint("transcoding", "GET", "/message/{message_id}/content/transcoding"),
    Endpoint("info", "GET", "/info"),
    Endpoint("profile", "GET", "/profile/{user_id}"),
    Endpoint("followers", "GET", "/followers/ids"),
    Endpoint("group_member", "GET", "/group/{group_id}/member/{user_id}"),
    Endpoint("group_members", "GET", "/group/{group_id}/members/ids"),
    Endpoint("group_size", "GET", "/group/{group_id}/members/count"),
    Endpoint("group_summary", "GET", "/group/{group_id}/summary"),
    Endpoint("leave_group", "POST", "/group/{group_id}/leave"),
    Endpoint("room_member", "GET", "/room/{room_id}/member/{user_id}"),
    Endpoint("room_members", "GET", "/room/{room_id}/members/ids"),
    Endpoint("room_size", "GET", "/room/{room_id}/members/count"),
    Endpoint("leave_room", "POST", "/room/{room_id}/leave"),
    Endpoint("loading", "POST", "/chat/loading/start", Rate(100), "ShowLoadingAnimationRequest"),
    Endpoint("mark_read", "POST", "/chat/markAsRead", MOST, "MarkMessagesAsReadByTokenRequest"),
    Endpoint("mark_all_read", "POST", "/message/markAsRead", MOST, "MarkMessagesAsReadRequest"),
    Endpoint("link_token", "POST", "/user/{user_id}/linkToken"),
    Endpoint("create_coupon", "POST", "/coupon", FEWER, "CouponCreateRequest"),
    Endpoint("coupons", "GET", "/coupon", FEWER),
    Endpoint("coupon", "GET", "/coupon/{coupon_id}", FEWER),
    Endpoint("close_coupon", "PUT", "/coupon/{coupon_id}/close", FEWER),
    Endpoint("membership", "GET", "/membership/subscription/{user_id}", FEWER),
    Endpoint("memberships", "GET", "/membership/list", FEWER),
    Endpoint("membership_users", "GET", "/membership/{membership_id}/users/ids", FEWER),
    Endpoint("webhook", "GET", WEBHOOK, OF_WEBHOOKS),
    Endpoint("set_webhook", "PUT", WEBHOOK, OF_WEBHOOKS, "SetWebhookEndpointRequest"),
    Endpoint(
        *("test_webhook", "POST", "/channel/webhook/test", HOURLY, "TestWebhookEndpointRequest"),
        body_is_optional=True,
    ),
    Endpoint("create_menu", "POST", "/richmenu", OF_MENUS, "RichMenuRequest"),
    Endpoint("validate_menu", "POST", "/richmenu/validate", schema="RichMenuRequest"),
    Endpoint("menus", "GET", "/richmenu/list", Rate(10)),
    Endpoint("create_menu_alias", "POST", "/richmenu/alias", schema="CreateRichMenuAliasRequest"),
    Endpoint("menu_aliases", "GET", "/richmenu/alias/list"),
    Endpoint("menu_alias", "GET", ALIAS),
    Endpoint("update_menu_alias", "POST", ALIAS, schema="UpdateRichMenuAliasRequest"),
    Endpoint("delete_menu_alias", "DELETE", ALIAS, OF_MENUS),
    Endpoint("link_menus", "POST", "/richmenu/bulk/link", schema="RichMenuBulkLinkRequest"),
    Endpoint("unlink_menus", "POST", "/richmenu/bulk/unlink", schema="RichMenuBulkUnlinkRequest"),
    Endpoint("batch_menus", "POST", "/richmenu/batch", Rate(3, 3_600), "RichMenuBatchRequest"),
    Endpoint("validate_batch", "POST", "/richmenu/validate/batch", schema="RichMenuBatchRequest"),
    Endpoint("menu_progress", "GET", "/richmenu/progress/batch", OF_MENUS),
    Endpoint("set_menu_image", "POST", f"{MENU}/content", media_types=IMAGES),
    Endpoint("menu_image", "GET", f"{MENU}/content"),
    Endpoint("menu", "GET", MENU),
    Endpoint("delete_menu", "DELETE", MENU, OF_MENUS),
    Endpoint("set_default_menu", "POST", f"{DEFAULT_MENU}/{{rich_menu_id}}"),
    Endpoint("default_menu", "GET", DEFAULT_MENU),
    Endpoint("clear_default_menu", "DELETE", DEFAULT_MENU),
    Endpoint("link_menu", "POST", f"{USER_MENU}/{{rich_menu_id}}"),
    Endpoint("user_menu", "GET", USER_MENU),
    Endpoint("unlink_menu", "DELETE", USER_MENU),
)

ENDPOINTS = (
    *OF_CHANNEL_TOKENS,
    *(replace(one, path=f"/v2/bot{one.path}") for one in OF_BOTS),
    Endpoint("pnp_push", "POST", "/bot/pnp/push"),
)

BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}


class Bucket:
    """Full at first; a call takes one token, and tokens come back continuously."""

    def __init__(self, rate: Rate, *, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate.calls)
        self._at = now

    def take(self, now: float) -> bool:
        refill = (now - self._at) * self._rate.calls / self._rate.seconds
        self._tokens = min(float(self._rate.calls), self._tokens + refill)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimits:
    """`rates` are LINE's own with those of the mapping instead of some; False: no limits.

    `to_one` limits the pushes to one chat, for which LINE publishes no number; None: no limit.
    Callers hold the simulator's lock.
    """

    def __init__(
        self, rates: Mapping[str, Rate] | bool, clock: Clock, *, to_one: Rate | None = None
    ) -> None:
        own = {} if isinstance(rates, bool) else rates
        names = ENDPOINTS if rates is not False else ()
        self._clock = clock
        now = clock.monotonic()
        self._buckets = {
            each.name: Bucket(own.get(each.name, each.rate), now=now) for each in names
        }
        self._to_one = to_one
        self._chats: Recent[str, Bucket] = Recent(200_000)

    def check(self, endpoint: str) -> None:
        bucket = self._buckets.get(endpoint)
        if bucket and not bucket.take(self._clock.monotonic()):
            raise errors.rate_limited()

    def check_recipient(self, chat_id: str) -> None:
        """Refuses a push to a chat that has had too many."""
        if self._to_one is None:
            return
        now = self._clock.monotonic()
        bucket = self._chats.setdefault(chat_id, Bucket(self._to_one, now=now))
        if not bucket.take(now):
            raise errors.too_many_to_one()
