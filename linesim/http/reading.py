"""The read calls of LINE's API: profiles, friends, groups, the bot, its quota, users' media.

Also the loading animation, which answers 202 and lasts until the bot's next message. Callers hold
the simulator's lock.
"""

from collections.abc import Sequence
from typing import Any

from linemessages import Finding
from linesim.http.answers import Answer, json_answer
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.media import Content, sample
from linesim.model.platform import Platform
from linesim.model.stream import Change
from linesim.model.world import Group, User

TOKEN_SECONDS = 24 * 60 * 60


def profile(platform: Platform, call: Call, user_id: str) -> Answer:
    """The profile of friends, and of users who wrote in 1:1; 404 for others, also after a block."""
    call.user_id = user_id
    user = platform.world.users.get(user_id)
    if user is None or user.blocked or not (user.friend or user.wrote_at is not None):
        raise errors.not_found()
    shown = _member(user) | {"language": user.language}
    if user.status_message:
        shown["statusMessage"] = user.status_message
    return json_answer(shown)


def member(platform: Platform, call: Call, user_id: str, **chat: str) -> Answer:
    """Also for members who are not friends or have blocked the bot."""
    call.user_id = user_id
    if user_id not in in_chat(platform, call, **chat).members:
        raise errors.not_found()
    return json_answer(_member(platform.world.user(user_id)))


def _member(user: User) -> dict[str, Any]:
    return {"userId": user.user_id, "displayName": user.name, "pictureUrl": user.picture_url}


def group_summary(platform: Platform, call: Call, group_id: str) -> Answer:
    group = in_chat(platform, call, group_id=group_id)
    return json_answer(
        {"groupId": group.chat_id, "groupName": group.name, "pictureUrl": group.picture_url}
    )


def size(platform: Platform, call: Call, **chat: str) -> Answer:
    """Without the bot itself."""
    return json_answer({"count": len(in_chat(platform, call, **chat).members)})


def followers(platform: Platform, call: Call) -> Answer:
    found, more = page(platform, call, platform.world.friends(), 1_000, usual=300)
    return json_answer({"userIds": found, **more})


def members(platform: Platform, call: Call, **chat: str) -> Answer:
    """Also members who are not friends or have blocked the bot."""
    found, more = page(platform, call, in_chat(platform, call, **chat).members, 100)
    return json_answer({"memberIds": found, **more})


def page(
    platform: Platform, call: Call, found: Sequence[str], most: int, *, usual: int | None = None
) -> tuple[Sequence[str], dict[str, str]]:
    """The ids from `start` on, up to `limit`, and `next` if there are more; `usual` is the limit of
    a call without one. A continuation token is valid for 24 hours.
    """
    now, limit = platform.clock.time(), call.query.get("limit", str(usual or most))
    if not limit.isdecimal() or not 1 <= int(limit) <= most:
        raise errors.invalid_parameter("limit")
    if start := call.query.get("start"):
        until, found = platform.pages.get(start, (0.0, ()))
        if now >= until:
            raise LineError(400, "Invalid start param")
    if not (left := found[int(limit) :]):
        return found, {}
    token = ids.page_token()
    platform.pages[token] = now + TOKEN_SECONDS, left
    return found[: int(limit)], {"next": token}


def in_chat(platform: Platform, call: Call, *, group_id: str = "", room_id: str = "") -> Group:
    """Return the group or the room of this id, if the bot is in it."""
    chat_id, kind = group_id or room_id, "group" if group_id else "room"
    call.chat_id = chat_id
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
        raise errors.not_found()
    if not platform.contents.ready(found):
        return Answer(202, b"")
    still = sample("image")
    return Answer(200, still.data, still.media_type)


def transcoding(platform: Platform, call: Call, message_id: str) -> Answer:
    found = platform.contents.find(message_id)
    if found.kind not in ("video", "audio"):
        raise errors.not_found()
    if not platform.contents.ready(found):
        return json_answer({"status": "processing"})
    return json_answer({"status": "failed" if found.fails else "succeeded"})


def _medium(found: Content) -> Answer:
    return Answer(200, b"", found.medium.media_type, medium=found.medium)


def loading(platform: Platform, call: Call) -> Answer:
    """In one-to-one chats with friends only; a group's id, or a stranger's, is refused."""
    chat_id, seconds = call.body["chatId"], call.body.get("loadingSeconds", 20)
    user = platform.world.users.get(chat_id)
    if user is None or not user.takes_multicasts:
        raise errors.invalid_body(Finding("Must be the ID of a user who is a friend", "chatId"))
    user.loading_until = platform.clock.time() + seconds
    platform.stream.publish(Change("loading", {"chatId": chat_id, "seconds": seconds}))
    return json_answer({}, status=202)
