"""What a bot does in a chat without a message: read marks, account linking, and leaving.

Callers hold the simulator's lock.
"""

import math

from linesim.http.answers import Answer, json_answer
from linesim.http.reading import in_chat
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.platform import Platform
from linesim.people.drafts import Drafts

NOT_ITS_TOKEN = (
    "Invalid markAsReadToken. Tokens must be used by the bot that received them via Webhook."
)


def mark_read(platform: Platform, call: Call) -> Answer:
    """All messages of the chat up to the token's."""
    bubble = platform.chats.of_read_token(call.body["markAsReadToken"])
    if bubble is None:
        raise LineError(400, NOT_ITS_TOKEN)
    return _mark(platform, call, bubble.chat_id, bubble.number)


def mark_all_read(platform: Platform, call: Call) -> Answer:
    """All messages of a user's 1:1 chat."""
    if (user_id := call.body["chat"]["userId"]) not in platform.world.users:
        raise errors.invalid_property("'chat.chatId'")
    return _mark(platform, call, user_id, math.inf)


def _mark(platform: Platform, call: Call, chat_id: str, up_to: float) -> Answer:
    call.chat_id = chat_id
    for bubble in platform.chats.of(chat_id):
        if bubble.number <= up_to and bubble.speaker == "user" and not bubble.read:
            bubble.read = True
            platform.show(bubble)
    return json_answer({})


def link_token(platform: Platform, call: Call, user_id: str) -> Answer:
    """For the page of account linking; the act `accountLink` uses it up."""
    if user_id not in platform.world.users:
        raise errors.not_found()
    token = ids.link_token()
    platform.link_tokens[token] = user_id
    return json_answer({"linkToken": token})


def leave_group(platform: Platform, call: Call, **chat: str) -> Answer:
    group = in_chat(platform, call, **chat)
    return json_answer({}, event=Drafts(platform).leave(group))


leave_room = leave_group
