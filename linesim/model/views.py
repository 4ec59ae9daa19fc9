"""The simulator's records as JSON, for pages and other processes; `at` is Unix milliseconds."""

from typing import Any

from linesim.model.calls import Call
from linesim.model.clock import Clock
from linesim.model.deliveries import Delivery
from linesim.model.world import Bubble, Group, User

View = dict[str, Any]


def clock_view(clock: Clock) -> View:
    """The time in Unix seconds, and the seconds by which the clock was moved ahead."""
    return {"now": clock.time(), "ahead": clock.ahead}


def user_view(user: User) -> View:
    return {
        "userId": user.user_id,
        "name": user.name,
        "friend": user.friend,
        "blocked": user.blocked,
    }


def group_view(group: Group) -> View:
    return {
        "chatId": group.chat_id,
        "name": group.name,
        "kind": group.kind,
        "members": list(group.members),
        "present": group.present,
    }


def bubble_view(bubble: Bubble) -> View:
    return {
        "number": bubble.number,
        "chatId": bubble.chat_id,
        "at": int(bubble.at * 1000),
        "speaker": bubble.speaker,
        "userId": bubble.user_id,
        "message": bubble.message,
        "messageId": bubble.message_id,
        "eventId": bubble.event_id,
        "fate": bubble.fate,
        "status": bubble.status,
        "error": bubble.error,
        "via": bubble.via,
        "unsent": bubble.unsent,
    }


def delivery_view(delivery: Delivery) -> View:
    return {
        "number": delivery.number,
        "at": int(delivery.at * 1000),
        "started": delivery.started,
        "answered": delivery.answered,
        "milliseconds": delivery.milliseconds,
        "status": delivery.status,
        "error": delivery.error,
        "delivered": delivery.delivered,
        "eventIds": list(delivery.event_ids),
        "events": list(delivery.events),
    }


def call_view(call: Call) -> View:
    return {
        "number": call.number,
        "started": call.started,
        "finished": call.finished,
        "at": int(call.at * 1000),
        "endpoint": call.endpoint,
        "method": call.method,
        "path": call.path,
        "requestId": call.request_id,
        "retryKey": call.retry_key,
        "body": call.body,
        "status": call.status,
        "message": call.message,
        "accepted": call.accepted,
        "fault": call.fault,
        "chatId": call.chat_id,
        "userId": call.user_id,
        "eventId": call.event_id,
        "acceptedRequestId": call.accepted_request_id,
        "retryDiffers": call.retry_differs,
        "paid": call.paid,
        "unreached": dict(call.unreached),
        "tokenLapsed": call.token_lapsed,
    }
