"""What no bot and no page of another site should send: it is refused, and the simulator goes on."""

import logging

import pytest
import requests

import linesim
from linesim.model.errors import StateError
from tests.linesim.http.test_menus import MENU, WRITTEN, png

DIGITS = "1" * 5_000
NO_JSON = "The request body could not be parsed as JSON"
HALF_A_PAIR = b'{"to":"%s","messages":[{"type":"text","text":"a\\ud83d"}]}'


@pytest.mark.parametrize(
    "raw", [HALF_A_PAIR, b'{"to":"\xed\xa0\x80"}', b'{"to":%s}' % DIGITS.encode()]
)
def test_json_that_no_file_could_hold_is_refused(sim, line, taro, raw):
    raw = raw.replace(b"%s", taro.user_id.encode())
    url, headers = f"{sim.url}/v2/bot/message/push", {"content-type": "application/json"}
    answer = line.session.post(url, data=raw, headers=headers, timeout=10)
    assert (answer.status_code, answer.json()["message"][:44]) == (400, NO_JSON)
    assert requests.get(f"{sim.url}/sim/saved", timeout=10).ok


def test_odd_values_are_errors_of_the_caller(sim, line, taro):
    assert line.get(f"/v2/bot/followers/ids?limit={DIGITS}").status_code == 400
    assert line.get(f"/v2/bot/coupon?limit={DIGITS}").status_code == 400
    body = {"chatId": taro.user_id, "loadingSeconds": None}
    assert line.post("/v2/bot/chat/loading/start", body).status_code == 202
    batch = {"operations": [{"type": "zz", "from": []}]}
    assert line.post("/v2/bot/richmenu/batch", batch).status_code == 400
    assert line.get("/v2/bot/group/x/summary").json() == {
        "message": "The value for the 'groupId' parameter is invalid"
    }
    wrong = {"act": "location", "user": taro.user_id, "latitude": float("nan")}
    raw = f'{{"acts": [{str(wrong).replace(chr(39), chr(34)).replace("nan", "NaN")}]}}'
    headers = {"content-type": "application/json"}
    url = f"{sim.url}/sim/deliveries"
    assert requests.post(url, data=raw, headers=headers, timeout=10).status_code == 422
    sim.webhook_url = "http://a..b/"
    assert sim.say(taro, "やあ").error == "unclassified"


def test_a_continuation_token_is_good_for_its_own_list(sim, line, taro, hanako):
    group = sim.add_group("家族", [taro])
    token = line.get("/v2/bot/followers/ids?limit=1").json()["next"]
    strange = line.get(f"/v2/bot/group/{group.chat_id}/members/ids?start={token}")
    assert (strange.status_code, strange.json()["message"]) == (400, "Invalid start param")
    assert line.get(f"/v2/bot/followers/ids?start={token}").json()["userIds"] == [hanako.user_id]


def test_mentions_go_to_groups_and_deep_boxes_nowhere(sim, line, taro):
    mention = {"type": "mention", "mentionee": {"type": "user", "userId": taro.user_id}}
    text = {"type": "textV2", "text": "{a}", "substitution": {"a": mention}}
    group = sim.add_group("家族", [taro])
    to = [taro.user_id, group.chat_id]
    push = "/v2/bot/message/push"
    codes = [line.post(push, {"to": one, "messages": [text]}).status_code for one in to]
    assert codes == [400, 200]
    validate = "/v2/bot/message/validate/multicast"
    assert line.post(validate, {"messages": [text]}).status_code == 400
    box = {"type": "box", "layout": "vertical", "contents": []}
    for _ in range(120):
        box = {**box, "contents": [box]}
    flex = {"type": "flex", "altText": "x", "contents": {"type": "bubble", "body": box}}
    assert line.post(push, {"to": taro.user_id, "messages": [flex]}).status_code == 400


def test_pages_of_other_sites_read_and_do_nothing(sim, taro):
    url = f"{sim.url}/sim/saved"
    assert requests.get(url, headers={"host": "evil.example"}, timeout=10).status_code == 403
    delivery = sim.say(taro, "やあ")
    again = f"{sim.url}/sim/deliveries/{delivery.number}/redeliver"
    headers = {"sec-fetch-site": "cross-site"}
    assert requests.post(again, headers=headers, timeout=10).status_code == 403


def test_a_line_of_the_log_holds_what_it_should(line, caplog):
    caplog.set_level(logging.INFO, "linesim")
    line.push("x\nFAKE my secret")
    line.get("/v2/bot/profile/a%0AFAKE%1B[31m")
    line.post("/v2/bot/message/push", {"to": "U1", "messages": [], "my secret\nFAKE": 1})
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert not any(bad in one for one in told for bad in ("\n", "\x1b", "secret"))


def test_a_saved_state_has_no_token_of_the_channel_and_takes_each_picture(tmp_path):
    file = tmp_path / "state.json"
    with linesim.running(state=file, token="given") as sim:
        bearer = {"authorization": "Bearer given"}
        made = requests.post(sim.url + MENU, json=WRITTEN, headers=bearer, timeout=10)
        where = f"{sim.url}{MENU}/{made.json()['richMenuId']}/content"
        headers = bearer | {"content-type": "image/png; charset=utf-8"}
        assert requests.post(where, data=png(), headers=headers, timeout=10).ok
        refused = pytest.raises(StateError, match="is in use by another simulator")
        with refused, linesim.running(state=file):
            pass
    assert "given" not in file.read_text()
    with linesim.running(state=file) as sim:
        (menu,) = sim.platform.menus.menus.values()
        assert menu.image.media_type == "image/png"
