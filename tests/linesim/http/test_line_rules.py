"""LINE's rules, asked over HTTP: tokens, retry keys, bodies, limits, quota."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

import linesim
from tests.line_openapi import check_messaging
from tests.linesim.conftest import Line

INVALID_TOKEN = {"message": "Invalid reply token"}
PUSH = "/v2/bot/message/push"


def token_of(delivery):
    return delivery.events[0]["replyToken"]


class TestAuthentication:
    @pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer ", "Bearer あ"])
    def test_a_wrong_or_missing_token_is_401_with_a_request_id(self, sim, header):
        headers = {} if header is None else {"authorization": header.encode()}
        answer = requests.get(f"{sim.url}/v2/bot/info", headers=headers, timeout=10)
        assert answer.status_code == 401
        assert answer.json()["message"].startswith("Authentication failed")
        assert uuid.UUID(answer.headers["x-line-request-id"])


class TestReplyTokens:
    def test_a_token_is_good_once(self, sim, line, taro):
        token = token_of(sim.say(taro, "やあ"))
        first, second = line.reply(token), line.reply(token)
        assert (first.status_code, len(first.json()["sentMessages"])) == (200, 1)
        assert (second.status_code, second.json()) == (400, INVALID_TOKEN)
        assert [bubble.text for bubble in sim.answers(taro)] == ["はい"]

    def test_a_token_expires_a_minute_after_its_webhook(self, sim, line, taro, clock):
        early, late = sim.say(taro, "1"), sim.say(taro, "2")
        clock.advance(59.9)
        assert line.reply(token_of(early)).status_code == 200
        clock.advance(0.1)
        answer = line.reply(token_of(late))
        assert (answer.status_code, answer.json()) == (400, INVALID_TOKEN)

    def test_a_redelivery_renews_an_unused_token_for_a_minute(self, sim, line, taro, clock):
        delivery = sim.say(taro, "やあ")
        clock.advance(300)
        sim.redeliver(delivery)
        clock.advance(59)
        assert line.reply(token_of(delivery)).status_code == 200

    def test_an_invalid_body_does_not_spend_the_token(self, sim, line, taro):
        token = token_of(sim.say(taro, "やあ"))
        assert line.reply(token, "").status_code == 400
        assert line.reply(token).status_code == 200


class TestRetryKeys:
    def test_a_second_use_is_409_with_the_first_answer(self, sim, line, taro):
        key = str(uuid.uuid4())
        first = line.push(taro.user_id, retry_key=key)
        second = line.push(taro.user_id, retry_key=key.upper())
        assert second.status_code == 409
        assert second.headers["x-line-accepted-request-id"] == first.headers["x-line-request-id"]
        assert second.json() == {
            "message": "The retry key is already accepted",
            "sentMessages": first.json()["sentMessages"],
        }
        assert len(sim.answers(taro)) == 1
        assert sim.calls[-1].accepted_request_id == first.headers["x-line-request-id"]

    def test_a_refused_call_does_not_burn_the_key(self, line, taro):
        key = str(uuid.uuid4())
        assert line.push(taro.user_id, "", retry_key=key).status_code == 400
        assert line.push(taro.user_id, retry_key=key).status_code == 200

    def test_an_empty_one_is_none_as_lines_sdk_for_go_sends_it(self, line, taro):
        assert line.push(taro.user_id, retry_key="").ok
        assert line.push(taro.user_id, retry_key="").ok

    def test_a_key_is_forgotten_after_a_day(self, sim, line, taro, clock):
        key = str(uuid.uuid4())
        line.push(taro.user_id, retry_key=key)
        clock.advance(24 * 3600)
        assert line.push(taro.user_id, retry_key=key).status_code == 200
        assert len(sim.answers(taro)) == 2

    @pytest.mark.parametrize("outcome", ["500", "closed"])
    def test_another_body_or_recipient_under_a_key_that_failed_is_refused(
        self, sim, line, taro, clock, outcome
    ):
        key, hanako = str(uuid.uuid4()), sim.add_user("花子")
        ids = [taro.user_id, hanako.user_id]
        if outcome == "500":
            sim.answer_next("multicast", 500)
            line.multicast(ids, "a", retry_key=key)
        else:
            sim.close_next("multicast")
            with pytest.raises(requests.ConnectionError):
                line.multicast(ids, "a", retry_key=key)
        for to, text in ((ids[:1], "a"), (ids[::-1], "a"), (ids, "b")):
            refused = line.multicast(to, text, retry_key=key.upper())
            assert (refused.status_code, refused.json()) == (
                400,
                {"message": "The retry key was used for another request"},
            )
        assert line.push(taro.user_id, "a", retry_key=key).status_code == 400
        assert [call.retry_differs for call in sim.calls] == [False] + [True] * 4
        assert line.multicast(ids, "a", retry_key=key).status_code == 200

    def test_a_key_on_a_reply_is_400_and_leaves_the_token(self, sim, line, taro):
        token = token_of(sim.say(taro, "やあ"))
        assert line.reply(token, retry_key=str(uuid.uuid4())).status_code == 400
        assert line.reply(token).status_code == 200


class TestAtOnce:
    """Twenty callers with the same token or key: LINE carries out only one call."""

    def statuses(self, call):
        with ThreadPoolExecutor(20) as pool:
            return sorted(each.status_code for each in pool.map(lambda _: call(), range(20)))

    def test_one_reply_token(self, sim, line, taro):
        token = token_of(sim.say(taro, "やあ"))
        assert self.statuses(lambda: line.reply(token)) == [200] + [400] * 19
        assert len(sim.answers(taro)) == 1

    def test_one_retry_key(self, sim, line, taro):
        key = str(uuid.uuid4())
        statuses = self.statuses(lambda: line.push(taro.user_id, retry_key=key))
        assert statuses == [200] + [409] * 19
        assert len(sim.answers(taro)) == 1


class TestRecipients:
    def test_to_a_user_who_blocked_the_bot_is_200_and_nothing_arrives(self, sim, line, taro):
        sim.block(taro)
        assert line.push(taro.user_id).status_code == 200
        assert sim.answers(taro) == []

    def test_a_user_who_is_no_friend_is_reached_for_a_week_after_writing(self, sim, line, clock):
        stranger = sim.add_user("花子", friend=False)
        line.push(stranger.user_id, "1")
        sim.say(stranger, "やあ")
        line.push(stranger.user_id, "2")
        clock.advance(7 * 24 * 3600)
        line.push(stranger.user_id, "3")
        assert [bubble.text for bubble in sim.answers(stranger)] == ["2"]

    def test_a_multicast_reaches_friends_only(self, sim, line, taro):
        writer, stranger = (sim.add_user(name, friend=False) for name in ("花子", "健太"))
        sim.say(writer, "やあ")
        ids = [taro.user_id, writer.user_id, stranger.user_id]
        assert line.multicast(ids).status_code == 200
        assert line.get("/v2/bot/message/quota/consumption").json() == {"totalUsage": 1}
        assert [len(sim.answers(user)) for user in (taro, writer, stranger)] == [1, 0, 0]
        assert line.push(writer.user_id).status_code == 200
        assert len(sim.answers(writer)) == 1


class TestMessages:
    def refuse(self, line, taro, *messages):
        answer = line.post(PUSH, {"to": taro.user_id, "messages": list(messages)})
        assert answer.status_code == 400
        body = answer.json()
        assert body["message"] == f"The request body has {len(body['details'])} error(s)"
        return body["details"]

    def test_every_problem_is_named(self, line, taro):
        details = self.refuse(
            line, taro, {"type": "text", "text": ""}, {"type": "shout"}, "x", {"type": ["text"]}
        )
        assert [detail["property"] for detail in details] == [
            "messages[0].text",
            "messages[1].type",
            "messages[2]",
            "messages[3].type",
        ]

    @pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff", b"[" * 100_000, b""])
    def test_what_is_not_a_json_object_is_400(self, sim, line, raw):
        headers = {"content-type": "application/json"}
        answer = line.session.post(sim.url + PUSH, data=raw, headers=headers, timeout=10)
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("The request body could not be parsed as JSON")


class TestLimits:
    def test_a_bucket_may_be_spent_at_once_and_refills_continuously(self, bot, clock):
        rates = {"info": linesim.Rate(3, 60)}
        with linesim.running(webhook_url=bot.url, clock=clock, rate_limits=rates) as sim:
            ask = f"{sim.url}/v2/bot/info"
            headers = {"authorization": f"Bearer {sim.token}"}

            def status():
                return requests.get(ask, headers=headers, timeout=10).status_code

            assert [status() for _ in range(4)] == [200, 200, 200, 429]
            assert sim.calls[-1].message == (
                "The API rate limit has been exceeded. Try again later."
            )
            clock.advance(20)
            assert [status(), status()] == [200, 429]

    def test_many_pushes_to_the_same_user_are_429_and_hold_back_no_one_else(self, bot, clock):
        rate = linesim.Rate(2, 60)
        with linesim.running(webhook_url=bot.url, clock=clock, pushes_to_one=rate) as sim:
            line = Line(sim)
            taro, hanako = sim.add_user("太郎"), sim.add_user("花子")
            statuses = [line.push(taro.user_id).status_code for _ in range(3)]
            refused = sim.calls[-1]
            others = [
                line.push(hanako.user_id),
                line.multicast([taro.user_id]),
                line.reply(token_of(sim.say(taro, "やあ"))),
            ]
            clock.advance(30)
            again = line.push(taro.user_id)
            line.session.close()
        assert statuses == [200, 200, 429]
        assert refused.message == "You have sent too many messages to the same user."
        assert [answer.status_code for answer in (*others, again)] == [200] * 4


class TestQuota:
    @pytest.fixture
    def sim(self, bot, clock):
        with linesim.running(webhook_url=bot.url, clock=clock, quota=3) as sim:
            yield sim

    def test_people_reached_count_and_replies_are_free(self, sim, line, taro):
        hanako, blocker = sim.add_user("花子"), sim.add_user("健太")
        sim.block(blocker)
        group = sim.add_group("家族", [taro, hanako])
        line.reply(token_of(sim.say(taro, "やあ")))
        line.push(blocker.user_id)
        line.push(group.chat_id, "1", "2")
        assert line.get("/v2/bot/message/quota/consumption").json() == {"totalUsage": 2}
        assert line.get("/v2/bot/message/quota").json() == {"type": "limited", "value": 3}

    def test_a_delivery_of_the_console_holds_messages_back(self, sim, line, taro):
        sim.reserve_quota(3)
        refused = line.push(taro.user_id)
        assert (refused.status_code, refused.json()) == (
            429,
            {"message": "You have reached your monthly limit."},
        )
        assert line.multicast([taro.user_id]).status_code == 429
        assert line.get("/v2/bot/message/quota/consumption").json() == {"totalUsage": 0}
        assert line.reply(token_of(sim.say(taro, "やあ"))).status_code == 200
        sim.reserve_quota(0)
        sim.spend_quota(2)
        assert line.get("/v2/bot/message/quota/consumption").json() == {"totalUsage": 2}
        assert [line.push(taro.user_id).status_code for _ in range(2)] == [200, 429]

    def test_a_new_month_begins_anew(self, line, taro, clock):
        for _ in range(3):
            line.push(taro.user_id)
        clock.advance(31 * 24 * 3600)
        assert line.push(taro.user_id).status_code == 200


def test_profiles(sim, line, taro):
    group, room = sim.add_group("家族", [taro]), sim.add_group("皆", [taro], kind="room")
    own = line.get(f"/v2/bot/profile/{taro.user_id}").json()
    assert (own["displayName"], own["language"]) == ("太郎", "ja")
    for place in (f"group/{group.chat_id}", f"room/{room.chat_id}"):
        member = line.get(f"/v2/bot/{place}/member/{taro.user_id}").json()
        assert (member["displayName"], member["userId"]) == ("太郎", taro.user_id)
    assert line.get(f"/v2/bot/group/{group.chat_id}/summary").json()["groupName"] == "家族"


def test_the_loading_animation_is_for_friends_in_1_to_1_chats_and_ends_with_a_message(
    sim, line, taro, hanako
):
    def start(chat, **more):
        return line.post("/v2/bot/chat/loading/start", {"chatId": chat, **more}).status_code

    group, stranger = sim.add_group("皆", [taro]), sim.add_user("知らない人", friend=False)
    sim.block(hanako)
    sim.say(stranger, "やあ")
    assert [start(one.user_id) for one in (stranger, hanako)] == [202, 202]
    refused = [start(one) for one in ("C1", group.chat_id)]
    refused += [start(taro.user_id, loadingSeconds=seconds) for seconds in (0, 7, 65)]
    assert refused == [400] * 5
    assert not any(sim.sees_loading(user) for user in (taro, stranger, hanako))
    assert start(taro.user_id) == 202
    sim.say(taro, "まだ？")
    sim.advance(19)
    assert sim.sees_loading(taro)
    sim.advance(1)
    assert not sim.sees_loading(taro)
    start(taro.user_id, loadingSeconds=60)
    line.push(group.chat_id)
    assert sim.sees_loading(taro)
    line.push(taro.user_id)
    assert not sim.sees_loading(taro)


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
