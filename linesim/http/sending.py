"""Reply, push and multicast: what LINE checks, in its order, and what then appears in the chats.

Whoever calls holds the simulator's lock, so that a token or key is judged and used up in one step.
"""

from collections.abc import Sequence
from typing import Any

from linesim.http import validation
from linesim.http.answers import Answer, json_answer
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.platform import Platform

Sent = list[dict[str, str]]


def note_address(platform: Platform, call: Call) -> None:
    """Notes whom the body addresses, whatever becomes of the call; for a reply by its token."""
    match call.body:
        case {"replyToken": str(token)}:
            if known := platform.reply_tokens.find(token):
                call.chat_id, call.user_id = known.chat_id, known.user_id
                call.event_id = known.event_id
        case {"to": str(to)} | {"chatId": str(to)}:
            call.chat_id = to
            call.user_id = to if to in platform.world.users else None


def reply(platform: Platform, call: Call) -> Answer:
    validation.check_reply(call.body)
    spent = platform.reply_tokens.spend(call.body["replyToken"])
    sent = _sent_messages(platform, call)
    call.accepted = True
    _show(platform, call, spent.chat_id, sent)
    return json_answer({"sentMessages": sent})


def push(platform: Platform, call: Call) -> Answer:
    _refuse_accepted_key(platform, call)
    validation.check_push(call.body)
    chat_id = call.body["to"]
    _refuse_unknown_chat(platform, chat_id)
    sent = _accept_counted(platform, call, [chat_id])
    return json_answer({"sentMessages": sent})


def multicast(platform: Platform, call: Call) -> Answer:
    """User ids that nobody has are taken and reach nobody; ids of groups and rooms are refused."""
    _refuse_accepted_key(platform, call)
    validation.check_multicast(call.body)
    to = list(dict.fromkeys(call.body["to"]))
    for place, user_id in enumerate(to):
        if not user_id.startswith("U"):
            raise errors.invalid_property(f"to[{place}]")
    _accept_counted(platform, call, to)
    return json_answer({})


def validate(platform: Platform, call: Call) -> Answer:
    validation.check_messages(call.body)
    return json_answer({})


def _refuse_accepted_key(platform: Platform, call: Call) -> None:
    if call.retry_key is None:
        return
    if known := platform.retry_keys.find(call.retry_key):
        call.accepted_request_id = known.request_id
        call.retry_differs = known.body != call.body
        raise errors.already_accepted(known.request_id, known.sent_messages)


def _refuse_unknown_chat(platform: Platform, chat_id: str) -> None:
    """A user nobody has, or a group that the bot is not in; a user who blocked the bot is known."""
    group = platform.world.groups.get(chat_id)
    if chat_id not in platform.world.users and not (group and group.present):
        raise errors.invalid_property("to")


def _accept_counted(platform: Platform, call: Call, to: Sequence[str]) -> Sent:
    now = platform.clock.time()
    reached = {chat_id: platform.world.people_reached(chat_id, now) for chat_id in to}
    people = sum(len(users) for users in reached.values())
    platform.quota.check(people)
    platform.quota.count(people)
    sent = _sent_messages(platform, call)
    call.accepted = True
    if call.retry_key is not None:
        shown = sent if call.endpoint == "push" else []
        platform.retry_keys.accept(call.retry_key, call.request_id, call.body, shown)
    for chat_id in to:
        _show(platform, call, chat_id, sent)
    return sent


def _sent_messages(platform: Platform, call: Call) -> Sent:
    """One entry for each message, with a quote token for the kinds that can be quoted."""
    quotable = {"text", "textV2", "sticker", "image", "video", "template", "flex"}
    sent = []
    for message in call.body["messages"]:
        entry = {"id": platform.message_ids.take()}
        if message["type"] in quotable:
            entry["quoteToken"] = ids.quote_token()
        sent.append(entry)
    return sent


def _show(platform: Platform, call: Call, chat_id: str, sent: Sequence[dict[str, Any]]) -> None:
    """Where nobody is reached, for instance after a block, nothing arrives, and LINE does not say
    so.
    """
    now = platform.clock.time()
    reached = platform.world.people_reached(chat_id, now)
    answered_user = call.endpoint == "reply" and chat_id in platform.world.users
    if not reached and not (answered_user and not platform.world.users[chat_id].blocked):
        return
    for message, entry in zip(call.body["messages"], sent, strict=True):
        bubble = platform.chats.add(
            chat_id,
            at=now,
            speaker="bot",
            message=message,
            message_id=entry["id"],
            event_id=call.event_id,
            via=call.endpoint,
            request_id=call.request_id,
        )
        platform.show(bubble)
