"""A chat as a test: a Python file for pytest that plays the users' actions against the bot with
linedesk's BotTest, and expects the bot's messages as they were. Pure text: linedesk is not needed.

An answer by a reply token belongs to its event, a push to the action before it. One that came later
is expected after as much time; after a move of the clock that is an assertion of its own, since a
timer must not be early.
"""

import math
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from textwrap import indent
from typing import Any

from linesim.model.endpoints import JAPAN
from linesim.model.errors import NotPossible
from linesim.model.media import SAMPLES
from linesim.model.platform import Platform
from linesim.model.world import Bubble

# No time passes in the test before an answer within this time, or before an action within that.
AT_ONCE_SECONDS = 0.5
LEAST_WAIT_SECONDS = 10
MOST_MEDIUM_BYTES = 200_000
MOST_LETTERS = 60
# The kit gives these itself.
OWN = frozenset({"id", "quoteToken", "markAsReadToken"})
COMMON = {"type", "webhookEventId", "deliveryContext", "timestamp", "source", "replyToken", "mode"}

FILE = '''"""A chat that linesim recorded. Actions played: {played}; not played: {left}."""

{decoder}from datetime import datetime

import pytest

from linedesk.testing import BotTest

{names}
START = datetime.fromisoformat({start!r})

{bot}
def said(*answers):
    """The bot's messages in this chat: texts as texts, others as LINE's JSON."""
    sent = [each for one in answers for each in one.sent if CHAT in each.to]
    return [shown(message) for each in sent for message in each.messages]


def shown(message):
    message = {{name: value for name, value in message.items() if name != "quoteToken"}}
    return message["text"] if message.keys() == {{"type", "text"}} else message


def test_recorded(bot, bot_settings, bot_secrets):
    kit = BotTest(bot, settings=bot_settings, secrets=bot_secrets, start=START)
{body}
{media}'''
BOT = """
@pytest.fixture
def bot():
    from {module} import {name}

    return {name}

"""


class _Code(str):
    """An expression in place of a value."""

    __repr__ = str.__str__


@dataclass
class _Step:
    act: Bubble
    answers: list[Bubble] = field(default_factory=list)


def test_of(platform: Platform, chat_id: str) -> str:
    """The file's text. Raises NotPossible for a chat without anything to play. Callers hold the
    simulator's lock.
    """
    recording = _Recording(platform, chat_id)
    lines = list(recording.lines())
    if not recording.played:
        raise NotPossible("the bot got no action of this chat that a test could play")
    module, _, name = (platform.options.bot or "").partition(":")
    media = [f"{name} = b64decode({b64encode(data)!r})" for data, name in recording.media.items()]
    return FILE.format(
        played=recording.played,
        left=recording.left,
        decoder="from base64 import b64decode\n" if media else "",
        names="\n".join(f"{name} = {id_!r}" for id_, name in recording.names.items())
        + f"\nCHAT = {recording.name(chat_id)}",
        start=recording.start.isoformat(),
        bot=BOT.format(module=module, name=name) if module else "",
        body=indent("\n".join([*recording.setting(), *lines]), "    "),
        media="\n\n" + "\n".join(media) + "\n" if media else "",
    )


class _Recording:
    def __init__(self, platform: Platform, chat_id: str) -> None:
        self._platform, self._chat_id = platform, chat_id
        self._bubbles = platform.chats.all_of(chat_id)
        self.names: dict[str, _Code] = {}
        self.media: dict[bytes, _Code] = {}
        self.played = self.left = 0
        self.name(chat_id)
        # Messages to which later events refer by their ids.
        events = [bubble.event or {} for bubble in self._bubbles]
        self._named = {event["unsend"]["messageId"] for event in events if "unsend" in event}
        self._named |= {
            event["message"]["id"] for event in events if event.get("type") == "messageEdited"
        }
        at = next((bubble.at for bubble in self._bubbles if bubble.speaker != "bot"), 0.0)
        self.start = datetime.fromtimestamp(int(at), timezone(JAPAN))
        self._now = 0  # seconds since the start, in the test
        self._is_away = False

    def name(self, id_: str) -> _Code:
        """The variable of a user, group or room."""
        kind = "C" if id_ in self._platform.world.groups else "U"
        return self.names.setdefault(id_, _Code(f"{kind}{len(self.names) + 1}"))

    def setting(self) -> Iterator[str]:
        """What the kit cannot know of the people."""
        for id_, name in self.names.items():
            if user := self._platform.world.users.get(id_):
                yield f"kit.names({name}, {user.name!r})"
            elif group := self._platform.world.groups.get(id_):
                yield f"kit.members[{name}] = {len(group.members)}"

    def lines(self) -> Iterator[str]:
        steps, known = list[_Step | str](), dict[str, _Step]()
        step: _Step | None = None
        for bubble in self._bubbles:
            if bubble.speaker != "bot":
                if why := self._why_not(bubble):
                    self.left += 1
                    kind = (bubble.event or bubble.message)["type"]
                    steps.append(f"# Not played: {kind!r}, {why}.")
                    continue
                step = known[bubble.event_id or ""] = _Step(bubble)
                steps.append(step)
            elif answered := known.get(bubble.event_id or "", step):
                answered.answers.append(bubble)
            else:
                steps.append("# Not expected: a message of the bot before any action.")
        for one in steps:
            yield from [one] if isinstance(one, str) else self._of(one)

    def _why_not(self, bubble: Bubble) -> str | None:
        """Why the action cannot be played."""
        if bubble.event is None:
            return "since its event is not kept"
        if bubble.fate != "delivered":
            return "the bot did not get it"
        if bubble.event["mode"] == "standby":
            return "the bot was on standby"
        if unsent := bubble.event.get("unsend"):
            origin = self._platform.chats.of_message(self._chat_id, unsent["messageId"])
            if origin is None or origin.message["type"] in SAMPLES:
                return "since the kit names no media by their ids"
        return None

    def _of(self, step: _Step) -> Iterator[str]:
        self.played += 1
        kind = (step.act.event or {})["type"]
        if (wait := int(step.act.at - self.start.timestamp()) - self._now) >= LEAST_WAIT_SECONDS:
            yield self._assertion([self._advance(wait)], [])
        # While the bot is blocked or out of the group, what it sends is not seen.
        self._is_away = kind in ("unfollow", "leave") or (
            self._is_away and kind not in ("follow", "join")
        )
        calls, expected, before = [self._call(step.act)], list[Bubble](), step.act
        for answer in step.answers:
            wait = math.ceil(answer.at - self.start.timestamp()) - self._now
            if (is_moved := answer.ahead > before.ahead) and wait > 0:
                yield self._assertion(calls, expected)
                calls, expected = [], []
            if wait > 0 and (is_moved or answer.at - step.act.at > AT_ONCE_SECONDS):
                calls.append(self._advance(wait))
            expected.append(answer)
            before = answer
        yield self._assertion(calls, expected)

    def _assertion(self, calls: list[str], expected: list[Bubble]) -> str:
        messages = _code([_shown(one.message) for one in expected])
        return calls[0] if self._is_away else f"assert said({', '.join(calls)}) == {messages}"

    def _advance(self, seconds: int) -> str:
        self._now += seconds
        return f"kit.advance({seconds})"

    def _call(self, act: Bubble) -> str:
        """The kit's call for a user's action."""
        event = act.event or {}
        source = event["source"]
        user = self.name(source["userId"]) if "userId" in source else None
        group = None if source["type"] == "user" else self.name(self._chat_id)
        match event:
            case {"type": "message", "message": message}:
                return self._message(user, group, message)
            case {"type": "postback", "postback": {"data": data, **more}}:
                return _call("presses", user, data, params=more.get("params"), group=group)
            case {"type": "follow", "follow": {"isUnblocked": unblocked}}:
                return _call("follows", user, unblocked=unblocked or None)
            case {"type": "unfollow"}:
                return _call("unfollows", user)
            case {"type": "join" | "leave" as kind}:
                return _call(f"{kind}s", group)
            case {"type": "memberJoined", "joined": {"members": [{"userId": one}]}}:
                return _call("member_joins", self.name(one), group=group)
            case {"type": "memberLeft", "left": {"members": [{"userId": one}]}}:
                return _call("member_leaves", self.name(one), group=group)
            case {"type": "unsend", "unsend": {"messageId": message_id}}:
                return _call("unsends", user, message_id, group=group)
            case {"type": "messageEdited", "message": {"text": text, "id": id_}}:
                return _call("edits", user, text, group=group, message_id=id_)
        others = {name: value for name, value in event.items() if name not in COMMON}
        return _call("sends", user, {"type": event["type"], **others}, group=group)

    def _message(self, user: _Code | None, group: _Code | None, message: dict[str, Any]) -> str:
        own = OWN - {"id"} if message["id"] in self._named else OWN
        content = {name: value for name, value in message.items() if name not in own}
        if content.keys() == {"type", "text"}:
            return _call("says", user, content["text"], group=group)
        if content["type"] not in SAMPLES:
            return _call("sends", user, content, group=group)
        return _call(
            content["type"],
            user,
            data=self._medium(message["id"]),
            name=content.get("fileName"),
            group=group,
        )

    def _medium(self, message_id: str) -> _Code | None:
        """The variable of its bytes; None for a large one, for which the kit has its own."""
        kept = self._platform.contents.kept.get(message_id)
        if kept is None or kept.medium.size > MOST_MEDIUM_BYTES:
            return None
        data = b"".join(kept.medium.pieces())
        return self.media.setdefault(data, _Code(f"DATA_{len(self.media) + 1}"))


def _call(method: str, *values: Any, **named: Any) -> str:
    """A call without the arguments that are None."""
    given = [_code(value) for value in values]
    given += [f"{name}={_code(value)}" for name, value in named.items() if value is not None]
    return f"kit.{method}({', '.join(given)})"


def _code(value: Any) -> str:
    """The value as Python writes it, a long list or dict with a line for each of its items."""
    if not isinstance(value, list | dict) or len(repr(value)) <= MOST_LETTERS:
        return repr(value)
    is_list = isinstance(value, list)
    begin, end = "[]" if is_list else "{}"
    parts = [_code(one) if is_list else f"{one!r}: {_code(value[one])}" for one in value]
    return "\n".join([begin, *(indent(f"{part},", "    ") for part in parts), end])


def _shown(message: dict[str, Any]) -> Any:
    """Like `shown` in the file."""
    message = {name: value for name, value in message.items() if name != "quoteToken"}
    return message["text"] if message.keys() == {"type", "text"} else message
