"""A chat as a test: a Python file for pytest that plays the users' actions against the bot with
linedesk's BotTest, and expects the bot's messages as they were. Pure text: linedesk is not needed.

An answer by a reply token belongs to its event, a push to the action before it. One that came later
is expected after as much time; after a move of the clock that is an assertion of its own, since a
timer must not be early.
"""

import inspect
import math
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime, timezone
from textwrap import indent
from typing import Any

from linesim.model.errors import NotPossible
from linesim.model.events import TOKENS, without
from linesim.model.media import SAMPLES
from linesim.model.platform import Platform
from linesim.model.sent import JAPAN
from linesim.model.world import Bubble

# No time passes in the test before an answer within this time, or before an action within that.
AT_ONCE_SECONDS = 0.5
LEAST_WAIT_SECONDS = 10
MOST_MEDIUM_BYTES = 200_000
MOST_LETTERS = 60
# The kit gives these itself, and the tokens of messages.
COMMON = ("webhookEventId", "deliveryContext", "timestamp", "source", "replyToken", "mode")

FILE = '''"""A chat that linesim recorded. Actions played: {played}; not played: {left}."""

{decoder}from datetime import datetime

import pytest

from linedesk.testing import BotTest

{names}
CHAT = {chat}
START = datetime.fromisoformat({start!r})

{bot}
def said(*answers):
    """The bot's messages in this chat: texts as texts, others as LINE's JSON."""
    sent = [each for one in answers for each in one.sent if CHAT in each.to]
    return [shown(message) for each in sent for message in each.messages]


{shown}

def test_recorded(bot, bot_settings, bot_secrets):
    kit = BotTest(bot, settings=bot_settings, secrets=bot_secrets, start=START)
{body}
{media}'''
BOT = """
@pytest.fixture
def bot():
    from {0} import {1}

    return {1}

"""


def shown(message: dict[str, object]) -> object:
    message = {name: value for name, value in message.items() if name != "quoteToken"}
    return message["text"] if message.keys() == {"type", "text"} else message


def as_test(platform: Platform, chat_id: str) -> str:
    """The file's text. Raises NotPossible for a chat without anything to play. Callers hold the
    simulator's lock.
    """
    recording = _Recording(platform, chat_id)
    lines = list(recording.lines())
    if not recording.played:
        raise NotPossible("the bot got no action of this chat that a test could play")
    media = (
        f"\n\n{name} = b64decode({b64encode(data)!r})\n" for data, name in recording.media.items()
    )
    return FILE.format(
        played=recording.played,
        left=recording.left,
        decoder="from base64 import b64decode\n" if recording.media else "",
        names="\n".join(f"{name} = {id_!r}" for id_, name in recording.names.items()),
        chat=recording.name(chat_id),
        start=recording.start.isoformat(),
        bot=BOT.format(*platform.options.bot.split(":")) if platform.options.bot else "",
        shown=inspect.getsource(shown),
        body=indent("\n".join([*recording.people(), *lines]), "    "),
        media="".join(media),
    )


class _Code(str):
    """An expression in place of a value."""

    __repr__ = str.__str__


class _Recording:
    """`names` and `media` are the file's variables, by ids and contents."""

    def __init__(self, platform: Platform, chat_id: str) -> None:
        self._platform, self._chat_id = platform, chat_id
        self._bubbles = platform.chats.all_of(chat_id)
        # By their reply tokens: the bot got them, even if it told LINE so too late.
        self._answered = {one.event_id for one in self._bubbles if one.speaker == "bot"}
        events = [bubble.event for bubble in self._bubbles if bubble.event]
        self._named = {event["unsend"]["messageId"] for event in events if "unsend" in event}
        self._named |= {one["message"]["id"] for one in events if one["type"] == "messageEdited"}
        self.names, self.media = dict[str, _Code](), dict[bytes, _Code]()
        self.played = self.left = self._now = 0  # _now: seconds since the start, in the test
        self._is_away = False
        first = next((bubble.at for bubble in self._bubbles if bubble.event), 0)
        self.start = datetime.fromtimestamp(int(first), timezone(JAPAN))

    def name(self, id_: str) -> _Code:
        """The variable of a user, group or room."""
        kind = "C" if id_ in self._platform.world.groups else "U"
        return self.names.setdefault(id_, _Code(f"{kind}{len(self.names) + 1}"))

    def people(self) -> Iterator[str]:
        world = self._platform.world
        for id_, name in self.names.items():
            if user := world.users.get(id_):
                yield f"kit.names({name}, {user.name!r})"
            elif group := world.groups.get(id_):
                yield f"kit.members[{name}] = {len(group.members)}"

    def lines(self) -> Iterator[str]:
        steps, act = dict[int, list[Bubble]](), None
        known = {bubble.event_id: bubble for bubble in self._bubbles if bubble.speaker != "bot"}
        for bubble in self._bubbles:
            if bubble.speaker != "bot":
                act = bubble if self._why_not(bubble) is None else act
                steps[bubble.number] = []
            elif act is not None:
                answered = known.get(bubble.event_id, act)
                steps[answered.number].append(bubble)
            else:
                yield "# Not expected: a message of the bot before any action."
        for bubble in self._bubbles:
            if (answers := steps.get(bubble.number)) is None:
                continue
            if why := self._why_not(bubble):
                self.left += 1
                yield f"# Not played: {bubble.message['type']!r}, {why}."
            else:
                self.played += 1
                yield from self._step(bubble, answers)

    def _why_not(self, bubble: Bubble) -> str | None:
        """Why the action cannot be played."""
        event = bubble.event or {}
        if not event or (bubble.fate != "delivered" and bubble.event_id not in self._answered):
            return "the bot did not get it"
        if event["mode"] == "standby":
            return "the bot was on standby"
        message_id = event.get("unsend", {}).get("messageId")
        origin = self._platform.chats.of_message(self._chat_id, message_id)
        is_medium = origin and message_id and origin.message["type"] in SAMPLES
        return "since the kit names no media by their ids" if is_medium else None

    def _step(self, act: Bubble, answers: list[Bubble]) -> Iterator[str]:
        call, kind = self._call(act.event or {}), act.message["type"]
        if (wait := int(act.at - self.start.timestamp()) - self._now) >= LEAST_WAIT_SECONDS:
            yield self._assertion([self._advance(wait)], [])
        # While the bot is blocked or out of the group, what it sends is not seen.
        self._is_away = kind in ("unfollow", "leave") or (
            self._is_away and kind not in ("follow", "join")
        )
        calls, expected, ahead = [call], list[Bubble](), act.ahead
        for answer in answers:
            wait = math.ceil(answer.at - self.start.timestamp()) - self._now
            if wait > 0 and answer.ahead > ahead:
                yield self._assertion(calls, expected)
                calls, expected = [], []
            if wait > 0 and answer.at - act.at > AT_ONCE_SECONDS:
                calls.append(self._advance(wait))
            expected.append(answer)
            ahead = answer.ahead
        yield self._assertion(calls, expected)

    def _advance(self, seconds: int) -> str:
        self._now += seconds
        return f"kit.advance({seconds})"

    def _assertion(self, calls: list[str], expected: list[Bubble]) -> str:
        messages = _code([shown(one.message) for one in expected])
        return calls[0] if self._is_away else f"assert said({', '.join(calls)}) == {messages}"

    def _call(self, event: dict[str, Any]) -> str:
        """The kit's call for a user's action."""
        source = event["source"]
        user = self.name(source["userId"]) if "userId" in source else None
        group = None if source["type"] == "user" else self.name(self._chat_id)
        match event:
            case {"type": "message", "message": message}:
                return self._message(user, group, message)
            case {"type": "messageEdited", "message": {"text": text, "id": id_}}:
                return _call("edits", user, text, group=group, message_id=id_)
            case {"postback": {"data": data, **more}}:
                return _call("presses", user, data, params=more.get("params"), group=group)
            case {"follow": {"isUnblocked": unblocked}}:
                return _call("follows", user, unblocked=unblocked or None)
            case {"type": "unfollow"}:
                return _call("unfollows", user)
            case {"type": "join" | "leave" as kind}:
                return _call(f"{kind}s", group)
            case {"joined": {"members": [{"userId": one}]}}:
                return _call("member_joins", self.name(one), group=group)
            case {"left": {"members": [{"userId": one}]}}:
                return _call("member_leaves", self.name(one), group=group)
            case {"unsend": {"messageId": message_id}}:
                return _call("unsends", user, message_id, group=group)
        return _call("sends", user, without(event, *COMMON), group=group)

    def _message(self, user: _Code | None, group: _Code | None, message: dict[str, Any]) -> str:
        hidden = TOKENS if message["id"] in self._named else (*TOKENS, "id")
        content = without(message, *hidden)
        if content.keys() == {"type", "text"}:
            return _call("says", user, content["text"], group=group)
        if (kind := content["type"]) not in SAMPLES:
            return _call("sends", user, content, group=group)
        more = {"name": content.get("fileName"), "data": self._medium(message["id"])}
        return _call(kind, user, **more, group=group)

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
