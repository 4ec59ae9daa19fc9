"""Users' actions as JSON, for other processes and the page; each act becomes one event."""

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from linesim.model.deliveries import Event
from linesim.model.events import standby
from linesim.model.media import Kind, Medium
from linesim.people.drafts import Drafts

MEDIA: tuple[Kind, ...] = ("image", "video", "audio", "file")


class Act(BaseModel):
    """One action of a user, or of a group without a user. `chat` is a group's or room's id; without
    it the chat is 1:1.
    """

    model_config = ConfigDict(extra="forbid")

    act: Literal[
        "text",
        "sticker",
        "image",
        "video",
        "audio",
        "file",
        "location",
        "unsend",
        "postback",
        "follow",
        "unfollow",
        "join",
        "leave",
        "memberJoined",
        "memberLeft",
    ]
    user: str = ""
    chat: str | None = None
    text: str = Field(default="", max_length=20_000)
    quoted: str | None = None
    medium: str | None = None
    message: str = ""
    data: str = ""
    package: str = "446"
    sticker: str = "1988"
    keywords: list[str] = Field(default_factory=list, max_length=15)
    latitude: float = Field(default=35.6586, ge=-90, le=90)
    longitude: float = Field(default=139.7454, ge=-180, le=180)
    title: str | None = "東京タワー"
    address: str | None = "東京都港区芝公園4丁目2-8"
    standby: bool = False


def draft(drafts: Drafts, act: Act, medium: Medium | None) -> Event:
    """The act's event; raises UnknownChat or NotPossible like the drafts. `medium`: the content of
    an image, video and so on.
    """
    event = _DRAFT[act.act](drafts, act, medium)
    return standby(event) if act.standby else event


def _medium(kind: Kind) -> Callable[[Drafts, Act, Medium | None], Event]:
    return lambda drafts, act, medium: drafts.medium(kind, act.user, medium, chat=act.chat)


_DRAFT: dict[str, Callable[[Drafts, Act, Medium | None], Event]] = {
    "text": lambda drafts, act, _: drafts.text(
        act.user, act.text, chat=act.chat, quoted_message_id=act.quoted
    ),
    "sticker": lambda drafts, act, _: drafts.sticker(
        act.user,
        chat=act.chat,
        package_id=act.package,
        sticker_id=act.sticker,
        keywords=act.keywords,
    ),
    "location": lambda drafts, act, _: drafts.location(
        act.user,
        chat=act.chat,
        latitude=act.latitude,
        longitude=act.longitude,
        title=act.title,
        address=act.address,
    ),
    **{kind: _medium(kind) for kind in MEDIA},
    "unsend": lambda drafts, act, _: drafts.unsend(act.message, act.user, chat=act.chat),
    "postback": lambda drafts, act, _: drafts.postback(act.user, act.data, chat=act.chat),
    "follow": lambda drafts, act, _: drafts.follow(act.user),
    "unfollow": lambda drafts, act, _: drafts.unfollow(act.user),
    "join": lambda drafts, act, _: drafts.join(act.chat or ""),
    "leave": lambda drafts, act, _: drafts.leave(act.chat or ""),
    "memberJoined": lambda drafts, act, _: drafts.member_joined(act.chat or "", act.user),
    "memberLeft": lambda drafts, act, _: drafts.member_left(act.chat or "", act.user),
}
