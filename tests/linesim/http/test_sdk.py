"""The official SDK's clients against the simulator, and its answers by LINE's description."""

import re
import uuid

import pytest
import requests
from linebot.v3.messaging import (
    ApiClient,
    BroadcastRequest,
    ChatReference,
    Configuration,
    CouponCreateRequest,
    MarkMessagesAsReadByTokenRequest,
    MarkMessagesAsReadRequest,
    MessagingApi,
    MessagingApiBlob,
    NarrowcastRequest,
    PushMessageRequest,
    ShowLoadingAnimationRequest,
    TextMessage,
)
from linebot.v3.messaging.exceptions import ApiException

from linesim.model.endpoints import ENDPOINTS
from linesim.model.media import sample
from tests.line_openapi import check_answer, check_messaging


@pytest.fixture
def client(sim):
    configuration = Configuration(host=sim.url, access_token=sim.token)
    configuration.retries = False
    with ApiClient(configuration) as client:
        yield client
    client.rest_client.pool_manager.clear()


@pytest.fixture
def api(client):
    return MessagingApi(client)


@pytest.fixture
def blob(client):
    return MessagingApiBlob(client)


def text(value="はい"):
    return [TextMessage(text=value)]


def test_profiles(sim, api, taro):
    group = sim.add_group("家族", [taro])
    room = sim.add_group("皆", [taro], kind="room")
    assert api.get_profile(taro.user_id).display_name == "太郎"
    assert api.get_profile(taro.user_id).language == "ja"
    assert api.get_group_member_profile(group.chat_id, taro.user_id).display_name == "太郎"
    assert api.get_room_member_profile(room.chat_id, taro.user_id).user_id == taro.user_id
    assert api.get_group_summary(group.chat_id).group_name == "家族"


def test_the_loading_animation_is_for_friends_in_1_to_1_chats_and_ends_with_a_message(
    sim, api, taro
):
    group, stranger = sim.add_group("皆", [taro]), sim.add_user("知らない人", friend=False)
    blocker = sim.add_user("花子")
    sim.block(blocker)
    sim.say(stranger, "やあ")
    wrong = [{"chatId": one} for one in ("C1", group.chat_id, stranger.user_id, blocker.user_id)]
    wrong += [{"chatId": taro.user_id, "loadingSeconds": seconds} for seconds in (0, 7, 65)]
    for one in wrong:
        with pytest.raises(ApiException) as refused:
            api.show_loading_animation(ShowLoadingAnimationRequest.construct(**_snake(one)))
        assert refused.value.status == 400
    assert not any(sim.sees_loading(user) for user in (taro, stranger, blocker))
    api.show_loading_animation(ShowLoadingAnimationRequest(chatId=taro.user_id))
    assert sim.sees_loading(taro)
    sim.say(taro, "まだ？")
    sim.advance(19)
    assert sim.sees_loading(taro)
    sim.advance(1)
    assert not sim.sees_loading(taro)
    api.show_loading_animation(ShowLoadingAnimationRequest(chatId=taro.user_id, loadingSeconds=60))
    api.push_message(PushMessageRequest(to=group.chat_id, messages=text()))
    assert sim.sees_loading(taro)
    api.push_message(PushMessageRequest(to=taro.user_id, messages=text()))
    assert not sim.sees_loading(taro)


def _snake(body):
    """The SDK itself refuses seconds above 60."""
    names = {"chatId": "chat_id", "loadingSeconds": "loading_seconds"}
    return {names[name]: value for name, value in body.items()}


def test_a_video_is_prepared_first(sim, blob, taro, clock):
    event = sim.drafts.medium("video", taro, preparing_seconds=10)
    message_id = event["message"]["id"]
    status = blob.get_message_content_transcoding_by_message_id
    assert status(message_id).status == "processing"
    assert blob.get_message_content_with_http_info(message_id).status_code == 202
    clock.advance(10)
    assert status(message_id).status == "succeeded"
    assert bytes(blob.get_message_content(message_id)) == sample("video").data
    assert bytes(blob.get_message_content_preview(message_id)) == sample("image").data


def test_each_messaging_operation(sim, api, taro):
    group, room = sim.add_group("皆", [taro]), sim.add_group("皆", [taro], kind="room")
    said, chat = sim.say(taro, "やあ"), ChatReference(userId=taro.user_id)
    api.broadcast(BroadcastRequest(messages=text()))
    sent = api.narrowcast_with_http_info(NarrowcastRequest(messages=text()))
    request_id = sent.headers["x-line-request-id"]
    assert api.get_narrowcast_progress(request_id).phase == "waiting"
    for way in ("reply", "push", "multicast", "broadcast"):
        count = getattr(api, f"get_number_of_sent_{way}_messages")
        assert count("20261231").success == 0
    assert api.get_aggregation_unit_usage().num_of_custom_aggregation_units == 0
    assert api.get_aggregation_unit_name_list(limit="1").custom_aggregation_units == []
    assert api.get_followers(limit=10).user_ids == [taro.user_id]
    assert api.get_group_members_ids(group.chat_id).member_ids == [taro.user_id]
    assert api.get_room_members_ids(room.chat_id).member_ids == [taro.user_id]
    assert len(api.issue_link_token(taro.user_id).link_token) == 32
    token = said.events[0]["message"]["markAsReadToken"]
    api.mark_messages_as_read_by_token(MarkMessagesAsReadByTokenRequest(markAsReadToken=token))
    api.mark_messages_as_read(MarkMessagesAsReadRequest(chat=chat))
    made = api.create_coupon(CouponCreateRequest.from_dict(COUPON | {"endTimestamp": 1 << 31}))
    api.close_coupon(made.coupon_id)
    assert api.get_coupon_detail(made.coupon_id).status == "CLOSED"
    assert [one.title for one in api.list_coupon(status=["RUNNING", "CLOSED"]).items] == [
        "百円引き"
    ]
    for leave, chat_id in ((api.leave_group, group.chat_id), (api.leave_room, room.chat_id)):
        leave(chat_id)
    assert not group.present
    assert not room.present


# LINE's answers to a bot without a membership plan and without notification messages.
NOT_HERE = {
    **dict.fromkeys(("membership", "memberships", "membership_users"), 404),
    **dict.fromkeys(("pnp_push", "sent_pnp"), 403),
}
COUPON = {
    "title": "百円引き",
    "acquisitionCondition": {"type": "normal"},
    "reward": {"type": "discount", "priceInfo": {"type": "fixed", "fixedAmount": 100}},
    "startTimestamp": 0,
    "timezone": "ASIA_TOKYO",
    "visibility": "UNLISTED",
    "maxUseCountPerTicket": 1,
}
DATED = [f"sent_{way}" for way in ("reply", "push", "multicast", "broadcast")]
QUERIES = {
    "narrowcast_progress": "?requestId={request_id}",
    **dict.fromkeys((*DATED, "insight_deliveries", "insight_followers"), "?date=20270101"),
}


class TestEveryAnswerIsLines:
    """Each endpoint's good and refused answer, against messaging-api.yml."""

    def asked(self, sim, line, taro):
        """Each endpoint with the answer of one good call."""
        group, room = sim.add_group("家族", [taro]), sim.add_group("皆", [taro], kind="room")
        said = sim.say(taro, "やあ")
        token = said.events[0]["replyToken"]
        video = sim.drafts.medium("video", taro)["message"]["id"]
        ids = {
            "user_id": taro.user_id,
            "group_id": group.chat_id,
            "room_id": room.chat_id,
            "message_id": video,
            "membership_id": "1",
        }
        messages = [
            {"type": "text", "text": "x"},
            {"type": "sticker", "packageId": "1", "stickerId": "2"},
        ]
        bodies = {
            "reply": {"replyToken": token, "messages": messages},
            "push": {"to": taro.user_id, "messages": messages},
            "multicast": {"to": [taro.user_id], "messages": messages},
            "loading": {"chatId": taro.user_id},
            "set_webhook": {"endpoint": sim.webhook_url},
            "test_webhook": {},
            "mark_read": {"markAsReadToken": said.events[0]["message"]["markAsReadToken"]},
            "mark_all_read": {"chat": {"userId": taro.user_id}},
            "create_coupon": COUPON | {"endTimestamp": int(sim.platform.clock.time()) + 60},
            "close_coupon": {},
        }
        for endpoint in ENDPOINTS:
            path = endpoint.path.format(**ids) + QUERIES.get(endpoint.name, "").format(**ids)
            if endpoint.method == "GET":
                answer = line.get(path)
            elif endpoint.method == "PUT":
                answer = line.put(path, bodies[endpoint.name])
            else:
                answer = line.post(path, bodies.get(endpoint.name, {"messages": messages}))
            if endpoint.name == "narrowcast":
                ids["request_id"] = answer.headers["x-line-request-id"]
            elif endpoint.name == "create_coupon":
                ids["coupon_id"] = answer.json()["couponId"]
            yield endpoint, answer

    def test_good_answers(self, sim, line, taro):
        for endpoint, answer in self.asked(sim, line, taro):
            assert answer.status_code == NOT_HERE.get(endpoint.name) or answer.ok, endpoint
            assert uuid.UUID(answer.headers["x-line-request-id"])
            if endpoint.name not in ("content", "preview"):
                assert answer.headers["content-type"] == "application/json"
                path = _lines_template(endpoint.path)
                if path.startswith("/v2/bot/insight/"):
                    continue
                check_answer(endpoint.method, path, answer.status_code, answer.json())

    def test_refusals(self, sim, line, taro):
        key = str(uuid.uuid4())
        line.push(taro.user_id, retry_key=key)
        refused = [
            line.push(taro.user_id, retry_key=key),
            line.push(taro.user_id, ""),
            line.push("U1"),
            line.reply("0" * 32),
            line.get("/v2/bot/profile/U1"),
            requests.get(f"{sim.url}/v2/bot/info", timeout=10),
        ]
        assert [answer.status_code for answer in refused] == [409, 400, 400, 400, 404, 401]
        for answer in refused:
            check_messaging("ErrorResponse", answer.json())
            assert uuid.UUID(answer.headers["x-line-request-id"])


def _lines_template(path):
    """linesim's {user_id} is {userId} in LINE's file."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), path)
