"""A bot with a handler for each kind of event, one client for all, made at import."""

from linebot.v3 import WebhookHandler
from linebot.v3.messaging import Configuration, MessagingApi, ReplyMessageRequest, TextMessage
from linebot.v3.webhooks import (
    FollowEvent,
    ImageMessageContent,
    JoinEvent,
    LeaveEvent,
    LocationMessageContent,
    MessageEvent,
    StickerMessageContent,
    TextMessageContent,
    UnfollowEvent,
)

from linedesk import ApiClient

handler = WebhookHandler("the front desk checks signatures")
line_bot_api = MessagingApi(ApiClient(Configuration(access_token="taken from the settings")))
noted = []


def reply(event, text):
    line_bot_api.reply_message(
        ReplyMessageRequest(reply_token=event.reply_token, messages=[TextMessage(text=text)])
    )


@handler.add(MessageEvent, message=TextMessageContent)
def handle_text(event, destination):
    reply(event, f"{destination}: {event.message.text}")


@handler.add(MessageEvent, message=(StickerMessageContent, LocationMessageContent))
def handle_sticker_and_location(event):
    reply(event, f"{event.message.type}ですね")


@handler.add(MessageEvent)
def handle_other_messages(event):
    kind = "photo" if isinstance(event.message, ImageMessageContent) else event.message.type
    reply(event, f"any other message: {kind}")


@handler.add(FollowEvent)
def handle_follow(event):
    reply(event, "はじめまして")


@handler.add(JoinEvent)
def handle_join(event):
    reply(event, "こんにちは、みなさん")


@handler.add(UnfollowEvent)
def handle_unfollow(event):
    noted.append(("unfollow", event.source.user_id))


@handler.add(LeaveEvent)
def handle_leave():
    noted.append(("leave", None))


@handler.default()
def handle_default(event):
    noted.append((event.type, type(event).__name__))
