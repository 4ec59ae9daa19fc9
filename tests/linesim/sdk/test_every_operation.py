"""The official SDKs for Python, Node and Go call every operation that LINE's descriptions have.

What linesim does not have is in REFUSED, six at most.
"""

import base64
import inspect
import json
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from linebot.v3 import messaging, oauth
from linebot.v3.messaging.exceptions import ApiException

from linesim.model.endpoints import ENDPOINTS
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
    forms = {one: re.sub(r"\{\w+\}", "[^/]+", one[1]) for one in ALL if one[0] == method}
    fitting = [one for one, form in forms.items() if re.fullmatch(form, path)]
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


@contextmanager
def every_operation(sim, line, taro):
    known = arguments(sim, line, taro)
    begun = sim.platform.calls.count
    yield known
    calls = sim.platform.calls.since(begun)
    done = {operation(each.method, each.path): each.status for each in calls}
    assert set(done) == set(ALL)
    assert {one for one, status in done.items() if status >= 400} == REFUSED
    assert {done[one] for one in REFUSED} == {403, 404}


def test_python(sim, line, taro):
    with every_operation(sim, line, taro) as known:
        for module, client, name, given in steps(known):
            call_by_python(sim, module, client, name, given)


def call_by_python(sim, module, client, name, given):
    """Its answer is of the form that LINE describes."""
    for each, value in given.items():
        if each.endswith("_request"):
            model = getattr(module, "".join(map(str.capitalize, each.split("_"))))
            given[each] = model.from_dict(value)
    headers = {"_headers": {"Content-Type": "image/png"}} if "body" in given else {}
    configuration = module.Configuration(host=sim.url, access_token=sim.token)
    with module.ApiClient(configuration) as api:
        try:
            getattr(client(api), name)(**given, **headers)
        except ApiException:
            return
        finally:
            api.rest_client.pool_manager.clear()
    call, answer = sim.platform.calls.since()[-1], api.last_response
    if answer.data and "json" in answer.getheader("content-type"):
        path = operation(call.method, call.path)
        check_answer(*path, answer.status, json.loads(answer.data), file=ALL[path])


PROGRAMS = {
    "every_operation.mjs": (
        "npm install --no-audit --no-fund --ignore-scripts @line/bot-sdk@11",
        "node every_operation.mjs",
    ),
    "every_operation.go": (
        "go mod init every",
        "go get github.com/line/line-bot-sdk-go/v8@latest",
        "go run .",
    ),
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(sim, line, taro, tmp_path, program):
    """Skipped where its language, or the registry that has its SDK, is not there."""
    shutil.copy(HERE / program, tmp_path)
    *installs, run = (command.split() for command in PROGRAMS[program])
    for command in installs:
        if not shutil.which(command[0]) or subprocess.run(command, cwd=tmp_path).returncode:
            pytest.skip(f"no {command[0]}, or nothing to install from")
    with every_operation(sim, line, taro) as known:
        told = json.dumps({"url": sim.url, "token": sim.token, "steps": by_place(known)})
        done = subprocess.run(run, cwd=tmp_path, input=told, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


def by_place(known):
    """The arguments of each method, by its name in small letters."""

    def plain(value):
        return {"png": base64.b64encode(value).decode()} if isinstance(value, bytes) else value

    return {
        name.replace("_", ""): [plain(value) for value in given.values()]
        for _, _, name, given in steps(known)
    }
