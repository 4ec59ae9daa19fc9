"""LINE's endpoints that the simulator answers: name, method, path template and rate limit; and the
channel's monthly quota of counted messages.

The limits are LINE's own, one token bucket per channel and endpoint whatever the parameters
(reference, "Rate limits").
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from linesim.model import errors
from linesim.model.clock import Clock
from linesim.model.recent import Recent


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
    schema: str | None = None
    """Of the body, by its name in LINE's OpenAPI."""
    takes_retry_key: bool = False
    body_is_optional: bool = False
    media_types: tuple[str, ...] = ()
    """Of a body that is not JSON."""
    takes_form: bool = False
    """Takes a form, or a query, and no bearer token."""


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

HOURLY = Rate(60, 3_600)
FEWER = Rate(200)
MESSAGING = (
    *(
        Endpoint(way, "POST", f"/v2/bot/message/{way}", HOURLY, f"{way.title()}Request", True)
        for way in ("narrowcast", "broadcast")
    ),
    Endpoint("narrowcast_progress", "GET", "/v2/bot/message/progress/narrowcast"),
    *(
        Endpoint(f"sent_{way}", "GET", f"/v2/bot/message/delivery/{way}")
        for way in ("reply", "push", "multicast", "broadcast", "pnp")
    ),
    Endpoint("unit_usage", "GET", "/v2/bot/message/aggregation/info"),
    Endpoint("unit_names", "GET", "/v2/bot/message/aggregation/list"),
    Endpoint("insight_deliveries", "GET", "/v2/bot/insight/message/delivery", HOURLY),
    Endpoint("insight_followers", "GET", "/v2/bot/insight/followers", HOURLY),
    Endpoint("followers", "GET", "/v2/bot/followers/ids"),
    Endpoint("group_members", "GET", "/v2/bot/group/{group_id}/members/ids"),
    Endpoint("room_members", "GET", "/v2/bot/room/{room_id}/members/ids"),
    Endpoint("link_token", "POST", "/v2/bot/user/{user_id}/linkToken", body_is_optional=True),
    Endpoint(
        "mark_read", "POST", "/v2/bot/chat/markAsRead", MOST, "MarkMessagesAsReadByTokenRequest"
    ),
    Endpoint(
        "mark_all_read", "POST", "/v2/bot/message/markAsRead", MOST, "MarkMessagesAsReadRequest"
    ),
    Endpoint("create_coupon", "POST", "/v2/bot/coupon", FEWER, "CouponCreateRequest"),
    Endpoint("coupons", "GET", "/v2/bot/coupon", FEWER),
    Endpoint("coupon", "GET", "/v2/bot/coupon/{coupon_id}", FEWER),
    Endpoint(
        "close_coupon", "PUT", "/v2/bot/coupon/{coupon_id}/close", FEWER, body_is_optional=True
    ),
    Endpoint("membership", "GET", "/v2/bot/membership/subscription/{user_id}", FEWER),
    Endpoint("memberships", "GET", "/v2/bot/membership/list", FEWER),
    Endpoint("membership_users", "GET", "/v2/bot/membership/{membership_id}/users/ids", FEWER),
    Endpoint("pnp_push", "POST", "/bot/pnp/push"),
    Endpoint("leave_group", "POST", "/v2/bot/group/{group_id}/leave", body_is_optional=True),
    Endpoint("leave_room", "POST", "/v2/bot/room/{room_id}/leave", body_is_optional=True),
)

MENU = "/v2/bot/richmenu"
ONE_MENU = "/v2/bot/richmenu/{rich_menu_id}"
ALIAS = "/v2/bot/richmenu/alias/{rich_menu_alias_id}"
DEFAULT_MENU = "/v2/bot/user/all/richmenu"
USER_MENU = "/v2/bot/user/{user_id}/richmenu"
MENUS_HOURLY = Rate(100, 3_600)
IMAGES = ("image/jpeg", "image/png")

# Where the paths of two fit a call, the first of them takes it.
MENU_ENDPOINTS = (
    Endpoint("create_menu", "POST", MENU, MENUS_HOURLY, "RichMenuRequest"),
    Endpoint("validate_menu", "POST", f"{MENU}/validate", schema="RichMenuRequest"),
    Endpoint("menus", "GET", f"{MENU}/list", Rate(10)),
    Endpoint("create_menu_alias", "POST", f"{MENU}/alias", schema="CreateRichMenuAliasRequest"),
    Endpoint("menu_aliases", "GET", f"{MENU}/alias/list"),
    Endpoint("menu_alias", "GET", ALIAS),
    Endpoint("update_menu_alias", "POST", ALIAS, schema="UpdateRichMenuAliasRequest"),
    Endpoint("delete_menu_alias", "DELETE", ALIAS, MENUS_HOURLY),
    Endpoint("link_menus", "POST", f"{MENU}/bulk/link", schema="RichMenuBulkLinkRequest"),
    Endpoint("unlink_menus", "POST", f"{MENU}/bulk/unlink", schema="RichMenuBulkUnlinkRequest"),
    Endpoint("batch_menus", "POST", f"{MENU}/batch", Rate(3, 3_600), "RichMenuBatchRequest"),
    Endpoint("validate_batch", "POST", f"{MENU}/validate/batch", schema="RichMenuBatchRequest"),
    Endpoint("menu_progress", "GET", f"{MENU}/progress/batch", MENUS_HOURLY),
    Endpoint("set_menu_image", "POST", f"{ONE_MENU}/content", media_types=IMAGES),
    Endpoint("menu_image", "GET", f"{ONE_MENU}/content"),
    Endpoint("menu", "GET", ONE_MENU),
    Endpoint("set_default_menu", "POST", f"{DEFAULT_MENU}/{{rich_menu_id}}"),
    Endpoint("default_menu", "GET", DEFAULT_MENU),
    Endpoint("clear_default_menu", "DELETE", DEFAULT_MENU),
    Endpoint("link_menu", "POST", f"{USER_MENU}/{{rich_menu_id}}"),
    Endpoint("user_menu", "GET", USER_MENU),
    Endpoint("unlink_menu", "DELETE", USER_MENU),
    Endpoint("delete_menu", "DELETE", ONE_MENU, MENUS_HOURLY),
)

ENDPOINTS = (
    *OF_CHANNEL_TOKENS,
    Endpoint("reply", "POST", "/v2/bot/message/reply", schema="ReplyMessageRequest"),
    Endpoint(
        "push",
        "POST",
        "/v2/bot/message/push",
        schema="PushMessageRequest",
        takes_retry_key=True,
    ),
    Endpoint(
        "multicast",
        "POST",
        "/v2/bot/message/multicast",
        Rate(200),
        schema="MulticastRequest",
        takes_retry_key=True,
    ),
    *(
        Endpoint(
            f"validate_{way}",
            "POST",
            f"/v2/bot/message/validate/{way}",
            schema="ValidateMessageRequest",
        )
        for way in ("reply", "push", "multicast", "narrowcast", "broadcast")
    ),
    Endpoint("quota", "GET", "/v2/bot/message/quota"),
    Endpoint("consumption", "GET", "/v2/bot/message/quota/consumption"),
    Endpoint("content", "GET", "/v2/bot/message/{message_id}/content"),
    Endpoint("preview", "GET", "/v2/bot/message/{message_id}/content/preview"),
    Endpoint("transcoding", "GET", "/v2/bot/message/{message_id}/content/transcoding"),
    Endpoint("profile", "GET", "/v2/bot/profile/{user_id}"),
    Endpoint("group_member", "GET", "/v2/bot/group/{group_id}/member/{user_id}"),
    Endpoint("room_member", "GET", "/v2/bot/room/{room_id}/member/{user_id}"),
    Endpoint("group_summary", "GET", "/v2/bot/group/{group_id}/summary"),
    Endpoint("group_size", "GET", "/v2/bot/group/{group_id}/members/count"),
    Endpoint("room_size", "GET", "/v2/bot/room/{room_id}/members/count"),
    Endpoint("info", "GET", "/v2/bot/info"),
    Endpoint(
        "loading",
        "POST",
        "/v2/bot/chat/loading/start",
        Rate(100),
        schema="ShowLoadingAnimationRequest",
    ),
    Endpoint("webhook", "GET", "/v2/bot/channel/webhook/endpoint", Rate(1_000, 60)),
    Endpoint(
        "set_webhook",
        "PUT",
        "/v2/bot/channel/webhook/endpoint",
        Rate(1_000, 60),
        schema="SetWebhookEndpointRequest",
    ),
    Endpoint(
        "test_webhook",
        "POST",
        "/v2/bot/channel/webhook/test",
        Rate(60, 3_600),
        schema="TestWebhookEndpointRequest",
        body_is_optional=True,
    ),
    *MESSAGING,
    *MENU_ENDPOINTS,
)

BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}


JAPAN = timedelta(hours=9)


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


class Quota:
    """Counts the users reached in a calendar month of Japan; replies are free, and so is a message
    that cannot be received (docs, "Messaging API pricing").

    `reserved` is the part that a delivery of LINE's console reserves while it lasts: LINE refuses
    messages beyond the rest, and the consumption does not show it. Callers hold the simulator's
    lock.
    """

    def __init__(self, limit: int | None, clock: Clock) -> None:
        self.limit = limit
        self.reserved = 0
        self._clock = clock
        self.month = self._this_month()
        self.people = 0  # reached in this month

    def _this_month(self) -> tuple[int, int]:
        today = datetime.fromtimestamp(self._clock.time(), UTC) + JAPAN
        return today.year, today.month

    @property
    def used(self) -> int:
        if (month := self._this_month()) != self.month:
            self.month, self.people = month, 0
        return self.people

    @property
    def left(self) -> float:
        """The messages that may still be sent."""
        return math.inf if self.limit is None else self.limit - self.used - self.reserved

    def check(self, people: int) -> None:
        """Refuses messages beyond the limit, and all messages once the limit is reached."""
        if max(people, 1) > self.left:
            raise errors.monthly_limit()

    def count(self, people: int) -> None:
        self.people = self.used + people
