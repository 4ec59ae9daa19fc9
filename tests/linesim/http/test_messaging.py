"""Messages to many, LINE's numbers of them, lists, read marks, account linking and coupons."""

import logging
import uuid

import pytest
import requests

from linesim.model.errors import NotPossible, UnknownChat
from linesim.model.media import sample
from tests.line_openapi import check_event
from tests.linesim.conftest import messages

DAY = 24 * 3600
COUPON = {
    "title": "百円引き",
    "acquisitionCondition": {"type": "normal"},
    "reward": {"type": "discount", "priceInfo": {"type": "fixed", "fixedAmount": 100}},
    "startTimestamp": 0,
    "timezone": "ASIA_TOKYO",
    "visibility": "UNLISTED",
    "maxUseCountPerTicket": 1,
}
MALE = {"type": "gender", "oneOf": ["male"]}
LONG = {"type": "subscriptionPeriod", "gte": "day_30"}


def told(answer):
    return answer.status_code, answer.json().get("message")


def narrowcast(line, key=None, **more):
    body = {"messages": messages("皆様へ"), **more}
    return line.post("/v2/bot/message/narrowcast", body, retry_key=key)


def progress(line, sent):
    path = "/v2/bot/message/progress/narrowcast?requestId="
    return line.get(path + sent.headers["x-line-request-id"]).json()


class TestToMany:
    def test_a_broadcast_reaches_all_friends_once_for_a_key(self, sim, line, taro, hanako):
        sim.block(hanako)
        body, key = {"messages": messages("全員へ")}, str(uuid.uuid4())
        answers = [line.post("/v2/bot/message/broadcast", body, retry_key=key) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 409]
        assert [len(sim.answers(user)) for user in (taro, hanako)] == [1, 0]
        assert line.get("/v2/bot/message/quota/consumption").json() == {"totalUsage": 1}

    def test_a_narrowcast_goes_through_its_phases_by_the_clock(self, sim, line, taro, clock):
        key = str(uuid.uuid4())
        sent = narrowcast(line, key)
        assert (sent.status_code, narrowcast(line, key).status_code) == (202, 409)
        seen = []
        for _ in range(3):
            seen.append(progress(line, sent))
            clock.advance(1)
        assert [one["phase"] for one in seen] == ["waiting", "sending", "succeeded"]
        assert [one.get("successCount") for one in seen] == [None, 0, 1]
        assert [bubble.text for bubble in sim.answers(taro)] == ["皆様へ"]
        clock.advance(14 * DAY)
        assert progress(line, sent) == {"message": "Not found"}

    def test_it_goes_to_whom_an_earlier_one_reached_or_not(self, sim, line, taro, hanako, clock):
        first = narrowcast(line, limit={"max": 1})
        again = {"type": "redelivery", "requestId": first.headers["x-line-request-id"]}
        assert told(narrowcast(line, recipient=again))[0] == 400
        clock.advance(2)
        narrowcast(line, recipient={"type": "operator", "not": again})
        assert [len(sim.answers(user)) for user in (taro, hanako)] == [1, 1]
        narrowcast(line, recipient={"type": "operator", "and": [again, again]})
        assert sorted(len(sim.answers(user)) for user in (taro, hanako)) == [1, 2]
        unknown = {"type": "redelivery", "requestId": "x"}
        assert told(narrowcast(line, recipient=unknown)) == (400, "Invalid request id: x")
        audience = {"type": "audience", "audienceGroupId": 7}
        assert told(narrowcast(line, recipient=audience)) == (400, "Invalid audience group id: 7")

    def test_attributes_need_100_friends_and_50_recipients(self, sim, line, clock):
        old = [sim.add_user(str(number)) for number in range(99)]
        few = (403, "Your account does not have enough friends")
        assert told(narrowcast(line, filter={"demographic": MALE})) == few
        clock.advance(30 * DAY)
        new = sim.add_user("新")
        wanted = (
            *(LONG, {"type": "operator", "or": [MALE, LONG]}),
            *({"type": "operator", "not": MALE}, {"type": "operator", "not": LONG}),
        )
        sent = [narrowcast(line, filter={"demographic": one}) for one in wanted]
        clock.advance(2)
        seen = [progress(line, one) for one in sent]
        assert [one["phase"] for one in seen] == ["succeeded"] * 2 + ["failed"] * 2
        assert [one.get("errorCode") for one in seen] == [None, None, 2, 2]
        assert [len(sim.answers(user)) for user in (old[0], new)] == [2, 0]

    @pytest.mark.parametrize("sim", [{"quota": 2}], indirect=True)
    def test_limits_and_the_quota(self, sim, line, clock):
        users = [sim.add_user(str(number)) for number in range(3)]
        assert narrowcast(line, limit={"forbidPartialDelivery": True}).status_code == 400
        up_to = {"upToRemainingQuota": True}
        limits = ({}, up_to | {"forbidPartialDelivery": True}, up_to, up_to)
        sent = [narrowcast(line, limit=limit) for limit in limits]
        assert [one.status_code for one in sent] == [202, 202, 202, 429]
        clock.advance(2)
        assert [progress(line, one).get("errorCode") for one in sent[:3]] == [1, 5, None]
        assert sum(len(sim.answers(user)) for user in users) == 2


class TestNumbers:
    def test_a_day_is_counted_once_it_has_ended_in_japan(self, sim, line, taro, hanako, clock):
        line.reply(sim.say(taro, "やあ").events[0]["replyToken"])
        line.push(taro.user_id, "1", "2")
        line.multicast([taro.user_id, hanako.user_id])
        line.post("/v2/bot/message/broadcast", {"messages": messages("皆")})
        sim.block(hanako)
        narrowcast(line)
        today, ways = sim.platform.sent.today, ("reply", "push", "multicast", "broadcast")
        paths = [f"/v2/bot/message/delivery/{way}?date=" for way in ways]
        assert line.get(paths[0] + today).json() == {"status": "unready"}
        assert line.get(paths[0] + "20180330").json() == {"status": "out_of_service"}
        assert told(line.get(paths[0] + "20180231"))[0] == 400
        clock.advance(DAY)
        sim.add_user("後")
        assert [line.get(path + today).json()["success"] for path in paths] == [1, 1, 2, 2]
        sent = line.get(f"/v2/bot/insight/message/delivery?date={today}").json()
        assert (sent["apiPush"], sent["apiNarrowcast"]) == (1, 1)
        friends = line.get(f"/v2/bot/insight/followers?date={today}").json()
        assert [*friends.values()] == ["ready", 2, 1, 1]
        assert told(line.get("/v2/bot/insight/followers")) == (400, "date is required")

    def test_units_of_a_month(self, line, taro, clock):
        info, names = (f"/v2/bot/message/aggregation/{name}" for name in ("info", "list"))
        body = {"to": taro.user_id, "messages": messages("x")}
        for unit in ("b", "a", "b"):
            line.post("/v2/bot/message/push", body | {"customAggregationUnits": [unit]})
        assert line.get(info).json() == {"numOfCustomAggregationUnits": 2}
        first = line.get(f"{names}?limit=1").json()
        after = f"{names}?start={first['next']}"
        assert first["customAggregationUnits"] == ["b"]
        assert line.get(after).json() == {"customAggregationUnits": ["a"]}
        clock.advance(DAY)
        assert told(line.get(after)) == (400, "Invalid start param")
        clock.advance(31 * DAY)
        assert line.get(info).json() == {"numOfCustomAggregationUnits": 0}


def test_friends_and_members_come_in_pages(sim, line):
    users = [sim.add_user(str(number)) for number in range(101)]
    sim.block(users[0])
    group, ids = sim.add_group("皆", users), [user.user_id for user in users]
    pages = (
        ("/v2/bot/followers/ids?limit=99", "userIds", ids[1:100], ids[100:]),
        (f"/v2/bot/group/{group.chat_id}/members/ids?", "memberIds", ids[:100], ids[100:]),
    )
    for path, key, *expected in pages:
        first = line.get(path).json()
        assert [first[key], line.get(f"{path}&start={first['next']}").json()[key]] == expected
    assert told(line.get("/v2/bot/followers/ids?limit=1001"))[0] == 400
    assert told(line.get("/v2/bot/followers/ids?start=x")) == (400, "Invalid start param")


@pytest.mark.parametrize("kind", ["group", "room"])
def test_a_bot_leaves_and_gets_the_event(sim, line, bot, taro, kind):
    group = sim.add_group("皆", [taro], kind=kind)
    path = f"/v2/bot/{kind}/{group.chat_id}/leave"
    bare = line.session.post(sim.url + path, timeout=10)
    assert (bare.status_code, bare.json(), sim.settle()) == (200, {}, True)
    event = bot.last.events[0]
    assert (event["type"], event["source"][f"{kind}Id"]) == ("leave", group.chat_id)
    check_event(event)
    assert line.post(path, {}).status_code == 404


@pytest.mark.parametrize("sim", [{}, {"chat_mode": "chat"}], indirect=True, ids=["bot", "chat"])
def test_with_chat_on_the_bot_marks_what_is_read(sim, line, taro):
    def read():
        return [bubble.read for bubble in sim.chat(taro) if bubble.speaker == "user"]

    said, mode = [sim.say(taro, text) for text in "123"], line.get("/v2/bot/info").json()
    is_auto = mode["markAsReadMode"] == "auto"
    assert (mode["chatMode"], read()) == ("bot" if is_auto else "chat", [is_auto] * 3)
    token = said[1].events[0]["message"]["markAsReadToken"]
    assert line.post("/v2/bot/chat/markAsRead", {"markAsReadToken": token}).ok
    assert read() == [True, True, is_auto]
    assert line.post("/v2/bot/message/markAsRead", {"chat": {"userId": taro.user_id}}).ok
    assert read() == [True] * 3
    wrong = line.post("/v2/bot/chat/markAsRead", {"markAsReadToken": "x"})
    assert told(wrong)[1].startswith("Invalid markAsReadToken.")


def act_out(sim, *acts):
    answer = requests.post(f"{sim.url}/sim/deliveries", json={"acts": acts}, timeout=10)
    return answer.json()["events"]


class TestEvents:
    def test_accounts_are_linked_once_within_ten_minutes(self, sim, line, taro, hanako, clock):
        def token():
            return line.post(f"/v2/bot/user/{taro.user_id}/linkToken", {}).json()["linkToken"]

        nonce, first, other, old = "n" * 16, token(), token(), token()
        linked = sim.drafts.account_link(taro, first, nonce)
        check_event(linked)
        assert linked["link"] == {"result": "ok", "nonce": nonce}
        assert line.reply(sim.deliver(linked).events[0]["replyToken"]).ok
        failed = sim.drafts.account_link(hanako, other, nonce)
        assert failed["link"]["result"] == "failed"
        assert not {"source", "replyToken"} & failed.keys()
        assert sim.deliver(failed).delivered
        for wrong, later in ((first, 599), ("x", 1), (old, 0)):
            with pytest.raises(NotPossible):
                sim.drafts.account_link(taro, wrong, nonce)
            clock.advance(later or 1)

    def test_a_video_is_seen_to_its_end_and_a_beacon_met(self, sim, line, taro):
        with pytest.raises(UnknownChat):
            sim.drafts.video_play_complete(taro, "t1")
        url = "https://example.com/1"
        video = {"type": "video", "originalContentUrl": url, "previewImageUrl": url}
        body = {"to": taro.user_id, "messages": [video | {"trackingId": "t1"}]}
        line.post("/v2/bot/message/push", body)
        seen, near = act_out(
            sim,
            {"act": "videoPlayComplete", "user": taro.user_id, "tracking": "t1"},
            {"act": "beacon", "user": taro.user_id, "beacon": "stay", "dm": "0a"},
        )
        assert seen["videoPlayComplete"] == {"trackingId": "t1"}
        assert near["beacon"] == {"hwid": "d41d8cd98f", "type": "stay", "dm": "0a"}
        for event in (seen, near):
            check_event(event)
            assert line.reply(event["replyToken"]).ok

    @pytest.mark.parametrize(
        ("fails", "ended", "then"), [(False, "succeeded", 200), (True, "failed", 404)]
    )
    def test_a_video_is_prepared_first_and_that_may_fail(
        self, sim, line, taro, clock, fails, ended, then
    ):
        act = {"act": "video", "user": taro.user_id, "preparing_seconds": 1, "fails": fails}
        (event,) = act_out(sim, act)
        path = f"/v2/bot/message/{event['message']['id']}/content"
        assert line.get(f"{path}/transcoding").json() == {"status": "processing"}
        assert line.get(path).status_code == 202
        clock.advance(1)
        assert line.get(f"{path}/transcoding").json() == {"status": ended}
        shown, preview = line.get(path), line.get(f"{path}/preview")
        assert (shown.status_code, preview.content) == (then, sample("image").data)
        assert (shown.content == sample("video").data) is not fails


def test_coupons_are_kept_listed_and_closed(sim, line, clock):
    path, now = "/v2/bot/coupon", int(clock.time())
    assert line.post(path, COUPON | {"endTimestamp": now}).status_code == 400
    ends = [{"endTimestamp": now + DAY * days} for days in (1, 2, 3)]
    made = [line.post(path, COUPON | end).json()["couponId"] for end in ends]
    assert line.get(f"{path}/{made[0]}").json()["reward"]["priceInfo"]["currency"] == "JPY"
    closed = [line.put(f"{path}/{made[1]}/close", {}).status_code for _ in range(2)]
    assert closed == [200, 410]

    def listed(query):
        answer = line.get(f"{path}?{query}").json()
        return [one["couponId"] for one in answer["items"]], answer.get("next")

    first, start = listed("limit=1")
    assert [*first, *listed(f"start={start}")[0]] == made[::-1]
    clock.advance(DAY)
    assert listed("status=DRAFT,RUNNING")[0] == made[2:]
    assert listed("status=CLOSED&status=DRAFT")[0] == made[1::-1]
    wrong = [line.get(path + one) for one in ("?limit=101", "?status=X", "/x")]
    assert [answer.status_code for answer in wrong] == [400, 400, 404]


def test_what_is_not_here_is_named_in_the_log(line, caplog):
    line.get("/v2/bot/membership/list")
    line.post("/bot/pnp/push", {})
    assert [record.args[1] for record in caplog.records if record.levelno == logging.WARNING] == [
        "/v2/bot/membership/list",
        "/bot/pnp/push",
    ]
