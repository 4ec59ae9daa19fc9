"""An echo bot as line-bot-sdk's users write it: a client for each event, closed after it."""

import os

from linebot.v3 import WebhookHandler
from linebot.v3.messaging import Configuration, MessagingApi, ReplyMessageRequest, TextMessage
from linebot.v3.webhooks import MessageEvent, TextMessageContent

from linedesk import ApiClient

configuration = Configuration(access_token=os.environ.get("LINE_CHANNEL_ACCESS_TOKEN", "?"))
handler = WebhookHandler(os.environ.get("LINE_CHANNEL_SECRET", "?"))


@handler.add(MessageEvent, message=TextMessageContent)
def handle_message(event):
    with ApiClient(configuration) as api_client:
        line_bot_api = MessagingApi(api_client)
        line_bot_api.reply_message_with_http_info(
            ReplyMessageRequest(
                reply_token=event.reply_token, messages=[TextMessage(text=event.message.text)]
            )
        )
