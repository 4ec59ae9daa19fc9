"""An echo bot with line-bot-sdk. Without LINE_API_BASE it calls LINE itself."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from linebot.v3 import WebhookHandler
from linebot.v3.exceptions import InvalidSignatureError
from linebot.v3.messaging import (
    ApiClient,
    Configuration,
    MessagingApi,
    MessagingApiBlob,
    ReplyMessageRequest,
    TextMessage,
)
from linebot.v3.webhooks import ImageMessageContent, MessageEvent, TextMessageContent

configuration = Configuration(
    host=os.environ.get("LINE_API_BASE"),
    access_token=os.environ["LINE_CHANNEL_ACCESS_TOKEN"],
)
handler = WebhookHandler(os.environ["LINE_CHANNEL_SECRET"])


@handler.add(MessageEvent, message=TextMessageContent)
def text(event):
    reply(event, event.message.text)


@handler.add(MessageEvent, message=ImageMessageContent)
def image(event):
    with ApiClient(configuration) as client:
        content = MessagingApiBlob(client).get_message_content(event.message.id)
    reply(event, f"{len(content)} bytes")


def reply(event, words):
    with ApiClient(configuration) as client:
        MessagingApi(client).reply_message(
            ReplyMessageRequest(reply_token=event.reply_token, messages=[TextMessage(text=words)])
        )


class Callback(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        try:
            handler.handle(body, self.headers.get("x-line-signature", ""))
            self.send_response(200)
        except InvalidSignatureError:
            self.send_response(400)
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(
        ("127.0.0.1", int(os.environ.get("PORT", "3000"))), Callback
    ).serve_forever()
