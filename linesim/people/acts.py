"""Users' actions as JSON, for other processes and the page; each act becomes one event."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from pydantic import Field, field_validator

from linesim.model.deliveries import Event
from linesim.model.errors import NotPossible
from linesim.model.events import standby
from linesim.model.media import SAMPLES, Medium
from linesim.model.views import Strict
from linesim.people.drafts import Drafts


class Act(Strict):
    """One action of a user, or of a group without a user. `chat` is a group's or room's id; without
    it the chat is 1:1. The other fields are those of the action in `Drafts`.
    """

    act: str
    user: str = ""
    chat: str | None = None
    text: str = Field(default="", max_length=20_000)
    quoted: str | None = None
    medium: str | None = None
    preparing_seconds: float = Field(default=0.0, ge=0)
    fails: bool = False
    message: str | None = None
    data: str | None = None
    params: dict[str, str] | None = None
    shown: str | None = Field(default=None, max_length=300)
    alias: str | None = None
    package: str | None = None
    sticker: str | None = None
    keywords: list[str] | None = Field(default=None, max_length=15)
    latitude: float | None = Field(default=None, ge=-90, le=90)
    longitude: float | None = Field(default=None, ge=-180, le=180)
    title: str | None = None
    address: str | None = None
    tracking: str | None = None
    hwid: str | None = None
    beacon: Literal["enter", "banner", "stay"] | None = None
    dm: str | None = None
    token: str | None = None
    nonce: str | None = None
    standby: bool = False

    @field_validator("act")
    @classmethod
    def _is_known(cls, act: str) -> str:
        if act not in DRAFTS:
            raise ValueError(f"no act {act!r}; there are {', '.join(DRAFTS)}")
        return act


def draft(drafts: Drafts, act: Act, medium: Medium | None) -> Event:
    """The act's event; raises UnknownChat or NotPossible like the drafts. `medium`: the content of
    an image, video and so on.
    """
    make = DRAFTS[act.act]
    given = {**act.model_dump(exclude_unset=True), "medium": medium}
    if act.chat is None:
        given.pop("chat", None)
    known = inspect.signature(make).parameters
    try:
        event = make(drafts, **{name: given[name] for name in given.keys() & known.keys()})
    except TypeError as error:
        raise NotPossible(f"{act.act}: {error}") from error
    return standby(event) if act.standby else event


DRAFTS: Mapping[str, Callable[..., Event]] = {
    "text": Drafts.text,
    "sticker": Drafts.sticker,
    "location": Drafts.location,
    **{kind: partial(Drafts.medium, kind=kind) for kind in SAMPLES},
    "unsend": Drafts.unsend,
    "edit": Drafts.edit,
    "postback": Drafts.postback,
    "videoPlayComplete": Drafts.video_play_complete,
    "beacon": Drafts.beacon,
    "accountLink": Drafts.account_link,
    "richmenuswitch": Drafts.richmenuswitch,
    "follow": Drafts.follow,
    "unfollow": Drafts.unfollow,
    "join": Drafts.join,
    "leave": Drafts.leave,
    "memberJoined": lambda drafts, chat, user: drafts.member_joined(chat, user),
    "memberLeft": lambda drafts, chat, user: drafts.member_left(chat, user),
}
