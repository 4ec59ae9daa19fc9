"""The official SDK's clients against the simulator, and its answers by LINE's description."""

import re
import uuid

import pytest
import requests
from linebot.v3.messaging import (
    ApiClient,
    Configuration,
    CreateRichMenuAliasRequest,
    MessagingApi,
    MessagingApiBlob,
    PushMessageRequest,
    RichMenuBatchLinkOperation,
    RichMenuBatchRequest,
    RichMenuRequest,
    ShowLoadingAnimationRequest,
    TextMessage,
)
from linebot.v3.messaging.exceptions import ApiException

from linesim.model.endpoints import ENDPOINTS
from linesim.model.media import Medium, sample
from tests.line_openapi import check_answer, check_messaging
from tests.linesim.http.test_menus import WRITTEN, png


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


def test_a_rich_menu_with_tabs(sim, api, blob, taro):
    written = RichMenuRequest.from_dict(WRITTEN)
    api.validate_rich_menu_object(written)
    menus = [api.create_rich_menu(written).rich_menu_id for _ in range(2)]
    for alias, menu in zip(("first", "next"), menus, strict=True):
        blob.set_rich_menu_image(menu, png(), _headers={"Content-Type": "image/png"})
        api.create_rich_menu_alias(
            CreateRichMenuAliasRequest(richMenuAliasId=alias, richMenuId=menu)
        )
    api.set_default_rich_menu(menus[0])
    assert api.get_default_rich_menu_id().rich_menu_id == menus[0]
    assert sim.platform.menus.switch(taro.user_id, "next") == "SUCCESS"
    assert api.get_rich_menu_id_of_user(taro.user_id).rich_menu_id == menus[1]
    assert bytes(blob.get_rich_menu_image(menus[1])) == png()
    moved = RichMenuBatchLinkOperation(type="link", **{"from": menus[1], "to": menus[0]})
    batch = RichMenuBatchRequest(operations=[moved], resumeRequestKey="move")
    api.validate_rich_menu_batch_request(batch)
    request_id = api.rich_menu_batch_with_http_info(batch).headers["x-line-request-id"]
    assert api.get_rich_menu_batch_progress(request_id).phase == "ongoing"
    sim.advance(5)
    assert api.get_rich_menu_batch_progress(request_id).phase == "succeeded"
    assert api.get_rich_menu_id_of_user(taro.user_id).rich_menu_id == menus[0]
    api.unlink_rich_menu_id_from_user(taro.user_id)
    api.cancel_default_rich_menu()
    assert sim.platform.menus.of(taro.user_id) is None
    shown = api.get_rich_menu(menus[0]).to_dict()
    assert shown == WRITTEN | {"richMenuId": menus[0]}


class TestEveryAnswerIsLines:
    """Each endpoint's good and refused answer, against messaging-api.yml."""

    def asked(self, sim, line, taro):
        """Each endpoint with the answer of one good call."""
        group, room = sim.add_group("家族", [taro]), sim.add_group("皆", [taro], kind="room")
        token = sim.say(taro, "やあ").events[0]["replyToken"]
        video = sim.drafts.medium("video", taro)["message"]["id"]
        ids = {
            "user_id": taro.user_id,
            "group_id": group.chat_id,
            "room_id": room.chat_id,
            "message_id": video,
            "rich_menu_id": sim.platform.menus.add(WRITTEN),
            "rich_menu_alias_id": "new",
        }
        menu, bare = ids["rich_menu_id"], sim.platform.menus.add(WRITTEN)
        sim.platform.menus.menus[menu].image = Medium(png(), "image/png", "")
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
            "create_menu": WRITTEN,
            "validate_menu": WRITTEN,
            "create_menu_alias": {"richMenuAliasId": "new", "richMenuId": menu},
            "update_menu_alias": {"richMenuId": menu},
            "link_menus": {"richMenuId": menu, "userIds": [taro.user_id]},
            "unlink_menus": {"userIds": [taro.user_id]},
            "batch_menus": {"operations": [{"type": "unlinkAll"}]},
            "validate_batch": {"operations": [{"type": "unlinkAll"}]},
        }
        request_ids = {}
        for endpoint in ENDPOINTS:
            url = sim.url + endpoint.path.format(**ids)
            given = {"json": bodies.get(endpoint.name, {"messages": messages})}
            if endpoint.media_types:
                url = url.replace(menu, bare)
                given = {"data": png(), "headers": {"content-type": "image/png"}}
            elif endpoint.name == "menu_progress":
                given = {"params": {"requestId": request_ids["batch_menus"]}}
            elif not endpoint.schema:
                given = {}
            answer = line.session.request(endpoint.method, url, timeout=10, **given)
            request_ids[endpoint.name] = answer.headers["x-line-request-id"]
            yield endpoint, answer

    def test_good_answers(self, sim, line, taro):
        for endpoint, answer in self.asked(sim, line, taro):
            assert answer.ok, endpoint
            assert uuid.UUID(answer.headers["x-line-request-id"])
            if endpoint.name not in ("content", "preview", "menu_image"):
                assert answer.headers["content-type"] == "application/json"
                path = _lines_template(endpoint.path)
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
            line.get("/v2/bot/user/all/richmenu"),
            requests.get(f"{sim.url}/v2/bot/info", timeout=10),
        ]
        assert [answer.status_code for answer in refused] == [409, 400, 400, 400, 404, 404, 401]
        for answer in refused:
            check_messaging("ErrorResponse", answer.json())
            assert uuid.UUID(answer.headers["x-line-request-id"])


def _lines_template(path):
    """linesim's {user_id} is {userId} in LINE's file."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), path)
