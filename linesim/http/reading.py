"""The read calls of LINE's API: profiles, friends, groups, the bot, users' media, its quota and
the numbers of what was sent. Those of a day are ready once it has ended in Japan.

Also the loading animation, which answers 202 and lasts until the bot's next message. Callers hold
the simulator's lock.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from linemessages import Finding
from linesim.http.answers import Answer, json_answer
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.media import Content, sample
from linesim.model.platform import Platform
from linesim.model.sent import day_of
from linesim.model.views import Change
from linesim.model.world import Group, User

PICTURES = "https://profile.line-scdn.net/0h"
# LINE began to count on these days.
FIRST_SENT, FIRST_DELIVERIES, FIRST_FOLLOWERS = "20180331", "20170301", "20161101"


def profile(platform: Platform, call: Call, user_id: str) -> Answer:
    """The profile of friends, and of users who wrote in 1:1; 404 for others, also after a block."""
    user = platform.world.users.get(user_id)
    if user is None or user.blocked or not (user.friend or user.wrote_at is not None):
        raise errors.not_found()
    shown = _member(user) | {"language": user.language}
    if user.status_message:
        shown["statusMessage"] = user.status_message
    return json_answer(shown)


def group_member(platform: Platform, call: Call, user_id: str, **chat: str) -> Answer:
    """Also for members who are not friends or have blocked the bot."""
    if user_id not in in_chat(platform, call, **chat).members:
        raise errors.not_found()
    return json_answer(_member(platform.world.user(user_id)))


room_member = group_member


def _member(user: User) -> dict[str, Any]:
    picture = PICTURES + user.user_id[1:]
    return {"userId": user.user_id, "displayName": user.name, "pictureUrl": picture}


def group_summary(platform: Platform, call: Call, group_id: str) -> Answer:
    group = in_chat(platform, call, group_id=group_id)
    picture = PICTURES + group_id[1:]
    return json_answer({"groupId": group_id, "groupName": group.name, "pictureUrl": picture})


def group_size(platform: Platform, call: Call, **chat: str) -> Answer:
    """Without the bot itself."""
    return json_answer({"count": len(in_chat(platform, call, **chat).members)})


room_size = group_size


def followers(platform: Platform, call: Call) -> Answer:
    found, more = page(platform, call, platform.world.friends(), 1_000, usual=300)
    return json_answer({"userIds": found, **more})


def group_members(platform: Platform, call: Call, **chat: str) -> Answer:
    """Also members who are not friends or have blocked the bot."""
    found, more = page(platform, call, in_chat(platform, call, **chat).members, 100)
    return json_answer({"memberIds": found, **more})


room_members = group_members


def page(
    platform: Platform, call: Call, found: Sequence[str], most: int, *, usual: int | None = None
) -> tuple[Sequence[str], dict[str, str]]:
    """The ids from `start` on, up to `limit`, and `next` if there are more; `usual` is the limit of
    a call without one. A continuation token is valid for 24 hours.
    """
    limit = call.query.get("limit", str(usual or most))
    if not re.fullmatch("[0-9]{1,9}", limit) or not 1 <= int(limit) <= most:
        raise errors.invalid_parameter("limit")
    if start := call.query.get("start"):
        path, found = platform.pages.get(start) or ("", ())
        if path != call.path:
            raise LineError(400, "Invalid start param")
    if not (left := found[int(limit) :]):
        return found, {}
    token = ids.page_token()
    platform.pages[token] = call.path, left
    return found[: int(limit)], {"next": token}


def in_chat(platform: Platform, call: Call, *, group_id: str = "", room_id: str = "") -> Group:
    chat_id, kind = group_id or room_id, "group" if group_id else "room"
    call.chat_id = chat_id
    if not ids.CHAT_ID.fullmatch(chat_id):
        raise errors.invalid_parameter(f"{kind}Id")
    group = platform.world.groups.get(chat_id)
    if group is None or group.kind != kind or not group.present:
        raise errors.not_found()
    return group


def info(platform: Platform, call: Call) -> Answer:
    mode = platform.options.chat_mode
    return json_answer(
        {
            "userId": platform.bot_user_id,
            "basicId": "@" + platform.bot_user_id[1:9],
            "displayName": platform.options.bot_name,
            "chatMode": mode,
            "markAsReadMode": "auto" if mode == "bot" else "manual",
        }
    )


def quota(platform: Platform, call: Call) -> Answer:
    limit = platform.quota.limit
    return json_answer({"type": "none"} if limit is None else {"type": "limited", "value": limit})


def consumption(platform: Platform, call: Call) -> Answer:
    return json_answer({"totalUsage": platform.quota.used})


def content(platform: Platform, call: Call, message_id: str) -> Answer:
    found = platform.contents.find(message_id)
    if not platform.contents.ready(found):
        return Answer(202, b"")
    if found.fails:
        raise errors.not_found()
    return _medium(found)


def preview(platform: Platform, call: Call, message_id: str) -> Answer:
    """Only images and videos have one; a video's is a still."""
    found = platform.contents.find(message_id)
    if found.kind == "image":
        return _medium(found)
    if found.kind != "video":
        raise LineError(400, "The content can not be previewed")
    if not platform.contents.ready(found):
        return Answer(202, b"")
    still = sample("image")
    return Answer(200, still.data, still.media_type)


def transcoding(platform: Platform, call: Call, message_id: str) -> Answer:
    found = platform.contents.find(message_id)
    if found.kind not in ("video", "audio"):
        told = "Transcoding status doesn't support this type of content"
        raise LineError(400, told)
    if not platform.contents.ready(found):
        return json_answer({"status": "processing"})
    return json_answer({"status": "failed" if found.fails else "succeeded"})


def _medium(found: Content) -> Answer:
    return Answer(200, b"", found.medium.media_type, medium=found.medium)


def loading(platform: Platform, call: Call) -> Answer:
    """Shown in one-to-one chats with friends only; LINE tells nothing of others."""
    chat_id, seconds = call.body["chatId"], call.body.get("loadingSeconds") or 20
    if not ids.USER_ID.fullmatch(chat_id):
        told = (
            "Only user id is acceptable, please confirm if there are any group/room ids or "
            "illegal ids."
        )
        raise errors.invalid_body(Finding(told, "chatId"))
    user = platform.world.users.get(chat_id)
    if user is None or not user.takes_multicasts:
        return json_answer({}, status=202)
    user.loading_until = platform.clock.time() + seconds
    platform.stream.publish(Change("loading", {"chatId": chat_id, "seconds": seconds}))
    return json_answer({}, status=202)


def sent_reply(platform: Platform, call: Call) -> Answer:
    """The users reached on a day by the way that the endpoint names."""
    if not _is_day(day := call.query.get("date", "")):
        raise errors.invalid_parameter("date")
    if (status := _status(platform, day, FIRST_SENT)) != "ready":
        return json_answer({"status": status})
    way = call.endpoint.removeprefix("sent_")
    return json_answer({"status": status, "success": platform.sent.days.get(day, {}).get(way, 0)})


sent_push = sent_multicast = sent_broadcast = sent_reply


def unit_usage(platform: Platform, call: Call) -> Answer:
    return json_answer({"numOfCustomAggregationUnits": len(platform.sent.units_of_month)})


def unit_names(platform: Platform, call: Call) -> Answer:
    found, more = page(platform, call, platform.sent.units_of_month, 100)
    return json_answer({"customAggregationUnits": found, **more})


def insight_deliveries(platform: Platform, call: Call) -> Answer:
    status = _status(platform, day := _day(call), FIRST_DELIVERIES)
    ways = ("broadcast", "push", "multicast", "narrowcast", "reply") if status == "ready" else ()
    numbers = {f"api{way.title()}": platform.sent.days.get(day, {}).get(way, 0) for way in ways}
    return json_answer({"status": status, **numbers})


def insight_followers(platform: Platform, call: Call) -> Answer:
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
