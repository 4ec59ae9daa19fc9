"""What a bot does in a chat without a message: read marks, account linking, and leaving.

Callers hold the simulator's lock.
"""

from linesim.http.answers import Answer, json_answer
from linesim.http.reading import in_chat
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.platform import Platform
from linesim.model.tokens import LinkToken
from linesim.people.drafts import Drafts

LINK_TOKEN_SECONDS = 10 * 60


def mark_as_read(platform: Platform, call: Call) -> Answer:
    """All messages of the chat up to the token's."""
    bubble = platform.chats.of_read_token(call.body["markAsReadToken"])
    if bubble is None:
        raise errors.invalid_read_token()
    call.chat_id = bubble.chat_id
    _read(platform, bubble.chat_id, up_to=bubble.number)
    return json_answer({})


def mark_all_as_read(platform: Platform, call: Call) -> Answer:
    """All messages of a user's 1:1 chat."""
    call.chat_id = call.user_id = user_id = call.body["chat"]["userId"]
    if user_id not in platform.world.users:
        raise errors.invalid_property("'chat.chatId'")
    _read(platform, user_id)
    return json_answer({})


def _read(platform: Platform, chat_id: str, *, up_to: int | None = None) -> None:
    for bubble in platform.chats.of(chat_id):
        is_in = up_to is None or bubble.number <= up_to
        if is_in and bubble.speaker == "user" and not bubble.read:
            bubble.read = True
            platform.show(bubble)


def link_token(platform: Platform, call: Call, user_id: str) -> Answer:
    """For the page of account linking; it is used up by the act `accountLink`."""
    if user_id not in platform.world.users:
        raise errors.not_found()
    now, tokens = platform.clock.time(), platform.link_tokens
    for old in [one for one, known in tokens.items() if now >= known.until]:
        del tokens[old]
    token = ids.link_token()
    tokens[token] = LinkToken(user_id, now + LINK_TOKEN_SECONDS)
    return json_answer({"linkToken": token})


def leave(platform: Platform, call: Call, **chat: str) -> Answer:
    group = in_chat(platform, call, **chat)
    return json_answer({}, event=Drafts(platform).leave(group))
