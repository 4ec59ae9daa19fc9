"""The official SDKs for Python, Node and Go call every operation that LINE's descriptions have.

What linesim does not have is in REFUSED, six at most.
"""

import base64
import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from linebot.v3 import messaging, oauth
from linebot.v3.messaging.exceptions import ApiException

from linesim.model.endpoints import ENDPOINTS
from tests.conftest import missing
from tests.line_openapi import check_answer, operations
from tests.linesim.http.test_menus import MENU, WRITTEN, png, upload
from tests.linesim.http.test_messaging import COUPON
from tests.linesim.http.test_oauth import JWT, assertion, jwk

HERE = Path(__file__).parent
FILES = ("messaging-api", "channel-access-token")
ALL = {one: file for file in FILES for one in operations(file)}
# LINE gives them only to accounts of companies or with a membership plan.
REFUSED = {
    ("POST", "/bot/pnp/push"),
    ("GET", "/v2/bot/message/delivery/pnp"),
    ("GET", "/v2/bot/membership/list"),
    ("GET", "/v2/bot/membership/subscription/{userId}"),
    ("GET", "/v2/bot/membership/{membershipId}/users/ids"),
}
CLIENTS = (
    (messaging, messaging.MessagingApi),
    (messaging, messaging.MessagingApiBlob),
    (oauth, oauth.ChannelAccessToken),
)


def test_each_operation_is_there_or_among_six_that_are_refused():
    camel = [re.sub(r"_(\w)", lambda found: found[1].upper(), one.path) for one in ENDPOINTS]
    there = {(one.method, path) for one, path in zip(ENDPOINTS, camel, strict=True)}
    assert len(REFUSED) <= 6
    assert set(ALL) - there <= REFUSED


def operation(method, path):
    """LINE's template for a path; the one with the most literal text."""
    fitting = [
        one
        for one in ALL
        if one[0] == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one[1]), path)
    ]
    return min(fitting, key=lambda one: one[1].count("{"), default=None)


MESSAGES = [{"type": "text", "text": "はい"}]


def arguments(sim, line, taro):
    """The value of each parameter, by its name, or by its method's and its own."""
    groups = [sim.add_group("家族", [taro]) for _ in range(2)]
    rooms = [sim.add_group("皆", [taro], kind="room") for _ in range(2)]
    shown, bare, gone = (line.post(MENU, WRITTEN).json()["richMenuId"] for _ in range(3))
    upload(line, shown, png())
    for whose in ("all", taro.user_id):
        line.post(f"/v2/bot/user/{whose}/richmenu/{shown}", {})
    alias, *others = ({"richMenuAliasId": one, "richMenuId": shown} for one in "abc")
    for each in others:
        line.post(f"{MENU}/alias", each)
    switch = {"operations": [{"type": "link", "from": bare, "to": shown}]}
    batch = line.post(f"{MENU}/batch", switch)
    narrowcast = line.post("/v2/bot/message/narrowcast", {"messages": MESSAGES})
    said = sim.say(taro, "やあ").events[0]
    kid = sim.add_key({name: jwk()[name] for name in ("n", "e")})
    short, second = (sim.platform.channel_tokens.issue("short-lived", 60)[0] for _ in range(2))
    by_jwt, other = (sim.platform.channel_tokens.issue("v2.1", 60)[0] for _ in range(2))
    coupon = COUPON | {"endTimestamp": int(sim.platform.clock.time()) + 60}
    bulk = {"richMenuId": shown, "userIds": [taro.user_id]}
    return {
        "user_id": taro.user_id,
        "group_id": groups[0].chat_id,
        "room_id": rooms[0].chat_id,
        ("leave_group", "group_id"): groups[1].chat_id,
        ("leave_room", "room_id"): rooms[1].chat_id,
        "message_id": sim.drafts.medium("video", taro)["message"]["id"],
        "rich_menu_id": shown,
        ("set_rich_menu_image", "rich_menu_id"): bare,
        ("delete_rich_menu", "rich_menu_id"): gone,
        "rich_menu_alias_id": "b",
        ("delete_rich_menu_alias", "rich_menu_alias_id"): "c",
        "body": png(),
        "coupon_id": line.post("/v2/bot/coupon", coupon).json()["couponId"],
        "membership_id": 1,
        # Optional, but Node's SDK fails without the status, and Go's sends a limit of 0.
        "status": ["RUNNING"],
        ("get_followers", "limit"): 100,
        ("list_coupon", "limit"): 100,
        ("get_joined_membership_users", "limit"): 100,
        "request_id": narrowcast.headers["x-line-request-id"],
        ("get_rich_menu_batch_progress", "request_id"): batch.headers["x-line-request-id"],
        "var_date": "20270115",
        "broadcast_request": {"messages": MESSAGES},
        "coupon_create_request": coupon,
        "create_rich_menu_alias_request": alias,
        "mark_messages_as_read_by_token_request": {
            "markAsReadToken": said["message"]["markAsReadToken"]
        },
        "mark_messages_as_read_request": {"chat": {"userId": taro.user_id}},
        "multicast_request": {"to": [taro.user_id], "messages": MESSAGES},
        "narrowcast_request": {"messages": MESSAGES},
        "pnp_messages_request": {"to": "0" * 64, "messages": MESSAGES},
        "push_message_request": {"to": taro.user_id, "messages": MESSAGES},
        "reply_message_request": {"replyToken": said["replyToken"], "messages": MESSAGES},
        "rich_menu_batch_request": switch,
        "rich_menu_bulk_link_request": bulk,
        "rich_menu_bulk_unlink_request": {"userIds": [taro.user_id]},
        "rich_menu_request": WRITTEN,
        "set_webhook_endpoint_request": {"endpoint": sim.webhook_url},
        "show_loading_animation_request": {"chatId": taro.user_id},
        "test_webhook_endpoint_request": {},
        "update_rich_menu_alias_request": {"richMenuId": shown},
        "validate_message_request": {"messages": MESSAGES},
        "grant_type": "client_credentials",
        "client_assertion_type": JWT,
        "client_assertion": assertion(sim, kid),
        "client_id": sim.channel_id,
        "client_secret": sim.secret,
        "access_token": short,
        ("revoke_channel_token", "access_token"): second,
        ("verify_channel_token_by_jwt", "access_token"): by_jwt,
        ("revoke_channel_token_by_jwt", "access_token"): other,
    }


def steps(known):
    """Each public method of each client, with its arguments; none that needs one is left out."""
    for module, client in CLIENTS:
        methods = inspect.getmembers(client, inspect.isfunction)
        for name, method in sorted(methods, key=lambda one: (one[0].startswith("cancel"), one[0])):
            # Of notification messages by template, which came after tests/line-openapi.
            if name.startswith("_") or "with_http_info" in name or "templated" in name:
                continue
            given = {}
            for one in list(inspect.signature(method).parameters.values())[1:-1]:
                value = known.get((name, one.name), known.get(one.name))
                assert value is not None or one.default is None, (name, one.name)
                given[one.name] = value
            yield module, client, name, given


@pytest.fixture
def known(sim, line, taro):
    known = arguments(sim, line, taro)
    begun = sim.platform.calls.count
    yield known
    calls = sim.platform.calls.since(begun)
    done = {operation(each.method, each.path): each.status for each in calls}
    assert set(done) == set(ALL)
    assert {one for one, status in done.items() if status >= 400} == REFUSED
    assert {done[one] for one in REFUSED} == {403, 404}


def test_python(sim, known):
    for module, client, name, given in steps(known):
        configuration = module.Configuration(host=sim.url, access_token=sim.token)
        with module.ApiClient(configuration) as api:
            for each, value in given.items():
                if each.endswith("_request"):
                    model = getattr(module, "".join(map(str.capitalize, each.split("_"))))
                    given[each] = model.from_dict(value)
            headers = {"_headers": {"Content-Type": "image/png"}} if "body" in given else {}
            try:
                getattr(client(api), name)(**given, **headers)
            except ApiException:
                continue
            finally:
                api.rest_client.pool_manager.clear()
            answer, call = api.last_response, sim.platform.calls.since()[-1]
            if "json" in answer.getheader("content-type") and answer.data:
                path = operation(call.method, call.path)
                told = answer.status, json.loads(answer.data)
                check_answer(*path, *told, file=ALL[path])


def told(sim, known):
    """The same for a program: arguments by place, by the method's name in small letters."""

    def plain(value):
        return {"png": base64.b64encode(value).decode()} if isinstance(value, bytes) else value

    steps_told = {
        name.replace("_", ""): [plain(value) for value in given.values()]
        for _, _, name, given in steps(known)
    }
    return json.dumps({"url": sim.url, "token": sim.token, "steps": steps_told})


def run(command, folder, words):
    done = subprocess.run(command, cwd=folder, input=words, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_node(sim, known, tmp_path):
    if shutil.which("npm") is None:
        missing("no npm on this machine")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "@line/bot-sdk@11"]
    if subprocess.run(install, cwd=tmp_path, capture_output=True).returncode != 0:
        pytest.skip("the npm registry is not there")
    shutil.copy(HERE / "every_operation.mjs", tmp_path)
    run(["node", "every_operation.mjs"], tmp_path, told(sim, known))


@pytest.mark.long
def test_go(sim, known, tmp_path):
    """Its package comes by `go get`, where that is possible."""
    if shutil.which("go") is None:
        pytest.skip("no go on this machine")
    shutil.copy(HERE / "every_operation.go", tmp_path)
    sdk = "github.com/line/line-bot-sdk-go/v8@latest"
    for install in (["go", "mod", "init", "every"], ["go", "get", sdk]):
        if subprocess.run(install, cwd=tmp_path, capture_output=True).returncode != 0:
            pytest.skip("the Go module proxy is not there")
    run(["go", "run", "."], tmp_path, told(sim, known))
