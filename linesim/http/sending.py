"""Reply, push, multicast, broadcast: what LINE checks beyond the body, and the result in the chats.

Callers hold the simulator's lock, so that a token or key is checked and used up in one step.
"""

from collections.abc import Mapping, Sequence

from linesim.http.answers import Answer, json_answer
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.platform import Platform
from linesim.model.world import Unreached, Way

Reached = Mapping[str, list[str] | Unreached]
Sent = list[dict[str, str]]


def note_address(platform: Platform, call: Call) -> None:
    """Notes the recipients of the body, whatever the call's outcome; for a reply by its token."""
    match call.body:
        case {"replyToken": str(token)}:
            if known := platform.reply_tokens.find(token):
                call.chat_id, call.user_id = known.chat_id, known.user_id
                call.event_id = known.event_id
        case {"to": str(to)} | {"chatId": str(to)}:
            call.chat_id = to
            call.user_id = to if to in platform.world.users else None


def reply(platform: Platform, call: Call) -> Answer:
    call.token_lapsed = platform.reply_tokens.has_lapsed(call.body["replyToken"])
    spent = platform.reply_tokens.spend(call.body["replyToken"])
    reached = _reached(platform, [spent.chat_id], "reply")
    return json_answer({"sentMessages": _deliver(platform, call, reached, "reply")})


def push(platform: Platform, call: Call) -> Answer:
    chat_id = call.body["to"]
    _refuse_unknown_chat(platform, chat_id)
    platform.rate_limits.check_recipient(chat_id)
    sent = accept_counted(platform, call, [chat_id], "push")
    return json_answer({"sentMessages": sent})


def multicast(platform: Platform, call: Call) -> Answer:
    """Ids of groups and rooms are refused by their place; the options decide about unknown user
    ids.

    LINE's reference lists unknown ids both as accepted without delivery and as 400. A refused
    multicast reaches no user at all ("The messages aren't sent to any user if an error is
    returned"); an accepted one reaches friends only.
    """
    is_taken = platform.options.unknown_members == "taken"
    for place, user_id in enumerate(call.body["to"]):
        is_known = is_taken or user_id in platform.world.users
        if not user_id.startswith("U") or not is_known:
            raise errors.invalid_property(f"to[{place}]")
    accept_counted(platform, call, list(dict.fromkeys(call.body["to"])), "multicast")
    return json_answer({})


def broadcast(platform: Platform, call: Call) -> Answer:
    accept_counted(platform, call, platform.world.friends(), "broadcast")
    return json_answer({})


def validate_reply(platform: Platform, call: Call) -> Answer:
    """The body alone, which has been checked; so for the other ways, and for rich menus."""
    return json_answer({})


validate_push = validate_multicast = validate_narrowcast = validate_broadcast = validate_reply
validate_menu = validate_reply


def check_key(platform: Platform, call: Call) -> None:
    """LINE blocks each further request with an accepted key, also one with another body."""
    if call.retry_key is None or not (known := platform.retry_keys.find(call.retry_key)):
        return
    call.retry_differs = (known.endpoint, known.body) != (call.endpoint, call.body)
    if known.request_id:
        call.accepted_request_id = known.request_id
        raise errors.already_accepted(known.request_id, known.sent_messages)
    if call.retry_differs:
        raise errors.retry_key_changed()


def _refuse_unknown_chat(platform: Platform, chat_id: str) -> None:
    """Refuses an unknown user, or a group without the bot; a user who blocked the bot is known."""
    group = platform.world.groups.get(chat_id)
    if chat_id not in platform.world.users and not (group and group.present):
        raise errors.not_sent()


def accept_counted(platform: Platform, call: Call, to: Sequence[str], way: Way) -> Sent:
    """Counts the users reached, regardless of the number of messages (docs, "Messaging API
    pricing").
    """
    reached = _reached(platform, to, way)
    people = sum(len(found) for found in reached.values() if isinstance(found, list))
    platform.quota.check(people)
    call.paid, sent = people, _deliver(platform, call, reached, way)
    if call.retry_key is not None:
        known = platform.retry_keys.note(call.retry_key, call.endpoint, call.body)
        known.request_id, known.sent_messages = call.request_id, sent if way == "push" else ()
    return sent


def _reached(platform: Platform, to: Sequence[str], way: Way) -> Reached:
    now = platform.clock.time()
    return {chat_id: platform.world.reach(chat_id, way, now) for chat_id in to}


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


def _deliver(platform: Platform, call: Call, reached: Reached, way: Way) -> Sent:
    """Notes the chats that the call does not reach, for instance after a block: LINE does not
    report them.

    The source of a hand-made event counts as answered, even if linesim does not know it.
    """
    sent, missed, people = _sent_messages(platform, call), [], 0
    for chat_id, found in reached.items():
        if isinstance(found, list):
            people += len(found)
            if found:
                _show(platform, call, chat_id, sent)
        elif way != "reply" or found != "unknown":
            missed.append((chat_id, found))
    call.unreached = tuple(missed)
    platform.sent.count(way, people, call.body.get("customAggregationUnits") or ())
    return sent


def _show(platform: Platform, call: Call, chat_id: str, sent: Sent) -> None:
    if user := platform.world.users.get(chat_id):
        user.loading_until = None
    for message, entry in zip(call.body["messages"], sent, strict=True):
        bubble = platform.chats.add(
            chat_id,
            at=platform.clock.time(),
            speaker="bot",
            message=message,
            message_id=entry["id"],
            quote_token=entry.get("quoteToken"),
            quoted=platform.chats.quoted_id(chat_id, message.get("quoteToken")),
            event_id=call.event_id,
            via=call.endpoint,
            request_id=call.request_id,
        )
        platform.show(bubble)
