"""Users' actions as events ready for delivery; each appears in its chat at once, as on the user's
own phone.

Chat and user are named by object or id. NotPossible is raised for actions that LINE's app does not
allow.
"""

from collections.abc import Sequence
from typing import Any, Literal

from linesim.model import events
from linesim.model.deliveries import Event
from linesim.model.errors import NotPossible, UnknownChat
from linesim.model.media import Content, Kind, Medium, sample
from linesim.model.platform import Platform
from linesim.model.world import Bubble, Group, User

Who = User | str
Where = Group | str | None


class Drafts:
    """Every method takes the simulator's lock itself."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def text(self, user: Who, text: str, *, chat: Where = None, quoted: str | None = None) -> Event:
        """`quoted` is the id of the message that it quotes. In a group "@" and the name of the bot
        or of a member is a mention, and "@All".
        """
        more = {"quotedMessageId": quoted, "mention": chat and self._mention(text, chat)}
        return self._message("text", user, chat, text=text, **more)

    def sticker(
        self,
        user: Who,
        *,
        chat: Where = None,
        package: str = "446",
        sticker: str = "1988",
        keywords: Sequence[str] = (),
    ) -> Event:
        ids = {"stickerId": sticker, "packageId": package, "stickerResourceType": "STATIC"}
        return self._message("sticker", user, chat, **ids, keywords=list(keywords) or None)

    def location(
        self,
        user: Who,
        *,
        chat: Where = None,
        latitude: float = 35.6586,
        longitude: float = 139.7454,
        title: str | None = "東京タワー",
        address: str | None = "東京都港区芝公園4丁目2-8",
    ) -> Event:
        where = {"latitude": latitude, "longitude": longitude, "title": title, "address": address}
        return self._message("location", user, chat, **where)

    def medium(
        self,
        kind: Kind,
        user: Who,
        medium: Medium | None = None,
        *,
        chat: Where = None,
        preparing_seconds: float = 0.0,
        fails: bool = False,
        duration_ms: int = 2_000,
    ) -> Event:
        """A photo, video, voice message or file: the built-in sample unless one is given.

        With `fails` LINE can't prepare it.
        """
        kept = medium or sample(kind)
        fields: dict[str, Any] = {"contentProvider": {"type": "line"}}
        if kind == "file":
            fields = {"fileName": kept.name, "fileSize": kept.size}
        elif kind != "image":
            fields["duration"] = duration_ms
        with self._platform.watch.changing():
            event = self._message(kind, user, chat, **fields)
            ready_at = self._platform.clock.monotonic() + preparing_seconds
            content = Content(kind, kept, ready_at, fails)
            self._platform.contents.keep(event["message"]["id"], content)
            return event

    def unsend(self, message: str, user: Who, *, chat: Where = None) -> Event:
        """Takes back the message of this id."""
        with self._platform.watch.changing():
            author, group = self._author(user, chat)
            bubble = self._own_bubble(message, author, group)
            bubble.unsent = True
            bubble.message = {"type": bubble.message["type"]}
            self._platform.contents.unsend(message)
            self._platform.show(bubble)
            event = self._event("unsend", author, group, unsend={"messageId": message})
            return self._noted(event, author.user_id, hidden=True)

    def edit(self, message: str, user: Who, text: str, *, chat: Where = None) -> Event:
        """Gives the text message of this id another text: in groups only, as in LINE since July
        2026.
        """
        with self._platform.watch.changing():
            author, group = self._author(user, chat)
            if group is None or group.kind != "group":
                raise NotPossible("LINE's app edits messages in groups only")
            bubble = self._own_bubble(message, author, group)
            if bubble.message["type"] != "text":
                raise NotPossible("LINE's app edits texts only")
            quoted = bubble.message.get("quotedMessageId")
            more = {"quotedMessageId": quoted, "mention": self._mention(text, group)}
            content = events.content("text", message, text=text, **more)
            del content["markAsReadToken"]
            event = self._event("messageEdited", author, group, message=content)
            bubble.message = events.without(content, *events.TOKENS)
            bubble.quote_token, bubble.event_id = content["quoteToken"], event["webhookEventId"]
            bubble.edited, bubble.fate = True, "sending"
            self._platform.show(bubble)
            return self._noted(event, author.user_id, hidden=True)

    def _own_bubble(self, message: str, author: User, group: Group | None) -> Bubble:
        chat_id = group.chat_id if group else author.user_id
        bubble = self._platform.chats.of_message(chat_id, message)
        if bubble is None or bubble.user_id != author.user_id or bubble.unsent:
            raise UnknownChat(f"no message {message} of this user in this chat")
        return bubble

    def postback(
        self,
        user: Who,
        data: str,
        *,
        chat: Where = None,
        params: dict[str, str] | None = None,
        shown: str | None = None,
    ) -> Event:
        """`shown` is the action's displayText: the chat shows it as the user's words."""
        details = {"data": data, **({"params": params} if params else {})}
        said = {"type": "text", "text": shown} if shown else None
        return self._noticed("postback", user, chat, said, postback=details)

    def richmenuswitch(self, user: Who, alias: str, data: str) -> Event:
        """Links the user to the rich menu of this alias."""
        with self._platform.watch.changing():
            author, _ = self._author(user, None)
            status = self._platform.menus.switch(author.user_id, alias)
            new = {"newRichMenuAliasId": alias} if status == "SUCCESS" else {}
            return self.postback(author, data, params={**new, "status": status})

    def video_play_complete(self, user: Who, tracking: str) -> Event:
        """Sees a video of the bot to its end, by the `trackingId` that it has in the 1:1 chat."""
        with self._platform.watch.changing():
            shown = self._platform.chats.of(self._user(user).user_id)
            if not any(each.message.get("trackingId") == tracking for each in shown):
                raise UnknownChat(f"no video with the tracking id {tracking} in this chat")
            details = {"videoPlayComplete": {"trackingId": tracking}}
            return self._noticed("videoPlayComplete", user, None, **details)

    def beacon(
        self,
        user: Who,
        *,
        hwid: str = "d41d8cd98f",
        beacon: Literal["enter", "banner", "stay"] = "enter",
        dm: str | None = None,
    ) -> Event:
        """Comes near a LINE Beacon, taps its banner, or stays there; `dm` is its device message."""
        details = {"hwid": hwid, "type": beacon, **({"dm": dm} if dm else {})}
        return self._noticed("beacon", user, None, beacon=details)

    def account_link(self, user: Who, token: str, nonce: str) -> Event:
        """Opens LINE's page for account linking with a link token and the bot's nonce.

        Linking fails for a user to whom the token was not issued; the event then names no user.
        """
        with self._platform.watch.changing():
            author = self._user(user)
            owner = self._platform.link_tokens.pop(token)
            if owner is None:
                raise NotPossible("the link token is used, expired or unknown")
            if not 10 <= len(nonce) <= 255:
                raise NotPossible("a nonce has 10 to 255 characters")
            is_right = owner == author.user_id
            link = {"result": "ok" if is_right else "failed", "nonce": nonce}
            if is_right:
                return self._noticed("accountLink", user, None, link=link)
            event = self._event("accountLink", author, None, link=link)
            del event["source"], event["replyToken"]
            return event

    def follow(self, user: Who) -> Event:
        """Adds the bot as a friend, or unblocks it."""
        with self._platform.watch.changing():
            author = self._user(user)
            event = self._event("follow", author, None, follow={"isUnblocked": author.blocked})
            author.friend, author.blocked = True, False
            author.followed_at = author.followed_at or self._platform.clock.time()
            self._platform.show_people()
            return self._noted(event, author.user_id)

    def unfollow(self, user: Who) -> Event:
        """Blocks the bot."""
        with self._platform.watch.changing():
            author = self._user(user)
            author.friend, author.blocked = False, True
            author.blocked_at = self._platform.clock.time()
            self._platform.show_people()
            return self._noted(self._event("unfollow", author, None), author.user_id)

    def join(self, chat: Group | str) -> Event:
        return self._presence("join", chat)

    def leave(self, chat: Group | str) -> Event:
        return self._presence("leave", chat)

    def _presence(self, kind: str, group: Group | str) -> Event:
        with self._platform.watch.changing():
            place = self._group(group)
            place.present = kind == "join"
            self._platform.show_people()
            return self._noted(self._event(kind, None, place), None)

    def member_joined(self, group: Group | str, *users: Who) -> Event:
        return self._members("memberJoined", group, users)

    def member_left(self, group: Group | str, *users: Who) -> Event:
        return self._members("memberLeft", group, users)

    def _members(self, kind: str, group: Group | str, users: Sequence[Who]) -> Event:
        with self._platform.watch.changing():
            place, people = self._present_group(group), [self._user(user) for user in users]
            moved = [each.user_id for each in people]
            if kind == "memberJoined":
                place.members = list(dict.fromkeys([*place.members, *moved]))
            else:
                place.members = [user_id for user_id in place.members if user_id not in moved]
            self._platform.show_people()
            members = {"members": [events.source(each) for each in people]}
            details = {kind.removeprefix("member").lower(): members}
            event = self._event(kind, None, place, **details)
            return self._noted(event, moved[0] if moved else None)

    def _message(self, kind: str, user: Who, chat: Where, **fields: Any) -> Event:
        with self._platform.watch.changing():
            content = events.content(kind, self._platform.message_ids.take(), **fields)
            author, group = self._author(user, chat)
            event = self._event("message", author, group, message=content)
            if group is None:
                author.wrote_at = self._platform.clock.time()
            return self._noted(event, author.user_id, events.without(content, *events.TOKENS))

    def _noticed(
        self, kind: str, user: Who, chat: Where, said: dict[str, Any] | None = None, **details: Any
    ) -> Event:
        """An event that is no message; `said` is what the chat shows instead of a notice."""
        with self._platform.watch.changing():
            author, group = self._author(user, chat)
            return self._noted(self._event(kind, author, group, **details), author.user_id, said)

    def _event(self, kind: str, user: User | None, group: Group | None, **details: Any) -> Event:
        now = self._platform.clock.time()
        return events.event(kind, now=now, source=events.source(user, group), **details)

    def _noted(
        self,
        event: Event,
        user_id: str | None,
        message: dict[str, Any] | None = None,
        *,
        hidden: bool = False,
    ) -> Event:
        bubble = self._platform.chats.add(
            events.chat_id_of(event) or "",
            at=event["timestamp"] / 1000,
            speaker="hidden" if hidden else "notice" if message is None else "user",
            message=message or _notice(event),
            user_id=user_id,
            message_id=message.get("id") if message else None,
            quote_token=event.get("message", {}).get("quoteToken"),
            event_id=event["webhookEventId"],
            fate="sending",
            event=event,
        )
        self._platform.show(bubble)
        return event

    def _author(self, user: Who, chat: Where) -> tuple[User, Group | None]:
        author = self._user(user)
        if chat is None:
            if author.blocked:
                raise NotPossible("the user has blocked the bot")
            return author, None
        group = self._present_group(chat)
        if author.user_id not in group.members:
            raise NotPossible("the user is not a member of this chat")
        return author, group

    def _mention(self, text: str, chat: Group | str) -> dict[str, Any] | None:
        with self._platform.watch.changing():
            people = {one: self._user(one).name for one in self._group(chat).members}
            people |= {self._platform.bot_user_id: self._platform.options.bot_name}
            return events.mention(text, people, bot=self._platform.bot_user_id)

    def _present_group(self, group: Group | str) -> Group:
        place = self._group(group)
        if not place.present:
            raise NotPossible("the bot is not in this chat")
        return place

    def _user(self, user: Who) -> User:
        return self._platform.world.user(user if isinstance(user, str) else user.user_id)

    def _group(self, group: Group | str) -> Group:
        return self._platform.world.group(group if isinstance(group, str) else group.chat_id)


def _notice(event: Event) -> dict[str, Any]:
    notice: dict[str, Any] = {"type": event["type"], **event.get("follow", {})}
    if postback := event.get("postback"):
        notice["text"] = postback["data"]
    return notice
