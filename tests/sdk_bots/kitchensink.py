"""A bot that uses a bit of everything, in the manner of the SDK's kitchen sink."""

import tempfile

from linebot.v3 import WebhookHandler
from linebot.v3.audience import ApiClient as AudienceClient
from linebot.v3.audience import ManageAudience
from linebot.v3.insight import ApiClient as InsightClient
from linebot.v3.insight import ApiException as InsightException
from linebot.v3.insight import Insight
from linebot.v3.messaging import (
    ApiException,
    Configuration,
    MessagingApi,
    MessagingApiBlob,
    MulticastRequest,
    PushMessageRequest,
    ReplyMessageRequest,
    ShowLoadingAnimationRequest,
    TextMessage,
)
from linebot.v3.webhooks import (
    FileMessageContent,
    ImageMessageContent,
    LeaveEvent,
    MessageEvent,
    PostbackEvent,
    TextMessageContent,
    UserSource,
)

from linedesk import ApiClient

configuration = Configuration(access_token="taken from the settings")
handler = WebhookHandler("the front desk checks signatures")
left = []
saved = []


def answer(line_bot_api, event, *texts):
    messages = [TextMessage(text=text) for text in texts]
    line_bot_api.reply_message(
        ReplyMessageRequest(reply_token=event.reply_token, messages=messages)
    )


@handler.add(MessageEvent, message=TextMessageContent)
def handle_text_message(event):
    text, user_id = event.message.text, event.source.user_id
    with ApiClient(configuration) as api_client:
        line_bot_api = MessagingApi(api_client)
        if text == "profile":
            show_profile(line_bot_api, event)
        elif text == "group":
            summary = line_bot_api.get_group_summary(event.source.group_id)
            member = line_bot_api.get_group_member_profile(event.source.group_id, user_id)
            answer(line_bot_api, event, f"{summary.group_name}の{member.display_name}さん")
        elif text == "quota":
            quota = line_bot_api.get_message_quota()
            used = line_bot_api.get_message_quota_consumption()
            answer(line_bot_api, event, f"{quota.type.value} {used.total_usage}")
        elif text == "insight":
            with InsightClient(configuration) as insight_client:
                try:
                    told = Insight(insight_client).get_friends_demographics().available
                except InsightException as error:
                    told = error.status
            answer(line_bot_api, event, f"insight: {told}")
        elif text == "audience":
            with AudienceClient(configuration) as audience_client:
                base = ManageAudience(audience_client).api_client.configuration.host
            answer(line_bot_api, event, f"audience: {base}")
        elif text == "push":
            messages = [TextMessage(text="push です")]
            line_bot_api.push_message(PushMessageRequest(to=user_id, messages=messages))
        elif text == "multicast":
            messages = [TextMessage(text="multicast です")]
            line_bot_api.multicast(MulticastRequest(to=[user_id], messages=messages))
        elif text == "loading":
            line_bot_api.show_loading_animation(
                ShowLoadingAnimationRequest(chat_id=user_id, loading_seconds=5)
            )
            answer(line_bot_api, event, "お待たせしました")
        elif text == "async":
            thread = line_bot_api.get_profile(user_id, async_req=True)
            answer(line_bot_api, event, thread.get().display_name)
        else:
            answer(line_bot_api, event, text)


def show_profile(line_bot_api, event):
    if not isinstance(event.source, UserSource):
        answer(line_bot_api, event, "1対1でどうぞ")
        return
    try:
        profile = line_bot_api.get_profile(user_id=event.source.user_id)
    except ApiException as error:
        answer(line_bot_api, event, f"profile: {error.status}")
        return
    name, message = profile.display_name, profile.status_message
    answer(line_bot_api, event, f"Display name: {name}", f"Status message: {message}")


@handler.add(MessageEvent, message=(ImageMessageContent, FileMessageContent))
def handle_content_message(event):
    with ApiClient(configuration) as api_client:
        content = MessagingApiBlob(api_client).get_message_content(message_id=event.message.id)
        with tempfile.NamedTemporaryFile(prefix="content-") as file:
            file.write(content)
            saved.append(bytes(content))
        answer(MessagingApi(api_client), event, f"{len(content)} bytes")


@handler.add(PostbackEvent)
def handle_postback(event):
    with ApiClient(configuration) as api_client:
        answer(MessagingApi(api_client), event, f"pong: {event.postback.data}")


@handler.add(LeaveEvent)
def handle_leave():
    left.append("leave")
