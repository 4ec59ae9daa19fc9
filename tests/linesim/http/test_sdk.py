"""The official SDK's clients against the simulator, and its answers by LINE's description."""

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

from linesim.model.media import sample
from tests.line_openapi import check_messaging
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
    wrong = [{"chatId": one} for one in ("C1", group.chat_id)]
    wrong += [{"chatId": taro.user_id, "loadingSeconds": seconds} for seconds in (0, 7, 65)]
    for one in wrong:
        with pytest.raises(ApiException) as refused:
            api.show_loading_animation(ShowLoadingAnimationRequest.construct(**_snake(one)))
        assert refused.value.status == 400
    for user in (stranger, blocker):
        api.show_loading_animation(ShowLoadingAnimationRequest(chatId=user.user_id))
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


def test_refusals_are_of_lines_form(sim, line, taro):
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
